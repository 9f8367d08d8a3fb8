import type { LabelSelector } from "#lib/objects/selection.ts";
import type { Operation } from "#lib/review.ts";
import type { Phase, RequestMatch } from "#lib/rule.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import { Complaint } from "../cli/complaint.ts";
import type { ClusterConfig } from "../config/config.ts";
import {
  buildExemptNamespaceSelector,
  buildRuleWebhookEntries,
  combineSelectors,
  joinCelExpressionLines,
  listEntryConditions,
  type VariantWebhookEntry,
} from "./entry.ts";
import { buildGroupWebhookEntry, listSharedEntryConflicts } from "./groups.ts";
import { buildObjectLabels } from "./labels.ts";
import { explainEntry } from "./native-policies.ts";

export interface WebhookConfigurationOptions {
  name: string;
  /** Returns the URL of a rule's endpoint, with the cluster's key. `path` is the phase, or the phase and a variant. */
  address(rule: string, path: string): string;
  /** The CA of the endpoints in PEM; undefined if the API server's own root certificates suffice. */
  ca?: string | undefined;
  /**
   * Whether webhook entries of security rules (`guards`) get failurePolicy Fail: true for all, or by rule or group.
   */
  harden: boolean | ((name: string) => boolean);
  /** Gets a warning about entries that could delay a request too long. Without this function, they are an error. */
  slow?(sentence: string): void;
}

export interface WebhookEntry {
  name: string;
  clientConfig: { url: string; caBundle?: string };
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

/** The most seconds of mutating calls in a row: the API server makes them one by one, within a limit of 34 s. */
const longestChain = 20;

/**
 * Returns a cluster's webhook configurations, with entries in the order of the compiled-in plugins. A configuration without
 * entries is returned, too: applying it deletes the entries of rules that were turned off.
 */
export const buildWebhookConfigurations = (
  catalogue: CatalogueRule[],
  cluster: ClusterConfig,
  registration: WebhookConfigurationOptions,
) => {
  const mutating = buildWebhooks("mutate", catalogue, cluster, registration);
  const slow = findSlowRequest(mutating);
  if (slow !== undefined && registration.slow === undefined) throw new Complaint(slow);
  if (slow !== undefined) registration.slow?.(slow);
  const validating = buildWebhooks("validate", catalogue, cluster, registration);
  return [
    createConfiguration("MutatingWebhookConfiguration", registration.name, mutating),
    createConfiguration("ValidatingWebhookConfiguration", registration.name, validating),
  ];
};

interface BuiltEntry {
  webhook: WebhookEntry;
  /** The API server calls at most one of the entries with the same value for a request. */
  oneOf: string;
}

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
  registration: WebhookConfigurationOptions,
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
          return { webhook, oneOf: variantEntry.native ? webhook.name : listed.name };
        });
    const isFirst = group.members.find(({ name }) => (cluster.rules.get(name)?.mode ?? "off") !== "off") === listed;
    if (!isFirst) return [];
    const [disagreement] = listSharedEntryConflicts(group, cluster, isHardened(registration, group.name));
    if (disagreement) throw new Complaint(`groups.${group.name} ${disagreement}`);
    const entry = buildGroupWebhookEntry(group, cluster, isHardened(registration, group.name));
    return entry ? [{ webhook: toWebhook(group.name, phase, { entry }, registration), oneOf: group.name }] : [];
  });

const isHardened = ({ harden }: WebhookConfigurationOptions, name: string) =>
  typeof harden === "boolean" ? harden : harden(name);

const toWebhook = (
  rule: string,
  phase: Phase,
  { variant, entry }: VariantWebhookEntry,
  { address, ca }: WebhookConfigurationOptions,
): WebhookEntry => {
  const [name, path] = variant === undefined ? [rule, phase] : [`${variant}.${rule}`, `${phase}/${variant}`];
  const { match, exempt, objectSelector } = entry;
  const conditions = listEntryConditions(entry);
  const namespaceSelector = combineSelectors(entry.namespaceSelector, buildExemptNamespaceSelector(exempt));
  return {
    name: `${name}.postern.dev`,
    clientConfig: { url: address(rule, path), ...(ca && { caBundle: Buffer.from(ca).toString("base64") }) },
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

const findSlowRequest = (entries: BuiltEntry[]): string | undefined => {
  const listValues = (getPart: (match: RequestMatch) => readonly string[]) => [
    ...new Set(entries.flatMap(({ webhook }) => webhook.rules.flatMap(getPart))),
  ];
  const names = listValues(({ resources }) => resources.map((path) => path.split("/")[0] ?? ""));
  const subs = listValues(({ resources }) => ["", ...resources.map((path) => path.split("/")[1] ?? "")]);
  const longest = { seconds: 0, rules: [] as string[], request: "" };
  for (const group of listValues(({ apiGroups }) => apiGroups))
    for (const resource of names.flatMap((name) => subs.map((sub) => (sub === "" ? name : `${name}/${sub}`))))
      for (const operation of ["CREATE", "UPDATE", "DELETE", "CONNECT"] satisfies Operation[]) {
        const called = entries.filter(({ webhook }) =>
          webhook.rules.some((match) => isMatched(match, group, resource, operation)),
        );
        // Of entries of which one is called, the longest timeout counts.
        const sets = Map.groupBy(called, ({ oneOf }) => oneOf).values();
        const seconds = sets.reduce(
          (sum, all) => sum + Math.max(...all.map(({ webhook }) => webhook.timeoutSeconds)),
          0,
        );
        if (seconds <= longest.seconds) continue;
        const rules = called.map(({ webhook }) => webhook.name.replace(/\.postern\.dev$/, ""));
        Object.assign(longest, { seconds, rules, request: `${operation} of ${resource}` });
      }
  if (longest.seconds <= longestChain) return undefined;
  return `a ${longest.request} could wait ${longest.seconds} s for ${longest.rules.join(", ")}, more than the ${longestChain} s that are safe; group them, or shorten one by timeoutSeconds, in postern.yaml`;
};

/**
 * Returns the rule or group of a webhook entry: the last part of the entry's name before the domain. Rule names have
 * no dots.
 */
export const getRuleNameOfEntry = ({ name }: Pick<WebhookEntry, "name">) =>
  name
    .replace(/\.postern\.dev$/, "")
    .split(".")
    .at(-1);

const overlaps = (list: readonly string[], wanted: readonly string[]) =>
  list.includes("*") || wanted.some((name) => list.includes(name));

const isMatched = (
  { apiGroups, resources, operations }: RequestMatch,
  group: string,
  path: string,
  operation: Operation,
) => {
  const [resource, sub = ""] = path.split("/");
  return (
    overlaps(apiGroups, [group]) &&
    overlaps(operations, [operation]) &&
    resources.some((entry) => {
      const [wanted, wantedSub = ""] = entry.split("/");
      return [resource, "*"].includes(wanted) && (wantedSub === "*" || wantedSub === sub);
    })
  );
};
