import { dirname } from "node:path";
import { parse } from "yaml";
import { getOwn } from "#lib/json.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import {
  type Command,
  commonCommandOptions,
  type ParsedOptions,
  writeJson,
  writeNote,
  writeOutput,
} from "../cli/command.ts";
import { Complaint, toSentence } from "../cli/complaint.ts";
import { clusterAccessOptions, parseBaseUrl, readOptionFile, stageOption } from "../cli/options.ts";
import { getConfigFile } from "../cli/roots.ts";
import { readClusterCredentials } from "../clusters/access.ts";
import { openInspectedCluster } from "../clusters/inspected-cluster.ts";
import { findRulesInspectingCluster, inspectClusterForSettings } from "../clusters/inspection.ts";
import { type ClusterConfig, chooseCluster, type RelayService } from "../config/config.ts";
import {
  describeMissingConnectSetting,
  listRulesAskingCluster,
  parseServiceName,
  readRelayCa,
  serviceNameForm,
} from "../config/connections.ts";
import { formatYamlDocuments } from "../diff/yaml-lines.ts";
import { createRuleEnabledPredicate, readProject, reportBroken } from "../project/project.ts";
import { describeGroupAdvice, findGroupSavingMostCalls } from "../project/serial-calls.ts";
import { countAnnotationBytesAfterApply, mostAnnotationBytes } from "../webhooks/apply-size.ts";
import { callThroughRelay, describeWaits } from "../webhooks/configurations.ts";
import { describePlacements, placePolicies, toPolicySupport } from "../webhooks/native-policies.ts";
import { buildClusterObjects } from "../webhooks/objects.ts";
import {
  instanceNameOption,
  loadStageOrLocalUrlSigner,
  readAwsIdentity,
  readCaOption,
  readInstanceName,
} from "./shared/options.ts";

export default {
  summary:
    "Prints the webhook configurations of a cluster for kubectl apply -f -. The output contains the cluster's key: don't commit it.",
  options: {
    cluster: commonCommandOptions.cluster,
    ...stageOption,
    url: {
      type: "string",
      value: "BASE",
      says: "the base URL of the rules, for instance the URL that npm start prints",
    },
    service: {
      type: "string",
      value: "NAMESPACE/NAME",
      says: "call the rules through this Service of a relay in the cluster, also as NAMESPACE/NAME:PORT; --ca names the relay's CA (default: clusters.NAME.service in postern.yaml)",
    },
    urls: { type: "string", value: "FILE", says: "a YAML or JSON file that maps names of rules to their base URLs" },
    ca: {
      type: "string",
      value: "FILE",
      says: "the CA of the server's certificate in PEM, if it is not a public CA",
    },
    ...instanceNameOption,
    harden: { type: "boolean", says: "make rules that guard security fail closed" },
    "key-from": {
      type: "string",
      value: "TEXT",
      says: "write this text instead of the key, so that the output can be committed",
    },
    kubeconfig: {
      ...clusterAccessOptions.kubeconfig,
      says: "the kubeconfig to read a cluster with, for rules whose webhook entries depend on its objects",
    },
    context: { ...clusterAccessOptions.context, says: "the kubeconfig context" },
    offline: { type: "boolean", says: "don't read the cluster, and leave out entries that depend on its objects" },
    config: commonCommandOptions.config,
    output: commonCommandOptions.output,
  },

  async run({ options }) {
    const file = getConfigFile();
    const { catalogue, broken, config } = await readProject(file);
    const [clusterName, configured] = chooseCluster(config, options.text("cluster"));
    reportBroken(broken, createRuleEnabledPredicate(configured));
    const service = readRelay(options, configured);
    const address = service
      ? () => "https://relay"
      : await createAddressFinder(options, file, [clusterName, configured]);
    const rulesAskingCluster = listRulesAskingCluster(catalogue, configured);
    if (rulesAskingCluster.length > 0 && configured.connect === undefined)
      throw new Complaint(`clusters.${clusterName} ${describeMissingConnectSetting(rulesAskingCluster)}`);
    const inspected = options.flag("offline")
      ? configured
      : await inspectChosenCluster(catalogue, [clusterName, configured], options, file);
    const cluster = { ...inspected, service, policySupport: toPolicySupport(configured.kubernetes) };
    const caFile = options.text("ca");
    const ca = caFile === undefined ? await readRelayCa(cluster, clusterName, file) : await readCaOption(caFile);

    const name = readInstanceName(options);
    for (const line of describePlacements(placePolicies(catalogue, cluster))) writeNote(`policies ${line}`);
    const waits = describeWaits(catalogue, cluster);
    if (waits !== undefined) writeNote(waits);
    const advice = await findGroupSavingMostCalls(catalogue, cluster, config.clusters.values());
    if (advice !== undefined) writeNote(describeGroupAdvice(advice).join("\n"));
    const documents = buildClusterObjects(catalogue, cluster, {
      name,
      address,
      ca,
      relayCa: ca,
      harden: options.flag("harden"),
    }).map(callThroughRelay);
    if (documents.every((document) => (Reflect.get(document, "webhooks") ?? []).length === 0))
      writeNote(`cluster ${clusterName} gets no webhook entry: postern.yaml turns on no rule that needs one`);
    for (const document of documents) warnIfTooLarge(document);
    if (options.text("output") === "json") writeJson({ apiVersion: "v1", kind: "List", items: documents });
    else writeOutput(formatYamlDocuments(documents));
  },
} satisfies Command;

/**
 * Returns the relay in --service or postern.yaml: a Service in the cluster that forwards calls to the rules. Throws if
 * an option names an address or a key, because the relay has these.
 */
const readRelay = (options: ParsedOptions, { service: configured }: ClusterConfig): RelayService | undefined => {
  const [text, ca] = [options.text("service"), options.text("ca")];
  const found = text === undefined ? configured : parseServiceName(text);
  if (text !== undefined && found === undefined)
    throw new Complaint(`--service takes ${serviceNameForm}, not "${text}"`);
  if (text !== undefined && ca === undefined)
    throw new Complaint("--service needs --ca FILE, the CA of the relay's certificate");
  const other = ["url", "urls", "stage", "key-from"].find((name) => options.text(name) !== undefined);
  if (found !== undefined && other !== undefined)
    throw new Complaint(`--${other} can't be combined with a relay, which has the address of the rules and the key`);
  // A relay in postern.yaml has a `ca` of its own, which replaces the option's.
  return found && { ca: String(ca), ...found };
};

/** Returns a function that returns the URL of a rule's endpoint, with the cluster's key. */
const createAddressFinder = async (
  options: ParsedOptions,
  file: string,
  [name, { keyVersions }]: [string, ClusterConfig],
) => {
  // With --key-from, URLs have this text in place of the key. A tool of the user replaces it by the key.
  const keyPlaceholder = options.text("key-from");
  const segment =
    keyPlaceholder === undefined
      ? (await loadStageOrLocalUrlSigner(options, file)).signSegment(name, keyVersions.at(-1) ?? 1)
      : `${name}.${keyPlaceholder}`;
  const findBaseUrl = await readBaseUrls(options);
  return (rule: string, path: string) => `${findBaseUrl(rule)}/${segment}/${rule}/${path}`;
};

/** Warns about an object that is too large for kubectl apply, which would first apply all objects before this one. */
const warnIfTooLarge = (document: object): void => {
  const bytes = countAnnotationBytesAfterApply(document);
  if (bytes <= mostAnnotationBytes) return;
  const { kind, metadata } = document as { kind: string; metadata: { name: string } };
  writeNote(
    `${kind} ${metadata.name} is too large for plain kubectl apply, which would store ${bytes} bytes of annotations; the limit is ${mostAnnotationBytes}; use kubectl apply --server-side`,
  );
};

/** Inspects the cluster. Returns its config with settings that depend on objects in the cluster. */
const inspectChosenCluster = async (
  catalogue: CatalogueRule[],
  [name, configured]: [string, ClusterConfig],
  options: ParsedOptions,
  file: string,
): Promise<ClusterConfig> => {
  const open = async () =>
    openInspectedCluster(
      name,
      configured,
      { ...readClusterCredentials(options, [name]), folder: dirname(file), identity: readAwsIdentity },
      file,
    );
  const { cluster, notes } = await inspectClusterForSettings(catalogue, configured, open).catch((error: unknown) => {
    const rules = findRulesInspectingCluster(catalogue, configured).map((rule) => rule.name);
    const remedy = `entries of ${rules.join(", ")} depend on objects in the cluster; --kubeconfig FILE reads it as another user, and --offline leaves these entries out`;
    throw new Complaint(`${toSentence(error)}\n${remedy}`, error instanceof Complaint ? error.exitCode : 3);
  });
  for (const note of notes) writeNote(note);
  return cluster;
};

/** Reads --url, --urls or --stage. Returns a function that returns the base URL of a rule. */
const readBaseUrls = async (options: ParsedOptions): Promise<(rule: string) => string> => {
  const [url, urls, stage] = ["url", "urls", "stage"].map((name) => options.text(name));
  if (url !== undefined && urls !== undefined) throw new Complaint("--url and --urls can't be combined");
  if (url !== undefined) {
    const base = parseBaseUrl(url, "--url");
    return () => base;
  }
  if (urls === undefined && stage !== undefined) return readStageUrls(options);
  if (urls === undefined)
    throw new Complaint("one of --url, --urls, --stage and --service must say where the rules are served");
  const map: unknown = parse(await readOptionFile(String(urls), "--urls"));
  return (rule) => {
    const found = getOwn(map, rule);
    if (typeof found !== "string") throw new Complaint(`${urls} has no address for ${rule}`);
    return parseBaseUrl(found, `${urls}: ${rule}`);
  };
};

/** Reads the base URLs from the stack's outputs. The modules are imported here, because they load the AWS SDK. */
const readStageUrls = async (options: ParsedOptions): Promise<(rule: string) => string> => {
  const [{ runInStage: run }, { createBaseUrlFinder }] = await Promise.all([
    import("../aws/stage.ts"),
    import("../rollout/targets.ts"),
  ]);
  const findBaseUrl = await run(options, async ({ stack }) => createBaseUrlFinder(await stack.readOutputs()));
  return (rule) => parseBaseUrl(findBaseUrl(rule), `stage ${options.text("stage")}: ${rule}`);
};
