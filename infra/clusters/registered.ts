import type { CatalogueRule } from "../catalogue/registry.ts";
import type { ClusterConfig, RelayService } from "../config/config.ts";
import { getRuleNameOfEntry, type RelayReference, type WebhookEntry } from "../webhooks/configurations.ts";
import { toPolicySupport } from "../webhooks/native-policies.ts";
import { buildClusterObjects } from "../webhooks/objects.ts";
import type { ClusterApi, DeployedKind, DeployedObject } from "./api.ts";
import { findDifferences, isFromPostern, listOwnObjects, webhookKinds } from "./apply.ts";
import { buildUnwantedDifferences, type DeployedObjectDifference, toNamedWebhookEntries } from "./drift.ts";
import { createInspectedCluster } from "./inspected-cluster.ts";
import { inspectClusterForSettings } from "./inspection.ts";

/** An object of Postern in a cluster. */
interface RegisteredObject {
  kind: DeployedKind;
  name: string;
  /** The number of webhook entries; absent for kinds without entries. */
  entries?: number;
  /** When it was created. */
  since: string;
  /** When it was changed last. */
  changed: string | null;
  /** The client that made the last change. */
  by: string | null;
}

/** The objects of Postern in a cluster, and how they differ from those that `postern manifests` prints. */
export interface RegisteredCluster {
  cluster: string;
  server: string;
  /** The name of the webhook configurations. */
  name: string;
  objects: RegisteredObject[];
  /** The names of other webhook configurations that Postern has created. */
  others: string[];
  /** The servers that the entries call. */
  calls: string[];
  differences: DeployedObjectDifference[];
  notes: string[];
}

/**
 * Compares a cluster with what `postern manifests` would print. Some of the output depends on options: the address of
 * the rules, the key, the CA, and whether rules are hardened. These are taken from the objects in the cluster.
 */
export const readRegisteredCluster = async (
  api: ClusterApi,
  catalogue: CatalogueRule[],
  configured: ClusterConfig,
  name: string,
): Promise<RegisteredCluster> => {
  const registered = await listOwnObjects(api, name);
  const entries = registered.flatMap(({ webhooks }) => toNamedWebhookEntries(webhooks)) as Partial<WebhookEntry>[];
  const urls = entries.flatMap(({ clientConfig }) => clientConfig?.url ?? []);
  const services = entries.flatMap(({ clientConfig }) => clientConfig?.service ?? []);
  const prefixes = urls.flatMap((url) => /^(https:.+)\/[^/]+\/(mutate|validate)(\/[^/]+)?$/.exec(url)?.[1] ?? []);
  const isOfCluster = (prefix: string) => prefix.split("/").at(-1)?.startsWith(`${api.cluster}.`);
  const [other = "https://rules.invalid/key"] = prefixes;
  const prefix = prefixes.find(isOfCluster) ?? other.replace(/[^/]+$/, `${api.cluster}.key`);
  const ca = entries.find(({ clientConfig }) => clientConfig?.caBundle)?.clientConfig?.caBundle;
  const pem = ca && Buffer.from(ca, "base64").toString();
  const open = async () => createInspectedCluster(api);
  const { cluster, notes } = await inspectClusterForSettings(catalogue, configured, open);
  const wanted = buildClusterObjects(
    catalogue,
    {
      ...cluster,
      service: cluster.service ?? toRelayService(services),
      policySupport: toPolicySupport(configured.kubernetes),
    },
    {
      name,
      // Each rule may have its own address, so the URL comes from its own entry, if it has one.
      address: (rule, path) =>
        urls.find(
          (url) =>
            url.endsWith(`/${rule}/${path}`) &&
            prefixes.filter(isOfCluster).some((start) => url.startsWith(`${start}/`)),
        ) ?? `${prefix}/${rule}/${path}`,
      ca: pem,
      relayCa: pem,
      harden: (rule) =>
        entries.some(
          (entry) => getRuleNameOfEntry({ name: String(entry.name) }) === rule && entry.failurePolicy === "Fail",
        ),
      warnOfLongWait: (sentence) => notes.push(sentence),
    },
  );
  const isWanted = ({ kind, metadata }: DeployedObject) =>
    (wanted as DeployedObject[]).some((object) => object.kind === kind && object.metadata.name === metadata.name);
  const accounts = registered.filter(({ kind }) => kind === "ServiceAccount");
  const differences = [
    ...(await findDifferences(api, wanted, name)),
    ...accounts.filter((object) => !isWanted(object)).flatMap(buildUnwantedDifferences),
  ];
  return {
    cluster: api.cluster,
    server: api.server,
    name,
    objects: registered.map(toRegisteredObject),
    others: await listOtherInstances(api, name),
    calls: [
      ...new Set([
        ...urls.filter((url) => URL.canParse(url)).map((url) => new URL(url).origin),
        ...services.map(
          ({ namespace, name: service, port }) =>
            `the relay ${namespace}/${service}${port === undefined || port === 443 ? "" : `:${port}`}`,
        ),
      ]),
    ],
    differences: differences.map((difference) => explainUnwantedEntry(difference, cluster)),
    notes,
  };
};

/**
 * Returns the relay that a cluster's entries call; undefined if they call none. Its `ca` is empty and not used: the
 * caller of this function passes the CA to `buildClusterObjects` by itself.
 */
const toRelayService = ([service]: RelayReference[]): RelayService | undefined => {
  if (service === undefined) return undefined;
  const { namespace, name, port } = service;
  return { namespace, name, ...(port !== undefined && { port }), ca: "" };
};

const listOtherInstances = async (api: ClusterApi, ownName: string): Promise<string[]> => {
  const configurations = (await Promise.all(webhookKinds.map((kind) => api.list(kind)))).flat().filter(isFromPostern);
  return [...new Set(configurations.map(({ metadata }) => metadata.name))].filter((name) => name !== ownName).sort();
};

/** If a difference is a left-over entry whose rule is off, adds this reason to the sentence. */
const explainUnwantedEntry = (
  difference: DeployedObjectDifference,
  { rules, groups }: ClusterConfig,
): DeployedObjectDifference => {
  const { what, entry, sentence } = difference;
  const rule = entry === undefined ? undefined : getRuleNameOfEntry({ name: entry });
  if (what !== "left over" || rule === undefined || groups.some((group) => group.name === rule)) return difference;
  const isOn = (rules.get(rule)?.mode ?? "off") !== "off";
  return isOn ? difference : { ...difference, sentence: `${sentence}: the rule ${rule} is off` };
};

/** Returns what `postern status` prints of an object, with the time and author of its last change. */
const toRegisteredObject = ({ kind, metadata, webhooks }: DeployedObject): RegisteredObject => {
  const { creationTimestamp, managedFields = [] } = metadata as {
    creationTimestamp?: string;
    managedFields?: object[];
  };
  const last = managedFields
    .map((fields) => fields as { time?: string; manager?: string })
    .filter(({ time }) => time !== undefined)
    .reduce<{ time?: string; manager?: string }>(
      (latest, candidate) => ((latest.time ?? "") > (candidate.time ?? "") ? latest : candidate),
      {},
    );
  return {
    kind,
    name: metadata.name,
    ...(kind.endsWith("WebhookConfiguration") && { entries: toNamedWebhookEntries(webhooks).length }),
    since: String(creationTimestamp),
    changed: last.time ?? null,
    by: last.manager ?? null,
  };
};
