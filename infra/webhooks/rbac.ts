import type { Need, Needs, ResourceType } from "#lib/needs.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import type { ClusterConfig } from "../config/config.ts";
import { listRulesAskingCluster } from "../config/connections.ts";
import { buildObjectLabels } from "./labels.ts";

interface PolicyRule {
  apiGroups?: string[];
  resources?: string[];
  nonResourceURLs?: string[];
  verbs: string[];
}

/** Returns the Kubernetes group of a rule's function in a cluster, by its EKS access entry. */
export const buildKubernetesGroupName = (clusterName: string, rule: string) => `${clusterName}:${rule}`;

interface RuleNeeds {
  needs: Needs;
  settings: object;
}

const listFunctionNeeds = (
  catalogue: CatalogueRule[],
  cluster: ClusterConfig,
): { name: string; ruleNeeds: RuleNeeds[] }[] => {
  const { groups } = cluster;
  const getRuleNeeds = ({ name, rule }: CatalogueRule): RuleNeeds => {
    return { needs: rule.needs ?? {}, settings: cluster.rules.get(name)?.settings ?? rule.settings ?? {} };
  };
  const on = listRulesAskingCluster(catalogue, cluster);
  const grouped = groups.map(({ name, members }) => ({
    name,
    members: on.filter((listed) => members.includes(listed)),
  }));
  const alone = on.filter(
    (listed) => listed.phases.includes("validate") || !groups.some(({ members }) => members.includes(listed)),
  );
  return [
    ...alone.map((listed) => ({ name: listed.name, ruleNeeds: [getRuleNeeds(listed)] })),
    ...grouped
      .filter(({ members }) => members.length > 0)
      .map(({ name, members }) => ({ name, ruleNeeds: members.map(getRuleNeeds) })),
  ];
};

/**
 * Returns the RBAC objects that give each function only the rights that its rules need. In clusters where functions use a
 * stored token instead of an AWS role, they act as the ServiceAccount with the name of the webhook configurations.
 */
export const buildFunctionRbacObjects = (
  catalogue: CatalogueRule[],
  cluster: ClusterConfig,
  name: string,
): object[] => {
  const rules = listFunctionNeeds(catalogue, cluster);
  const hasToken = cluster.connect?.tokenSecret !== undefined || cluster.connect?.tokenParameter !== undefined;
  const account = { kind: "ServiceAccount", name, namespace: "kube-system" };
  const labels = buildObjectLabels(name);
  const rbac = "rbac.authorization.k8s.io";
  const apiVersion = `${rbac}/v1`;
  const each = rules.flatMap(({ name: rule, ruleNeeds }) => {
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
  if (each.length === 0 || !hasToken) return each;
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
    ...each,
  ];
};

const mergePolicyRules = (ruleNeeds: RuleNeeds[]): PolicyRule[] => {
  const found = new Map<string, PolicyRule>();
  const all = ruleNeeds.flatMap(({ needs, settings }) =>
    Object.values(needs).flatMap((need) => listPolicyRules(need, settings)),
  );
  for (const right of all) {
    const key = JSON.stringify([right.apiGroups, right.resources, right.nonResourceURLs]);
    const verbs = new Set([...(found.get(key)?.verbs ?? []), ...right.verbs]);
    found.set(key, { ...right, verbs: [...verbs].sort() });
  }
  return [...found.values()];
};

const discovery: PolicyRule = { nonResourceURLs: ["/api/*", "/apis/*"], verbs: ["get"] };
const createReadRule = ({ group, resource }: ResourceType, ...verbs: string[]): PolicyRule => {
  return { apiGroups: [group], resources: [resource], verbs };
};

const listPolicyRules = ({ verb, kind, kinds, isUsed }: Need<unknown>, settings: object): PolicyRule[] => {
  if (isUsed?.(settings) === false) return [];
  if (verb === "updateStatus")
    return kind ? [{ apiGroups: [kind.group], resources: [`${kind.resource}/status`], verbs: ["update"] }] : [];
  if (verb === "may")
    return [{ apiGroups: ["authorization.k8s.io"], resources: ["subjectaccessreviews"], verbs: ["create"] }];
  if (verb === "discover") return [discovery];
  const some = kinds?.(settings) ?? [];
  return [
    ...(kind ? [createReadRule(kind, verb)] : []),
    ...some.map((type) => createReadRule(type, "get", "list")),
    ...(some.length > 0 ? [discovery] : []),
  ];
};
