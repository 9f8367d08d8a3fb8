import { createHash } from "node:crypto";
import { realpathSync } from "node:fs";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { parse } from "acorn";
import { build, type Metafile, type Plugin, transform } from "esbuild";
import type { Connection } from "#lib/cluster/live.ts";
import type { Mode } from "#lib/decide.ts";
import type { Share } from "#lib/endpoint.ts";
import { type AwsAction, asksCluster, type SecretPlace } from "#lib/needs.ts";
import type { Places } from "#lib/recording/bucket-handler.ts";
import type { Phase, Rule } from "#lib/rule.ts";
import type { Listed } from "../catalogue/registry.ts";
import { Complaint } from "../cli/complaint.ts";
import { writtenBelow } from "../config/record-section.ts";
import { longestTimeoutOf } from "../webhooks/entry.ts";
import { cueFiles, placeBeside } from "./cue.ts";
import { contentsOf, zip } from "./zip.ts";

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
  /** The same of what is left without its share of postern.yaml. */
  logic: string;
  /** SHA-256 of the zip, base64, as Lambda tells it. */
  codeSha256: string;
  /** Whether it asks a cluster anything. */
  asks: boolean;
  /** Whether it evaluates scripts, which takes memory. */
  scripts: boolean;
  /** Where it reads the tokens for that. */
  tokens: SecretPlace[];
  /** What it does in AWS by its own role. */
  actions: AwsAction[];
  /** Where it writes what it records, as `BUCKET/PREFIX`. */
  records: string[];
  /** The clusters and their key versions, such as `prod-eu.1`. */
  accepts: string[];
}

const root = fileURLToPath(new URL("../..", import.meta.url));

/**
 * Every kilobyte is read at a cold start: 20 for a rule, 60 for one that asks the world, 95 for one that runs what others
 * wrote, 3 more for each of a group. What records reviews brings along what writes them down.
 */
const budgetOf = (listed: Listed, places: Places) =>
  ((runsScripts(listed) ? 95 : asksOf(listed) ? 60 : 20) +
    3 * (listed.members?.length ?? 0) +
    recording(listed, places)) *
  1024;

/** Less for one that brings the way out of Lambda anyway. */
const recording = (listed: Listed, places: Places) => (!records(places) ? 0 : asksOf(listed) ? 16 : 24);

const runsScripts = ({ rule }: Listed) => Object.values(rule.needs ?? {}).some(({ verb }) => verb === "cue");

/** Whether it records any cluster's reviews. */
const records = (places: Places) => Object.keys(places).length > 0;

/** Whether it asks a cluster anything. */
const asksOf = ({ rule }: Listed) => Object.keys(rule.needs ?? {}).length > 0;

/**
 * Bundles a rule with its share of postern.yaml into `<outDir>/<name>/index.cjs`, and that into `<outDir>/<name>.zip`; the
 * share alone is in `<outDir>/<name>/settings.json`.
 * CommonJS, for an ES module that imports a built-in loads far more of Node at every cold start. The same rule and share
 * give the same bytes anywhere.
 */
export const bundle = async (
  listed: Listed,
  share: Share,
  outDir: string,
  chosen?: number,
  connections: Record<string, Connection> = {},
  places: Places = {},
): Promise<Bundle> => {
  const budget = chosen ?? budgetOf(listed, places);
  const { name, phases, rule } = listed;
  const rules = listed.members ?? [listed];
  const { outputFiles, metafile } = await build({
    stdin: { contents: entry(listed, share, connections, places), resolveDir: root, sourcefile: "entry.js" },
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
    plugins: [spared(listed, records(places)), decisionOnly(rules.map(fileOf)), cueBeside],
    logLevel: "silent",
    logOverride: { "commonjs-variable-in-esm": "silent" },
  }).catch((failure: Error) => {
    throw new Complaint(`${placeOf(listed)} can't be bundled: ${failure.message}`);
  });
  const [{ contents } = { contents: new Uint8Array() }] = outputFiles;
  // What postern.yaml puts in is the user's to spend.
  const given = [share, ...(asksOf(listed) ? [connections] : []), ...(records(places) ? [places] : [])];
  const code = contents.length - Buffer.byteLength(given.map((one) => JSON.stringify(one)).join(""));
  if (code > budget) throw new Complaint(overBudget(placeOf(listed), code, budget, metafile));

  const scripts = usesScripts(listed, share);
  const files = { "index.cjs": contents, ...(scripts && (await cueFiles())) };
  const archive = zip(files);
  await mkdir(join(outDir, name), { recursive: true });
  for (const [file, one] of Object.entries(files)) await writeFile(join(outDir, name, file), contentsOf(one));
  // For replay, which must know the settings that the code has in it. Lambda has no use for the file: it isn't zipped.
  await writeFile(join(outDir, name, "settings.json"), JSON.stringify(share));
  await writeFile(join(outDir, `${name}.zip`), archive);
  return {
    name,
    summary: rule.summary,
    phases,
    timeoutSeconds: longestTimeoutOf(rule),
    bytes: contents.length,
    hash: createHash("sha256").update(contents).digest("base64url"),
    logic: createHash("sha256").update(withoutShare(contents, given)).digest("base64url"),
    codeSha256: createHash("sha256").update(archive).digest("base64"),
    asks: asksCluster(rule),
    scripts,
    tokens: tokensOf(Object.values(connections), secretsOf(listed, share)),
    actions: Object.values(rule.needs ?? {}).flatMap(({ action }) => action ?? []),
    records: writtenBelow(places),
    accepts: Object.entries(share.clusters).flatMap(([cluster, { keyVersions }]) =>
      keyVersions.map((version) => `${cluster}.${version}`),
    ),
  };
};

/** What postern.yaml put in stands in the code as a text of JSON, in quotes of either kind. */
const withoutShare = (contents: Uint8Array, given: object[]): string =>
  given.reduce((code: string, one) => {
    const text = JSON.stringify(one);
    return code.replace(text, "").replace(JSON.stringify(text).slice(1, -1), "");
  }, Buffer.from(contents).toString());

/**
 * The share is parsed, not written as a literal: there `"__proto__"` would set a prototype. `module.exports` instead of
 * an export spares esbuild's export helpers.
 */
const entry = (listed: Listed, share: Share, connections: Record<string, Connection>, places: Places) => {
  const members = listed.members ?? [listed];
  const rules = members.map(({ name }, index) => `"${name}": rule${index}`);
  const [what, of] = listed.members ? ["group", `{ ${rules.join(", ")} }`] : ["endpoint", "rule0"];
  const asks = asksOf(listed);
  const host = `lambda(${asks ? `worlds(${parsed(connections)})` : ""})`;
  const isRecorded = records(places);
  const made = (...around: string[]) => `${what}(${[of, parsed(share), ...around].join(", ")})`;
  const handler = isRecorded
    ? `stored(${parsed(places)}, ${host}, (host, judge) => ${made("host", "judge")})`
    : made(...(asks ? [host] : []));
  return [
    ...members.map((member, index) => `import rule${index} from ${specifier(fileOf(member))};`),
    `import { ${what} } from ${specifier(join(root, "lib", `${what}.ts`))};`,
    ...(asks || isRecorded ? [`import { lambda } from ${specifier(join(root, "lib/endpoint.ts"))};`] : []),
    ...(asks ? [`import { worlds } from ${specifier(join(root, "lib/cluster/live.ts"))};`] : []),
    ...(isRecorded ? [`import { stored } from ${specifier(join(root, "lib/recording/bucket-handler.ts"))};`] : []),
    ...(startsScripts(listed, share)
      ? [`import { warm } from ${specifier(join(root, "lib/cue/engine.ts"))};`, "warm();"]
      : []),
    `module.exports = { handler: ${handler} };`,
  ].join("\n");
};

const parsed = (value: unknown) => `JSON.parse(${JSON.stringify(JSON.stringify(value))})`;

/** Each once. */
const tokensOf = (connections: Connection[], others: SecretPlace[]): SecretPlace[] => {
  const places = connections.flatMap(({ credentials }) =>
    "secret" in credentials || "parameter" in credentials ? [credentials] : [],
  );
  return [...new Map([...places, ...others].map((place) => [JSON.stringify(place), place])).values()];
};

/** What its settings name, wherever it is on. */
const secretsOf = (listed: Listed, share: Share): SecretPlace[] =>
  needsIn(listed, share).flatMap(({ need, settings }) => need.secrets?.(settings) ?? []);

/** Whether CUE must go along for any cluster's sake. */
const usesScripts = (listed: Listed, share: Share): boolean =>
  needsIn(listed, share).some(({ need, settings }) => need.verb === "cue" && (need.isUsed?.(settings) ?? true));

/** Whether CUE is started with it, so that the first script needn't wait for all of that. */
const startsScripts = (listed: Listed, share: Share): boolean =>
  needsIn(listed, share).some(({ need, settings }) => need.isAwaited?.(settings) ?? false);

/** Each of its needs under each cluster's settings, wherever it is on. */
const needsIn = ({ rule, members }: Listed, { clusters }: Share) =>
  Object.values(clusters).flatMap((share) =>
    // A group's settings are those of its members, each with its own mode.
    members
      ? members.flatMap((member) => needsUnder(member.rule, Reflect.get(share.settings, member.name)))
      : needsUnder(rule, share),
  );
const needsUnder = ({ needs = {} }: Rule, { mode, settings }: { mode: Mode; settings: object }) =>
  mode === "off" ? [] : Object.values(needs).map((need) => ({ need, settings }));

const fileOf = ({ folder }: Listed) => join(folder, "rule.ts");
const placeOf = ({ name, members }: Listed) => (members ? `the group ${name}` : `functions/${name}`);

const specifier = (file: string) => JSON.stringify(`./${relative(root, file)}`.replaceAll("\\", "/"));

/**
 * Puts absent.ts in the place of what a rule doesn't need: drafts where it only validates, variants where it has none, CUE
 * where it runs no scripts, what asks a cluster where it asks nothing.
 */
const spared = (listed: Listed, isRecorded: boolean): Plugin => {
  const asks = asksOf(listed);
  const modules = [
    ...(listed.phases.includes("mutate") || isRecorded ? [] : ["patch.ts"]),
    ...(listed.rule.variants ? [] : ["variant.ts"]),
    ...(runsScripts(listed) ? [] : ["cue/engine.ts"]),
    ...(asks ? [] : ["recorded-answers.ts", "recording/notes.ts"]),
    ...(asks || isRecorded ? [] : ["needs.ts"]),
    // As esbuild names them, which follows links.
  ].map((file) => realpathSync(join(root, "lib", file)));
  return {
    name: "spared",
    setup({ onLoad }) {
      onLoad({ filter: /\.ts$/ }, async ({ path }) =>
        modules.includes(path) ? { contents: await readFile(absent, "utf8"), loader: "ts" } : undefined,
      );
    },
  };
};
const absent = fileURLToPath(new URL("absent.ts", import.meta.url));

/** In Lambda, CUE's files lie beside the bundle. */
const cueBeside: Plugin = {
  name: "cue-beside",
  setup({ onLoad }) {
    onLoad({ filter: /[\\/]lib[\\/]cue[\\/]place\.ts$/ }, () => ({ contents: placeBeside }));
  },
};

/** What only a webhook entry, postern.yaml or a check asks of a rule; what these use goes with them. */
const forEntries = new Set([
  ...["summary", "order", "twin", "match", "matchConditions", "authorizedBy", "namespaceSelector", "objectSelector"],
  ...[
    "matchPolicy",
    "guards",
    "timeoutSeconds",
    "sideEffects",
    "checkSettings",
    "exemptionRequired",
    "variants",
    "everywhere",
    "manifests",
    "reinvocationPolicy",
    "survey",
    "suggest",
  ],
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
      const rest = `${code.slice(0, literal.start)}{${members}}${code.slice(literal.end)}`;
      // As TypeScript once more: what nothing uses any more is not imported, whatever it would do when it loads.
      return { contents: (await transform(rest, { loader: "ts", target: "node24" })).code };
    });
  },
});

const overBudget = (place: string, bytes: number, budget: number, { outputs }: Metafile): string => {
  const inputs = Object.values(outputs).flatMap((output) => Object.entries(output.inputs));
  const largest = inputs.sort(([, one], [, other]) => other.bytesInOutput - one.bytesInOutput).slice(0, 3);
  const list = largest.map(([file, { bytesInOutput }]) => `${file} (${bytesInOutput})`).join(", ");
  return `${place} has a bundle of ${bytes} bytes without its settings, over its budget of ${budget}; the largest inputs are ${list}`;
};
