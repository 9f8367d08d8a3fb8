import fc from "fast-check";
import type { KubernetesObject } from "#lib/review.ts";
import { buildScenario, generateCreateStep } from "./scenario-parts.ts";
import { addSometimes, generateObjects, omitUndefinedMembers, pickOne } from "./steps.ts";
import {
  buildKindDefinition,
  buildPolicyWithBinding,
  buildPriorityClass,
  editField,
  nestedExpression,
  type PolicySet,
  parameters,
  validatingPolicySet,
} from "./validating-policies.ts";

// Generates MutatingAdmissionPolicies, and requests about objects that choose a policy by a label with the policy's
// name. The API server calls several policies in random order. So most objects choose one policy; some choose two whose
// order doesn't matter, because one of them is invoked again. A Scale, which is sent to the subresource `scale`, has no
// labels, so one more policy has no selector and is for every Scale.

const apiVersion = "admissionregistration.k8s.io/v1";
const annotate = (value: string) => `[JSONPatch{op: "add", path: "/metadata/annotations", value: ${value}}]`;

/** One mutation, or several that a policy has in this order. */
type MutationOrList = string | readonly string[];

/**
 * Expressions from which policies for one kind of objects are composed. A mutation that begins with `Object` is an
 * ApplyConfiguration. A list has several mutations that a policy has in this order.
 */
interface MutatedKind {
  rule: { apiGroups: string[]; apiVersions: string[]; resources: string[] };
  mutations: readonly MutationOrList[];
  conditions: readonly string[];
}

const addAnnotation = '[JSONPatch{op: "add", path: "/metadata/annotations/team", value: "a"}]';
/**
 * Mutations that can be applied to objects of any kind. Some of them are errors. A list stands for several mutations
 * that a policy has in this order.
 */
const anyMutations: readonly MutationOrList[] = [
  [annotate("{}"), addAnnotation],
  [annotate("{}"), `has(object.metadata.annotations) ? ${addAnnotation} : ${annotate('{"team": "b"}')}`],
  ["Object{metadata: Object.metadata{annotations: {}, finalizers: []}}", addAnnotation],
  [annotate('{"a": "1"}'), '[JSONPatch{op: "remove", path: "/metadata/annotations/a"}]', addAnnotation],
  [
    '[JSONPatch{op: "add", path: "/metadata/finalizers", value: []}]',
    '[JSONPatch{op: "add", path: "/metadata/finalizers/-", value: "example.com/f"}]',
  ],
  `object.metadata == "x" ? [] : ${annotate('{"compared": "object"}')}`,
  `!(object.metadata.labels == [1]) ? ${annotate('{"compared": "labels"}')} : []`,
  `dyn(request.userInfo) == "x" ? [] : ${annotate('{"compared": "request"}')}`,
  annotate('{"ns": namespaceObject.metadata.name}'),
  annotate('{"user": request.userInfo.username, "operation": request.operation}'),
  annotate('authorizer.requestResource.check("delete").allowed() ? {"may": "yes"} : {"may": "no"}'),
  annotate('{"kind": string(object.kind), "dry": string(request.dryRun), "old": string(oldObject == null)}'),
  annotate("{1: 2}"),
  annotate('Object.metadata.annotations{a: "1", ?b: optional.none(), c: "<&>"}'),
  annotate('Object.metadata.annotations{a: optional.none(), b: "1", c: string}'),
  annotate('Object.metadata.annotations{a: [["1"]]}'),
  annotate('Object.metadata.annotations{a: {"b": {"c": "1"}}}'),
  annotate("Object.metadata.annotations{a: null}"),
  annotate('Object.metadata.annotations{a: timestamp("2026-01-02T03:04:05Z")}'),
  annotate('Object.metadata.annotations{a: "1", b: quantity("1")}'),
  annotate('{"when": timestamp("2026-01-02T03:04:05Z")}'),
  annotate('{"span": optional.of(duration("90s"))}'),
  '[JSONPatch{op: "add", path: "/metadata/labels/" + jsonpatch.escapeKey("example.com/x"), value: "v"}]',
  '[JSONPatch{op: "add", path: "/metadata/labels/app", value: "x"}]',
  '[JSONPatch{op: "nope", path: "/metadata"}]',
  '[JSONPatch{op: "add", value: "x"}]',
  "variables.bad == 1 ? [JSONPatch{}] : []",
  `${nestedExpression} ? [JSONPatch{}] : []`,
  'Object{metadata: Object.metadata{labels: {"added": "yes"}, annotations: {"n": string(variables.size)}}}',
  "Object{metadata: Object.metadata{?labels: optional.none()}}",
  "Object{metadata: Object.spec{}}",
  'Object{nope: "x"}',
  'Object{metadata: "x"}',
  "Object{}",
];
const parameterMutations: readonly MutationOrList[] = [
  `params == "x" ? [] : ${annotate('{"compared": "params"}')}`,
  annotate('{"most": params.data.most, "kind": params.kind}'),
  'Object{metadata: Object.metadata{annotations: {"limits": params == null ? "none" : params.metadata.namespace}}}',
];

const configMaps: MutatedKind = {
  rule: { apiGroups: [""], apiVersions: ["v1"], resources: ["configmaps"] },
  conditions: ["object.data.b == 'yes'", "has(object.data) && size(object.data) > 0", "!has(object.data.x)"],
  mutations: [
    '[JSONPatch{op: "add", path: "/data/x", value: "1"}]',
    'has(object.data) ? [JSONPatch{op: "add", path: "/data/x", value: "<1>"}] : [JSONPatch{op: "add", path: "/data", value: {"x": "2"}}]',
    '[JSONPatch{op: "test", path: "/data/a", value: "1"}, JSONPatch{op: "replace", path: "/data/a", value: "changed"}]',
    '[JSONPatch{op: "add", path: "/data/z", value: "1"}, JSONPatch{op: "test", path: "/data/none", value: null}]',
    '[JSONPatch{op: "test", path: "/none/a", value: "1"}]',
    '[JSONPatch{op: "remove", path: "/data/b"}]',
    '[JSONPatch{op: "move", from: "/data/a", path: "/data/moved"}]',
    '[JSONPatch{op: "copy", from: "/data/a", path: "/data/copied"}]',
    '[JSONPatch{op: "replace", path: "/data/a", value: object.data.a + "x"}]',
    '[JSONPatch{op: "add", path: "/data/size", value: string(size(object.data))}]',
    '[JSONPatch{op: "add", path: "/data", value: Object.data{x: "1", ?y: optional.of("2")}}]',
    '[JSONPatch{op: "add", path: "/data", value: Object.data{x: Object.wrong{}}}]',
    '[JSONPatch{op: "add", path: "/data/n", value: 1}]',
    'object.data.a == "1" ? [JSONPatch{op: "add", path: "/immutable", value: true}] : []',
    ['[JSONPatch{op: "add", path: "/data", value: {}}]', '[JSONPatch{op: "add", path: "/data/x", value: "1"}]'],
    'Object{data: {"x": "1"}}',
    'Object{data: Object.data{a: "set", more: variables.a == 3 ? "three" : "other"}}',
    'Object{data: {"x": 1}}',
    "Object{data: 1}",
    'Object{immutable: "yes"}',
    "Object{data: object.data}",
  ],
};

const container = "Object.spec.template.spec.containers";
const initContainer = "Object.spec.template.spec.initContainers";
const inPod = (members: string) =>
  `Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{${members}}}}}`;
const deployments: MutatedKind = {
  rule: { apiGroups: ["apps"], apiVersions: ["v1"], resources: ["deployments"] },
  conditions: ["object.spec.replicas < 5", "object.spec.template.spec.containers.size() < 2"],
  mutations: [
    "Object{spec: Object.spec{replicas: 2}}",
    [
      '[JSONPatch{op: "add", path: "/spec/template/spec/tolerations", value: []}, JSONPatch{op: "add", path: "/spec/template/spec/nodeSelector", value: {}}]',
      'has(object.spec.template.spec.nodeSelector) ? [] : [JSONPatch{op: "add", path: "/spec/template/spec/tolerations/-", value: Object.spec.template.spec.tolerations{operator: "Exists"}}]',
    ],
    [
      '[JSONPatch{op: "add", path: "/spec/template/spec/volumes", value: [Object.spec.template.spec.volumes{name: "v", emptyDir: Object.spec.template.spec.volumes.emptyDir{}}]}]',
      '[JSONPatch{op: "add", path: "/spec/template/spec/volumes/0/emptyDir/medium", value: "Memory"}]',
    ],
    'Object{spec: Object.spec{replicas: "2"}}',
    "Object{spec: Object.spec{replicas: object.spec.replicas + 1}}",
    inPod(
      `containers: object.spec.template.spec.containers.map(c, ${container}{name: c.name, image: "reg/" + c.image})`,
    ),
    inPod(`containers: [${container}{name: "c", env: [${container}.env{name: "E", value: "1"}]}]`),
    inPod(`containers: [${container}{name: "c", ports: [${container}.ports{containerPort: 80}]}]`),
    inPod(`containers: [${container}{name: "sidecar", image: "s"}]`),
    inPod(`containers: [${container}{image: "nameless"}]`),
    inPod(`containers: [${container}{name: "c", args: ["x"]}, ${container}{name: "c"}]`),
    inPod('nodeSelector: {"disk": "ssd"}'),
    inPod('tolerations: [Object.spec.template.spec.tolerations{key: "k"}]'),
    inPod("hostNetwork: Object.spec.template.spec.hostNetwork{}"),
    inPod('terminationGracePeriodSeconds: 5, priorityClassName: ""'),
    inPod(
      'volumes: [Object.spec.template.spec.volumes{name: "v", emptyDir: Object.spec.template.spec.volumes.emptyDir{}}]',
    ),
    inPod(`securityContext: Object.spec.template.spec.securityContext{runAsNonRoot: true, supplementalGroups: [1, 2]}`),
    'Object{spec: Object.spec{strategy: Object.spec.strategy{type: "Recreate"}}}',
    '[JSONPatch{op: "add", path: "/spec/template/spec/tolerations", value: [{"key": "k", "operator": "Exists"}]}]',
    '[JSONPatch{op: "add", path: "/spec/template/spec/containers/-", value: Object.spec.template.spec.containers{name: "d", image: "i"}}]',
    '[JSONPatch{op: "remove", path: "/spec/template/spec/containers/7"}]',
    `[JSONPatch{op: "add", path: "/spec/template/spec/initContainers", value: [${initContainer}{name: "d", image: "i"}]}]`,
    `[JSONPatch{op: "add", path: "/spec/template/spec/initContainers", value: [1, 2].map(n, ${initContainer}{name: "n" + string(n), image: "i"})}]`,
    `[JSONPatch{op: "add", path: "/spec/template/spec/securityContext", value: {"seccompProfile": Object.spec.template.spec.securityContext.seccompProfile{type: "RuntimeDefault"}}}]`,
    '[JSONPatch{op: "replace", path: "/spec/replicas", value: 3.0}]',
    '[JSONPatch{op: "replace", path: "/spec/replicas", value: "3"}]',
    '[JSONPatch{op: "test", path: "/spec/replicas", value: 3}, JSONPatch{op: "replace", path: "/spec/replicas", value: 4}]',
    '[JSONPatch{op: "test", path: "/spec/selector", value: {"matchLabels": {"app": "web"}}}, JSONPatch{op: "replace", path: "/spec/paused", value: true}]',
  ],
};

/** A custom kind whose schema has lists and maps of every type. */
const gadgets: MutatedKind = {
  rule: { apiGroups: ["example.com"], apiVersions: ["v1"], resources: ["gadgets"] },
  conditions: ["has(object.spec.tags)", "object.spec.size > 1"],
  mutations: [
    [
      '[JSONPatch{op: "add", path: "/spec/granular", value: {}}]',
      '[JSONPatch{op: "add", path: "/spec/granular/a", value: "1"}]',
    ],
    'Object{spec: Object.spec{tags: ["blue", "red"]}}',
    "Object{spec: Object.spec{tags: [1]}}",
    'Object{spec: Object.spec{tags: ["blue", "blue"]}}',
    'Object{spec: Object.spec{steps: ["x"]}}',
    'Object{spec: Object.spec{atomic: {"a": "1"}}}',
    "Object{spec: Object.spec{pair: Object.spec.pair{left: 1}}}",
    'Object{spec: Object.spec{granular: {"a": "1", "b": "2"}}}',
    'Object{spec: Object.spec{parts: [Object.spec.parts{name: "p", count: 1}, Object.spec.parts{name: "new", port: 3, count: 2}]}}',
    "Object{spec: Object.spec{parts: [Object.spec.parts{count: 1}]}}",
    "Object{spec: Object.spec{parts: object.spec.parts.map(p, Object.spec.parts{name: p.name, count: p.count + 1})}}",
    'Object{spec: Object.spec{any: Object.spec.any{n: 5, deep: Object.spec.any.deep{x: "y"}}}}',
    "Object{spec: Object.spec{any: Object.spec.any{list: [1, 2]}}}",
    'Object{spec: Object.spec{mixed: "5%"}}',
    "Object{spec: Object.spec{mixed: 5}}",
    "Object{spec: Object.spec{size: 2.5}}",
    "Object{spec: Object.spec{size: 7, unknown: 1}}",
    "Object{status: Object.status{seen: true}}",
    '[JSONPatch{op: "add", path: "/spec/tags/-", value: "green"}]',
    '[JSONPatch{op: "add", path: "/spec/any", value: {"long": 9007199254740993, "plain": 9007199254740991}}]',
    '[JSONPatch{op: "add", path: "/spec/any", value: Object.spec.any{span: string(duration("90s")), half: 0.5, list: [1, 2], flag: true, inner: {"a": 1}}}]',
    '[JSONPatch{op: "add", path: "/spec/any", value: {"bytes": b"abc"}}]',
    '[JSONPatch{op: "add", path: "/spec/any", value: {"when": timestamp("2026-01-02T03:04:05Z")}}]',
    '[JSONPatch{op: "add", path: "/spec/any", value: {"small": 2u}}]',
    '[JSONPatch{op: "add", path: "/spec/parts", value: [Object.spec.parts{name: "p"}, Object.spec.parts{name: "q", count: 2}]}]',
    '[JSONPatch{op: "add", path: "/spec/parts", value: [Object.spec.parts{name: "p", port: 7}] + object.spec.parts}]',
    '[JSONPatch{op: "add", path: "/spec/parts", value: object.spec.parts.map(p, Object.spec.parts{name: p.name + "x"})}]',
    '[JSONPatch{op: "add", path: "/spec/any", value: {"inner": Object.spec.any.inner{a: [1, 2]}}}]',
    '[JSONPatch{op: "add", path: "/spec/any", value: Object.spec.any{list: [Object.spec.any.list{a: {"b": "c"}}], tags: object.spec.tags}}]',
    '[JSONPatch{op: "add", path: "/spec/any", value: Object.spec.any{list: [[1], [2]]}}]',
    '[JSONPatch{op: "add", path: "/spec/any", value: Object.spec.any{long: 9007199254740993, small: 2u, huge: 1e300, bytes: b"abc"}}]',
    "Object{spec: Object.spec{any: Object.spec.any{list: [Object.spec.any.list{a: 1}], long: 9007199254740993}}}",
    'Object{spec: Object.spec{any: {"tags": object.spec.tags}}}',
    'Object{spec: Object.spec{tags: ["blue", "red"].map(t, t + "x")}}',
    '[JSONPatch{op: "add", path: "/spec/tags", value: "blue,red".split(",")}]',
    '[JSONPatch{op: "remove", path: "/spec/parts/0"}]',
  ],
};
/** A cluster-scoped kind. */
const priorityClasses: MutatedKind = {
  rule: { apiGroups: ["scheduling.k8s.io"], apiVersions: ["v1"], resources: ["priorityclasses"] },
  conditions: ["object.value > 1", "!has(object.description)", "!has(request.namespace)"],
  mutations: [
    'Object{description: "set " + string(object.value)}',
    "Object{value: object.value + 1}",
    'Object{preemptionPolicy: "Never"}',
    'Object{spec: "x"}',
    '[JSONPatch{op: "add", path: "/description", value: request.name}]',
    '[JSONPatch{op: "replace", path: "/value", value: 7}]',
    '[JSONPatch{op: "remove", path: "/description"}]',
  ],
};
const kinds = [configMaps, deployments, gadgets, priorityClasses];

const variables = [
  { name: "a", expression: "int(object.data.a)" },
  { name: "size", expression: "size(object.metadata.labels)" },
  { name: "bad", expression: "object.nope" },
  { name: "list", expression: "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]" },
];
/** matchConditions for any kind. Some compare values of different types, which is no error: they are never equal. */
const anyConditions = [
  "!(object.metadata == 'x')",
  "object.metadata.labels != 1",
  "!('x' == object.metadata.labels)",
  "!(dyn(request.userInfo.groups) == 'x')",
  "request.userInfo.username != 'jane'",
  "namespaceObject == null",
  "request.operation == 'CREATE'",
];

const toMutation = (expression: string) =>
  expression.startsWith("Object")
    ? { patchType: "ApplyConfiguration", applyConfiguration: { expression } }
    : { patchType: "JSONPatch", jsonPatch: { expression } };
/** Generates the `matchResources` of a binding. */
const matchResources = addSometimes(
  pickOne<object>(
    { objectSelector: { matchLabels: { app: "x" } } },
    { namespaceSelector: { matchLabels: { "kubernetes.io/metadata.name": "default" } } },
    { resourceRules: [{ apiGroups: ["*"], apiVersions: ["*"], resources: ["*"], operations: ["CREATE"] }] },
  ),
  "in 1 of 4",
);

/** The number of policies. Each has a webhook entry, and the API server checks all entries for each request. */
const count = 240;
const getKind = (index: number) => kinds[index % kinds.length] ?? configMaps;

/** A generator for each policy. The policy number N is for the kind number N modulo 4. */
const policies = Array.from({ length: count }, (_, index) => {
  const kind = getKind(index);
  return parameters.chain(({ paramKind, paramRef }) => {
    // Expressions that are listed several times are chosen more often.
    const expressions = [...kind.mutations, ...kind.mutations, ...anyMutations];
    if (paramKind) expressions.push(...Array.from({ length: 8 }, () => parameterMutations).flat());
    return fc.record({
      paramKind: pickOne(paramKind),
      paramRef: pickOne(paramRef),
      failurePolicy: pickOne("Fail", "Fail", "Ignore", undefined),
      reinvocationPolicy: pickOne("Never", "IfNeeded"),
      matchConditions: addSometimes(
        fc.uniqueArray(pickOne(...kind.conditions, ...anyConditions), { minLength: 1, maxLength: 2 }),
        "in 1 of 3",
      ),
      mutations: fc.array(pickOne(...expressions), { minLength: 1, maxLength: 3 }).map((picked) => picked.flat()),
      matchResources,
      hasSecondBinding: pickOne(false, false, false, true),
    });
  });
});

/** The policies and their bindings. Every run has the same ones. */
const mutatingPolicies: readonly KubernetesObject[] = policies.flatMap((policy, index) => {
  const [parts] = fc.sample(policy, { numRuns: 1, seed: 20_261_124 + index });
  if (!parts) return [];
  const metadata = { name: `m${index}` };
  const { matchConditions = [] } = parts;
  const spec = omitUndefinedMembers({
    failurePolicy: parts.failurePolicy,
    reinvocationPolicy: parts.reinvocationPolicy,
    paramKind: parts.paramKind,
    matchConstraints: {
      resourceRules: [{ ...getKind(index).rule, operations: ["*"] }],
      objectSelector: { matchLabels: { [`m${index}`]: "on" } },
    },
    matchConditions: matchConditions.map((expression, at) => ({ name: `c${at}`, expression })),
    variables,
    mutations: parts.mutations.map(toMutation),
  });
  const kind = "MutatingAdmissionPolicyBinding";
  const { paramRef, matchResources } = parts;
  const binding = omitUndefinedMembers({ policyName: metadata.name, paramRef, matchResources });
  const secondBinding = {
    policyName: metadata.name,
    matchResources: { objectSelector: { matchLabels: { app: "y" } } },
  };
  // The second binding has no parameters, and would match nothing more if the first one had no `matchResources`.
  const hasSecond = parts.hasSecondBinding && paramRef === undefined && matchResources !== undefined;
  return [
    { apiVersion, kind: "MutatingAdmissionPolicy", metadata, spec },
    { apiVersion, kind, metadata, spec: binding },
    ...(hasSecond ? [{ apiVersion, kind, metadata: { name: `${metadata.name}-b` }, spec: secondBinding }] : []),
  ];
});

/** The label of objects that two policies change. The API server evaluates the first policy again after the second. */
const pairLabel = "pair";

const pairedRules = {
  resourceRules: kinds.map(({ rule }) => ({ ...rule, operations: ["CREATE"] })),
  objectSelector: { matchLabels: { [pairLabel]: "on" } },
};
/** Policies that are not generated: two that change the same objects, and one for the subresource `scale`. */
const fixedPolicies: readonly KubernetesObject[] = [
  ...buildPolicyWithBinding("MutatingAdmissionPolicy", "first-of-pair", {
    reinvocationPolicy: "IfNeeded",
    matchConstraints: pairedRules,
    mutations: [
      'Object{metadata: Object.metadata{annotations: {"sees": object.metadata.?annotations[?"second"].orValue("nothing")}}}',
    ].map(toMutation),
  }),
  ...buildPolicyWithBinding("MutatingAdmissionPolicy", "second-of-pair", {
    reinvocationPolicy: "Never",
    matchConstraints: pairedRules,
    mutations: [toMutation('Object{metadata: Object.metadata{annotations: {"second": "done"}}}')],
  }),
  ...buildPolicyWithBinding("MutatingAdmissionPolicy", "scale", {
    reinvocationPolicy: "Never",
    matchConstraints: { resourceRules: [{ ...deployments.rule, resources: ["*/scale"], operations: ["UPDATE"] }] },
    matchConditions: [{ name: "grows", expression: "object.spec.replicas > oldObject.spec.replicas" }],
    mutations: [
      "Object{spec: Object.spec{replicas: object.spec.replicas + 1}}",
      '[JSONPatch{op: "test", path: "/kind", value: "Scale"}, JSONPatch{op: "replace", path: "/spec/replicas", value: object.spec.replicas * 2}]',
    ].map(toMutation),
  }),
];

/**
 * Refuses objects with the label `policy: last`. It is created last, so once it refuses, the API server uses all
 * policies.
 */
const readinessPolicyAndBinding = buildPolicyWithBinding(
  "MutatingAdmissionPolicy",
  "last",
  {
    reinvocationPolicy: "Never",
    paramKind: { apiVersion: "v1", kind: "ConfigMap" },
    matchConstraints: {
      resourceRules: kinds.map(({ rule }) => ({ ...rule, operations: ["CREATE"] })),
      objectSelector: { matchLabels: { policy: "last" } },
    },
    // The parameter `most` is 2. No object has a member with this name, so the patch fails with `readinessMessage`.
    mutations: [toMutation('[JSONPatch{op: "remove", path: "/" + params.data.most}]')],
  },
  { paramRef: { name: "limits", parameterNotFoundAction: "Deny" } },
);

/** A custom kind with lists and maps of every type. Both clusters have it. */
const gadgetKind = buildKindDefinition("Gadget", {
  size: { type: "integer" },
  mixed: { "x-kubernetes-int-or-string": true },
  tags: { type: "array", "x-kubernetes-list-type": "set", items: { type: "string" } },
  steps: { type: "array", items: { type: "string" } },
  granular: { type: "object", additionalProperties: { type: "string" } },
  atomic: {
    type: "object",
    "x-kubernetes-map-type": "atomic",
    additionalProperties: { type: "string" },
  },
  pair: {
    type: "object",
    "x-kubernetes-map-type": "atomic",
    properties: { left: { type: "integer" }, right: { type: "integer" } },
  },
  any: { type: "object", "x-kubernetes-preserve-unknown-fields": true },
  parts: {
    type: "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["name", "port"],
    items: {
      type: "object",
      required: ["name"],
      properties: {
        name: { type: "string" },
        port: { type: "integer", default: 1 },
        count: { type: "integer" },
      },
    },
  },
});

/** MutatingAdmissionPolicies for comparisons. Once the readiness policy refuses objects, API servers apply all. */
export const mutatingPolicySet: PolicySet = {
  policies: [...mutatingPolicies, ...fixedPolicies],
  readinessPolicyAndBinding,
  // This policy removes a field `2` from objects, and no object has one, so it refuses them with this error.
  readinessMessage: "nonexistent key: 2",
  neededObjects: [gadgetKind, ...validatingPolicySet.neededObjects],
  kindsRefusedByReadinessPolicy: [
    { apiVersion: "v1", kind: "ConfigMap" },
    { apiVersion: "apps/v1", kind: "Deployment" },
    { apiVersion: "example.com/v1", kind: "Gadget" },
  ],
};

/** Generates metadata of objects of a kind. The labels choose one policy for this kind, or the pair of policies. */
const buildMetadata = (kind: MutatedKind) => {
  const indexes = Array.from({ length: count }, (_, index) => index).filter((index) => getKind(index) === kind);
  const labels = fc
    .tuple(
      pickOne(...indexes.map((index) => `m${index}`), ...Array(8).fill(pairLabel)),
      addSometimes(pickOne("x", "y"), "in 2 of 3"),
    )
    .map(([label, app]) => omitUndefinedMembers({ [label]: "on", app }));
  return generateObjects({ labels });
};
const number = pickOne("1", "2", "3", "many");
/** Generates ConfigMaps whose labels choose policies. */
const configMap = generateObjects({
  apiVersion: pickOne("v1"),
  kind: pickOne("ConfigMap"),
  metadata: buildMetadata(configMaps),
  data: addSometimes(
    generateObjects({
      a: addSometimes(number, "in 5 of 6"),
      b: addSometimes(pickOne("yes", "no")),
      c: addSometimes(number),
    }),
    "in 7 of 8",
  ),
});
const ports = pickOne(
  [{ containerPort: 80 }],
  [{ containerPort: 80, protocol: "UDP" }],
  [{ containerPort: 81, name: "p" }],
);
/** Generates Deployments whose labels choose policies. */
const deployment = fc
  .record({
    metadata: buildMetadata(deployments),
    replicas: pickOne(1, 3, 5),
    ports: addSometimes(ports),
    env: addSometimes(pickOne([{ name: "E", value: "0" }], [{ name: "A" }, { name: "E" }])),
    hasSidecar: pickOne(true, false),
  })
  .map(({ metadata, replicas, ports, env, hasSidecar }) => {
    const labels = { app: "web" };
    const container = omitUndefinedMembers({ name: "c", image: "i", ports, env });
    const containers = [container, ...(hasSidecar ? [{ name: "sidecar", image: "old" }] : [])];
    const template = { metadata: { labels }, spec: { containers } };
    const spec = { replicas, selector: { matchLabels: labels }, template };
    return { apiVersion: "apps/v1", kind: "Deployment", metadata, spec };
  });
/** Generates custom resources whose labels choose policies. */
const gadget = generateObjects({
  apiVersion: pickOne("example.com/v1"),
  kind: pickOne("Gadget"),
  metadata: buildMetadata(gadgets),
  spec: generateObjects({
    size: addSometimes(pickOne(1, 2), "in 3 of 4"),
    mixed: addSometimes(pickOne<unknown>(1, "1%")),
    tags: addSometimes(pickOne(["red"], ["red", "blue"], []), "in 3 of 4"),
    steps: addSometimes(pickOne(["a"], [])),
    granular: addSometimes(pickOne({ a: "0", z: "9" })),
    any: addSometimes(pickOne<object>({ n: 1, m: 2 }, { list: [0] }, { long: 9007199254740993n })),
    parts: addSometimes(
      pickOne<object[]>(
        [{ name: "p" }],
        [
          { name: "p", port: 1, count: 5 },
          { name: "p", port: 2 },
        ],
        [{ name: "q", count: 3 }],
      ),
      "in 4 of 5",
    ),
  }),
});

export const mutatingPolicyScenarios = {
  /** ConfigMaps, deployments, priority classes and custom resources whose labels select the policies for them. */
  mutatingPolicies: fc.oneof(
    buildScenario("configmaps", generateCreateStep(configMap), [
      editField("data", pickOne({ a: "1" }, { a: "7", b: "yes" })),
    ]),
    buildScenario("deployments", generateCreateStep(deployment), [
      editField("spec.replicas", pickOne(2, 4)),
      editField("spec.replicas", pickOne(2, 4), "scale"),
    ]),
    buildScenario("priorityclasses", generateCreateStep(buildPriorityClass(buildMetadata(priorityClasses))), [
      editField("description", pickOne("some", "other")),
    ]),
    buildScenario("gadgets", generateCreateStep(gadget), [editField("spec.size", pickOne(2, 3))]),
  ),
};
