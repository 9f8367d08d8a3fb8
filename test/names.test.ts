import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";

// The names postern, postern-kubernetes and create-postern aren't claimed in npm's registry, so a command that fetches
// one would run a stranger's code. SECURITY.md says so. With the first release, the pages may name the packages, and
// this test ends.

const root = fileURLToPath(new URL("..", import.meta.url));
/** Matches commands that fetch a package to install it or to run it. */
const fetching =
  /\b(?:(?:npm|pnpm|yarn|bun)(?:\s+--?[\w-]+)*\s+(?:create|init|install|i|in|ins|add|exec|x|dlx)|(?:npx|bunx|pnpx)(?=[^;&|`]*\s-|\s+create-|\s+postern@))\b[^;&|`]*?/;
/** Matches one of the unclaimed names, but not in a path or in a longer name. */
const named = /(?<![\w./@-])(?:create-)?postern(?:-kubernetes)?(?![\w/-]|\.\w)/;
const fetchesName = new RegExp(`${fetching.source}${named.source}|\\bnpm create\\b|@latest\\b`);

/** Returns the possible commands in a text: its lines, with continued lines joined, and what is in backquotes. */
const listCommands = (text: string): string[] => {
  const quoted = [...text.matchAll(/`([^`]+)`/g)].map(([, quotation = ""]) => quotation.replace(/\s*\n[\s/*#]*/g, " "));
  return [...text.replace(/\\\n\s*/g, " ").split("\n"), ...quoted];
};

const findFetchingCommands = (text: string): string[] =>
  listCommands(text)
    // `npx postern check -o json` runs the installed postern: its options are those of postern, not of npx.
    .map((command) => command.replace(/\bnpx postern(?= [a-z])[^`;&|]*/g, ""))
    .filter((command) => fetchesName.test(command));

describe("no page and no message shows a command that fetches a package with an unclaimed name", () => {
  const files = globSync("{*,docs/**/*,functions/**/*,infra/**/*,lib/**/*,test/**/*.md,.github/**/*,.ci/*,.npmrc}", {
    cwd: root,
    exclude: ["node_modules", "**/node_modules/**", "dist", "package-lock.json", "postern.yaml", ".git"],
    withFileTypes: true,
  }).filter((entry) => entry.isFile() && !/\.(?:png|wasm|gz|test\.ts)$/.test(entry.name));

  it("no file shows a command that fetches a package with an unclaimed name", () => {
    assert.ok(files.length > 500);
    const found = files.flatMap(({ parentPath, name }) =>
      findFetchingCommands(readFileSync(join(parentPath, name), "utf8")).map((command) => `${name}: ${command.trim()}`),
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
    "npx osls@latest package",
  ])
    it(`the search finds ${JSON.stringify(command)}`, () => assert.notDeepEqual(findFetchingCommands(command), []));

  for (const command of [
    "npx postern check pod.yaml -o json",
    "npm install ./postern-*.tgz",
    "npx --yes ./dist/packages/create-postern-0.1.0.tgz ../my-rules",
    "npm install && npx postern new NAME",
    "npm install --save-dev osls",
    "`npm install` in postern",
  ])
    it(`the search skips ${JSON.stringify(command)}`, () => assert.deepEqual(findFetchingCommands(command), []));
});
