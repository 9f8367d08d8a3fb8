import type { Need, Needs, ResourceType } from "#lib/needs.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import { idOf } from "../catalogue/rule-names.ts";
import type { ClusterConfig } from "../config/config.ts";
import { askingRules } from "../config/connections.ts";

interface Right {
  apiGroups?: string[];
  resources?: string[];
  nonResourceURLs?: string[];
  verbs: string[];
}

/** The service account whose token functions use, if a token is kept for them. */
const account = { kind: "ServiceAccount", name: "postern", namespace: "kube-system" };

/** Returns the Kubernetes group of a rule's function in a cluster, by its EKS access entry. */
export const groupOf = (name: string, rule: string) => `${name}:${rule}`;

interface Asked {
  needs: Needs;
  settings: object;
}

const asking = (catalogue: CatalogueRule[], cluster: ClusterConfig): { name: string; asked: Asked[] }[] => {
  const { groups } = cluster;
  const askedBy = ({ name, rule }: CatalogueRule): Asked => {
    return { needs: rule.needs ?? {}, settings: cluster.rules.get(name)?.settings ?? rule.settings ?? {} };
  };
  const on = askingRules(catalogue, cluster);
  const grouped = groups.map(({ name, members }) => ({
    name,
    members: on.filter((listed) => members.includes(listed)),
  }));
  const alone = on.filter(
    (listed) => listed.phases.includes("validate") || !groups.some(({ members }) => members.includes(listed)),
  );
  return [
    ...alone.map((listed) => ({ name: listed.name, asked: [askedBy(listed)] })),
    ...grouped
      .filter(({ members }) => members.length > 0)
      .map(({ name, members }) => ({ name, asked: members.map(askedBy) })),
  ];
};

/** Returns the RBAC objects that give each function only the rights that its rules need. */
export const roles = (catalogue: CatalogueRule[], cluster: ClusterConfig, name: string): object[] => {
  const rules = asking(catalogue, cluster);
  const hasToken = cluster.connect?.tokenSecret !== undefined || cluster.connect?.tokenParameter !== undefined;
  const labels = { "app.kubernetes.io/managed-by": "postern" };
  const rbac = "rbac.authorization.k8s.io";
  const apiVersion = `${rbac}/v1`;
  const each = rules.flatMap(({ name: rule, asked }) => {
    const metadata = { name: groupOf(name, rule), labels };
    const group = { apiGroup: rbac, kind: "Group", name: metadata.name };
    return [
      { apiVersion, kind: "ClusterRole", metadata, rules: rights(asked) },
      {
        ...{ apiVersion, kind: "ClusterRoleBinding", metadata },
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
      ...{ apiVersion: "v1", kind: "Secret", type: "kubernetes.io/service-account-token" },
      metadata: { name: `${account.name}-token`, namespace, labels, annotations },
    },
    ...each,
  ];
};

const rights = (asked: Asked[]): Right[] => {
  const found = new Map<string, Right>();
  const all = asked.flatMap(({ needs, settings }) => Object.values(needs).flatMap((need) => rightsOf(need, settings)));
  for (const right of all) {
    const key = JSON.stringify([right.apiGroups, right.resources, right.nonResourceURLs]);
    const verbs = new Set([...(found.get(key)?.verbs ?? []), ...right.verbs]);
    found.set(key, { ...right, verbs: [...verbs].sort() });
  }
  return [...found.values()];
};

const discovery: Right = { nonResourceURLs: ["/api/*", "/apis/*"], verbs: ["get"] };
const toRead = ({ group, resource }: ResourceType, ...verbs: string[]): Right => {
  return { apiGroups: [group], resources: [resource], verbs };
};

const rightsOf = ({ verb, kind, kinds }: Need<unknown>, settings: object): Right[] => {
  if (verb === "may")
    return [{ apiGroups: ["authorization.k8s.io"], resources: ["subjectaccessreviews"], verbs: ["create"] }];
  if (verb === "discover") return [discovery];
  const some = kinds?.(settings) ?? [];
  return [
    ...(kind ? [toRead(kind, verb)] : []),
    ...some.map((one) => toRead(one, "get", "list")),
    ...(some.length > 0 ? [discovery] : []),
  ];
};

/** Returns a CloudFormation template of EKS access entries that put each function's role into its Kubernetes group. */
export const accessEntries = (catalogue: CatalogueRule[], cluster: ClusterConfig, name: string): object => {
  const rules = asking(catalogue, cluster).map((one) => ({ ...one, id: idOf(one.name) }));
  return {
    AWSTemplateFormatVersion: "2010-09-09",
    Description: `Lets ${name}'s functions read what their rules need in ${cluster.connect?.eks}`,
    Parameters: Object.fromEntries(
      rules.map(({ name, id }) => [
        `${id}RoleArn`,
        { Type: "String", Description: `The role of ${name}; the output ${id}RoleArn of the functions' stack has it` },
      ]),
    ),
    Resources: Object.fromEntries(
      rules.map(({ name: rule, id }) => [
        `${id}AccessEntry`,
        {
          Type: "AWS::EKS::AccessEntry",
          Properties: {
            ClusterName: cluster.connect?.eks,
            PrincipalArn: { Ref: `${id}RoleArn` },
            Type: "STANDARD",
            KubernetesGroups: [groupOf(name, rule)],
          },
        },
      ]),
    ),
  };
};
