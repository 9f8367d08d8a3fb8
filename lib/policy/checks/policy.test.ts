import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import fc from "fast-check";
import { parse } from "yaml";
import { faultsOf } from "./policy.ts";
import { warningsOf } from "./warnings.ts";

const fixtures = new URL("../../../infra/bench/kinitiras-examples/", import.meta.url);
const read = (file: string) => readFileSync(new URL(file, fixtures), "utf8");

interface Case {
  id: string;
  policies: { spec: unknown }[];
  policyFile: string;
  expect: { policy?: string };
}
const measured: Case[] = JSON.parse(read("cases.json")).cases;
const examples: Case[] = JSON.parse(read("examples.json")).cases;
/** Refused because a script doesn't compile, which is not looked at here. */
const byScript = (policy: { spec: unknown }) => /"(cue|renderedCue)":/.test(JSON.stringify(policy.spec));

test("it refuses the measured policies that are to be refused, and no other", () => {
  let count = 0;
  for (const { id, policies, expect } of measured) {
    if (expect.policy === "rejected" && policies.every(byScript)) continue;
    const faults = policies.flatMap(faultsOf);
    assert.equal(faults.length > 0, expect.policy === "rejected", `${id}: ${faults.join("; ")}`);
    count++;
  }
  assert.ok(count > 260, `${count}`);
});

test("it refuses of the shipped examples the one whose type is gone", () => {
  for (const { id, policyFile, expect } of examples) {
    const faults = faultsOf(parse(read(policyFile)));
    assert.equal(faults.length > 0, expect.policy === "rejected", `${id}: ${faults.join("; ")}`);
  }
});

const rule = (overriders: object) => ({
  apiVersion: "policy.kcloudlabs.io/v1alpha1",
  kind: "ClusterOverridePolicy",
  metadata: { name: "p" },
  spec: { overrideRules: [{ overriders }] },
});
const template = (given: object) => rule({ template: given });
const condition = (given: object) => ({
  apiVersion: "policy.kcloudlabs.io/v1alpha1",
  kind: "ClusterValidatePolicy",
  metadata: { name: "p" },
  spec: { validateRules: [{ template: { type: "condition", condition: given } }] },
});
const dataRef = { from: "current", path: "/spec/a" };
const selecting = (...resourceSelectors: object[]) => {
  const policy = rule({});
  return { ...policy, spec: { ...policy.spec, resourceSelectors } };
};
const over = "spec.overrideRules[0].overriders";
const at = `${over}.template`;
const when = "spec.validateRules[0].template.condition";
const annotation = { type: "annotations", operation: "add", path: "a" };
const http = (http: object) => template({ ...annotation, valueRef: { from: "http", path: "a", http } });
const label = (labelSelector: object) => selecting({ apiVersion: "v1", kind: "Pod", labelSelector });
const toleration = "spec.affinity.toleration[0]";

const table: [name: string, policy: unknown, ...faults: string[]][] = [
  ["takes no list for a policy", [], "a policy must be a map"],
  [
    "says what a policy is made of",
    {},
    "apiVersion is missing",
    "kind is missing",
    "metadata is missing",
    "spec is missing",
  ],
  [
    "knows three kinds of one version",
    { ...rule({}), apiVersion: "v1", kind: "Pod" },
    'apiVersion must be policy.kcloudlabs.io/v1alpha1, not "v1"',
    'kind must be OverridePolicy, ClusterOverridePolicy or ClusterValidatePolicy, not "Pod"',
  ],
  [
    "wants the namespace of an OverridePolicy",
    { ...rule({}), kind: "OverridePolicy" },
    "metadata.namespace is missing; an OverridePolicy concerns its own namespace alone",
  ],
  [
    "names a field that is unknown",
    rule({ plaintxt: [] }),
    `${over}.plaintxt is unknown; ${over} has template, renderedCue, cue, plaintext, origin`,
  ],
  [
    "takes a key like any other for unknown",
    JSON.parse(JSON.stringify(rule({})).replace('"overriders":{}', '"overriders":{"__proto__":1}')),
    `${over}.__proto__ is unknown; ${over} has template, renderedCue, cue, plaintext, origin`,
  ],
  ["wants text for a script", rule({ cue: 1 }), `${over}.cue must be a text, not 1`],
  ["takes no null for a template", rule({ template: null }), `${over}.template must be a map, not null`],
  ["takes no map for a list", rule({ plaintext: {} }), `${over}.plaintext must be a list, not a map`],
  [
    "wants a pointer and an operation of a patch",
    rule({ plaintext: [{ path: "spec", op: "move" }, {}] }),
    `${over}.plaintext[0].path must be a JSON pointer, which begins with a slash, not "spec"`,
    `${over}.plaintext[0].op must be add, replace or remove, not "move"`,
    `${over}.plaintext[1].path is missing`,
    `${over}.plaintext[1].op is missing`,
  ],
  ["wants type and operation of a template", template({}), `${at}.type is missing`, `${at}.operation is missing`],
  [
    "wants a value for an annotation",
    template(annotation),
    `${at}.value is missing; an add of annotations needs value or valueRef`,
  ],
  [
    "wants a value for what replaces a label",
    template({ type: "labels", operation: "replace", path: "a" }),
    `${at}.value is missing; a replace of labels needs value or valueRef`,
  ],
  ["wants no value for what is removed", template({ ...annotation, operation: "remove" })],
  [
    "wants a key",
    template({ ...annotation, path: "", value: { string: "x" } }),
    `${at}.path is missing; it is the key among the annotations`,
  ],
  ["takes keys with a slash, written either way", template({ ...annotation, path: "a.io~1b", value: { string: "x" } })],
  [
    "takes no list for an annotation",
    template({ ...annotation, value: { stringSlice: ["a"] } }),
    `${at}.value.stringSlice is a list; annotations take text, a number or true or false`,
  ],
  ["takes an empty list for none", template({ ...annotation, value: { stringSlice: [], integer: 5 } })],
  [
    "takes no float that is none",
    template({ ...annotation, value: { float: "abc" } }),
    `${at}.value.float must be a decimal number such as "1.5", not "abc"`,
  ],
  [
    "wants the key of what is removed, whatever else is there",
    template({ ...annotation, operation: "remove", path: undefined, value: { stringMap: { a: "b" } } }),
    `${at}.path is missing; it is the key among the annotations`,
  ],
  ["takes any key and any text", template({ ...annotation, type: "labels", path: "a b", value: { string: '"\\(b)' } })],
  [
    "wants resources",
    template({ type: "resources", operation: "add", resources: { limits: {} } }),
    `${at}.resources is missing; it lists the requests and limits that are meant`,
  ],
  [
    "reads quantities",
    template({ type: "resources", operation: "add", resources: { limits: { cpu: 1, memory: "1Gx", a: 1.5 } } }),
    `${at}.resources.limits["memory"] must be a quantity such as 500m or 1Gi, not "1Gx"`,
    `${at}.resources.limits["a"] must be a text, not 1.5`,
  ],
  [
    "wants a factor",
    template({ type: "resourcesOversell", operation: "add", resourcesOversell: { cpuFactor: "" } }),
    `${at}.resourcesOversell is missing; it has at least one of cpuFactor, memoryFactor and diskFactor`,
  ],
  [
    "wants factors between 0 and 1",
    template({
      type: "resourcesOversell",
      operation: "add",
      resourcesOversell: { cpuFactor: "0.5", memoryFactor: "1", diskFactor: "x" },
    }),
    `${at}.resourcesOversell.memoryFactor must be a decimal number between 0 and 1, such as "0.5", not "1"`,
    `${at}.resourcesOversell.diskFactor must be a decimal number between 0 and 1, such as "0.5", not "x"`,
  ],
  [
    "takes 0 for a factor that goes",
    template({ type: "resourcesOversell", operation: "remove", resourcesOversell: { cpuFactor: "0" } }),
  ],
  [
    "wants tolerations",
    template({ type: "tolerations", operation: "add" }),
    `${at}.tolerations is missing; it lists the tolerations that are meant`,
  ],
  [
    "takes any tolerations for a template",
    template({ type: "tolerations", operation: "add", tolerations: [{ key: "a", operator: "Foo" }] }),
  ],
  [
    "wants a term of an affinity",
    template({
      type: "affinity",
      operation: "add",
      affinity: { podAffinity: { requiredDuringSchedulingIgnoredDuringExecution: [] } },
    }),
    `${at}.affinity is missing; at least one of its lists must have a term`,
  ],
  [
    "wants no term of an affinity that goes",
    template({
      type: "affinity",
      operation: "remove",
      affinity: { podAffinity: { requiredDuringSchedulingIgnoredDuringExecution: [] } },
    }),
  ],
  [
    "reads the terms of an affinity",
    template({
      type: "affinity",
      operation: "add",
      affinity: { podAffinity: { requiredDuringSchedulingIgnoredDuringExecution: [{}] } },
    }),
    `${at}.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey is missing`,
  ],
  [
    "wants to know what of an object is referred to",
    template({ ...annotation, valueRef: { from: "k8s", path: "a" } }),
    `${at}.valueRef.k8s is missing; a reference from k8s needs it`,
  ],
  [
    "wants a name or labels of the object that is referred to",
    template({ ...annotation, valueRef: { from: "k8s", path: "a", k8s: { apiVersion: "v1", kind: "Pod" } } }),
    `${at}.valueRef.k8s.name is missing, and so is labelSelector; one of them says which object is meant`,
  ],
  [
    "takes placeholders for the value of a label",
    template({
      ...annotation,
      valueRef: {
        from: "k8s",
        path: "a",
        k8s: { apiVersion: "v1", kind: "Pod", labelSelector: { matchLabels: { a: "{{metadata.name}}" } } },
      },
    }),
  ],
  ["takes a placeholder of nothing, which fails when it is filled", http({ url: "http://a/{{}}" })],
  [
    "wants an address",
    http({ url: "ftp://a" }),
    `${at}.valueRef.http.url must be an address that begins with http:// or https://, not "ftp://a"`,
  ],
  [
    "takes a placeholder within a host",
    http({ url: "https://{{metadata.namespace}}.example.com/?a={{metadata.name}}" }),
  ],
  [
    "knows two methods",
    http({ url: "http://a", method: "PUT" }),
    `${at}.valueRef.http.method must be GET or POST, not "PUT"`,
  ],
  [
    "takes no header with a line break",
    http({ url: "http://a", header: { "a b": "c\nd" } }),
    `${at}.valueRef.http.header["a b"] must not hold line breaks or control characters`,
    `${at}.valueRef.http.header: a name is "a b", which is no name of a header`,
  ],
  ["reads durations as Go does", http({ url: "http://a", auth: { expireDuration: "1h30m" } })],
  [
    "refuses what is no duration or time",
    http({ url: "http://a", auth: { expireDuration: "5", expireAt: "soon" } }),
    `${at}.valueRef.http.auth.expireDuration must be a duration such as 30m or 1h30m, not "5"`,
    `${at}.valueRef.http.auth.expireAt must be a time such as 2030-01-31T12:00:00Z, not "soon"`,
  ],
  [
    "wants a path that is one",
    template({ ...annotation, valueRef: { from: "current", path: "a//b" } }),
    `${at}.valueRef.path "a//b" has an empty step`,
  ],
  ["wants what a condition judges", condition({ cond: "Exist" }), `${when}.dataRef is missing`],
  [
    "knows no Regex",
    condition({ cond: "Regex", dataRef, value: { string: "a" } }),
    `${when}.cond must be Equal, NotEqual, Exist, NotExist, In, NotIn, Gt, Gte, Lt or Lte, not "Regex"`,
  ],
  [
    "wants what a condition compares with",
    condition({ cond: "Equal", dataRef, value: { stringMap: {} } }),
    `${when}.value is missing; Equal needs value or valueRef`,
  ],
  [
    "wants a list for In",
    condition({ cond: "NotIn", dataRef, value: { integer: 1 } }),
    `${when}.value must be a list (stringSlice, integerSlice or floatSlice) for NotIn, not integer`,
  ],
  [
    "orders no maps",
    condition({ cond: "Lt", dataRef, value: { stringMap: { a: "b" } } }),
    `${when}.value must be a number or a text for Lt, not stringMap`,
  ],
  [
    "divides by no zero",
    condition({
      cond: "Equal",
      dataRef,
      value: { integer: 1 },
      valueProcess: { operation: "/", operationWith: "0.0%" },
    }),
    `${when}.valueProcess.operationWith must not be 0: nothing can be divided by it`,
  ],
  [
    "divides by very little",
    condition({
      cond: "Equal",
      dataRef,
      value: { integer: 1 },
      valueProcess: { operation: "/", operationWith: "1e-999" },
    }),
  ],
  [
    "wants a number to reckon with",
    condition({ cond: "Equal", dataRef, value: { integer: 1 }, valueProcess: { operation: "^", operationWith: "x" } }),
    `${when}.valueProcess.operation must be +, -, * or /, not "^"`,
  ],
  [
    "reckons with no text",
    condition({ cond: "Equal", dataRef, value: { integer: 1 }, valueProcess: { operation: "+", operationWith: "x" } }),
    `${when}.valueProcess.operationWith must be a number or a percentage such as "50%", not "x"`,
  ],
  [
    "wants apiVersion and kind of a selector",
    selecting({ apiVersion: "" }),
    "spec.resourceSelectors[0].apiVersion is missing",
    "spec.resourceSelectors[0].kind is missing",
  ],
  [
    "wants values for In",
    label({ matchExpressions: [{ key: "a", operator: "In" }] }),
    "spec.resourceSelectors[0].labelSelector.matchExpressions[0].values is empty; In needs at least one",
  ],
  [
    "wants no values for Exists",
    label({ matchExpressions: [{ key: "a", operator: "Exists", values: ["b"] }] }),
    "spec.resourceSelectors[0].labelSelector.matchExpressions[0].values must be left out beside Exists",
  ],
  [
    "wants a known operator",
    label({ matchExpressions: [{ key: "a", operator: "Gt" }] }),
    'spec.resourceSelectors[0].labelSelector.matchExpressions[0].operator must be one of In, NotIn, Exists, DoesNotExist, not "Gt"',
  ],
  [
    "takes expressions about fields that take nothing",
    selecting({
      apiVersion: "v1",
      kind: "Pod",
      fieldSelector: { matchExpressions: [{ field: "a", operator: "in", value: ["b"] }] },
    }),
  ],
  [
    "takes both spellings of a field's values",
    selecting({
      apiVersion: "v1",
      kind: "Pod",
      fieldSelector: {
        matchExpressions: [
          { field: "a", operator: "In", values: ["b"] },
          { field: "a", operator: "In", value: ["b"] },
        ],
      },
    }),
  ],
  [
    "wants an operation of what is merged",
    rule({ origin: [{ type: "labels" }, { type: "labels", replace: true }, { type: "affinity" }] }),
    `${over}.origin[0].operation is missing`,
  ],
  [
    "says of tolerations what upstream says",
    rule({
      origin: [{ type: "tolerations", operation: "add", tolerations: [{ key: "k", operator: "Exists", value: "v" }] }],
    }),
    `${toleration}.operator: Invalid value: v1.Toleration{Key:"k", Operator:"Exists", Value:"v", Effect:"", TolerationSeconds:(*int64)(nil)}: value must be empty when \`operator\` is 'Exists'`,
  ],
  [
    "wants Exists where a key is empty",
    rule({ origin: [{ type: "tolerations", operation: "add", tolerations: [{}] }] }),
    `${toleration}.operator: Invalid value: "": operator must be Exists when \`key\` is empty, which means "match all values and all keys"`,
  ],
  [
    "wants NoExecute where there are seconds",
    rule({
      origin: [
        { type: "tolerations", operation: "add", tolerations: [{ key: "k", tolerationSeconds: 1, effect: "Bad" }] },
      ],
    }),
    `${toleration}.effect: Invalid value: "Bad": effect must be 'NoExecute' when \`tolerationSeconds\` is set`,
    `${toleration}.effect: Unsupported value: "Bad": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"`,
  ],
  [
    "refuses two that are at the same container",
    rule({
      origin: [
        { type: "resourceRequirements", operation: "replace", containerCount: 1 },
        { type: "resourceOversell", operation: "replace", containerCount: 1 },
      ],
    }),
    "cop is invalid: in the same cop, there cannot be a unified containerCount in OverrideRuleOriginResourceRequirements and OverrideRuleOriginResourceOversell",
  ],
  [
    "takes two that are at two containers",
    rule({
      origin: [
        { type: "resourceRequirements", operation: "replace" },
        { type: "resourceOversell", operation: "replace", containerCount: 1 },
      ],
    }),
  ],
  [
    "reads the factors of an origin",
    rule({
      origin: [
        {
          type: "resourceOversell",
          operation: "replace",
          containerCount: -1,
          resourcesOversell: { limits: { cpu: "a" }, x: {} },
        },
      ],
    }),
    `${over}.origin[0].containerCount must be a whole number from 0 on, not -1`,
    `${over}.origin[0].resourcesOversell.limits["cpu"] must be a decimal number such as "0.5", not "a"`,
    `${over}.origin[0].resourcesOversell.x is unknown; ${over}.origin[0].resourcesOversell has requests, limits`,
  ],
  [
    "takes one constraint for a topology",
    rule({
      origin: [
        {
          type: "topologySpreadConstraints",
          operation: "replace",
          topologySpreadConstraints: [1, 2].map((maxSkew) => ({
            maxSkew,
            topologyKey: "a",
            whenUnsatisfiable: "DoNotSchedule",
          })),
        },
      ],
    }),
    `${over}.origin[0].topologySpreadConstraints[1] has the same topologyKey and whenUnsatisfiable as one before it`,
  ],
];
for (const [name, policy, ...faults] of table) test(`it ${name}`, () => assert.deepEqual(faultsOf(policy), faults));

test("it is done with a large policy, and one that is nested deeply", () => {
  const nested = JSON.parse(`${"[".repeat(200_000)}${"]".repeat(200_000)}`);
  assert.deepEqual(faultsOf(rule({ plaintext: [{ path: "/a", op: "add", value: nested }] })), [
    "the policy is nested too deeply",
  ]);
  assert.equal(faultsOf(rule({ plaintext: Array(100_000).fill({}) })).length, 50);
  assert.equal(faultsOf(rule({ ["k".repeat(1_000_000)]: 1 })).join().length < 500, true);
  const tolerations = Array(50_000).fill({ key: "!".repeat(1_000) });
  assert.ok(
    faultsOf(rule({ origin: [{ type: "tolerations", operation: "add", tolerations }] })).join().length < 200_000,
  );
});

const words = fc.constantFrom(
  "spec",
  "metadata",
  "overrideRules",
  "overriders",
  "template",
  "type",
  "annotations",
  "operation",
  "add",
  "origin",
  "tolerations",
  "value",
  "valueRef",
  "validateRules",
  "condition",
  "cond",
  "In",
  "__proto__",
  "constructor",
  "path",
  "http",
  "url",
  "k8s",
  "labelSelector",
  "matchExpressions",
);
const { json } = fc.letrec((tie) => ({
  json: fc.oneof(
    { depthSize: "medium", withCrossShrink: true },
    fc.constantFrom(null, true, 0, -1.5, ""),
    words,
    fc.array(tie("json"), { maxLength: 3 }),
    fc.array(fc.tuple(words, tie("json")), { maxLength: 5 }).map((entries) => Object.fromEntries(entries)),
  ),
}));

test("it answers any JSON with sentences", () => {
  const kind = fc.constantFrom("OverridePolicy", "ClusterOverridePolicy", "ClusterValidatePolicy");
  const policy = fc.oneof(
    json,
    fc.record({
      apiVersion: fc.constant("policy.kcloudlabs.io/v1alpha1"),
      kind,
      metadata: fc.constant({ name: "a", namespace: "b" }),
      spec: json,
    }),
    fc.oneof(
      json.map((given) => rule({ template: given, origin: [given] })),
      json.map((given) => condition(Object(given))),
      json.map((given) =>
        template({
          type: "tolerations",
          operation: "add",
          tolerations: given,
          affinity: given,
          value: given,
          valueRef: given,
        }),
      ),
    ),
  );
  fc.assert(
    fc.property(policy, (given) => {
      const faults = [...faultsOf(given), ...warningsOf(given)];
      assert.ok(faults.every((fault) => typeof fault === "string" && fault.length > 10));
    }),
    { numRuns: 2000 },
  );
});

test("it finds no fault that depends on where else a measured policy is broken", () => {
  // One value of a policy replaced by something else: sentences, whatever it is.
  const policies = measured.flatMap(({ policies }) => policies);
  fc.assert(
    fc.property(fc.nat(policies.length - 1), fc.nat(), json, (index, place, given) => {
      const policy = structuredClone(policies[index]);
      const places: [object, string][] = [];
      const walk = (value: unknown) => {
        if (typeof value !== "object" || value === null) return;
        for (const key of Object.keys(value)) {
          places.push([value, key]);
          walk(Reflect.get(value, key));
        }
      };
      walk(policy?.spec);
      const [holder, key] = places[place % places.length] ?? [{}, ""];
      Reflect.set(holder, key, given);
      assert.ok([...faultsOf(policy), ...warningsOf(policy)].every((fault) => fault.length > 10));
    }),
    { numRuns: 2000 },
  );
});
