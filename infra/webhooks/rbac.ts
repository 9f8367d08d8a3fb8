import type { Need, Needs, ResourceType } from "#lib/needs.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import type { ClusterConfig } from "../config/config.ts";
import { listRulesAskingCluster } from "../config/connections.ts";
import { buildObjectLabels } from "./labels.ts";

/** A rule of a ClusterRole. */
interface PolicyRule {
  apiGroups?: string[];
  resources?: string[];
  nonResourceURLs?: string[];
  verbs: string[];
}

/** Returns the Kubernetes group into which an EKS access entry puts a rule's function, for instance `postern:pods`. */
export const buildKubernetesGroupName = (configurationName: string, rule: string) => `${configurationName}:${rule}`;

/** What a rule may read or ask in a cluster, and its settings there, on which the resources that it reads depend. */
interface RuleNeeds {
  needs: Needs;
  settings: object;
}

/** Returns the functions that read a cluster, with what their rules read: functions of single rules, then of groups. */
const listFunctionNeeds = (
  catalogue: CatalogueRule[],
  cluster: ClusterConfig,
): { name: string; ruleNeeds: RuleNeeds[] }[] => {
  const { groups } = cluster;
  const getRuleNeeds = ({ name, rule }: CatalogueRule): RuleNeeds => {
    return { needs: rule.needs ?? {}, settings: cluster.rules.get(name)?.settings ?? rule.settings ?? {} };
  };
  const reading = listRulesAskingCluster(catalogue, cluster);
  const grouped = groups.map(({ name, members }) => ({
    name,
    members: reading.filter((listed) => members.includes(listed)),
  }));
  // The function of a group only mutates. A member that also validates has a function of its own for that.
  const singleRules = reading.filter(
    (listed) => listed.phases.includes("validate") || !groups.some(({ members }) => members.includes(listed)),
  );
  return [
    ...singleRules.map((listed) => ({ name: listed.name, ruleNeeds: [getRuleNeeds(listed)] })),
    ...grouped
      .filter(({ members }) => members.length > 0)
      .map(({ name, members }) => ({ name, ruleNeeds: members.map(getRuleNeeds) })),
  ];
};

/**
 * Returns the RBAC objects that give each function the rights that its rules need, and no others. `name` is the name of
 * the webhook configurations. If functions use a stored token in place of an AWS role, there is also a ServiceAccount
 * of this name, which has the rights of all functions.
 */
export const buildFunctionRbacObjects = (
  catalogue: CatalogueRule[],
  cluster: ClusterConfig,
  name: string,
): object[] => {
  const functions = listFunctionNeeds(catalogue, cluster);
  const hasToken = cluster.connect?.tokenSecret !== undefined || cluster.connect?.tokenParameter !== undefined;
  const account = { kind: "ServiceAccount", name, namespace: "kube-system" };
  const labels = buildObjectLabels(name);
  const rbac = "rbac.authorization.k8s.io";
  const apiVersion = `${rbac}/v1`;
  const roleObjects = functions.flatMap(({ name: rule, ruleNeeds }) => {
    const metadata = { name: buildKubernetesGroupName(name, rule), labels };
    const group = { apiGroup: rbac, kind: "Group", name: metadata.name };
    return [
      { apiVersion, kind: "ClusterRole", metadata, rules: mergePolicyRules(ruleNeeds) },
      {
        apiVersion,
        kind: "ClusterRoleBinding",
        metadata,
        roleRef: { apiGroup: rbac, kind: "ClusterRole", name: metadata.name },
        subjects: [group, ...(hasToken ? [account] : [])],
      },
    ];
  });
  if (roleObjects.length === 0 || !hasToken) return roleObjects;
  const { namespace } = account;
  const annotations = { "kubernetes.io/service-account.name": account.name };
  return [
    { apiVersion: "v1", kind: "ServiceAccount", metadata: { name: account.name, namespace, labels } },
    {
      apiVersion: "v1",
      kind: "Secret",
      type: "kubernetes.io/service-account-token",
      metadata: { name: `${account.name}-token`, namespace, labels, annotations },
    },
    ...roleObjects,
  ];
};

/** Returns the rules of a ClusterRole for all needs. Rules for the same resources are merged into one. */
const mergePolicyRules = (ruleNeeds: RuleNeeds[]): PolicyRule[] => {
  const merged = new Map<string, PolicyRule>();
  const policyRules = ruleNeeds.flatMap(({ needs, settings }) =>
    Object.values(needs).flatMap((need) => listPolicyRules(need, settings)),
  );
  for (const policyRule of policyRules) {
    const key = JSON.stringify([policyRule.apiGroups, policyRule.resources, policyRule.nonResourceURLs]);
    const verbs = new Set([...(merged.get(key)?.verbs ?? []), ...policyRule.verbs]);
    merged.set(key, { ...policyRule, verbs: [...verbs].sort() });
  }
  return [...merged.values()];
};

const discovery: PolicyRule = { nonResourceURLs: ["/api/*", "/apis/*"], verbs: ["get"] };
const createReadRule = ({ group, resource }: ResourceType, ...verbs: string[]): PolicyRule => {
  return { apiGroups: [group], resources: [resource], verbs };
};

/** Returns the rules of a ClusterRole for one need of a rule. */
const listPolicyRules = ({ verb, kind, kinds, isUsed }: Need<unknown>, settings: object): PolicyRule[] => {
  if (isUsed?.(settings) === false) return [];
  if (verb === "updateStatus")
    return kind ? [{ apiGroups: [kind.group], resources: [`${kind.resource}/status`], verbs: ["update"] }] : [];
  if (verb === "may")
    return [{ apiGroups: ["authorization.k8s.io"], resources: ["subjectaccessreviews"], verbs: ["create"] }];
  if (verb === "discover") return [discovery];
  const kindsOfSettings = kinds?.(settings) ?? [];
  return [
    ...(kind ? [createReadRule(kind, verb)] : []),
    ...kindsOfSettings.map((type) => createReadRule(type, "get", "list")),
    ...(kindsOfSettings.length > 0 ? [discovery] : []),
  ];
};
