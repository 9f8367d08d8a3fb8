import { createHash } from "node:crypto";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { parse } from "acorn";
import { build, type Metafile, type Plugin, transform } from "esbuild";
import type { Share } from "#lib/endpoint.ts";
import type { Phase } from "#lib/rule.ts";
import { Complaint } from "./complaint.ts";
import type { Listed } from "./registry.ts";
import { zip } from "./zip.ts";

/** A rule as one file, ready for Lambda. */
export interface Bundle {
  name: string;
  summary: string;
  phases: Phase[];
  /** The longest that a webhook entry of this rule waits. */
  timeoutSeconds: number;
  bytes: number;
  /** SHA-256, base64url. */
  hash: string;
  /** SHA-256 of the zip, base64, as Lambda tells it. */
  codeSha256: string;
}

const root = fileURLToPath(new URL("..", import.meta.url));

/** Every kilobyte is read at a cold start: 20 for a rule, 60 for one that asks the world, 3 more for each of a group. */
const budgetOf = ({ rule, members = [] }: Listed) =>
  ((Object.keys(rule.needs ?? {}).length > 0 ? 60 : 20) + 3 * members.length) * 1024;

/**
 * Bundles a rule with its share of postern.yaml into `<outDir>/<name>/index.cjs`, and that into `<outDir>/<name>.zip`.
 * CommonJS, for an ES module that imports a built-in loads far more of Node at every cold start. The same rule and share
 * give the same bytes anywhere.
 */
export const bundle = async (
  listed: Listed,
  share: Share,
  outDir: string,
  budget = budgetOf(listed),
): Promise<Bundle> => {
  const { name, phases, rule } = listed;
  const rules = listed.members ?? [listed];
  const { outputFiles, metafile } = await build({
    stdin: { contents: entry(listed, share), resolveDir: root, sourcefile: "entry.js" },
    absWorkingDir: root,
    bundle: true,
    write: false,
    metafile: true,
    outfile: "index.cjs",
    format: "cjs",
    platform: "node",
    target: "node24",
    minify: true,
    legalComments: "none",
    plugins: [spared(listed), decisionOnly(rules.map(fileOf))],
    logLevel: "silent",
    logOverride: { "commonjs-variable-in-esm": "silent" },
  }).catch((failure: Error) => {
    throw new Complaint(`${placeOf(listed)} can't be bundled: ${failure.message}`);
  });
  const [{ contents } = { contents: new Uint8Array() }] = outputFiles;
  // What postern.yaml puts in is the user's to spend.
  const code = contents.length - Buffer.byteLength(JSON.stringify(share));
  if (code > budget) throw new Complaint(overBudget(placeOf(listed), code, budget, metafile));

  const archive = zip("index.cjs", contents);
  await mkdir(join(outDir, name), { recursive: true });
  await writeFile(join(outDir, name, "index.cjs"), contents);
  await writeFile(join(outDir, `${name}.zip`), archive);
  return {
    name,
    summary: rule.summary,
    phases,
    timeoutSeconds: rule.timeoutSeconds ?? 3,
    bytes: contents.length,
    hash: createHash("sha256").update(contents).digest("base64url"),
    codeSha256: createHash("sha256").update(archive).digest("base64"),
  };
};

/**
 * The share is parsed, not written as a literal: there `"__proto__"` would set a prototype. `module.exports` instead of
 * an export spares esbuild's export helpers.
 */
const entry = (listed: Listed, share: Share) => {
  const parsed = `JSON.parse(${JSON.stringify(JSON.stringify(share))})`;
  if (!listed.members)
    return `
import rule from ${specifier(fileOf(listed))};
import { endpoint } from ${specifier(join(root, "lib/endpoint.ts"))};
module.exports = { handler: endpoint(rule, ${parsed}) };
`;
  return `
${listed.members.map((member, index) => `import rule${index} from ${specifier(fileOf(member))};`).join("\n")}
import { group } from ${specifier(join(root, "lib/group.ts"))};
const members = { ${listed.members.map(({ name }, index) => `"${name}": rule${index}`).join(", ")} };
module.exports = { handler: group(members, ${parsed}) };
`;
};

const fileOf = ({ folder }: Listed) => join(folder, "rule.ts");
const placeOf = ({ name, members }: Listed) => (members ? `the group ${name}` : `functions/${name}`);

const specifier = (file: string) => JSON.stringify(`./${relative(root, file)}`.replaceAll("\\", "/"));

/** Left out of a bundle: drafts where a rule only validates, the world and its delays where it needs nothing of it. */
const spared = ({ phases, rule }: Listed): Plugin => ({
  name: "spared",
  setup({ onLoad }) {
    if (!phases.includes("mutate"))
      onLoad({ filter: /[\\/]lib[\\/]patch\.ts$/ }, () => ({ contents: "export const draft = undefined;" }));
    if (Object.keys(rule.needs ?? {}).length === 0)
      onLoad({ filter: /[\\/]lib[\\/]needs\.ts$/ }, () => ({
        contents: `export const bind = undefined, recorded = undefined, unconnected = undefined;
          export const inTime = (answer) => answer;`,
      }));
  },
});

/** What only a webhook entry or postern.yaml asks of a rule; what these use goes with them. */
const forEntries = new Set([
  ...["summary", "order", "twin", "match", "matchConditions", "authorizedBy", "namespaceSelector", "objectSelector"],
  ...["matchPolicy", "guards", "timeoutSeconds", "sideEffects", "checkSettings", "exemptionRequired"],
]);

/** Of `export default rule({ … })`, what decides: its functions, its settings and its needs. */
const decisionOnly = (files: string[]): Plugin => ({
  name: "decision-only",
  setup({ onLoad }) {
    onLoad({ filter: /[\\/]rule\.ts$/ }, async ({ path }) => {
      if (!files.includes(path)) return undefined;
      const { code } = await transform(await readFile(path, "utf8"), { loader: "ts", target: "node24" });
      const { body } = parse(code, { ecmaVersion: "latest", sourceType: "module" });
      const exported = body.find((statement) => statement.type === "ExportDefaultDeclaration")?.declaration;
      const literal = exported?.type === "CallExpression" ? exported.arguments[0] : undefined;
      if (literal?.type !== "ObjectExpression") return { contents: code };
      const kept = literal.properties.filter(
        (member) =>
          member.type === "SpreadElement" || member.key.type !== "Identifier" || !forEntries.has(member.key.name),
      );
      const members = kept.map(({ start, end }) => code.slice(start, end)).join(",\n");
      return { contents: `${code.slice(0, literal.start)}{${members}}${code.slice(literal.end)}` };
    });
  },
});

const overBudget = (place: string, bytes: number, budget: number, { outputs }: Metafile): string => {
  const inputs = Object.values(outputs).flatMap((output) => Object.entries(output.inputs));
  const largest = inputs.sort(([, one], [, other]) => other.bytesInOutput - one.bytesInOutput).slice(0, 3);
  const list = largest.map(([file, { bytesInOutput }]) => `${file} (${bytesInOutput})`).join(", ");
  return `${place} has a bundle of ${bytes} bytes without its settings, over its budget of ${budget}; the largest inputs are ${list}`;
};
