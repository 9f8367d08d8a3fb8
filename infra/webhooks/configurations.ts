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
import { explainWhyWebhookIsNeeded } from "./native-policies.ts";
import { describeUsualWaits, type EntryWithTimeout, findLongWaits, type LongWait } from "./waits.ts";

/** How webhook configurations are built. */
export interface WebhookConfigurationOptions {
  name: string;
  /**
   * Returns the URL of a rule's endpoint, with the cluster's key. `path` is for instance `mutate` or `mutate/VARIANT`.
   */
  address(rule: string, path: string): string;
  /** The certificate (PEM) of the CA of the endpoints; undefined if a public CA has signed their certificates. */
  ca?: string | undefined;
  /** The certificate (PEM) of the CA of the cluster's relay. */
  relayCa?: string | undefined;
  /**
   * Whether webhook entries of security rules (`guards`) get failurePolicy Fail: for all, or by the name of a rule or
   * group.
   */
  harden: boolean | ((name: string) => boolean);
  /** Is called with a warning about entries that could delay a request too long. Without it, they are an error. */
  warnOfLongWait?(sentence: string): void;
}

/** The Service of a relay, and a path without a key. The relay adds the key. */
export type RelayReference = Omit<RelayService, "ca"> & { path: string };

/** A webhook of a webhook configuration. */
export interface WebhookEntry {
  name: string;
  clientConfig: {
    /** The URL of the rule's endpoint, also if the cluster has a relay, which then calls this URL. */
    url: string;
    caBundle?: string;
    /** For a cluster with a relay. When the entry is written, `callThroughRelay` replaces the clientConfig by this. */
    relay?: { service: RelayReference; caBundle: string };
    /** Only in entries that were read from a cluster with a relay: in place of `url` and `relay`. */
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
 * Returns a cluster's two webhook configurations. Their entries have the order in which an API server runs its
 * compiled-in plugins. A configuration may be without entries: applying it deletes the entries of rules that were
 * turned off.
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
  const warnings = findLongWaits(entries).map(
    (wait) => `${wait.sentence}; ${suggestShorterWait(catalogue, cluster, registration, wait)}`,
  );
  // Without `warnOfLongWait`, long waits are an error. A caller with `warnOfLongWait` gets them as warnings.
  if (warnings.length > 0 && registration.warnOfLongWait === undefined) throw new Complaint(warnings.join("\n"));
  for (const sentence of warnings) registration.warnOfLongWait?.(sentence);
  return createConfigurations(registration.name, entries);
};

/**
 * Returns a cluster's webhook configurations without checks: conflicts in groups and long waits are no errors. The
 * configurations have placeholders in place of URLs, so they are only for analysis.
 */
export const buildUncheckedConfigurations = (catalogue: CatalogueRule[], cluster: ClusterConfig) =>
  createConfigurations(placeholderOptions.name, buildEntries(catalogue, cluster, placeholderOptions));

const placeholderOptions = { name: "postern", address: () => "https://localhost", harden: false };

/** Describes how long common writes (pods, leases …) could wait for a cluster's webhooks; undefined if it has none. */
export const describeWaits = (catalogue: CatalogueRule[], cluster: ClusterConfig): string | undefined => {
  const entries = buildEntries(catalogue, cluster, placeholderOptions);
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

/**
 * Suggests how to shorten a wait: as few groups of its mutating rules as necessary, or all possible groups and shorter
 * timeouts.
 */
const suggestShorterWait = (
  catalogue: CatalogueRule[],
  cluster: ClusterConfig,
  registration: WebhookConfigurationOptions,
  { kind, seconds, mutating }: LongWait,
): string => {
  const names = new Set(mutating.map(({ webhook }) => getRuleNameOfEntry(webhook)));
  const grouped = cluster.groups.flatMap(({ members }) => members);
  const ungrouped = catalogue.filter((listed) => names.has(listed.name) && !grouped.includes(listed));
  const sets = groupCompatibleRules(ungrouped, [cluster]);
  const usedNames = [...catalogue, ...cluster.groups].map(({ name }) => name);
  const groups = sets
    .filter((members) => members.length > 1)
    .sort((left, right) => right.length - left.length)
    .map((members, index) => ({
      name: `${usedNames.includes("mutators") ? "more-" : ""}mutators${index > 0 ? `-${index + 1}` : ""}`,
      members,
    }));
  // The wait that remains with the first group, with the first two groups, and so on; undefined if it isn't too long.
  const remainingSeconds = groups.map((_, index) => {
    const withGroups = { ...cluster, groups: [...cluster.groups, ...groups.slice(0, index + 1)] };
    const waits = findLongWaits(buildEntries(catalogue, withGroups, registration));
    return waits.find((wait) => wait.kind === kind)?.seconds;
  });
  const lastNeededIndex = remainingSeconds.indexOf(undefined);
  const areGroupsEnough = lastNeededIndex >= 0;
  const texts = (areGroupsEnough ? groups.slice(0, lastNeededIndex + 1) : groups).map(
    ({ name, members }) => `${name}: [${members.map((member) => member.name).join(", ")}]`,
  );
  const secondsWithAllGroups = remainingSeconds.at(-1) ?? seconds; // without groups, the wait stays the same
  if (!areGroupsEnough && secondsWithAllGroups >= seconds) return "shorten some by timeoutSeconds in postern.yaml";
  const change = areGroupsEnough
    ? "enough; or shorten the timeoutSeconds of some rules"
    : `to ${secondsWithAllGroups} s; shorten the rest by timeoutSeconds`;
  return `groups: { ${texts.join(", ")} } in postern.yaml shortens that ${change}`;
};

/** A webhook entry, and what is needed to calculate how long a request could wait for entries. */
interface BuiltEntry extends EntryWithTimeout {
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

/** Builds the entries of a phase in the order of the rules. A group has the place of its first member that is on. */
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
        .filter((variantEntry) => explainWhyWebhookIsNeeded(setup, variantEntry, cluster) !== undefined)
        .map((variantEntry) => {
          const webhook = toWebhook(listed.name, phase, variantEntry, registration);
          // `exclusiveGroup`: a request gets to at most one of the entries with the same value. The variants of a rule
          // have the same, but not if they are admission policies: a request can get to several of these.
          const isAdmissionPolicy = variantEntry.native !== undefined;
          const exclusiveGroup = isAdmissionPolicy ? webhook.name : listed.name;
          return { webhook, exclusiveGroup, exemptResources: variantEntry.entry.exempt.resources ?? [] };
        });
    const isFirst = group.members.find(({ name }) => (cluster.rules.get(name)?.mode ?? "off") !== "off") === listed;
    if (!isFirst) return [];
    const entry = buildGroupWebhookEntry(group, cluster, isHardened(registration, group.name));
    if (entry === undefined) return [];
    const webhook = toWebhook(group.name, phase, { entry }, registration);
    return [{ webhook, exclusiveGroup: group.name, exemptResources: entry.exempt.resources ?? [] }];
  });

const isHardened = ({ harden }: WebhookConfigurationOptions, name: string) =>
  typeof harden === "boolean" ? harden : harden(name);

/** Returns an entry of a webhook configuration. */
const toWebhook = (
  rule: string,
  phase: Phase,
  { variant, entry }: VariantWebhookEntry,
  { address, ca, relayCa, service }: Registration,
): WebhookEntry => {
  const path = variant === undefined ? phase : `${phase}/${variant}`;
  const { match, exempt, objectSelector } = entry;
  const conditions = listEntryConditions(entry);
  // The namespace of the relay is exempt: if the relay is down, its own pods must be created without it.
  const namespaces = new Set([...(exempt.namespaces ?? []), ...(service ? [service.namespace] : [])]);
  const exemptSelector = buildExemptNamespaceSelector({ ...exempt, namespaces: [...namespaces] });
  const namespaceSelector = combineSelectors(entry.namespaceSelector, exemptSelector);
  return {
    name: formatEntryName(rule, variant),
    clientConfig: {
      url: address(rule, path),
      ...(ca && { caBundle: encodeBase64(ca) }),
      // When the entry is written to the cluster, `callThroughRelay` replaces the clientConfig by this.
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

/**
 * Returns an object as it is written to a cluster: entries with a `relay` call the relay in place of the rule's URL.
 * Other objects stay as they are.
 */
export const callThroughRelay = <T extends object>(object: T): T => {
  const webhooks: unknown = Reflect.get(object, "webhooks");
  if (!Array.isArray(webhooks)) return object;
  const replace = (entry: WebhookEntry) =>
    entry.clientConfig?.relay ? { ...entry, clientConfig: entry.clientConfig.relay } : entry;
  return { ...object, webhooks: webhooks.map(replace) };
};

/** Returns the name of an entry, for instance `RULE.postern.dev` or `VARIANT.RULE.postern.dev`. */
export const formatEntryName = (rule: string, variant?: string): string =>
  variant === undefined ? `${rule}.postern.dev` : `${variant}.${rule}.postern.dev`;

/** Returns the rule or group of a webhook entry, for instance `pods` for the entry `my-variant.pods.postern.dev`. */
export const getRuleNameOfEntry = ({ name }: Pick<WebhookEntry, "name">) =>
  name
    .replace(/\.postern\.dev$/, "")
    .split(".")
    .at(-1);
