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
  buildExplanationFile,
  createSchemaPlugin,
  explanationBeside,
  explanationFile,
  schemasFile,
} from "./schemas.ts";
import { getInflatedContents, zip } from "./zip.ts";

/** The bundle of a rule or group, and what its function needs in AWS. */
export interface RuleBundle {
  name: string;
  summary: string;
  phases: Phase[];
  /** The longest timeout of the function's webhook entries. */
  timeoutSeconds: number;
  /** The size of the bundle, with the rule's part of postern.yaml. */
  bytes: number;
  /** SHA-256 of the code, base64url. */
  hash: string;
  /** SHA-256 of the code without the rule's part of postern.yaml, base64url. */
  logicHash: string;
  /** The SHA-256 of the zip with the function's code, in base64, as Lambda's API returns it. */
  codeSha256: string;
  /** True if the function reads a cluster. */
  readsCluster: boolean;
  /** True if the function calls something over the network: a cluster, AWS or another service. */
  callsOut: boolean;
  /** True if the function runs CUE scripts. */
  runsCue: boolean;
  /** The secrets and parameters in AWS that the function reads. */
  tokens: SecretPlace[];
  /** The AWS actions that the function calls. */
  actions: AwsAction[];
  /** The paths in S3 below which the function writes recordings, each as `BUCKET/PREFIX`. */
  records: string[];
  /** The rules that keep a ledger. The function may read and write only keys that begin with one of these names. */
  ledgerRules: string[];
  /** True if one of `ledgerRules` is on in a cluster, so that the stage needs the ledger's table. */
  opensLedger: boolean;
  /** True if one of the function's rules has `guards: true`, because it refuses for security reasons. */
  guards: boolean;
  /** True if a schedule calls the function, for work that doesn't depend on a review. */
  reconciles: boolean;
  /** The SHA-256 of keys.json in the zip, base64url. The file says which clusters' keys the function accepts. */
  keysHash: string;
  /** The reserved concurrency of the function; undefined if it uses the account's unreserved concurrency. */
  reserved?: number;
  /** The number of warm environments (provisioned concurrency) of the live version; undefined for none. */
  warm?: number;
}

const keysFile = "keys.json";

const connectionsFile = "clusters.json";

/** The module that Lambda loads. It waits for `warmUp`, which only an ES module can do at the top level. */
const startFile = "index.mjs";
let startCode: Promise<string> | undefined;
/** Returns the code that Lambda loads first: it loads a function's bundle and warms it up. */
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

/** The kilobytes that a bundle may have, by its features. */
const budgets = {
  scripts: 102,
  usedNeeds: 67,
  /** The rule has needs, but no settings use them. */
  unusedNeeds: 42,
  withoutNeeds: 27,
  // These are added to one of the sizes above.
  cel: 44,
  reconcile: 9,
  perRuleInGroup: 3,
  recording: 28,
  /** A bundle with used needs already has the HTTPS client that recording needs. */
  recordingWithNeeds: 20,
};

/** Returns the largest allowed size of a bundle in bytes. A cold start reads the whole bundle, so it must be small. */
const computeBudget = (
  listed: CatalogueRule,
  usesNeeds: boolean,
  recordingBuckets: RecordingBucketSettingsByRule,
  { inputs }: Metafile,
) => {
  // Needs are what a rule asks or runs besides the review, such as reads of a cluster. Its settings may use none.
  let kilobytes = declaresNeeds(listed) ? budgets.unusedNeeds : budgets.withoutNeeds;
  if (usesNeeds) kilobytes = budgets.usedNeeds;
  if (hasNeed(listed, "cue")) kilobytes = budgets.scripts;
  if (celEvaluator in inputs) kilobytes += budgets.cel;
  if (listed.rule.reconcile) kilobytes += budgets.reconcile;
  kilobytes += budgets.perRuleInGroup * (listed.members?.length ?? 0);
  if (isRecorded(recordingBuckets)) kilobytes += usesNeeds ? budgets.recordingWithNeeds : budgets.recording;
  return kilobytes * 1024;
};

/** The path of the module that evaluates CEL, as in the inputs of a bundle. */
const celEvaluator = `lib/cel/program/program${moduleExtension}`;
const celLibraries = "lib/cel/libraries/";

/** The verbs of needs for which a function makes no calls over the network. */
const localVerbs = new Set<string>(["cue", "count"]);

const isRecorded = (recordingBuckets: RecordingBucketSettingsByRule) => Object.keys(recordingBuckets).length > 0;

const declaresNeeds = ({ rule }: CatalogueRule) => Object.keys(rule.needs ?? {}).length > 0;

/** Options of a function's bundle. */
interface BundleOptions {
  /** The largest allowed size of the bundle; by default, `computeBudget` computes it. */
  budgetBytes?: number;
  /** The API servers that the function reads, by cluster. */
  connections?: Record<string, ApiServerConnection>;
  /** The buckets in which the function records reviews, by cluster and rule. */
  recordingBuckets?: RecordingBucketSettingsByRule;
}

/**
 * Writes the bundle of a rule to `<outDir>/<name>/index.cjs`, its part of postern.yaml to
 * `<outDir>/<name>/settings.json`, and the zip for Lambda to `<outDir>/<name>.zip`. The same rule and settings give the
 * same bytes on any machine. The bundle is a CommonJS module: an ES module that imports a built-in module loads far
 * more of Node at each cold start. Lambda loads `index.mjs`, which imports the bundle.
 */
export const bundleRule = async (
  listed: CatalogueRule,
  config: EndpointConfig,
  outDir: string,
  { budgetBytes, connections = {}, recordingBuckets = {} }: BundleOptions = {},
): Promise<RuleBundle> => {
  const { name, phases, rule } = listed;
  const rules = listed.members ?? [listed];
  // Bundles without a size limit are for direct invocation: each event has its own settings.
  const isForAnySettings = budgetBytes === Number.POSITIVE_INFINITY;
  const usesNeeds = isForAnySettings ? declaresNeeds(listed) : listUsedNeeds(listed, config).length > 0;
  const hasConnections = usesNeeds && Object.keys(connections).length > 0;
  const features = listFeatures(listed, config, usesNeeds, recordingBuckets);
  const entry = buildEntry(listed, features, { startsCue: isCueAwaited(listed, config), hasConnections });
  const plugins = [createDecisionOnlyPlugin(rules.map(getRuleFile)), cueBeside, explanationBeside];
  if (outsideVerbs.every((verb) => !hasNeed(listed, verb))) plugins.push(withoutOutsideServices);
  const checks = encodeChecks(collectChecks(() => compileExpressions(listed, config)));
  if (!isForAnySettings) plugins.push(createCelPlugin(checks), createSchemaPlugin(config));
  const { code, metafile } = await bundleCode(entry, plugins, features).catch((failure: Error) => {
    throw new Complaint(`${listed.place} can't be bundled: ${failure.message}`);
  });
  // The budget limits only the code of a bundle. What depends on postern.yaml is not counted: its data, the schemas of
  // kinds, and the CEL functions that its expressions call.
  const budget = budgetBytes ?? computeBudget(listed, usesNeeds, recordingBuckets, metafile);
  const inputs = Object.entries(Object.values(metafile.outputs)[0]?.inputs ?? {});
  const uncounted = inputs.filter(([file]) => file === schemasFile || file.startsWith(celLibraries));
  const uncountedBytes = uncounted.reduce((sum, [, { bytesInOutput }]) => sum + bytesInOutput, 0);
  const codeBytes = Buffer.byteLength(code.replace(configMark, "").replace(bucketsMark, "")) - uncountedBytes;
  if (celEvaluator in metafile.inputs && !rules.some(({ rule }) => rule.compileExpressions))
    throw new Complaint(`${listed.place} has expressions of CEL, so its rule.ts must have compileExpressions`);
  if (codeBytes > budget) throw new Complaint(describeExcess(listed.place, codeBytes, budget, metafile));
  const contents = Buffer.from(
    insertData(code, { [configMark]: config, [bucketsMark]: recordingBuckets, [expressionsMark]: checks }),
  );

  const runsCue = usesCue(listed, config);
  const keys = formatKeyVersions(config);
  const files = {
    "index.cjs": contents,
    [startFile]: Buffer.from(await readStartModule()),
    [keysFile]: Buffer.from(keys),
    ...(hasConnections && { [connectionsFile]: Buffer.from(JSON.stringify(connections)) }),
    ...(await buildExplanationFile(isForAnySettings ? undefined : listMatches(listed, config))),
    ...(runsCue && (await readCueRuntimeFiles())),
  };
  const archive = zip(files);
  await mkdir(join(outDir, name), { recursive: true });
  for (const [file, content] of Object.entries(files))
    await writeFile(join(outDir, name, file), getInflatedContents(content));
  // Only `postern replay` reads settings.json, so the zip doesn't have it.
  await writeFile(join(outDir, name, "settings.json"), JSON.stringify(config));
  await writeFile(join(outDir, `${name}.zip`), archive);
  return {
    name,
    summary: rule.summary,
    phases,
    timeoutSeconds: findLongestTimeoutSeconds(rule),
    bytes: contents.length,
    hash: createHash("sha256").update(contents).digest("base64url"),
    logicHash: createHash("sha256").update(code).digest("base64url"),
    codeSha256: createHash("sha256").update(archive).digest("base64"),
    readsCluster: asksCluster(rule),
    callsOut: Object.values(rule.needs ?? {}).some(({ verb }) => !localVerbs.has(verb)),
    runsCue,
    tokens: listTokens(Object.values(connections), listSecrets(listed, config)),
    actions: Object.values(rule.needs ?? {}).flatMap(({ action }) => action ?? []),
    records: listWritableBucketPaths(recordingBuckets),
    guards: rules.some(({ rule }) => rule.guards),
    ledgerRules: rules.filter((member) => hasNeed(member, "ledger")).map(({ name }) => name),
    opensLedger: listUsedNeeds(listed, config).some(({ need }) => need.verb === "ledger"),
    // A rule that is off keeps its schedule, because a rollback can turn it on again.
    reconciles: rule.reconcile !== undefined,
    keysHash: createHash("sha256").update(keys).digest("base64url"),
  };
};

/** Bundles an entry module, whose source is `contents`, with everything that it imports. */
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
    // These files of the zip stay separate. The start module index.mjs, bundled here, too, imports index.cjs.
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
 * Returns the content of keys.json: the accepted key versions of each cluster, for instance `{ "prod": [1, 2] }`.
 * Clusters with only version 1 are left out. After `postern disarm`, a function runs code that allows every review;
 * this code reads the file, to refuse calls whose URL has another key.
 */
const formatKeyVersions = (config: EndpointConfig): string => {
  const entries = Object.keys(config.clusters).map(
    (name) => [name, findClusterSetup(config, name)?.keyVersions] as const,
  );
  const hasOnlyVersion1 = (versions: readonly number[] = []) => versions.length === 1 && versions[0] === 1;
  return JSON.stringify(Object.fromEntries(entries.filter(([, versions]) => !hasOnlyVersion1(versions))));
};

/**
 * Placeholders in a bundle's code. Data from postern.yaml replaces them after esbuild has run: the short names that
 * esbuild chooses depend on all text, and the code without the data must be the same for any data.
 */
const [configMark, bucketsMark] = ["POSTERN CONFIG", "POSTERN BUCKETS"];

/** Replaces placeholders in code by data as JSON. The JSON is in single quotes, because it has many double quotes. */
export const insertData = (code: string, data: Readonly<Record<string, unknown>>): string =>
  code.replace(new RegExp(`"(${Object.keys(data).join("|")})"`, "g"), (_, mark) => {
    // A backslash and a quote get a backslash before them; the line separators become \u2028 and \u2029.
    const escaped = JSON.stringify(data[mark])
      .replace(/[\\']/g, "\\$&")
      .replace(/[\u2028\u2029]/g, (separator) => `\\u${separator.charCodeAt(0).toString(16)}`);
    return `'${escaped}'`;
  });

/** Builds the source of a function's entry module. It has `module.exports`, as esbuild adds helpers for an `export`. */
const buildEntry = ({ members, ...listed }: CatalogueRule, features: Features, entry: EntryOptions): string => {
  const rules = members ?? [listed];
  return [
    `import { createLambdaFunction } from ${getLibrarySpecifier("lambda/handler")};`,
    ...(entry.startsCue ? [`import { warmUpCueEngine } from ${getLibrarySpecifier("cue/engine")};`] : []),
    ...rules.map((rule, index) => `import rule${index} from ${toSpecifier(getRuleFile(rule))};`),
    ...(entry.startsCue ? ["warmUpCueEngine();"] : []),
    "module.exports = createLambdaFunction({",
    `  rules: { ${rules.map(({ name }, index) => `"${name}": rule${index}`).join(", ")} },`,
    // `insertData` replaces the marks by data as JSON texts: in an object literal, `"__proto__"` would set a prototype.
    `  config: JSON.parse("${configMark}"),`,
    // The function writes recordings of reviews to these buckets in S3.
    ...(features.RECORDED ? [`  buckets: JSON.parse("${bucketsMark}"),`] : []),
    ...(entry.hasConnections ? [`  readConnections: () => require("./${connectionsFile}"),`] : []),
    "});",
  ].join("\n");
};

/** The parts of lib that a function needs. lib/features.ts says what each name means. */
type Features = ReturnType<typeof listFeatures>;

/** Reports whether a rule, or a member of a group, has exceptions (exemptions with an end date) in any cluster. */
const hasExceptions = ({ members = [] }: CatalogueRule, config: EndpointConfig): boolean =>
  listSetups(config).some(({ exceptions, settings }) => {
    // The settings of a group are the configs of its members, by their names.
    const memberConfigs = members.map(({ name }) => getOwn(settings, name));
    return exceptions !== undefined || memberConfigs.some((member) => getOwn(getOwn(member, "exempt"), "exceptions"));
  });

/** Lists the different setups of clusters. `usual` is the setup of all clusters that `clusters` doesn't name. */
const listSetups = ({ usual, clusters }: EndpointConfig): ClusterSetup[] =>
  // A text is the name of another cluster, which has the same setup.
  [usual, ...Object.values(clusters)].filter((setup) => typeof setup === "object");

interface EntryOptions {
  /** True if the function starts CUE before its first review. */
  startsCue: boolean;
  /** True if the zip has a file that says how to connect to clusters' API servers, for a rule that reads from them. */
  hasConnections: boolean;
}

/** Returns which optional code (see lib/features.ts) the function of a rule or group needs; its bundle has no other. */
const listFeatures = (
  listed: CatalogueRule,
  config: EndpointConfig,
  usesNeeds: boolean,
  recordingBuckets: RecordingBucketSettingsByRule,
) => {
  const { members = [listed], phases, rule } = listed;
  return {
    MUTATES: phases.includes("mutate"),
    // NEEDS: the rule says that it may ask others, such as an API server. ASKS: some cluster's settings make it ask.
    NEEDS: declaresNeeds(listed),
    ASKS: usesNeeds,
    SINCE: members.some(({ rule }) => rule.since),
    VARIANTS: rule.variants !== undefined,
    EXACT_INTEGERS: rule.exactIntegers === true,
    GROUP: listed.members !== undefined,
    LEDGER: hasNeed(listed, "ledger"),
    RECONCILES: rule.reconcile !== undefined,
    RECORDED: isRecorded(recordingBuckets),
    EXCEPTIONS: hasExceptions(listed, config),
    OBSERVED: false, // Only commands, such as check, report details of how policies are evaluated.
  };
};

/** Returns the secrets and parameters in AWS that a function reads, each once. */
const listTokens = (connections: ApiServerConnection[], others: SecretPlace[]): SecretPlace[] => {
  const tokenPlaces = connections.flatMap(({ credentials }) =>
    "secret" in credentials || "parameter" in credentials ? [credentials] : [],
  );
  return [...new Map([...tokenPlaces, ...others].map((place) => [JSON.stringify(place), place])).values()];
};

/** Returns where rules have secrets in AWS. Throws if a secret is in a file, which functions on Lambda don't have. */
const listSecrets = (listed: CatalogueRule, config: EndpointConfig): SecretPlace[] =>
  listUsedNeeds(listed, config).flatMap(({ need, settings }) =>
    (need.secrets?.(settings) ?? []).map((place) => {
      if (!("file" in place)) return place;
      throw new Complaint(
        `${listed.name} needs ${place.file}, which functions on Lambda don't have; store its content in Secrets Manager or SSM, and name the ARN instead`,
      );
    }),
  );

/** Reports whether the zip must have CUE, because the settings of a cluster use it. */
const usesCue = (listed: CatalogueRule, config: EndpointConfig): boolean =>
  listUsedNeeds(listed, config).some(({ need }) => need.verb === "cue");

/** Reports whether every review of some cluster runs CUE. The function then starts CUE before its first review. */
const isCueAwaited = (listed: CatalogueRule, config: EndpointConfig): boolean =>
  listUsedNeeds(listed, config).some(({ need, settings }) => need.isAwaited?.(settings) ?? false);

/**
 * Lists the `needs` of a rule or of a group's rules that settings require: what a rule uses in addition to the request,
 * such as reads of a cluster, or CUE. Each is listed with the settings that require it: those for one cluster, or for
 * one variant. (The variants of a rule are webhook entries that call it with different settings.)
 */
const listUsedNeeds = (listed: CatalogueRule, config: EndpointConfig) =>
  listRuleSettings(listed, config).flatMap(({ rule: { needs = {} }, settings }) =>
    Object.values(needs).flatMap((need) => (isUsedUnder(settings, need) ? [{ need, settings }] : [])),
  );

/**
 * Compiles the CEL expressions in all settings. The caller runs this in `collectChecks`, which returns each expression
 * that is compiled meanwhile. A rule compiles each settings object only once, so here it gets a new copy each time.
 */
const compileExpressions = (listed: CatalogueRule, config: EndpointConfig): void => {
  for (const { rule, settings } of listRuleSettings(listed, config))
    rule.compileExpressions?.(structuredClone(settings));
};

/** Lists the settings of rules that are on: those of each cluster, and those of each variant. */
const listRuleSettings = ({ rule, members }: CatalogueRule, config: EndpointConfig) =>
  listSetups(config).flatMap((setup) => {
    // The settings of a group have, for each member, its settings and its mode. A rule with variants can't be a member.
    const setups: (Pick<ClusterSetup, "mode" | "settings" | "variants"> & { rule: Rule })[] = members
      ? members.map((member) => ({ rule: member.rule, ...Reflect.get(setup.settings, member.name) }))
      : [{ rule, ...setup }];
    return setups.flatMap(({ rule, mode, settings, variants }) => {
      if (mode === "off") return [];
      const variantSettings = Object.values(variants ?? config.variants ?? {});
      return [{}, ...variantSettings].map((added) => ({ rule, settings: mergeWithDefaults(settings, added) }));
    });
  });

/**
 * Returns the `match` elements of a rule, or of a group's members, for all clusters' settings; undefined if not all are
 * known: a rule with `inspectForSettings` gets more settings from objects in a cluster, which may change its `match`.
 */
const listMatches = (listed: CatalogueRule, config: EndpointConfig): RequestMatch[] | undefined => {
  const setups = listRuleSettings(listed, config);
  const elements = setups.flatMap(({ rule, settings }) =>
    [rule, ...(getVariants(rule, settings) ?? [])].flatMap(({ match }) =>
      listPhases(rule).flatMap((phase) => selectPhase(match, phase, settings) ?? []),
    ),
  );
  const isKnown = elements.length > 0 && setups.every(({ rule }) => !rule.inspectForSettings);
  return isKnown ? [...new Map(elements.map((element) => [JSON.stringify(element), element])).values()] : undefined;
};

const getRuleFile = ({ folder, file }: CatalogueRule) => join(folder, file);

const getLibrarySpecifier = (file: string) => toSpecifier(join(packageRoot, "lib", `${file}${moduleExtension}`));

const toSpecifier = (file: string) => JSON.stringify(`./${relative(packageRoot, file)}`.replaceAll("\\", "/"));

/** Replaces the module that finds the files of CUE: in Lambda, they are in the folder of the bundle. */
const cueBeside: Plugin = {
  name: "cue-beside",
  setup({ onLoad }) {
    onLoad({ filter: /[\\/]lib[\\/]cue[\\/]cue-files\.[jt]s$/ }, () => ({ contents: cueFilesModuleSource }));
  },
};

/** The verbs of needs that call services outside the cluster. */
const outsideVerbs = ["https", "http", "aws"] as const;

/** Leaves the client for services outside the cluster out of a bundle. */
const withoutOutsideServices: Plugin = {
  name: "without-outside-services",
  setup({ onLoad }) {
    onLoad({ filter: /[\\/]lib[\\/]cluster[\\/]outside\.[jt]s$/ }, () => ({
      contents: "export const createOutsideServiceCapabilities = () => ({});",
    }));
  },
};

/** The fields of a rule that a review doesn't need. Bundles omit them, with the code that only these fields use. */
const fieldsUnusedInReviews = new Set([
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

/** Removes the `fieldsUnusedInReviews` from `export default rule({ … })` in these files. */
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
          member.type === "SpreadElement" ||
          member.key.type !== "Identifier" ||
          !fieldsUnusedInReviews.has(member.key.name),
      );
      const members = kept.map(({ start, end }) => code.slice(start, end)).join(",\n");
      const reduced = `${code.slice(0, literal.start)}{${members}}${code.slice(literal.end)}`;
      // The second transform removes imports that are not used any more, also imports of modules with side effects.
      return { contents: (await transform(reduced, { loader: "ts", target: "node24" })).code };
    });
  },
});

/** Describes by how much a bundle is too large, with its three largest inputs. */
const describeExcess = (place: string, bytes: number, budget: number, { outputs }: Metafile): string => {
  const inputs = Object.values(outputs).flatMap((output) => Object.entries(output.inputs));
  const largest = inputs.sort(([, left], [, right]) => right.bytesInOutput - left.bytesInOutput).slice(0, 3);
  const list = largest.map(([file, { bytesInOutput }]) => `${file} (${bytesInOutput})`).join(", ");
  return `${place} has a bundle of ${bytes} bytes without its settings, over its budget of ${budget}; the largest inputs are ${list}`;
};
