import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { builtIn } from "#infra/apiserver/admission/cel/conditions.ts";
import type { KubernetesObject, Operation } from "#lib/review.ts";
import { kindsOf } from "../../apiserver/kinds/kinds.ts";
import { buildRequest } from "./requests.ts";
import { openUnevaluated } from "./unevaluated.ts";

const kinds = kindsOf([]);
const group = "admissionregistration.k8s.io/v1";
const object = (apiVersion: string, kind: string, name: string, more: object = {}): KubernetesObject & object => {
  return { apiVersion, kind, metadata: { name }, ...more };
};
const inShop = (apiVersion: string, kind: string, more: object = {}, metadata: object = {}) =>
  object(apiVersion, kind, "o", { metadata: { name: "o", namespace: "shop", ...metadata }, ...more });
const pod = (spec: object = {}, metadata: object = {}) => inShop("v1", "Pod", { spec }, metadata);
const service = (type: string) => inShop("v1", "Service", { spec: { type } });
const claim = (storage: string) =>
  inShop("v1", "PersistentVolumeClaim", { spec: { resources: { requests: { storage } } } });
const namespace = (labels: object = {}) => object("v1", "Namespace", "shop", { metadata: { name: "shop", labels } });

/** A request, and what is known of its namespace. */
interface Asked {
  object: KubernetesObject;
  operation?: Operation;
  old?: KubernetesObject;
  /** What the webhooks leave of the object. */
  last?: KubernetesObject;
  subResource?: string;
  home?: KubernetesObject;
  isAssumed?: boolean;
  isWhole?: boolean;
}

/** Returns the kinds and names of what matches. */
const findNames = (standing: KubernetesObject[], asked: Asked): string[] => {
  const { object, operation = "CREATE", old = object, subResource, home = namespace(), isAssumed = false } = asked;
  const kind = kinds.of(String(object.apiVersion), String(object.kind));
  assert.ok(kind);
  const user = { username: "jane" };
  const request = buildRequest(object, operation === "UPDATE" ? old : null, kind, { operation, user, namespace: "" });
  const around = {
    ...{ namespaceOf: () => home, equivalents: kinds.equivalents, convert: kinds.convert, cel: builtIn },
    fill: (one: unknown) => one,
    call: async () => ({ would: true }) as const,
  };
  const attributes = { ...request, ...(subResource !== undefined && { subResource }) };
  const { findMatching } = openUnevaluated(standing, asked.isWhole ?? true);
  const sentences = findMatching(attributes, operation === "DELETE" ? null : (asked.last ?? object), around, isAssumed);
  return sentences.map((sentence) => sentence.split(" ", 2).join(" "));
};

const rule = { apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE", "UPDATE", "DELETE"] };
const policy = (matchConstraints: object | undefined = { resourceRules: [rule] }, more: object = {}) =>
  object(group, "ValidatingAdmissionPolicy", "p", { spec: { matchConstraints, ...more } });
const binding = (more: object = {}) =>
  object(group, "ValidatingAdmissionPolicyBinding", "b", { spec: { policyName: "p", ...more } });
const mutating = (spec: object = {}) => [
  object(group, "MutatingAdmissionPolicy", "m", { spec: { matchConstraints: { resourceRules: [rule] }, ...spec } }),
  object(group, "MutatingAdmissionPolicyBinding", "b", { spec: { policyName: "m" } }),
];
const bound = (matchConstraints: object, more: object = {}) => [policy(matchConstraints, more), binding()];
const condition = (expression: string) => ({ matchConditions: [{ name: "c", expression }] });
const rules = { resourceRules: [rule] };
const teamA = { matchLabels: { team: "a" } };

describe("a request that admission policies match", () => {
  const ours = ["ValidatingAdmissionPolicy p"];
  const cases: [name: string, standing: KubernetesObject[], asked: Asked, found: string[]][] = [
    ["is of a kind that the policy names", [policy(), binding()], { object: pod() }, ours],
    ["is of no other kind", [policy(), binding()], { object: service("ClusterIP") }, []],
    [
      "is of no other operation",
      bound({ resourceRules: [{ ...rule, operations: ["UPDATE"] }] }),
      { object: pod() },
      [],
    ],
    ["needs a binding", [policy()], { object: pod() }, []],
    [
      "is matched by a binding with a paramRef",
      [policy(), binding({ paramRef: { name: "x" } })],
      { object: pod() },
      ours,
    ],
    [
      "is one that a binding takes, too",
      [policy(), binding({ matchResources: { objectSelector: teamA } })],
      { object: pod() },
      [],
    ],
    [
      "is one that any binding takes",
      [policy(), binding({ matchResources: { objectSelector: teamA } }), binding()],
      { object: pod() },
      ours,
    ],
    [
      "is none that a binding's own rules leave out",
      [policy(), binding({ matchResources: { resourceRules: [{ ...rule, resources: ["services"] }] } })],
      { object: pod() },
      [],
    ],
    ["is none that is excluded", bound({ ...rules, excludeResourceRules: [rule] }), { object: pod() }, []],
    ["has one of the names", bound({ resourceRules: [{ ...rule, resourceNames: ["o"] }] }), { object: pod() }, ours],
    ["has no other name", bound({ resourceRules: [{ ...rule, resourceNames: ["x"] }] }), { object: pod() }, []],
    [
      "may get one of the names",
      bound({ resourceRules: [{ ...rule, resourceNames: ["web-x7d4k"] }] }),
      { object: pod({}, { name: undefined, generateName: "web-" }) },
      ours,
    ],
    [
      "is of a namespace with the label",
      bound({ ...rules, namespaceSelector: teamA }),
      { object: pod(), home: namespace({ team: "a" }) },
      ours,
    ],
    ["is of no other namespace", bound({ ...rules, namespaceSelector: teamA }), { object: pod() }, []],
    [
      "is of a namespace that may have the label",
      bound({ ...rules, namespaceSelector: teamA }),
      { object: pod(), isAssumed: true },
      ours,
    ],
    [
      "is of no namespace of another name, whatever its labels",
      bound({ ...rules, namespaceSelector: { matchLabels: { team: "a", "kubernetes.io/metadata.name": "b" } } }),
      { object: pod(), isAssumed: true },
      [],
    ],
    [
      "is in another version of the kind",
      bound({ resourceRules: [{ ...rule, apiGroups: ["autoscaling"], apiVersions: ["v1"], resources: ["*"] }] }),
      { object: inShop("autoscaling/v2", "HorizontalPodAutoscaler") },
      ours,
    ],
    [
      "is in that version alone, for matchPolicy Exact",
      bound({
        matchPolicy: "Exact",
        resourceRules: [{ ...rule, apiGroups: ["autoscaling"], apiVersions: ["v1"], resources: ["*"] }],
      }),
      { object: inShop("autoscaling/v2", "HorizontalPodAutoscaler") },
      [],
    ],
    ["fulfils the conditions", bound(rules, condition("object.metadata.name == 'o'")), { object: pod() }, ours],
    ["fulfils all conditions", bound(rules, condition("object.metadata.name == 'x'")), { object: pod() }, []],
    [
      "may fulfil a condition on params",
      bound(rules, condition("params.x == object.metadata.name")),
      { object: pod() },
      ours,
    ],
    [
      "is an update of the object as the webhooks leave it",
      bound({ ...rules, objectSelector: teamA }),
      { object: pod(), last: pod({}, { labels: { team: "a" } }) },
      ours,
    ],
    [
      "is none of a policy that the API server would not take",
      bound({ resourceRules: [{ resources: 1 }] }),
      { object: service("ClusterIP") },
      ours,
    ],
    [
      "is no policy",
      bound({ resourceRules: [{ ...rule, apiGroups: ["*"], resources: ["*"] }] }),
      { object: policy() },
      [],
    ],
    [
      "is a webhook configuration",
      bound({ resourceRules: [{ ...rule, apiGroups: ["*"], resources: ["*"] }] }),
      { object: object(group, "ValidatingWebhookConfiguration", "w") },
      ours,
    ],
    [
      "is no question to the API server",
      bound({ resourceRules: [{ ...rule, apiGroups: ["*"], resources: ["*"] }] }),
      { object: object("authentication.k8s.io/v1", "TokenReview", "t") },
      [],
    ],
    ["may be changed", mutating(), { object: pod() }, ["MutatingAdmissionPolicy m"]],
    [
      "may be changed before a webhook takes the label away",
      mutating({ matchConstraints: { ...rules, objectSelector: teamA } }),
      { object: pod({}, { labels: { team: "a" } }), last: pod() },
      ["MutatingAdmissionPolicy m"],
    ],
    ["is no deletion that a policy would change", mutating(), { object: pod(), operation: "DELETE" }, []],
    ["is a deletion", [policy(), binding()], { object: pod(), operation: "DELETE" }, ours],
    [
      "is one that a binding alone may be about, where more may exist",
      [binding()],
      { object: pod(), isWhole: false },
      ours,
    ],
    ["is none of a binding alone, where nothing else exists", [binding()], { object: pod() }, []],
  ];
  for (const [name, standing, asked, found] of cases)
    it(name, () => assert.deepEqual(findNames(standing, asked), found));
});

describe("a request that a ResourceQuota counts", () => {
  const quota = (hard: string[], more: object = {}) =>
    object("v1", "ResourceQuota", "q", {
      metadata: { name: "q", namespace: "shop" },
      spec: { hard: Object.fromEntries(hard.map((key) => [key, "0"])) },
      ...more,
    });
  const [yes, no] = [["ResourceQuota q"], []];
  const update = { operation: "UPDATE" } as const;
  const cases: [name: string, hard: string[], asked: Asked, found: string[]][] = [
    ["makes a Pod", ["pods"], { object: pod() }, yes],
    ["makes a Pod, by its count", ["count/pods"], { object: pod() }, yes],
    ["makes a Pod that needs memory", ["limits.memory"], { object: pod() }, yes],
    ["makes no Pod, but storage", ["requests.storage"], { object: pod() }, no],
    ["is in the same namespace", ["pods"], { object: pod({}, { namespace: "other" }) }, no],
    ["is no deletion", ["pods"], { object: pod(), operation: "DELETE" }, no],
    ["is no change of a Pod", ["pods", "cpu"], { object: pod({ a: 1 }), old: pod(), ...update }, no],
    ["lets a Pod end", ["pods"], { object: pod({ activeDeadlineSeconds: 5 }), old: pod(), ...update }, yes],
    ["resizes a Pod", ["cpu"], { object: pod(), subResource: "resize", ...update }, yes],
    ["makes a Service", ["services"], { object: service("ClusterIP") }, yes],
    ["makes a Service with ports of nodes", ["services.nodeports"], { object: service("NodePort") }, yes],
    [
      "makes a load balancer, which has ports of nodes",
      ["services.nodeports"],
      { object: service("LoadBalancer") },
      yes,
    ],
    ["makes no load balancer", ["services.loadbalancers"], { object: service("NodePort") }, no],
    [
      "makes a load balancer of a Service",
      ["services.loadbalancers"],
      { object: service("LoadBalancer"), old: service("ClusterIP"), ...update },
      yes,
    ],
    [
      "makes no further Service",
      ["services"],
      { object: service("NodePort"), old: service("ClusterIP"), ...update },
      no,
    ],
    ["makes a claim", ["persistentvolumeclaims"], { object: claim("1Gi") }, yes],
    ["claims storage of a class", ["fast.storageclass.storage.k8s.io/requests.storage"], { object: claim("1Gi") }, yes],
    ["claims more storage", ["requests.storage"], { object: claim("2Gi"), old: claim("1Gi"), ...update }, yes],
    ["claims no more storage", ["requests.storage"], { object: claim("1Gi"), old: claim("1Gi"), ...update }, no],
    ["makes a ConfigMap", ["configmaps"], { object: inShop("v1", "ConfigMap") }, yes],
    ["makes an object of a group", ["count/deployments.apps"], { object: inShop("apps/v1", "Deployment") }, yes],
    [
      "is no change of an object that is only counted",
      ["count/deployments.apps"],
      { object: inShop("apps/v1", "Deployment", { spec: {} }), old: inShop("apps/v1", "Deployment"), ...update },
      no,
    ],
    ["is no event", ["count/events"], { object: inShop("v1", "Event") }, no],
    ["is no namespace", ["count/namespaces"], { object: namespace() }, no],
  ];
  for (const [name, hard, asked, found] of cases)
    it(name, () => assert.deepEqual(findNames([quota(hard)], asked), found));

  it("is told by the limits in the status, too", () =>
    assert.deepEqual(findNames([quota([], { status: { hard: { pods: "1" } } })], { object: pod() }), yes));
});
