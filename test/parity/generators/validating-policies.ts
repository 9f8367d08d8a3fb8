import fc from "fast-check";
import type { KubernetesObject } from "#lib/review.ts";
import { buildEditStep, buildScenario, generateCreateStep, wrapInList } from "./scenario-parts.ts";
import {
  addSometimes,
  type FieldEdit,
  generateFieldEdit,
  generateObjects,
  omitUndefinedMembers,
  pickOne,
} from "./steps.ts";

// Generates ValidatingAdmissionPolicies, and requests about objects that choose policies by labels with the policies'
// names. The API server evaluates several policies in random order. So two thirds of the objects choose one policy; the
// others choose two to four. Objects of a subresource have no labels, so one policy evaluates all of them.

/** An expression that evaluates `true` a million times. */
export const nestedExpression = ["a", "b", "c", "d", "e", "f"].reduceRight(
  (inner, name) => `variables.list.all(${name}, ${inner})`,
  "true",
);
/** Expressions of validations for objects of any kind. Some fail for some objects. */
const plainExpressions = [
  "object == null || !has(object.data) || object.data.all(k, v, size(v) < 3)",
  "has(object.data.a) && int(object.data.a) > 3",
  "object.data.a == '1'",
  "request.operation != 'DELETE' || oldObject.data.size() > 1",
  "variables.labels.size() > 1",
  "!(object.metadata == 'x')",
  "!(object.metadata.labels == [1]) && 'x' != object.metadata",
  "!(dyn(request.userInfo.groups) == 'x')",
  "!(dyn(namespaceObject.metadata) == 'x')",
  "variables.a > 2",
  "variables.bad == 1",
  "variables.twice != 4 && variables.a != 3",
  "namespaceObject == null || namespaceObject.metadata.name == 'default'",
  "namespaceObject.metadata.labels['kubernetes.io/metadata.name'] == 'default' && namespaceObject.status.phase == 'Active'",
  "authorizer.requestResource.check('delete').allowed()",
  "authorizer.group('').resource('secrets').namespace('default').check('get').allowed()",
  "authorizer.path('/healthz').check('get').allowed() && authorizer.serviceAccount('default', 'x').group('').resource('pods').check('list').reason() == ''",
  "request.userInfo.username == 'admin' || 'system:masters' in request.userInfo.groups",
  "request.dryRun || request.options.kind == 'CreateOptions'",
  "object.metadata.?labels[?'app'].orValue('x') == 'x'",
  "['a', 'b'].exists(k, k in object.data && object.data[k].matches('^[0-9]+$'))",
  "quantity(object.data.a).isGreaterThan(quantity('2'))",
  "object.spec.replicas <= 3",
  "request.resource.resource == 'configmaps' && request.requestKind.kind == object.kind && !has(request.subResource)",
  "oldObject == null || object.data == oldObject.data",
  nestedExpression,
];
/** Expressions about integers, some larger than JavaScript's numbers can be. */
const integerExpressions = [
  "variables.count != 9007199254740993",
  "variables.count + 1 > 9007199254740993",
  "variables.count % 2 == 0",
  "variables.count * 2 > 0",
  "string(variables.count).endsWith('2')",
  "double(variables.count) == 9007199254740992.0",
  "object.spec.any.n == variables.count",
  "type(object.spec.any.n) == int",
  "object.spec.any.list.all(n, n < 9223372036854775807)",
  "variables.count in object.spec.any.list",
];
const parameterExpressions = [
  "params != null && params.data.most != '3'",
  "int(params.data.most) >= size(object.data)",
  "params.metadata.namespace == request.namespace && params.kind == 'ConfigMap'",
];
/** The variables of all policies. */
const variables = [
  { name: "labels", expression: "has(object.metadata.labels) ? object.metadata.labels : {}" },
  { name: "a", expression: "int(object.data.a)" },
  { name: "twice", expression: "variables.a * 2" },
  { name: "bad", expression: "object.nope" },
  {
    name: "count",
    expression:
      "object.?spec.?count.orValue(object.?spec.?template.?spec.?terminationGracePeriodSeconds.orValue(9007199254740993))",
  },
  { name: "list", expression: "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]" },
];
/** matchConditions of policies. */
const conditions = [
  "request.operation != 'DELETE'",
  "object.data.b == 'yes'",
  "has(object.data) && size(object.data) > 0",
  "authorizer.requestResource.check('patch').allowed()",
  "request.userInfo.username != 'jane'",
  "namespaceObject == null",
  "!(object.metadata == 'x')",
];
/** With this condition, a policy refuses no real deletion: objects that remain would disturb the next run. */
const noRealDeletionCondition = "request.operation != 'DELETE' || request.dryRun";
/** Messages of validations, as texts and as expressions. */
const messages = [
  {},
  { message: " no " },
  { message: "no <a> & b" },
  { messageExpression: "'got ' + string(object.data.a)" },
  { message: "fallback", messageExpression: "string(variables.a) + ' ' + request.operation" },
  { message: "fallback", messageExpression: "'a\\nb'" },
  { messageExpression: "' ' + string(variables.bad)" },
  { messageExpression: "'count ' + string(variables.count)" },
];

/** Generates a validation with one of these expressions. */
const validation = (expressions: readonly string[]) =>
  fc
    .record({
      expression: pickOne(...expressions),
      message: pickOne(...messages),
      reason: addSometimes(pickOne("Forbidden", "Invalid", "RequestEntityTooLarge")),
    })
    .map(({ message, ...fields }) => omitUndefinedMembers({ ...fields, ...message }));
/** Generates the audit annotations of a policy. */
const annotations = pickOne(
  [],
  [],
  [{ key: "a", valueExpression: "string(object.data.a)" }],
  [{ key: "count", valueExpression: "string(variables.count)" }],
  [
    {
      key: "asked",
      valueExpression: "has(object.data) && has(object.data.b) ? authorizer.requestResource.check('get').reason() : ''",
    },
  ],
  [
    { key: "kind", valueExpression: "' ' + string(object.kind) + ' '" },
    { key: "none", valueExpression: "null" },
  ],
);
const configMapRule = { apiGroups: [""], apiVersions: ["v1"], resources: ["configmaps"], operations: ["*"] };
const deploymentRule = { apiGroups: ["apps"], apiVersions: ["v1"], resources: ["deployments"], operations: ["*"] };
const counterRule = { apiGroups: ["example.com"], apiVersions: ["v1"], resources: ["counters"], operations: ["*"] };
const classRule = {
  apiGroups: ["scheduling.k8s.io"],
  apiVersions: ["v1"],
  resources: ["priorityclasses"],
  operations: ["*"],
};
const constraints = pickOne(
  {},
  {},
  { namespaceSelector: { matchLabels: { "kubernetes.io/metadata.name": "default" } } },
  { excludeResourceRules: [{ ...configMapRule, operations: ["DELETE"] }] },
  { matchPolicy: "Exact", resourceRules: [{ ...configMapRule, operations: ["CREATE", "UPDATE"] }] },
);
/** Generates the `matchResources` of a binding. */
const matchResources = addSometimes(
  pickOne<object>(
    {
      namespaceSelector: {
        matchExpressions: [{ key: "kubernetes.io/metadata.name", operator: "NotIn", values: ["limited"] }],
      },
    },
    { objectSelector: { matchLabels: { app: "x" } } },
    { resourceRules: [{ ...configMapRule, operations: ["CREATE"] }] },
    {
      excludeResourceRules: [
        { ...deploymentRule, apiVersions: ["v1beta1"] },
        { ...configMapRule, resourceNames: ["x"] },
      ],
    },
  ),
  "in 1 of 3",
);
const actions = pickOne(["Deny"], ["Deny"], ["Deny"], ["Warn"], ["Audit"], ["Deny", "Audit"], ["Warn", "Audit"]);
/** Generates the kind of parameters of a policy, and the reference to them in the binding. */
export const parameters = pickOne<{ paramKind?: object; paramRef?: object }>(
  {},
  {},
  {},
  { paramKind: { apiVersion: "v1", kind: "ConfigMap" } },
  ...["limits", "missing"].flatMap((name) =>
    ["Allow", "Deny"].map((parameterNotFoundAction) => ({
      paramKind: { apiVersion: "v1", kind: "ConfigMap" },
      paramRef: { name, parameterNotFoundAction },
    })),
  ),
  {
    paramKind: { apiVersion: "v1", kind: "ConfigMap" },
    paramRef: { name: "limits", namespace: "limited", parameterNotFoundAction: "Deny" },
  },
  {
    paramKind: { apiVersion: "v1", kind: "ConfigMap" },
    paramRef: { selector: { matchLabels: { role: "limits" } }, parameterNotFoundAction: "Deny" },
  },
  {
    paramKind: { apiVersion: "v1", kind: "Namespace" },
    paramRef: { name: "limited", namespace: "default", parameterNotFoundAction: "Deny" },
  },
  { paramKind: { apiVersion: "example.com/v1", kind: "Missing" } },
);

/** Generates the parts of a policy and of its binding. */
const policy = parameters.chain(({ paramKind, paramRef }) => {
  // Besides plain expressions, a policy has some about its parameters (twice, so more frequent) or about integers.
  const expressions = paramKind
    ? [...plainExpressions, ...parameterExpressions, ...parameterExpressions]
    : [...plainExpressions, ...integerExpressions];
  return fc.record({
    paramKind: pickOne(paramKind),
    paramRef: pickOne(paramRef),
    failurePolicy: pickOne("Fail", "Fail", "Fail", "Ignore", undefined),
    matchConditions: addSometimes(fc.uniqueArray(pickOne(...conditions), { minLength: 1, maxLength: 2 }), "in 1 of 3"),
    validations: fc.array(validation(expressions), { minLength: 1, maxLength: 3 }),
    annotations,
    constraints,
    matchResources,
    actions,
    hasWarningBinding: pickOne(false, false, false, true),
  });
});

const apiVersion = "admissionregistration.k8s.io/v1";
/** The number of policies. Each has a webhook entry, and the API server checks all entries for each request. */
const count = 150;

/** The policies and their bindings, the same in every run. None refuses real deletions, so the test can clean up. */
const policies: readonly KubernetesObject[] = fc
  .sample(policy, { numRuns: count, seed: 20_261_123 })
  .flatMap((parts, index) => {
    const metadata = { name: `p${index}${index % 10 === 0 ? ".example.com" : ""}` };
    const { matchConditions = [], annotations: auditAnnotations, actions: validationActions } = parts;
    const spec = omitUndefinedMembers({
      failurePolicy: parts.failurePolicy,
      paramKind: parts.paramKind,
      matchConstraints: {
        resourceRules: [configMapRule, deploymentRule, counterRule, classRule],
        objectSelector: { matchLabels: { [`p${index}`]: "on" } },
        ...parts.constraints,
      },
      matchConditions: [noRealDeletionCondition, ...matchConditions].map((expression, at) => ({
        name: `c${at}`,
        expression,
      })),
      variables,
      validations: parts.validations,
      auditAnnotations,
    });
    const binding = omitUndefinedMembers({
      policyName: metadata.name,
      validationActions,
      paramRef: parts.paramRef,
      matchResources: parts.matchResources,
    });
    const kind = "ValidatingAdmissionPolicyBinding";
    // The warnings and audit annotations of two bindings would have a random order.
    const mayBeBoundTwice =
      auditAnnotations.length === 0 && !validationActions.includes("Warn") && !validationActions.includes("Audit");
    const warningBinding = { policyName: metadata.name, validationActions: ["Warn"] };
    const hasSecond = parts.hasWarningBinding && mayBeBoundTwice;
    return [
      { apiVersion, kind: "ValidatingAdmissionPolicy", metadata, spec },
      { apiVersion, kind, metadata, spec: binding },
      ...(hasSecond ? [{ apiVersion, kind, metadata: { name: `${metadata.name}-w` }, spec: warningBinding }] : []),
    ];
  });

/** Returns a policy with a name, and its binding. */
export const buildPolicyWithBinding = (
  kind: "ValidatingAdmissionPolicy" | "MutatingAdmissionPolicy",
  name: string,
  spec: object,
  bindingSpec: object = {},
): readonly KubernetesObject[] => {
  const binding = { kind: `${kind}Binding`, metadata: { name }, spec: { policyName: name, ...bindingSpec } };
  return [{ kind, metadata: { name }, spec }, binding].map((object) => ({ apiVersion, ...object }));
};

/** A policy for the subresource `scale` of all resources. */
const scalePolicy = buildPolicyWithBinding(
  "ValidatingAdmissionPolicy",
  "scale",
  {
    matchConstraints: { resourceRules: [{ ...deploymentRule, resources: ["*/scale"] }] },
    validations: [
      {
        expression: "object.spec.replicas <= oldObject.spec.replicas",
        messageExpression:
          "request.name + ' ' + request.subResource + ' ' + object.kind + ' ' + request.requestKind.kind",
      },
    ],
    auditAnnotations: [{ key: "replicas", valueExpression: "string(object.spec.replicas)" }],
  },
  { validationActions: ["Deny"] },
);

/**
 * Refuses objects with the label `policy: last`. It is created last, so once it refuses, the API server uses all
 * policies.
 */
const readinessPolicyAndBinding = buildPolicyWithBinding(
  "ValidatingAdmissionPolicy",
  "last",
  {
    paramKind: { apiVersion: "v1", kind: "ConfigMap" },
    matchConstraints: {
      resourceRules: [configMapRule, counterRule],
      objectSelector: { matchLabels: { policy: "last" } },
    },
    // The ConfigMap `limits` has a value in `most`, so this is false, and the policy refuses the object.
    validations: [{ expression: "params.data.most == ''", message: "the policies are in use" }],
  },
  { validationActions: ["Deny"], paramRef: { name: "limits", parameterNotFoundAction: "Deny" } },
);

/** The parameters of the policies, which both clusters have. */
const policyParameters: readonly KubernetesObject[] = ["default", "limited"].map((namespace) => {
  const labels: Record<string, string> = namespace === "default" ? { role: "limits" } : {};
  const data = { most: namespace === "default" ? "2" : "3" };
  return { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "limits", namespace, labels }, data };
});

/** Returns the definition of a custom kind in the group example.com, with these fields of its `spec`. */
export const buildKindDefinition = (kind: string, fields: object): KubernetesObject => {
  const singular = kind.toLowerCase();
  const plural = `${singular}s`;
  const spec = { type: "object", properties: fields };
  const schema = { openAPIV3Schema: { type: "object", properties: { spec } } };
  return {
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    metadata: { name: `${plural}.example.com` },
    spec: {
      group: "example.com",
      scope: "Namespaced",
      names: { plural, singular, kind },
      versions: [{ name: "v1", served: true, storage: true, schema }],
    },
  } as KubernetesObject;
};

/** A custom kind with integer fields, in the cluster with native policies and in the cluster that calls the rule. */
const counterKind = buildKindDefinition("Counter", {
  count: { type: "integer", format: "int64" },
  plain: { type: "integer" },
  any: { type: "object", "x-kubernetes-preserve-unknown-fields": true },
});

/** Policies for a comparison, and the objects that both clusters need for them. */
export interface PolicySet {
  policies: readonly KubernetesObject[];
  /**
   * A policy that refuses every object with the label `policy: last`. It is created last, to see when all are in use.
   */
  readinessPolicyAndBinding: readonly KubernetesObject[];
  /** A text that the messages of this policy's refusals contain. */
  readinessMessage: string;
  /** The parameters of the policies, and the definitions of custom kinds. */
  neededObjects: readonly KubernetesObject[];
  /** The kinds of objects that this policy refuses. */
  kindsRefusedByReadinessPolicy: readonly { apiVersion: string; kind: string }[];
}

/** The set of ValidatingAdmissionPolicies that comparisons use. */
export const validatingPolicySet: PolicySet = {
  policies: [...policies, ...scalePolicy],
  readinessPolicyAndBinding,
  readinessMessage: "the policies are in use",
  neededObjects: [counterKind, ...policyParameters],
  kindsRefusedByReadinessPolicy: [
    { apiVersion: "v1", kind: "ConfigMap" },
    { apiVersion: "example.com/v1", kind: "Counter" },
  ],
};

const label = fc.nat({ max: count - 1 }).map((index) => `p${index}`);
const chosen = fc.oneof(
  { weight: 2, arbitrary: label.map((name) => [name]) },
  { weight: 1, arbitrary: fc.uniqueArray(label, { minLength: 2, maxLength: 4 }) },
);
const labels = fc
  .tuple(chosen, addSometimes(pickOne("x", "y")))
  .map(([names, app]) => omitUndefinedMembers({ ...Object.fromEntries(names.map((name) => [name, "on"])), app }));
const metadata = generateObjects({ labels });
const number = pickOne("1", "2", "3", "4", "15", "many");
/** Generates ConfigMaps whose labels choose policies. */
const configMap = generateObjects({
  apiVersion: pickOne("v1"),
  kind: pickOne("ConfigMap"),
  metadata,
  data: addSometimes(
    generateObjects({
      a: addSometimes(number, "in 5 of 6"),
      b: addSometimes(pickOne("yes", "no")),
      c: addSometimes(number),
    }),
    "in 7 of 8",
  ),
});
/** Generates integers, some around the limits of doubles and of 64 bits. */
const integer = pickOne<bigint>(
  1n,
  2n ** 53n - 1n,
  2n ** 53n,
  2n ** 53n + 1n,
  -(2n ** 53n) - 1n,
  2n ** 62n + 1n,
  2n ** 63n - 1n,
);
/** Generates custom resources with integers, whose labels choose policies. */
const counter = generateObjects({
  apiVersion: pickOne("example.com/v1"),
  kind: pickOne("Counter"),
  metadata,
  spec: generateObjects({
    count: addSometimes(integer, "in 5 of 6"),
    plain: addSometimes(integer),
    any: addSometimes(
      generateObjects({
        n: fc.oneof(integer, pickOne<unknown>(1.5, "1", 2n ** 63n, 2n ** 64n)),
        list: fc.array(integer, { maxLength: 3 }),
      }),
      "in 5 of 6",
    ),
  }),
});
/** Generates Deployments whose labels choose policies. */
const deployment = fc.record({ metadata, replicas: pickOne(1, 3, 5), grace: addSometimes(integer) }).map((parts) => {
  const { metadata, replicas, grace: terminationGracePeriodSeconds } = parts;
  const labels = { app: "web" };
  const pod = { containers: [{ name: "c", image: "i" }], terminationGracePeriodSeconds };
  const template = { metadata: { labels }, spec: omitUndefinedMembers(pod) };
  const spec = { replicas, selector: { matchLabels: labels }, template };
  return { apiVersion: "apps/v1", kind: "Deployment", metadata, spec };
});
/** Generates PriorityClasses, as objects without a namespace. */
export const buildPriorityClass = (metadata: fc.Arbitrary<object>) =>
  generateObjects({
    apiVersion: pickOne("scheduling.k8s.io/v1"),
    kind: pickOne("PriorityClass"),
    metadata,
    value: pickOne(1, 2),
    description: addSometimes(pickOne("some")),
  });
/** Generates a step that sets a field of an object or of its subresource. */
export const editField = (path: string, value: Parameters<typeof generateFieldEdit>[1], subresource?: string) =>
  buildEditStep(wrapInList(generateFieldEdit(path, value) as fc.Arbitrary<FieldEdit>), subresource);

/** Scenarios for ValidatingAdmissionPolicy, by name. */
export const validatingPolicyScenarios = {
  /** ConfigMaps, deployments, priority classes and custom resources whose labels make policies match. */
  policies: fc.oneof(
    {
      weight: 4,
      arbitrary: buildScenario("configmaps", generateCreateStep(configMap), [
        editField("data", pickOne({ a: "1" }, { a: "7", b: "yes" })),
      ]),
    },
    {
      weight: 1,
      arbitrary: buildScenario("deployments", generateCreateStep(deployment), [
        editField("spec.replicas", pickOne(2, 4)),
        editField("spec.replicas", pickOne(2, 4), "scale"),
      ]),
    },
    {
      weight: 1,
      arbitrary: buildScenario("priorityclasses", generateCreateStep(buildPriorityClass(metadata)), [
        editField("description", pickOne("some", "other")),
      ]),
    },
    {
      weight: 2,
      arbitrary: buildScenario("counters", generateCreateStep(counter), [
        editField("spec.count", integer),
        editField("spec.any.n", integer),
      ]),
    },
  ),
};
