import { createHash } from "node:crypto";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join, relative } from "node:path";
import { parse } from "acorn";
import { build, type Metafile, type Plugin, transform } from "esbuild";
import { encodeChecks } from "#lib/cel/checked-expressions.ts";
import { collectChecks } from "#lib/cel/expression-check.ts";
import type { ApiServerConnection } from "#lib/cluster/api-server.ts";
import { type ClusterSetup, type EndpointConfig, findClusterSetup } from "#lib/core/endpoint.ts";
import { getOwn } from "#lib/json.ts";
import type { RecordingBucketSettingsByRule } from "#lib/lambda/recording.ts";
import { type AwsAction, asksCluster, isUsedUnder, type SecretPlace } from "#lib/needs.ts";
import { getVariants, listPhases, type Phase, type RequestMatch, type Rule, selectPhase } from "#lib/rule.ts";
import { mergeWithDefaults } from "#lib/settings.ts";
import { type CatalogueRule, hasNeed } from "../catalogue/registry.ts";
import { Complaint } from "../cli/complaint.ts";
import { moduleExtension, packageRoot } from "../cli/roots.ts";
import { listWritableBucketPaths } from "../config/record-section.ts";
import { findLongestTimeoutSeconds } from "../webhooks/entry.ts";
import { createCelPlugin, expressionsMark } from "./cel.ts";
import { cueFilesModuleSource, readCueRuntimeFiles } from "./cue.ts";
import {
  createSchemaPlugin,
  explanationBeside,
  explanationFile,
  readExplanationFiles,
  schemasFile,
} from "./schemas.ts";
import { getInflatedContents, zip } from "./zip.ts";

export interface RuleBundle {
  name: string;
  summary: string;
  phases: Phase[];
  timeoutSeconds: number;
  bytes: number;
  /** SHA-256 of the code, base64url. */
  hash: string;
  /** SHA-256 of the code without the rule's part of postern.yaml, base64url. */
  logic: string;
  /** The SHA-256 of the zip with the function's code, in base64, as Lambda's API returns it. */
  codeSha256: string;
  asks: boolean;
  /** True if the function calls something over the network: a cluster, AWS or another service. */
  callsOut: boolean;
  scripts: boolean;
  tokens: SecretPlace[];
  actions: AwsAction[];
  /** The S3 places below which the rule's function writes recordings, each as `BUCKET/PREFIX`. */
  records: string[];
  /** The rules that keep a ledger: their names begin the keys that the function may read and write. */
  ledgerRules: string[];
  /** Whether one of these rules is on in any cluster, so that the stage needs the ledger's table. */
  opensLedger: boolean;
  /** Whether one of the function's rules guards security. */
  guards: boolean;
  /** Whether a schedule calls the function, for work that no review asks for. */
  reconciles: boolean;
  /** The SHA-256 of keys.json in the zip, base64url: which clusters' keys the function accepts. */
  accepts: string;
  /** The reserved concurrency of the function; undefined if it shares the account's. */
  reserved?: number;
  /** The number of warm environments (provisioned concurrency) of the live version; undefined for none. */
  warm?: number;
}

const keysFile = "keys.json";

const connectionsFile = "clusters.json";

/** The module that Lambda loads. It waits until the function is warm, which only an ES module can do. */
const startFile = "index.mjs";
let startCode: Promise<string> | undefined;
const readStartModule = (): Promise<string> => {
  const entry = [
    'import bundle from "./index.cjs";',
    `import { warmUp } from ${getLibrarySpecifier("lambda/warm-up")};`,
    "export const { handler } = bundle;",
    "await warmUp(bundle).catch(() => {});",
  ];
  startCode ??= bundleCode(entry.join("\n"), [], {}, "esm").then(({ code }) => code);
  return startCode;
};

/**
 * Returns the largest allowed size of a bundle in bytes: 27 kB, 67 with needs or 42 if the settings use none of
 * them, 102 with scripts; 44 more with policies in CEL, 9 more if the rule reconciles clusters, and 3 more for each member
 * and for recording. A cold start reads the whole bundle.
 */
const computeBudget = (
  listed: CatalogueRule,
  asks: boolean,
  places: RecordingBucketSettingsByRule,
  { inputs }: Metafile,
) =>
  ((hasNeed(listed, "cue") ? 102 : asks ? 67 : hasNeeds(listed) ? 42 : 27) +
    (celEvaluator in inputs ? 44 : 0) +
    (listed.rule.reconcile ? 9 : 0) +
    3 * (listed.members?.length ?? 0) +
    computeRecordingBudget(asks, places)) *
  1024;

/** The module that evaluates CEL, in the inputs of a bundle. */
const celEvaluator = `lib/cel/program/program${moduleExtension}`;
const celLibraries = "lib/cel/libraries/";

/** Returns the kilobytes that recording may add to a bundle. A rule that asks already includes the HTTPS client. */
const computeRecordingBudget = (asks: boolean, places: RecordingBucketSettingsByRule) =>
  !isRecorded(places) ? 0 : asks ? 20 : 28;

/** The needs that a function meets by itself. */
const localVerbs = new Set<string>(["cue", "count"]);

const isRecorded = (places: RecordingBucketSettingsByRule) => Object.keys(places).length > 0;

const hasNeeds = ({ rule }: CatalogueRule) => Object.keys(rule.needs ?? {}).length > 0;

interface BundleOptions {
  /** The largest size of the bundle; by default, that of the rule's features. */
  budgetBytes?: number;
  connections?: Record<string, ApiServerConnection>;
  places?: RecordingBucketSettingsByRule;
}

/**
 * Writes the bundle of a rule to `<outDir>/<name>/index.cjs`, its part of postern.yaml to `settings.json` beside it,
 * and the zip to `<outDir>/<name>.zip`. The zip has the addresses of clusters in a file of its own, which is read when
 * the function starts. The same rule and settings give the same bytes on any machine. The format is CommonJS: an ES
 * module that imports a built-in loads far more of Node at every cold start. Lambda loads `index.mjs`, which imports it.
 */
export const bundleRule = async (
  listed: CatalogueRule,
  config: EndpointConfig,
  outDir: string,
  { budgetBytes, connections = {}, places = {} }: BundleOptions = {},
): Promise<RuleBundle> => {
  const { name, phases, rule } = listed;
  const rules = listed.members ?? [listed];
  // Bundles without a limit of their size are for direct invocation: an event brings other settings.
  const isForAnySettings = budgetBytes === Number.POSITIVE_INFINITY;
  const asks = isForAnySettings ? hasNeeds(listed) : listUsedNeeds(listed, config).length > 0;
  const hasConnections = asks && Object.keys(connections).length > 0;
  const features = listFeatures(listed, config, asks, places);
  const entry = buildEntry(listed, features, { startsScripts: startsScripts(listed, config), hasConnections });
  const plugins = [createDecisionOnlyPlugin(rules.map(getRuleFile)), cueBeside, explanationBeside];
  if (outsideVerbs.every((verb) => !hasNeed(listed, verb))) plugins.push(withoutOutsideServices);
  const checks = encodeChecks(collectChecks(() => compileExpressions(listed, config)));
  if (!isForAnySettings) plugins.push(createCelPlugin(checks), createSchemaPlugin(config));
  const { code, metafile } = await bundleCode(entry, plugins, features).catch((failure: Error) => {
    throw new Complaint(`${listed.place} can't be bundled: ${failure.message}`);
  });
  // The budget in bytes limits the code of a bundle. Not counted is what postern.yaml brings: its data, the schemas of
  // kinds, and the functions that expressions call.
  const budget = budgetBytes ?? computeBudget(listed, asks, places, metafile);
  const inputs = Object.entries(Object.values(metafile.outputs)[0]?.inputs ?? {});
  const uncounted = inputs.filter(([file]) => file === schemasFile || file.startsWith(celLibraries));
  const uncountedBytes = uncounted.reduce((sum, [, { bytesInOutput }]) => sum + bytesInOutput, 0);
  const codeBytes = Buffer.byteLength(code.replace(configMark, "").replace(placesMark, "")) - uncountedBytes;
  if (celEvaluator in metafile.inputs && !rules.some(({ rule }) => rule.compileExpressions))
    throw new Complaint(`${listed.place} has expressions of CEL, so its rule.ts must have compileExpressions`);
  if (codeBytes > budget) throw new Complaint(describeExcess(listed.place, codeBytes, budget, metafile));
  const contents = Buffer.from(
    insertData(code, { [configMark]: config, [placesMark]: places, [expressionsMark]: checks }),
  );

  const scripts = usesScripts(listed, config);
  const keys = formatKeyVersions(config);
  const files = {
    "index.cjs": contents,
    [startFile]: Buffer.from(await readStartModule()),
    [keysFile]: Buffer.from(keys),
    ...(hasConnections && { [connectionsFile]: Buffer.from(JSON.stringify(connections)) }),
    ...(await readExplanationFiles(isForAnySettings ? undefined : listMatches(listed, config))),
    ...(scripts && (await readCueRuntimeFiles())),
  };
  const archive = zip(files);
  await mkdir(join(outDir, name), { recursive: true });
  for (const [file, content] of Object.entries(files))
    await writeFile(join(outDir, name, file), getInflatedContents(content));
  // `postern replay` reads the bundle's part of postern.yaml from settings.json. Lambda doesn't need the file, so it
  // isn't in the zip.
  await writeFile(join(outDir, name, "settings.json"), JSON.stringify(config));
  await writeFile(join(outDir, `${name}.zip`), archive);
  return {
    name,
    summary: rule.summary,
    phases,
    timeoutSeconds: findLongestTimeoutSeconds(rule),
    bytes: contents.length,
    hash: createHash("sha256").update(contents).digest("base64url"),
    logic: createHash("sha256").update(code).digest("base64url"),
    codeSha256: createHash("sha256").update(archive).digest("base64"),
    asks: asksCluster(rule),
    callsOut: Object.values(rule.needs ?? {}).some(({ verb }) => !localVerbs.has(verb)),
    scripts,
    tokens: listTokens(Object.values(connections), listSecrets(listed, config)),
    actions: Object.values(rule.needs ?? {}).flatMap(({ action }) => action ?? []),
    records: listWritableBucketPaths(places),
    guards: rules.some(({ rule }) => rule.guards),
    ledgerRules: rules.filter((one) => hasNeed(one, "ledger")).map(({ name }) => name),
    opensLedger: listUsedNeeds(listed, config).some(({ need }) => need.verb === "ledger"),
    // A rule that is off keeps its schedule, because a rollback can turn it on again.
    reconciles: rule.reconcile !== undefined,
    accepts: createHash("sha256").update(keys).digest("base64url"),
  };
};

/** Bundles an entry module as a function's code. */
export const bundleCode = async (
  contents: string,
  plugins: Plugin[],
  features: Record<string, boolean> = {},
  format: "cjs" | "esm" = "cjs",
): Promise<{ code: string; metafile: Metafile }> => {
  const { outputFiles, metafile } = await build({
    stdin: { contents, resolveDir: packageRoot, sourcefile: "entry.js" },
    absWorkingDir: packageRoot,
    bundle: true,
    write: false,
    metafile: true,
    outfile: "index.cjs",
    format,
    platform: "node",
    target: "node24",
    external: ["./index.cjs", `./${connectionsFile}`, `./${explanationFile}`],
    minify: true,
    legalComments: "none",
    plugins,
    define: Object.fromEntries(Object.entries(features).map(([name, value]) => [`POSTERN_${name}`, String(value)])),
    logLevel: "silent",
    logOverride: { "commonjs-variable-in-esm": "silent" },
  });
  return { code: outputFiles[0]?.text ?? "", metafile };
};

/**
 * Returns the content of keys.json: the clusters whose URL keys have other accepted versions than 1. The code of a
 * disarmed version reads it.
 */
const formatKeyVersions = (config: EndpointConfig): string => {
  const all = Object.keys(config.clusters).map((name) => [name, findClusterSetup(config, name)?.keyVersions] as const);
  return JSON.stringify(Object.fromEntries(all.filter(([, versions]) => versions?.join() !== "1")));
};

/**
 * The texts in a bundle's code that data from postern.yaml replaces once esbuild has chosen short names. These depend on
 * all text, and the code without the data must be the same for any data.
 */
const [configMark, placesMark] = ["POSTERN CONFIG", "POSTERN PLACES"];

/** Replaces marks in code by data as JSON, in single quotes, because JSON has many double ones. */
export const insertData = (code: string, data: Readonly<Record<string, unknown>>): string =>
  code.replace(new RegExp(`"(${Object.keys(data).join("|")})"`, "g"), (_, mark) => {
    const escaped = JSON.stringify(data[mark]).replace(/[\\'\u2028\u2029]/g, (found) =>
      found < "~" ? `\\${found}` : `\\u${found.charCodeAt(0).toString(16)}`,
    );
    return `'${escaped}'`;
  });

/** Builds the source of a function's entry module. `module.exports` instead of an export avoids esbuild's export helpers. */
const buildEntry = ({ members, ...listed }: CatalogueRule, features: Features, entry: EntryOptions): string => {
  const rules = members ?? [listed];
  return [
    `import { createLambdaFunction } from ${getLibrarySpecifier("lambda/handler")};`,
    ...(entry.startsScripts ? [`import { warmUpCueEngine } from ${getLibrarySpecifier("cue/engine")};`] : []),
    ...rules.map((rule, index) => `import rule${index} from ${toSpecifier(getRuleFile(rule))};`),
    ...(entry.startsScripts ? ["warmUpCueEngine();"] : []),
    "module.exports = createLambdaFunction({",
    `  rules: { ${rules.map(({ name }, index) => `"${name}": rule${index}`).join(", ")} },`,
    // The data is parsed from texts: in an object literal, `"__proto__"` would set a prototype.
    `  config: JSON.parse("${configMark}"),`,
    ...(features.RECORDED ? [`  places: JSON.parse("${placesMark}"),`] : []),
    ...(entry.hasConnections ? [`  readConnections: () => require("./${connectionsFile}"),`] : []),
    "});",
  ].join("\n");
};

/** What the rules of a function need of lib; lib/features.ts says what each name means. */
type Features = ReturnType<typeof listFeatures>;

/** Reports whether a rule, or a member of a group, has exceptions in any cluster. */
const hasExceptions = ({ members = [] }: CatalogueRule, { usual, clusters }: EndpointConfig): boolean =>
  [usual, ...Object.values(clusters)].some(
    (setup) =>
      typeof setup === "object" &&
      (setup.exceptions !== undefined ||
        members.some(({ name }) => getOwn(getOwn(getOwn(setup.settings, name), "exempt"), "exceptions"))),
  );

interface EntryOptions {
  startsScripts: boolean;
  hasConnections: boolean;
}

const listFeatures = (
  listed: CatalogueRule,
  config: EndpointConfig,
  asks: boolean,
  places: RecordingBucketSettingsByRule,
) => {
  const { members = [listed], phases, rule } = listed;
  return {
    MUTATES: phases.includes("mutate"),
    NEEDS: hasNeeds(listed),
    SINCE: members.some(({ rule }) => rule.since),
    VARIANTS: rule.variants !== undefined,
    EXACT_INTEGERS: rule.exactIntegers === true,
    GROUP: listed.members !== undefined,
    ASKS: asks,
    LEDGER: hasNeed(listed, "ledger"),
    RECONCILES: rule.reconcile !== undefined,
    RECORDED: isRecorded(places),
    EXCEPTIONS: hasExceptions(listed, config),
    OBSERVED: false,
  };
};

const listTokens = (connections: ApiServerConnection[], others: SecretPlace[]): SecretPlace[] => {
  const places = connections.flatMap(({ credentials }) =>
    "secret" in credentials || "parameter" in credentials ? [credentials] : [],
  );
  return [...new Map([...places, ...others].map((place) => [JSON.stringify(place), place])).values()];
};

/** Returns where the secrets of a function are in AWS; throws if one is in a file, which Lambda doesn't have. */
const listSecrets = (listed: CatalogueRule, config: EndpointConfig): SecretPlace[] =>
  listUsedNeeds(listed, config).flatMap(({ need, settings }) =>
    (need.secrets?.(settings) ?? []).map((place) => {
      if (!("file" in place)) return place;
      throw new Complaint(
        `${listed.name} needs ${place.file}, which functions on Lambda don't have; store its content in Secrets Manager or SSM, and name the ARN instead`,
      );
    }),
  );

/** Reports whether any cluster's settings use CUE, so that the zip must include it. */
const usesScripts = (listed: CatalogueRule, config: EndpointConfig): boolean =>
  listUsedNeeds(listed, config).some(({ need }) => need.verb === "cue");

/** Reports whether CUE starts with the function, so that the first script needn't wait for that. */
const startsScripts = (listed: CatalogueRule, config: EndpointConfig): boolean =>
  listUsedNeeds(listed, config).some(({ need, settings }) => need.isAwaited?.(settings) ?? false);

/** Lists the needs that rules use under the settings of clusters and of their variants. */
const listUsedNeeds = (listed: CatalogueRule, config: EndpointConfig) =>
  listRuleSettings(listed, config).flatMap(({ rule: { needs = {} }, settings }) =>
    Object.values(needs).flatMap((need) => (isUsedUnder(settings, need) ? [{ need, settings }] : [])),
  );

/** Compiles the expressions of all settings. Copies of them, because rules remember what they have compiled. */
const compileExpressions = (listed: CatalogueRule, config: EndpointConfig): void => {
  for (const { rule, settings } of listRuleSettings(listed, config))
    rule.compileExpressions?.(structuredClone(settings));
};

/** Lists the settings of rules that are on: those of each cluster, and of each of its variants. */
const listRuleSettings = ({ rule, members }: CatalogueRule, { usual, clusters, variants }: EndpointConfig) =>
  [usual, ...Object.values(clusters)].flatMap((setup) => {
    if (setup === undefined || typeof setup === "string") return [];
    // A group's settings hold the settings and the mode of each member.
    const setups = members
      ? members.map((member) => ({ rule: member.rule, ...Reflect.get(setup.settings, member.name) }))
      : [{ rule, ...setup }];
    return setups.flatMap(({ rule, mode, settings, variants: own = variants }: ClusterSetup & { rule: Rule }) =>
      mode === "off"
        ? []
        : [{}, ...Object.values(own ?? {})].map((more) => ({ rule, settings: mergeWithDefaults(settings, more) })),
    );
  });

/**
 * Returns the rows of the requests that a bundle's rules may get under the settings of any cluster; undefined if they are
 * not known.
 */
const listMatches = (listed: CatalogueRule, config: EndpointConfig): RequestMatch[] | undefined => {
  const setups = listRuleSettings(listed, config);
  const rows = setups.flatMap(({ rule, settings }) =>
    [rule, ...(getVariants(rule, settings) ?? [])].flatMap(({ match }) =>
      listPhases(rule).flatMap((phase) => selectPhase(match, phase, settings) ?? []),
    ),
  );
  const isKnown = rows.length > 0 && setups.every(({ rule }) => !rule.inspectForSettings);
  return isKnown ? [...new Map(rows.map((row) => [JSON.stringify(row), row])).values()] : undefined;
};

const getRuleFile = ({ folder, file }: CatalogueRule) => join(folder, file);

const getLibrarySpecifier = (file: string) => toSpecifier(join(packageRoot, "lib", `${file}${moduleExtension}`));

const toSpecifier = (file: string) => JSON.stringify(`./${relative(packageRoot, file)}`.replaceAll("\\", "/"));

/** Replaces the module that finds CUE's files: in Lambda, they are in the same folder as the bundle. */
const cueBeside: Plugin = {
  name: "cue-beside",
  setup({ onLoad }) {
    onLoad({ filter: /[\\/]lib[\\/]cue[\\/]cue-files\.[jt]s$/ }, () => ({ contents: cueFilesModuleSource }));
  },
};

/** The needs of services outside the cluster. */
const outsideVerbs = ["https", "http", "aws"] as const;

/** Leaves out the client of services outside the cluster. */
const withoutOutsideServices: Plugin = {
  name: "without-outside-services",
  setup({ onLoad }) {
    onLoad({ filter: /[\\/]lib[\\/]cluster[\\/]outside\.[jt]s$/ }, () => ({
      contents: "export const createOutsideServiceCapabilities = () => ({});",
    }));
  },
};

/**
 * The fields of a rule that only webhook entries, postern.yaml or checks read. Bundles leave them out, with the code
 * that only they use.
 */
const entryFields = new Set([
  "summary",
  "order",
  "upstreamPlugin",
  "match",
  "matchConditions",
  "authorizedBy",
  "namespaceSelector",
  "objectSelector",
  "matchPolicy",
  "guards",
  "timeoutSeconds",
  "sideEffects",
  "checkSettings",
  "exemptionRequired",
  "variants",
  "everywhere",
  "manifests",
  "kubeconfigs",
  "reinvocationPolicy",
  "inspectForSettings",
  "compileExpressions",
  "suggest",
  "choices",
  "elements",
]);

/**
 * Reduces `export default rule({ … })` to the members that a review needs: the functions, the settings and the needs.
 */
const createDecisionOnlyPlugin = (files: string[]): Plugin => ({
  name: "decision-only",
  setup({ onLoad }) {
    onLoad({ filter: /[\\/]rule\.[jt]s$/ }, async ({ path }) => {
      if (!files.includes(path)) return undefined;
      const { code } = await transform(await readFile(path, "utf8"), { loader: "ts", target: "node24" });
      const { body } = parse(code, { ecmaVersion: "latest", sourceType: "module" });
      const exported = body.find((statement) => statement.type === "ExportDefaultDeclaration")?.declaration;
      const literal = exported?.type === "CallExpression" ? exported.arguments[0] : undefined;
      if (literal?.type !== "ObjectExpression") return { contents: code };
      const kept = literal.properties.filter(
        (member) =>
          member.type === "SpreadElement" || member.key.type !== "Identifier" || !entryFields.has(member.key.name),
      );
      const members = kept.map(({ start, end }) => code.slice(start, end)).join(",\n");
      const rest = `${code.slice(0, literal.start)}{${members}}${code.slice(literal.end)}`;
      // The second transform drops imports that are no longer used, even of modules with side effects.
      return { contents: (await transform(rest, { loader: "ts", target: "node24" })).code };
    });
  },
});

const describeExcess = (place: string, bytes: number, budget: number, { outputs }: Metafile): string => {
  const inputs = Object.values(outputs).flatMap((output) => Object.entries(output.inputs));
  const largest = inputs.sort(([, left], [, right]) => right.bytesInOutput - left.bytesInOutput).slice(0, 3);
  const list = largest.map(([file, { bytesInOutput }]) => `${file} (${bytesInOutput})`).join(", ");
  return `${place} has a bundle of ${bytes} bytes without its settings, over its budget of ${budget}; the largest inputs are ${list}`;
};
