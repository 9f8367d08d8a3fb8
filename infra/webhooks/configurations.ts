import type { LabelSelector } from "#lib/objects/selection.ts";
import type { Phase, RequestMatch } from "#lib/rule.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import { Complaint } from "../cli/complaint.ts";
import type { ClusterConfig, RelayService } from "../config/config.ts";
import {
  buildExemptNamespaceSelector,
  buildRuleWebhookEntries,
  combineSelectors,
  joinCelExpressionLines,
  listEntryConditions,
  type VariantWebhookEntry,
} from "./entry.ts";
import { buildGroupWebhookEntry, groupCompatibleRules, listSharedEntryConflicts } from "./groups.ts";
import { buildObjectLabels } from "./labels.ts";
import { explainEntry } from "./native-policies.ts";
import { describeUsualWaits, findLongWaits, type LongWait, type TimedEntry } from "./waits.ts";

export interface WebhookConfigurationOptions {
  name: string;
  /** Returns the URL of a rule's endpoint, with the cluster's key. `path` is the phase, or the phase and a variant. */
  address(rule: string, path: string): string;
  /** The CA of the endpoints in PEM; undefined if the API server's own root certificates suffice. */
  ca?: string | undefined;
  /** The CA of the cluster's relay in PEM; it belongs to the cluster's `service`. */
  relayCa?: string | undefined;
  /**
   * Whether webhook entries of security rules (`guards`) get failurePolicy Fail: true for all, or by rule or group.
   */
  harden: boolean | ((name: string) => boolean);
  /** Gets a warning about entries that could delay a request too long. Without this function, they are an error. */
  slow?(sentence: string): void;
}

/** A relay as an API server calls it: the path has no key, which the relay adds. */
export type RelayReference = Omit<RelayService, "ca"> & { path: string };

export interface WebhookEntry {
  name: string;
  /** With a `relay`, the URL and its CA are what that calls; in a cluster, its `service` is there in place of them. */
  clientConfig: {
    url: string;
    caBundle?: string;
    relay?: { service: RelayReference; caBundle: string };
    service?: RelayReference;
  };
  rules: readonly RequestMatch[];
  failurePolicy: "Fail" | "Ignore";
  matchPolicy: "Equivalent" | "Exact";
  namespaceSelector?: LabelSelector;
  objectSelector?: LabelSelector;
  matchConditions?: { name: string; expression: string }[];
  sideEffects: "None" | "NoneOnDryRun";
  timeoutSeconds: number;
  reinvocationPolicy?: "IfNeeded" | "Never";
  admissionReviewVersions: string[];
}

/**
 * Returns a cluster's webhook configurations, with entries in the order of the compiled-in plugins. A configuration without
 * entries is returned, too: applying it deletes the entries of rules that were turned off.
 */
export const buildWebhookConfigurations = (
  catalogue: CatalogueRule[],
  cluster: ClusterConfig,
  registration: WebhookConfigurationOptions,
) => {
  const conflicts = cluster.groups.flatMap((group) =>
    listSharedEntryConflicts(group, cluster, isHardened(registration, group.name)).map(
      (conflict) => `groups.${group.name} ${conflict}`,
    ),
  );
  if (conflicts.length > 0) throw new Complaint(conflicts.join("\n"));
  const entries = buildEntries(catalogue, cluster, registration);
  const slow = findLongWaits(entries).map(
    (wait) => `${wait.sentence}; ${suggestShorterWait(catalogue, cluster, registration, wait)}`,
  );
  if (slow.length > 0 && registration.slow === undefined) throw new Complaint(slow.join("\n"));
  for (const sentence of slow) registration.slow?.(sentence);
  return createConfigurations(registration.name, entries);
};

/** Returns configurations as `buildWebhookConfigurations` does, for questions about them: none of them is refused. */
export const buildUncheckedConfigurations = (catalogue: CatalogueRule[], cluster: ClusterConfig) =>
  createConfigurations(placeholder.name, buildEntries(catalogue, cluster, placeholder));

const placeholder = { name: "postern", address: () => "https://localhost", harden: false };

/** Describes how long the usual writes of a cluster could wait for its entries; undefined if it has none. */
export const describeWaits = (catalogue: CatalogueRule[], cluster: ClusterConfig): string | undefined => {
  const entries = buildEntries(catalogue, cluster, placeholder);
  return entries.mutating.length + entries.validating.length === 0 ? undefined : describeUsualWaits(entries);
};

const buildEntries = (catalogue: CatalogueRule[], cluster: ClusterConfig, options: WebhookConfigurationOptions) => {
  const registration = { ...options, service: cluster.service };
  return {
    mutating: buildWebhooks("mutate", catalogue, cluster, registration),
    validating: buildWebhooks("validate", catalogue, cluster, registration),
  };
};

type Registration = WebhookConfigurationOptions & Pick<ClusterConfig, "service">;

/** Says how to shorten a wait: by as few groups of its mutating rules as suffice, or by all and shorter timeouts. */
const suggestShorterWait = (
  catalogue: CatalogueRule[],
  cluster: ClusterConfig,
  registration: WebhookConfigurationOptions,
  { kind, seconds, mutating }: LongWait,
): string => {
  const names = new Set(mutating.map(({ webhook }) => getRuleNameOfEntry(webhook)));
  const grouped = cluster.groups.flatMap(({ members }) => members);
  const free = catalogue.filter((listed) => names.has(listed.name) && !grouped.includes(listed));
  const sets = groupCompatibleRules(free, [cluster]);
  const taken = [...catalogue, ...cluster.groups].map(({ name }) => name);
  const groups = sets
    .filter((members) => members.length > 1)
    .sort((one, other) => other.length - one.length)
    .map((members, index) => ({
      name: `${taken.includes("mutators") ? "more-" : ""}mutators${index > 0 ? `-${index + 1}` : ""}`,
      members,
    }));
  const remaining = groups.map((_, index) => {
    const together = { ...cluster, groups: [...cluster.groups, ...groups.slice(0, index + 1)] };
    return findLongWaits(buildEntries(catalogue, together, registration)).find((wait) => wait.kind === kind)?.seconds;
  });
  const fitting = remaining.indexOf(undefined);
  const texts = (fitting < 0 ? groups : groups.slice(0, fitting + 1)).map(
    ({ name, members }) => `${name}: [${members.map((member) => member.name).join(", ")}]`,
  );
  const last = remaining.at(-1);
  if (fitting < 0 && (last === undefined || last >= seconds)) return "shorten some by timeoutSeconds in postern.yaml";
  const change = fitting < 0 ? `to ${last} s; shorten the rest by timeoutSeconds` : "enough, or timeoutSeconds of some";
  return `groups: { ${texts.join(", ")} } in postern.yaml shortens that ${change}`;
};

interface BuiltEntry extends TimedEntry {
  webhook: WebhookEntry;
}

const createConfigurations = (name: string, { mutating, validating }: ReturnType<typeof buildEntries>) => [
  createConfiguration("MutatingWebhookConfiguration", name, mutating),
  createConfiguration("ValidatingWebhookConfiguration", name, validating),
];

const createConfiguration = (kind: string, name: string, entries: BuiltEntry[]) => {
  const labels = buildObjectLabels(name);
  const webhooks = entries.map(({ webhook }) => webhook);
  return { apiVersion: "admissionregistration.k8s.io/v1", kind, metadata: { name, labels }, webhooks };
};

/** Builds the entries of a phase in order. A group has the position of its first member that is turned on. */
const buildWebhooks = (
  phase: Phase,
  catalogue: CatalogueRule[],
  cluster: ClusterConfig,
  registration: Registration,
): BuiltEntry[] =>
  catalogue.flatMap((listed) => {
    const setup = cluster.rules.get(listed.name);
    if (setup === undefined || setup.mode === "off" || !listed.phases.includes(phase)) return [];
    const group = phase === "mutate" ? cluster.groups.find(({ members }) => members.includes(listed)) : undefined;
    if (group === undefined)
      return buildRuleWebhookEntries(listed, phase, setup, isHardened(registration, listed.name))
        .filter((variantEntry) => explainEntry(setup, variantEntry, cluster) !== undefined)
        .map((variantEntry) => {
          const webhook = toWebhook(listed.name, phase, variantEntry, registration);
          // Variants of a rule divide the requests; policies, each an entry, can match the same request.
          const oneOf = variantEntry.native ? webhook.name : listed.name;
          return { webhook, oneOf, exemptResources: variantEntry.entry.exempt.resources ?? [] };
        });
    const isFirst = group.members.find(({ name }) => (cluster.rules.get(name)?.mode ?? "off") !== "off") === listed;
    if (!isFirst) return [];
    const entry = buildGroupWebhookEntry(group, cluster, isHardened(registration, group.name));
    if (entry === undefined) return [];
    const webhook = toWebhook(group.name, phase, { entry }, registration);
    return [{ webhook, oneOf: group.name, exemptResources: entry.exempt.resources ?? [] }];
  });

const isHardened = ({ harden }: WebhookConfigurationOptions, name: string) =>
  typeof harden === "boolean" ? harden : harden(name);

const toWebhook = (
  rule: string,
  phase: Phase,
  { variant, entry }: VariantWebhookEntry,
  { address, ca, relayCa, service }: Registration,
): WebhookEntry => {
  const path = variant === undefined ? phase : `${phase}/${variant}`;
  const { match, exempt, objectSelector } = entry;
  const conditions = listEntryConditions(entry);
  // A relay that is down must not prevent its own pods.
  const namespaces = new Set([...(exempt.namespaces ?? []), ...(service ? [service.namespace] : [])]);
  const exemptSelector = buildExemptNamespaceSelector({ ...exempt, namespaces: [...namespaces] });
  const namespaceSelector = combineSelectors(entry.namespaceSelector, exemptSelector);
  return {
    name: formatEntryName(rule, variant),
    clientConfig: {
      url: address(rule, path),
      ...(ca && { caBundle: encodeBase64(ca) }),
      ...(service && { relay: buildRelayClientConfig(service, `/${rule}/${path}`, relayCa) }),
    },
    rules: match.map((row) => ({ scope: "*", ...row })),
    failurePolicy: entry.failurePolicy,
    matchPolicy: entry.matchPolicy,
    ...(namespaceSelector && { namespaceSelector }),
    ...(objectSelector && { objectSelector }),
    ...(conditions.length > 0 && {
      matchConditions: conditions.map(([name, expression]) => ({
        name,
        expression: joinCelExpressionLines(expression),
      })),
    }),
    sideEffects: entry.sideEffects,
    timeoutSeconds: entry.timeoutSeconds,
    ...(phase === "mutate" && { reinvocationPolicy: entry.reinvocationPolicy }),
    admissionReviewVersions: ["v1", "v1beta1"],
  };
};

const encodeBase64 = (text: string) => Buffer.from(text).toString("base64");

const buildRelayClientConfig = ({ ca: _, ...service }: RelayService, path: string, ca = "") => {
  return { service: { ...service, path }, caBundle: encodeBase64(ca) };
};

/** Returns an object as a cluster gets it: if it has a relay, its webhook entries call that, without a key. */
export const callThroughRelay = <T extends object>(object: T): T => {
  const webhooks: unknown = Reflect.get(object, "webhooks");
  if (!Array.isArray(webhooks)) return object;
  const replace = (entry: WebhookEntry) =>
    entry.clientConfig?.relay ? { ...entry, clientConfig: entry.clientConfig.relay } : entry;
  return { ...object, webhooks: webhooks.map(replace) };
};

/** Returns the name of the entries of a rule or a group. */
export const formatEntryName = (rule: string, variant?: string): string =>
  variant === undefined ? `${rule}.postern.dev` : `${variant}.${rule}.postern.dev`;

/**
 * Returns the rule or group of a webhook entry: the last part of the entry's name before the domain. Rule names have
 * no dots.
 */
export const getRuleNameOfEntry = ({ name }: Pick<WebhookEntry, "name">) =>
  name
    .replace(/\.postern\.dev$/, "")
    .split(".")
    .at(-1);
