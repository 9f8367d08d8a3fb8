import { getErrorMessage } from "../failure.ts";
import { isTextList, toList, toMap } from "../json.ts";
import type { ResourceType, ServedResource } from "../needs.ts";
import { splitApiVersion } from "../objects/api-version.ts";
import { toPlural } from "../recording/recorded-answers.ts";
import type { Operation } from "../review.ts";
import type { InspectedCluster, ParsedManifests, RequestMatch, SettingsAfterInspection } from "../rule.ts";
import { parsePolicies } from "./policy-documents.ts";
import type { AlwaysInterceptedRequests, PolicySettings } from "./policy-rules.ts";
import { findPolicyHttpSettingsFault } from "./references/http.ts";
import { hasValidApiVersionAndKind, listReferencedKinds, type ReferencedKind } from "./references/referenced-kinds.ts";
import { isLabelSelector } from "./selectors.ts";
import { getPolicyName, type KinitirasPolicy, policyGroup } from "./types.ts";

/** Finds the resource of a kind; undefined if the cluster doesn't serve the kind. */
type FindResource = (kind: ReferencedKind) => Required<ResourceType> | undefined;

const listSelectors = ({ spec }: KinitirasPolicy): unknown[] => toList(toMap(spec).resourceSelectors);

/** Guesses the resource of a kind: its plural, formed as for Kubernetes' own kinds. */
const guessResource: FindResource = ({ apiVersion, kind }) => ({
  ...splitApiVersion(apiVersion),
  resource: toPlural(kind),
});

/** Builds the webhook rules for one policy. `possible` has the operations for which policies of its kind can apply. */
const buildWebhookRules = (
  policy: KinitirasPolicy,
  possible: readonly Operation[],
  findResource: FindResource,
): RequestMatch[] => {
  const { overrideRules, validateRules } = toMap(policy.spec);
  const rules = [overrideRules, validateRules].flatMap(toList);
  const operationLists = rules.map((rule) => toList(toMap(rule).targetOperations));
  const isAny = operationLists.some((list) => list.length === 0 || list.includes("*"));
  const operations = possible.filter((operation) => isAny || operationLists.some((list) => list.includes(operation)));
  if (operations.length === 0) return [];
  const selectors = listSelectors(policy);
  if (selectors.length === 0) {
    const scope = policy.kind === "OverridePolicy" ? ("Namespaced" as const) : undefined;
    return [{ apiGroups: ["*"], apiVersions: ["*"], resources: ["*"], operations, ...(scope && { scope }) }];
  }
  return selectors.filter(hasValidApiVersionAndKind).flatMap((selector) => {
    const type = findResource(selector);
    if (type === undefined || type.group === policyGroup) return [];
    return [{ apiGroups: [type.group], apiVersions: [type.version], resources: [type.resource], operations }];
  });
};

/** Merges webhook rules into fewer rules that match the same requests. Their order depends only on their content. */
const mergeWebhookRules = (webhookRules: readonly RequestMatch[], possible: readonly Operation[]): RequestMatch[] => {
  // First, one rule for each resource, with the operations of all rules for the resource.
  const single = webhookRules.flatMap((webhookRule) =>
    webhookRule.resources.map((resource) => ({ ...webhookRule, resources: [resource] })),
  );
  const groups = [...Map.groupBy(single, ({ operations: _, ...webhookRule }) => JSON.stringify(webhookRule)).values()];
  const rulesByResource = groups.map((group) => {
    const { operations: _, ...webhookRule } = group[0] as RequestMatch;
    const isUsed = (operation: Operation) => group.some(({ operations }) => includesValue(operations, operation));
    return { ...webhookRule, operations: possible.filter(isUsed) };
  });
  // Then, rules are dropped if rules for all resources match their requests. The resource * includes no subresources.
  const matchesEverything = ({ apiGroups, apiVersions, resources, scope }: RequestMatch) =>
    scope === undefined && [apiGroups, apiVersions, resources].every((names) => names.includes("*"));
  const rulesForAll = rulesByResource.filter(matchesEverything);
  const neededRules = rulesByResource.filter(
    (webhookRule) =>
      rulesForAll.includes(webhookRule) ||
      !webhookRule.operations.every((operation) =>
        rulesForAll.some(({ operations }) => operations.includes(operation)),
      ) ||
      webhookRule.resources.some((path) => path.includes("/")),
  );
  // Last, rules that differ only in their resources become one rule.
  const equalButResources = Map.groupBy(neededRules, ({ resources: _, ...webhookRule }) => JSON.stringify(webhookRule));
  return [...equalButResources.values()]
    .map((group) => ({
      ...(group[0] as RequestMatch),
      resources: [...new Set(group.flatMap(({ resources }) => resources))].sort(),
    }))
    .sort((left, right) => (JSON.stringify(left) < JSON.stringify(right) ? -1 : 1));
};

/** Returns a function that builds the webhook rules for settings. `possible` has the policies' possible operations. */
export const createPolicyMatch =
  (...possible: Operation[]) =>
  ({ policies, intercept }: PolicySettings): RequestMatch[] =>
    mergeWebhookRules(
      [
        // The requests that the setting `intercept` adds to those to which policies apply.
        ...intercept.map((requests) => toWebhookRule(requests, possible)),
        ...policies.flatMap((policy) => buildWebhookRules(policy, possible, guessResource)),
      ],
      possible,
    );

const toWebhookRule = (
  { operations = ["*"], ...requests }: AlwaysInterceptedRequests,
  possible: readonly Operation[],
): RequestMatch => {
  return { ...requests, operations: possible.filter((operation) => includesValue(operations, operation)) };
};

const includesValue = (wanted: readonly string[], value = "") => wanted.includes("*") || wanted.includes(value);

/**
 * Returns a function that inspects a cluster and returns settings without policies. Instead, it adds to `intercept` the
 * requests for which the policies of the settings and of the cluster are evaluated, and to `reads` what they read.
 */
export const createWebhookRulesInspection =
  (resourceTypes: readonly ResourceType[], ...possible: Operation[]) =>
  async (settings: PolicySettings, cluster: InspectedCluster): Promise<SettingsAfterInspection<PolicySettings>> => {
    const notes: string[] = [];
    const found = settings.inCluster ? await listClusterPolicies(cluster, resourceTypes, notes) : [];
    const policies = [...settings.policies, ...found];
    const kinds = policies.flatMap((policy) => [
      ...listSelectors(policy).filter(hasValidApiVersionAndKind),
      ...listReferencedKinds(policy),
    ]);
    const findResource = await discoverResources(cluster, kinds, notes);
    for (const policy of policies)
      for (const kind of listSelectors(policy)) {
        const name = `${policy.kind} ${getPolicyName(policy)}`;
        if (!hasValidApiVersionAndKind(kind)) notes.push(`${name} has a selector whose kind can't exist`);
        else if (findResource(kind) === undefined)
          notes.push(`${name} selects ${kind.kind} of ${kind.apiVersion}, which the cluster doesn't serve`);
      }
    const webhookRules = policies.flatMap((policy) => buildWebhookRules(policy, possible, findResource));
    const reads = policies.flatMap(listReferencedKinds).flatMap((kind) => findResource(kind) ?? []);
    return {
      settings: {
        ...settings,
        policies: [],
        intercept: [...settings.intercept, ...webhookRules],
        reads: [...settings.reads, ...new Map(reads.map((read) => [JSON.stringify(read), read])).values()],
      },
      notes: [...new Set(notes)],
    };
  };

/**
 * Returns a function that finds the resource of one of these kinds, by the cluster's discovery. Without `discover`, the
 * resource is guessed. If the discovery of a group fails, this throws. But with `notes`, it adds a note and guesses the
 * group's resources, so that other policies get their webhook rules.
 */
const discoverResources = async (
  { discover }: Pick<InspectedCluster, "discover">,
  kinds: readonly ReferencedKind[],
  notes?: string[],
): Promise<FindResource> => {
  if (discover === undefined) return guessResource;
  const versions = [...new Set(kinds.map(({ apiVersion }) => apiVersion))];
  const servedByVersion = new Map<string, ServedResource[] | undefined>();
  const failedVersions = new Set<string>();
  for (const version of versions)
    try {
      servedByVersion.set(version, await discover(version));
    } catch (error) {
      if (notes === undefined) throw error;
      failedVersions.add(version);
      notes.push(`the resources of ${version} can't be discovered: ${getErrorMessage(error)}`);
    }
  return ({ apiVersion, kind }) => {
    if (failedVersions.has(apiVersion)) return guessResource({ apiVersion, kind });
    const found = servedByVersion.get(apiVersion)?.find((type) => type.kind === kind && !type.resource.includes("/"));
    return found && { ...splitApiVersion(apiVersion), resource: found.resource };
  };
};

/** Lists a cluster's policies of all these kinds. A note says if the cluster doesn't have the kinds. */
const listClusterPolicies = async (
  { list, discover }: InspectedCluster,
  resourceTypes: readonly ResourceType[],
  notes: string[],
): Promise<KinitirasPolicy[]> => {
  if (discover !== undefined && (await discover(`${policyGroup}/v1alpha1`)) === undefined) {
    notes.push("the cluster doesn't serve the policy kinds; their CRDs are in functions/policy-admission/crds");
    return [];
  }
  const lists = await Promise.all(resourceTypes.map((resourceType) => list(resourceType, undefined, { maxAge: 0 })));
  // The objects have the kinds of policies, but their content is not checked and may be any JSON.
  return lists.flat() as unknown as KinitirasPolicy[];
};

/** Describes requests to which a policy applies, but which no webhook with the rules `webhookRules` receives. */
export const describeUnsentRequests = async (
  policy: KinitirasPolicy,
  possible: readonly Operation[],
  cluster: Pick<InspectedCluster, "discover">,
  webhookRules: readonly RequestMatch[],
): Promise<string[]> => {
  const findResource = await discoverResources(cluster, listSelectors(policy).filter(hasValidApiVersionAndKind));
  return buildWebhookRules(policy, possible, findResource).flatMap(
    ({ apiGroups: [group], resources: [resource], operations }) => {
      const missing = operations.filter(
        (operation) =>
          !webhookRules.some(
            (webhookRule) =>
              includesValue(webhookRule.apiGroups, group) &&
              includesValue(webhookRule.resources, resource) &&
              includesValue(webhookRule.operations, operation),
          ),
      );
      const what = resource === "*" ? "objects of every kind" : [resource, group].filter(Boolean).join(".");
      return missing.length === 0 ? [] : [`${missing.join(", ")} of ${what}`];
    },
  );
};

/** Returns a function that reads policies of these kinds from manifests. It ignores policies of other kinds. */
export const createManifestReader =
  (...kinds: KinitirasPolicy["kind"][]) =>
  (documents: readonly unknown[]): ParsedManifests => {
    const { policies, faults } = parsePolicies(documents);
    return { objects: policies.filter(({ kind }) => kinds.includes(kind)), faults };
  };

/** The values that settings of the rules policy-override and policy-validate may have. */
export const policySettingChoices = {
  "intercept.operations": ["CREATE", "UPDATE", "DELETE", "CONNECT", "*"],
  "intercept.scope": ["*", "Cluster", "Namespaced"],
};

/** Returns the first fault in the settings of policy-override or policy-validate. Their types were checked before. */
export const findSettingsFault = ({
  policies,
  intercept,
  objectSelector,
  reads,
  http,
}: PolicySettings): string | undefined => {
  const names = policies.map((policy) => `${policy.kind} ${getPolicyName(policy)}`);
  const repeatedName = names.find((name, index) => names.indexOf(name) < index);
  if (repeatedName !== undefined) return `must have one ${repeatedName} among its policies, not two`;
  const { "intercept.operations": operationChoices, "intercept.scope": scopeChoices } = policySettingChoices;
  const wrongMatch = intercept.findIndex((match: unknown) => {
    const { apiGroups, apiVersions, resources, operations, scope, ...unknownMembers } = toMap(match);
    const lists = [apiGroups, apiVersions, resources, operations ?? ["*"]];
    const hasLists = lists.every((list) => isTextList(list) && list.length > 0);
    const hasKnownOperations = toList(operations ?? []).every((name) => operationChoices.includes(String(name)));
    const hasKnownScope = scope === undefined || scopeChoices.includes(String(scope));
    return !hasLists || !hasKnownOperations || !hasKnownScope || Object.keys(unknownMembers).length > 0;
  });
  if (wrongMatch >= 0)
    return `must have apiGroups, apiVersions and resources as lists of texts in intercept[${wrongMatch}], and perhaps operations and scope, as a webhook's rules have them`;
  if (!isLabelSelector(objectSelector)) return "must have a label selector, as Kubernetes has them, as objectSelector";
  const wrongRead = reads.findIndex((read: unknown) => {
    const { group, resource, version = "v1", ...others } = toMap(read);
    return (
      [group, resource, version].some((text) => typeof text !== "string") ||
      resource === "" ||
      Object.keys(others).length > 0
    );
  });
  if (wrongRead >= 0)
    return `must name a group, a resource and perhaps a version in reads[${wrongRead}], for instance apps, deployments, v1`;
  return findPolicyHttpSettingsFault(http);
};
