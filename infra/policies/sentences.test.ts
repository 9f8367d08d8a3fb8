import assert from "node:assert/strict";
import { test } from "node:test";
import { faultsOf } from "#lib/policy/checks/policy.ts";
import type { Policy } from "#lib/policy/kinds.ts";
import { policyCases } from "../bench/example-policies.ts";
import { wordsOf } from "./sentences.ts";

const sound = policyCases.filter(({ policies }) => policies.every((policy) => faultsOf(policy).length === 0));

test("it says something of every rule of the measured policies", () => {
  assert.ok(sound.length > 280, `${sound.length}`);
  for (const { id, policies } of sound)
    for (const policy of policies) {
      const rules = policy.kind === "ClusterValidatePolicy" ? policy.spec.validateRules : policy.spec.overrideRules;
      const words = wordsOf(policy);
      assert.equal(words.length, rules.length, id);
      for (const sentence of words) {
        assert.match(sentence, /^(On [A-Z, and]+ of|Never, of) .+: .+\.$/, id);
        assert.doesNotMatch(sentence, /undefined|\[object|…/, id);
      }
    }
});

const header = { apiVersion: "policy.kcloudlabs.io/v1alpha1", metadata: { name: "p", namespace: "default" } };
const overriding = (overriders: object, spec: object = {}) =>
  ({ ...header, kind: "OverridePolicy", spec: { overrideRules: [{ overriders }], ...spec } }) as Policy;
const judging = (condition: object, targetOperations: string[] = []) =>
  ({
    ...header,
    kind: "ClusterValidatePolicy",
    spec: { validateRules: [{ targetOperations, template: { type: "condition", condition } }] },
  }) as Policy;
const dataRef = { from: "current", path: "spec.replicas" };
const everywhere = "On CREATE and UPDATE of every object in namespace default:";

const words: [name: string, policy: Policy, sentence: string][] = [
  [
    "names objects by their labels and fields",
    overriding(
      { plaintext: [{ op: "remove", path: "/spec/a" }] },
      {
        resourceSelectors: [
          {
            apiVersion: "v1",
            kind: "Pod",
            labelSelector: {
              matchLabels: { app: "web" },
              matchExpressions: [{ key: "a", operator: "NotIn", values: ["b", "c"] }],
            },
            fieldSelector: { matchExpressions: [{ field: "spec.b", operator: "In", values: ["d"] }] },
          },
          { apiVersion: "apps/v1", kind: "Deployment", name: "web", namespace: "other" },
        ],
      },
    ),
    'On CREATE and UPDATE of v1 Pod with labels app=web,a notin (b,c) with fields spec.b in (d) in namespace default or apps/v1 Deployment named "web" in namespace other (which is not the policy\'s own): removes /spec/a.',
  ],
  [
    "says all that a rule does, in its order",
    overriding({
      origin: [{ type: "nodeSelector", operation: "add", nodeSelector: { a: "b" } }],
      cue: "a\nb",
      plaintext: [{ op: "add", path: "/a", value: 1 }],
      template: { type: "labels", operation: "add", path: "x.io~1a", value: { integer: 5 } },
    }),
    `${everywhere} sets label x.io/a to "5"; then runs a CUE script of 2 lines and applies its patches; then adds /a with 1; then sets nodeSelector a=b.`,
  ],
  [
    "shows the keys that the keys of a map stand for",
    overriding({ template: { type: "labels", operation: "add", value: { stringMap: { "x.io~1a": "5", b: "6" } } } }),
    `${everywhere} sets label x.io/a to "5" and b to "6".`,
  ],
  [
    "says that replace decides, whatever the operation is",
    overriding({
      origin: [
        { type: "labels", operation: "remove", replace: true, labels: { a: "b" } },
        { type: "labels", replace: true },
      ],
    }),
    `${everywhere} makes labels a=b and nothing else; then makes labels empty and nothing else.`,
  ],
  [
    "says what an oversell comes to",
    overriding({
      template: {
        type: "resourcesOversell",
        operation: "add",
        resourcesOversell: { cpuFactor: "0.5", diskFactor: "0.1" },
      },
    }),
    `${everywhere} sets in the first container the requests of cpu to 0.5 of its limit and ephemeral-storage to 0.1 of its limit.`,
  ],
  [
    "says when a condition denies",
    judging({ cond: "Gt", message: "too many", dataRef, value: { integer: 3 } }, ["CREATE"]),
    'On CREATE of every object: denies with "too many" if spec.replicas of the object is greater than 3.',
  ],
  [
    "says what a condition lets pass",
    judging(
      {
        cond: "In",
        affectMode: "allow",
        message: "no",
        dataRef,
        valueRef: { from: "http", path: "$&", http: { url: "https://a" } },
      },
      ["CONNECT"],
    ),
    'Never, of every object: denies with "no" unless spec.replicas of the object is one of $& of what GET https://a answers.',
  ],
  [
    "leaves a message as it is, and what is ignored out",
    judging({
      cond: "NotIn",
      message: "wait…",
      dataRef,
      value: { integerSlice: [1, 2] },
      valueProcess: { operation: "+", operationWith: 1 },
    }),
    'On CREATE, UPDATE and DELETE of every object: denies with "wait…" if spec.replicas of the object exists and is none of 1, 2.',
  ],
  [
    "says which object must be there, and of a reference's selector what chooses it",
    judging({
      cond: "Exist",
      message: "no",
      dataRef: {
        from: "k8s",
        path: "data.a",
        k8s: { apiVersion: "v1", kind: "ConfigMap", name: "a", fieldSelector: { matchFields: { b: "c" } } },
      },
    }),
    'On CREATE, UPDATE and DELETE of every object: denies with "no" if data.a of v1 ConfigMap named "a" (which must be there) exists.',
  ],
  [
    "takes an empty namespace for none",
    overriding(
      { plaintext: [{ op: "remove", path: "/spec/a" }] },
      { resourceSelectors: [{ apiVersion: "v1", kind: "Pod", namespace: "" }] },
    ),
    "On CREATE and UPDATE of v1 Pod in namespace default: removes /spec/a.",
  ],
  [
    "says which key is removed, whatever stands beside it",
    overriding({ template: { type: "labels", operation: "remove", path: "a", value: { stringMap: { b: "c" } } } }),
    `${everywhere} removes label a.`,
  ],
  [
    "leaves out lists of terms that are empty",
    overriding({
      template: {
        type: "affinity",
        operation: "replace",
        affinity: {
          nodeAffinity: {
            requiredDuringSchedulingIgnoredDuringExecution: { nodeSelectorTerms: [] },
            preferredDuringSchedulingIgnoredDuringExecution: [{ weight: 1, preference: {} }],
          },
          podAffinity: { requiredDuringSchedulingIgnoredDuringExecution: [] },
        },
      },
    }),
    `${everywhere} replaces preferred nodeAffinity.`,
  ],
  [
    "says what origin comes to where it is given nothing, or what it doesn't take",
    overriding({
      origin: [
        { type: "hostNetwork", operation: "replace" },
        { type: "affinity", operation: "replace" },
        { type: "labels", operation: "add" },
        { type: "tolerations", operation: "remove" },
        { type: "schedulerName", operation: "add", schedulerName: "a" },
        {
          type: "resourceOversell",
          operation: "replace",
          resourcesOversell: { limits: { cpu: "0.5", "nvidia.com/gpu": "0.5" } },
        },
        { type: "resourceOversell", containerCount: 1, resourcesOversell: { limits: { "nvidia.com/gpu": "0.5" } } },
      ],
    }),
    `${everywhere} sets hostNetwork to false; then removes affinity; then leaves labels alone; then leaves tolerations alone; then fails, as schedulerName can only be replaced; then multiplies limits.cpu by 0.5 of container 0; then leaves the resources of container 1 alone.`,
  ],
  [
    "cuts what is long",
    judging({ cond: "Exist", message: "m".repeat(500), dataRef }),
    `On CREATE, UPDATE and DELETE of every object: denies with "${"m".repeat(116)}... if spec.replicas of the object exists.`,
  ],
];
for (const [name, policy, sentence] of words) test(`it ${name}`, () => assert.deepEqual(wordsOf(policy), [sentence]));
