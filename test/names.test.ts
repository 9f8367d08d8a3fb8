import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";

// The names postern, postern-kubernetes and create-postern aren't claimed in npm's registry: Postern's authors haven't
// published packages there. A command that downloads a package of such a name would run a stranger's code. SECURITY.md
// says so. With the first release, the pages may name the packages, and this test ends.

const root = fileURLToPath(new URL("..", import.meta.url));
/**
 * Matches commands that download a package to install it or to run it. A plain `npx postern` runs the installed
 * package; with an option before the name, with create- or with a version, npx downloads it.
 */
const download =
  /\b(?:(?:npm|pnpm|yarn|bun)(?:\s+--?[\w-]+)*\s+(?:create|init|install|i|in|ins|add|exec|x|dlx)|(?:npx|bunx|pnpx)(?=[^;&|`]*\s-|\s+create-|\s+postern@))\b[^;&|`]*?/;
/** Matches one of the unclaimed names, but not in a path or in a longer name. */
const unclaimedName = /(?<![\w./@-])(?:create-)?postern(?:-kubernetes)?(?![\w/-]|\.\w)/;
/** Also matches each command that downloads the newest version of a package, by @latest or npm create. */
const unsafeDownload = new RegExp(`${download.source}${unclaimedName.source}|\\bnpm create\\b|@latest\\b`);

/** Returns the possible commands in a text: its lines, with continued lines joined, and what is in backquotes. */
const listCommands = (text: string): string[] => {
  const quoted = [...text.matchAll(/`([^`]+)`/g)].map(([, quotation = ""]) => quotation.replace(/\s*\n[\s/*#]*/g, " "));
  return [...text.replace(/\\\n\s*/g, " ").split("\n"), ...quoted];
};

/** Returns the commands that download Postern's packages, which npm doesn't have, or a package's newest version. */
const findUnsafeDownloads = (text: string): string[] =>
  listCommands(text)
    // Drops `npx postern check -o json`, which runs the installed postern. `unsafeDownload` would match it: npx
    // downloads if an option such as `-y` is before the name, and the pattern takes postern's `-o` for such an option.
    .map((command) => command.replace(/\bnpx postern(?= [a-z])[^`;&|]*/g, ""))
    .filter((command) => unsafeDownload.test(command));

describe("no page and no message shows a command that downloads a package with an unclaimed name", () => {
  const files = globSync("{*,docs/**/*,functions/**/*,infra/**/*,lib/**/*,test/**/*.md,.github/**/*,.ci/*,.npmrc}", {
    cwd: root,
    exclude: ["node_modules", "**/node_modules/**", "dist", "package-lock.json", "postern.yaml", ".git"],
    withFileTypes: true,
  }).filter((entry) => entry.isFile() && !/\.(?:png|wasm|gz|test\.ts)$/.test(entry.name));

  it("no file shows a command that downloads a package with an unclaimed name", () => {
    assert.ok(files.length > 500);
    const found = files.flatMap(({ parentPath, name }) =>
      findUnsafeDownloads(readFileSync(join(parentPath, name), "utf8")).map((command) => `${name}: ${command.trim()}`),
    );
    assert.deepEqual(found, []);
  });

  for (const command of [
    "npm create postern my-rules",
    "run npm init postern",
    "npm install postern",
    "npm install --save-dev postern@0.1.0",
    "npm install @acme/rules postern",
    "npm install postern-kubernetes",
    "`npm install\n// postern@VERSION` upgrades",
    "npm install \\\n  postern",
    "pnpm dlx postern check",
    "yarn add postern.",
    "npm --yes exec postern",
    "npx create-postern my-rules",
    "npx postern@latest check",
    "npx --yes postern check",
    "npx -p postern postern check",
    // osls isn't an unclaimed name, but its newest version may be one that Postern wasn't tested with.
    "npx osls@latest package",
  ])
    it(`the search finds ${JSON.stringify(command)}`, () => assert.notDeepEqual(findUnsafeDownloads(command), []));

  for (const command of [
    "npx postern check pod.yaml -o json",
    "npm install ./postern-*.tgz",
    "npx --yes ./dist/packages/create-postern-0.1.0.tgz ../my-rules",
    "npm install && npx postern new NAME",
    "npm install --save-dev osls",
    "`npm install` in postern",
  ])
    it(`the search skips ${JSON.stringify(command)}`, () => assert.deepEqual(findUnsafeDownloads(command), []));
});
