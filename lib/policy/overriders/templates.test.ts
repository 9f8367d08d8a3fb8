import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import type { KubernetesObject } from "#lib/review.ts";
import type { Json } from "../../json.ts";
import { draft, applied as patched } from "../../patch.ts";
import type { OverrideTemplate } from "../kinds.ts";
import { applyTemplate } from "./templates.ts";

const podOf = (spec: unknown, metadata: unknown = { name: "web" }) =>
  ({ apiVersion: "v1", kind: "Pod", metadata, spec }) as KubernetesObject & { metadata: Json; spec: Json };

const required = "requiredDuringSchedulingIgnoredDuringExecution";
const preferred = "preferredDuringSchedulingIgnoredDuringExecution";

const key = (name: string) => ({ key: name, operator: "Exists" });
const x = key("x");

/** What becomes of a pod's spec, or of its metadata. */
const cases: [name: string, template: unknown, before: Json, after: Json][] = [
  [
    "puts tolerations in front, the last one first",
    { type: "tolerations", operation: "add", tolerations: [key("a"), key("b")] },
    { tolerations: [x] },
    { tolerations: [key("b"), key("a"), x] },
  ],
  [
    "adds no toleration that is there, in whatever order its fields stand",
    { type: "tolerations", operation: "add", tolerations: [key("a"), x] },
    { tolerations: [{ operator: "Exists", key: "x" }] },
    { tolerations: [key("a"), x] },
  ],
  [
    "gives a pod with an empty list the tolerations in their order",
    { type: "tolerations", operation: "replace", tolerations: [key("a"), key("b")] },
    { tolerations: [] },
    { tolerations: [key("a"), key("b")] },
  ],
  [
    "replaces every toleration of the key",
    { type: "tolerations", operation: "replace", tolerations: [{ ...x, effect: "NoExecute" }] },
    { tolerations: [x, key("a"), { key: "x", value: "1" }] },
    { tolerations: [{ ...x, effect: "NoExecute" }, key("a"), { ...x, effect: "NoExecute" }] },
  ],
  [
    "replaces one toleration by two of the same key",
    {
      type: "tolerations",
      operation: "replace",
      tolerations: [
        { ...x, effect: "A" },
        { ...x, effect: "B" },
      ],
    },
    { tolerations: [key("a"), x] },
    { tolerations: [{ ...x, effect: "B" }, key("a"), { ...x, effect: "A" }] },
  ],
  [
    "leaves two of the same key as they are where they are as wanted",
    {
      type: "tolerations",
      operation: "replace",
      tolerations: [
        { ...x, effect: "A" },
        { ...x, effect: "B" },
      ],
    },
    { tolerations: [{ ...x, effect: "B" }, key("a"), { ...x, effect: "A" }] },
    { tolerations: [{ ...x, effect: "B" }, key("a"), { ...x, effect: "A" }] },
  ],
  [
    "matches key and value where a toleration has no operator",
    { type: "tolerations", operation: "remove", tolerations: [{ key: "x", value: "1" }] },
    { tolerations: [{ key: "x", value: "1", effect: "A" }, { key: "x", value: "2" }, x, { key: "x", value: "1" }] },
    { tolerations: [{ key: "x", value: "2" }, x] },
  ],
  [
    "matches no toleration without a key",
    { type: "tolerations", operation: "remove", tolerations: [{ operator: "Exists" }] },
    { tolerations: [{ operator: "Exists" }, x] },
    { tolerations: [{ operator: "Exists" }, x] },
  ],
  [
    "puts terms in front, the last one first, but for those that are there",
    { type: "affinity", operation: "add", affinity: { podAffinity: { [preferred]: [1, 2, 3] } } },
    { affinity: { podAffinity: { [preferred]: [4, 2], [required]: [5] } } },
    { affinity: { podAffinity: { [preferred]: [3, 1, 4, 2], [required]: [5] } } },
  ],
  [
    "fills a list of terms that is null",
    { type: "affinity", operation: "add", affinity: { nodeAffinity: { [required]: { nodeSelectorTerms: [1] } } } },
    { affinity: { nodeAffinity: { [required]: null } } },
    { affinity: { nodeAffinity: { [required]: { nodeSelectorTerms: [1] } } } },
  ],
  [
    "replaces only the lists that it has",
    { type: "affinity", operation: "replace", affinity: { podAffinity: { [preferred]: [1] } } },
    { affinity: { podAffinity: { [preferred]: [2], [required]: [3] }, other: 1 } },
    { affinity: { podAffinity: { [preferred]: [1], [required]: [3] }, other: 1 } },
  ],
  [
    "takes an empty list of terms for none",
    {
      type: "affinity",
      operation: "replace",
      affinity: { podAffinity: { [preferred]: [], [required]: [1] }, nodeAffinity: { [preferred]: [] } },
    },
    { affinity: { podAffinity: { [preferred]: [2], [required]: [3] } } },
    { affinity: { podAffinity: { [preferred]: [2], [required]: [1] } } },
  ],
  [
    "leaves no empty map where it removed the only list",
    { type: "affinity", operation: "remove", affinity: { nodeAffinity: { [required]: { nodeSelectorTerms: [] } } } },
    { affinity: { nodeAffinity: { [required]: { nodeSelectorTerms: [1] }, [preferred]: [2] } } },
    { affinity: { nodeAffinity: { [preferred]: [2] } } },
  ],
  [
    "leaves no affinity where it removed all of it",
    { type: "affinity", operation: "remove", affinity: { podAntiAffinity: { [required]: [1], [preferred]: [] } } },
    { affinity: { podAntiAffinity: { [required]: [1] } }, nodeName: "n" },
    { nodeName: "n" },
  ],
  [
    "leaves an empty map that it did not make",
    { type: "affinity", operation: "remove", affinity: { podAntiAffinity: { [required]: [1] } } },
    { affinity: { podAntiAffinity: {} } },
    { affinity: { podAntiAffinity: {} } },
  ],
  [
    "writes quantities as the policy does",
    { type: "resources", operation: "add", resources: { requests: { cpu: "0.5", "nvidia.com/gpu": 1 } } },
    { containers: [{ resources: { requests: { cpu: 1 }, claims: [] } }, {}] },
    { containers: [{ resources: { requests: { cpu: "0.5", "nvidia.com/gpu": 1 }, claims: [] } }, {}] },
  ],
  [
    "takes the names of resources as steps of a JSON pointer",
    { type: "resources", operation: "add", resources: { requests: { "example.com~1gpu": 1 } } },
    { containers: [{}] },
    { containers: [{ resources: { requests: { "example.com/gpu": 1 } } }] },
  ],
  [
    "removes the resource that a name stands for",
    { type: "resources", operation: "remove", resources: { limits: { "example.com~1gpu": 0 } } },
    { containers: [{ resources: { limits: { "example.com/gpu": 1, cpu: 1 } } }] },
    { containers: [{ resources: { limits: { cpu: 1 } } }] },
  ],
  [
    "leaves a quantity that is as much already",
    { type: "resources", operation: "add", resources: { limits: { cpu: "0.5", memory: "1Gi" } } },
    { containers: [{ resources: { limits: { cpu: "500m", memory: "1073741824" } } }] },
    { containers: [{ resources: { limits: { cpu: "500m", memory: "1073741824" } } }] },
  ],
  [
    "has nothing to do in a pod without containers",
    { type: "resources", operation: "add", resources: { limits: { cpu: "1" } } },
    { containers: [] },
    { containers: [] },
  ],
  [
    "removes only what is listed, whatever is said of it",
    {
      type: "resources",
      operation: "remove",
      resources: { limits: { cpu: "0", memory: "0" }, requests: { cpu: "0" } },
    },
    { containers: [{ resources: { limits: { cpu: 1, disk: 1 } } }] },
    { containers: [{ resources: { limits: { disk: 1 } } }] },
  ],
  [
    "leaves a request of no CPU at none",
    { type: "resourcesOversell", operation: "add", resourcesOversell: { cpuFactor: "0.5" } },
    { containers: [{ resources: { limits: { cpu: "2" }, requests: { cpu: "0" } } }] },
    { containers: [{ resources: { limits: { cpu: "2" }, requests: { cpu: "0" } } }] },
  ],
  [
    "takes no CPU for some where it is written otherwise than 0",
    { type: "resourcesOversell", operation: "add", resourcesOversell: { cpuFactor: "0.5" } },
    { containers: [{ resources: { limits: { cpu: "2" }, requests: { cpu: "0m" } } }] },
    { containers: [{ resources: { limits: { cpu: "2" }, requests: { cpu: "1000m" } } }] },
  ],
  [
    "rounds half a byte and half a milli-CPU up",
    { type: "resourcesOversell", operation: "add", resourcesOversell: { cpuFactor: "0.5", memoryFactor: ".50" } },
    { containers: [{ resources: { limits: { cpu: "1m", memory: "3" } } }] },
    { containers: [{ resources: { limits: { cpu: "1m", memory: "3" }, requests: { cpu: "1m", memory: "2" } } }] },
  ],
  [
    "multiplies exactly",
    { type: "resourcesOversell", operation: "replace", resourcesOversell: { memoryFactor: "0.1", diskFactor: "0.7" } },
    { containers: [{ resources: { limits: { memory: "90071992547409930", "ephemeral-storage": "1E" } } }] },
    {
      containers: [
        {
          resources: {
            limits: { memory: "90071992547409930", "ephemeral-storage": "1E" },
            requests: { memory: "9007199254740993", "ephemeral-storage": "700000000000000000" },
          },
        },
      ],
    },
  ],
  [
    "removes a request whatever its factor is",
    { type: "resourcesOversell", operation: "remove", resourcesOversell: { cpuFactor: "0", memoryFactor: "0" } },
    { containers: [{ resources: { requests: { cpu: "2" } } }] },
    { containers: [{ resources: { requests: {} } }] },
  ],
];

const metadata: [name: string, template: unknown, before: Json, after: Json][] = [
  [
    "unescapes a key, and takes the rest of it as it is",
    { type: "labels", operation: "add", path: "a.io~1b~0/c", value: { string: "" } },
    {},
    { labels: { "a.io/b~/c": "" } },
  ],
  [
    "takes the first that is set for the value",
    { type: "labels", operation: "replace", path: "a", value: { float: "1.50", boolean: true, integer: 0 } },
    { labels: null },
    { labels: { a: "0" } },
  ],
  [
    "keeps a float as it is written",
    { type: "labels", operation: "replace", path: "a", value: { float: "1.50", stringSlice: [] } },
    { labels: { a: "1", b: "2" } },
    { labels: { a: "1.50", b: "2" } },
  ],
  [
    "sets every member of a map, and not what its path says",
    { type: "annotations", operation: "add", path: "p", value: { stringMap: { a: "1", c: "2" } } },
    { annotations: { c: "3" } },
    { annotations: { a: "1", c: "2" } },
  ],
  [
    "takes the keys of a map as steps of a JSON pointer",
    {
      type: "annotations",
      operation: "add",
      value: { stringMap: { "example.io~1owned": "1", "example.io/plain": "2", "a~0b": "3", "a~01b": "4" } },
    },
    {},
    { annotations: { "example.io/owned": "1", "example.io/plain": "2", "a~b": "3", "a~1b": "4" } },
  ],
  [
    "replaces the key that a key of a map stands for",
    { type: "labels", operation: "replace", value: { stringMap: { "example.io~1owned": "2" } } },
    { labels: { "example.io/owned": "1" } },
    { labels: { "example.io/owned": "2" } },
  ],
  ["removes a key that isn't there", { type: "annotations", operation: "remove", path: "a" }, {}, {}],
];

const applied = (object: KubernetesObject, template: unknown) => {
  const isChanged = applyTemplate(object, template as OverrideTemplate, undefined);
  return { isChanged, object };
};

describe("a template", () => {
  for (const [name, template, before, after] of [
    ...cases.map(([name, template, before, after]) => [name, template, podOf(before), podOf(after)] as const),
    ...metadata.map(
      ([name, template, before, after]) => [name, template, podOf({}, before), podOf({}, after)] as const,
    ),
  ])
    it(name, () => {
      const text = JSON.stringify(before);
      const result = applied(structuredClone(before), template);
      assert.deepEqual(result.object, after);
      assert.equal(result.isChanged, JSON.stringify(result.object) !== text);
    });

  const workloads: [apiVersion: string, kind: string, spec: unknown][] = [
    ["v1", "Pod", {}],
    ["v1", "ReplicationController", { template: { spec: {} } }],
    ["apps/v1", "Deployment", { template: { spec: {} } }],
    ["apps/v1", "ReplicaSet", { template: { spec: {} } }],
    ["apps/v1", "StatefulSet", { template: { spec: {} } }],
    ["apps.own.io/v1", "StatefulSet", { template: { spec: {} } }],
    ["apps/v1", "DaemonSet", { template: { spec: {} } }],
    ["batch/v1", "Job", { template: { spec: {} } }],
    ["batch/v1beta1", "CronJob", { jobTemplate: { spec: { template: { spec: {} } } } }],
  ];
  const template = { type: "tolerations", operation: "add", tolerations: [x] };
  for (const [apiVersion, kind, spec] of workloads)
    it(`finds the pods of a ${kind} of ${apiVersion}`, () => {
      const { object } = applied({ apiVersion, kind, spec: structuredClone(spec) } as KubernetesObject, template);
      assert.equal(
        JSON.stringify(object),
        JSON.stringify({ apiVersion, kind, spec }).replace("{}", JSON.stringify({ tolerations: [x] })),
      );
    });
  for (const [apiVersion, kind, spec] of [
    ["v1", "ConfigMap", {}],
    ["serving.own.io/v1", "Service", { template: { spec: {} } }],
    ["v1", "constructor", {}],
    ["apps/v1", "Deployment", {}],
    ["v1", "Pod", null],
  ])
    it(`leaves a ${kind} of ${apiVersion} with spec ${JSON.stringify(spec)} alone`, () =>
      assert.equal(applied({ apiVersion, kind, spec } as KubernetesObject, template).isChanged, false));

  const wrong: [why: string, template: unknown, message: RegExp, spec?: unknown][] = [
    ["there is no key", { type: "labels", operation: "add", value: { string: "a" } }, /template.path must be the key/],
    [
      "a constant is empty",
      { type: "labels", operation: "add", path: "a", value: { stringMap: {} } },
      /needs value or valueRef/,
    ],
    [
      "a constant is a list",
      { type: "labels", operation: "add", path: "a", value: { stringSlice: ["b"] } },
      /must be no list/,
    ],
    [
      "a constant is a map of numbers",
      { type: "labels", operation: "add", value: { stringMap: { a: 1 } } },
      /template.value.stringMap\["a"\] must be a text/,
    ],
    [
      "a constant is of no known kind",
      { type: "labels", operation: "add", path: "a", value: { bytes: "b" } },
      /template.value must be a constant of a known kind/,
    ],
    [
      "a constant is a text",
      { type: "labels", operation: "add", path: "a", value: "b" },
      /template.value must be a map/,
    ],
    [
      "a text is a map",
      { type: "labels", operation: "add", path: "a", value: { string: { b: 1 } } },
      /template.value must be a text, a number or a boolean/,
    ],
    ["there are no resources", { type: "resources", operation: "add" }, /template.resources is missing/],
    [
      "a quantity is none",
      { type: "resources", operation: "add", resources: { limits: { cpu: "much" } } },
      /template.resources.limits\["cpu"\] must be a quantity, not "much"/,
    ],
    [
      "there are no factors",
      { type: "resourcesOversell", operation: "remove", resourcesOversell: {} },
      /must have cpuFactor, memoryFactor, diskFactor or some of them/,
    ],
    [
      "a factor is 1",
      { type: "resourcesOversell", operation: "add", resourcesOversell: { cpuFactor: "1.0" } },
      /cpuFactor must be greater than 0 and less than 1, not "1.0"/,
    ],
    [
      "a factor is 0",
      { type: "resourcesOversell", operation: "add", resourcesOversell: { cpuFactor: "0" } },
      /must be greater than 0/,
    ],
    [
      "a factor is no number",
      { type: "resourcesOversell", operation: "add", resourcesOversell: { cpuFactor: "half" } },
      /must be a decimal such as "0.5", not "half"/,
    ],
    [
      "a limit of the object is none",
      { type: "resourcesOversell", operation: "add", resourcesOversell: { cpuFactor: "0.5" } },
      /resources.limits.cpu must be a quantity, not a list/,
      { containers: [{ resources: { limits: { cpu: [] } } }] },
    ],
    [
      "containers of the object are a map",
      { type: "resources", operation: "add", resources: { limits: { cpu: "1" } } },
      /spec.containers must be a list/,
      { containers: {} },
    ],
    [
      "there are no tolerations",
      { type: "tolerations", operation: "add", tolerations: [] },
      /template.tolerations must have one at least/,
    ],
    [
      "a toleration is null",
      { type: "tolerations", operation: "add", tolerations: [null] },
      /template.tolerations must be maps/,
    ],
    [
      "there are no terms",
      { type: "affinity", operation: "remove", affinity: { nodeAffinity: {} } },
      /template.affinity must have one list of terms at least/,
    ],
    [
      "no list of terms has any",
      { type: "affinity", operation: "replace", affinity: { podAffinity: { [preferred]: [] } } },
      /template.affinity must have one list of terms at least/,
    ],
    [
      "terms are a map",
      { type: "affinity", operation: "add", affinity: { podAffinity: { [preferred]: {} } } },
      /preferredDuringSchedulingIgnoredDuringExecution must be a list/,
    ],
    [
      "affinity of the object is a text",
      { type: "affinity", operation: "add", affinity: { podAffinity: { [preferred]: [1] } } },
      /affinity must be a map/,
      { affinity: "x" },
    ],
  ];
  for (const [why, template, message, spec = { containers: [{}] }] of wrong)
    it(`says so where ${why}`, () => assert.throws(() => applied(podOf(spec), template), { name: "Error", message }));

  it("does nothing where a reference leads nowhere, and writes what it leads to as text", () => {
    const template: OverrideTemplate = {
      type: "labels",
      operation: "add",
      path: "a",
      valueRef: { from: "current", path: "b" },
    };
    const object = podOf({});
    assert.equal(applyTemplate(object, template, undefined), false);
    for (const [value, text] of [
      [1.5, "1.5"],
      [false, "false"],
      ["", ""],
    ] as const) {
      assert.equal(applyTemplate(object, template, { value }), true);
      assert.deepEqual(object.metadata.labels, { a: text });
    }
    for (const value of [null, [], {}])
      assert.throws(
        () => applyTemplate(object, template, { value }),
        /what template.valueRef names must be a text, a number or a boolean/,
      );
  });
});

describe("every template", () => {
  const toleration = fc.record(
    {
      key: fc.constantFrom("a", "b"),
      operator: fc.constantFrom("Exists", "Equal", ""),
      value: fc.constantFrom("1", "2"),
      effect: fc.constantFrom("NoExecute", "NoSchedule"),
    },
    { requiredKeys: [] },
  );
  const terms = fc.array(fc.constantFrom({ a: 1 }, { a: 2 }, { b: 1 }), { maxLength: 3 });
  const pods = fc.record({ [required]: terms, [preferred]: terms }, { requiredKeys: [] });
  const nodes = fc.record(
    { [required]: fc.record({ nodeSelectorTerms: terms }), [preferred]: terms },
    { requiredKeys: [] },
  );
  const affinity = fc.record({ nodeAffinity: nodes, podAffinity: pods, podAntiAffinity: pods }, { requiredKeys: [] });
  const amounts = fc.dictionary(
    fc.constantFrom("cpu", "memory", "ephemeral-storage"),
    fc.constantFrom("1", "0", 2, "300m", "1.5Gi", "12E"),
  );
  const resources = fc.record({ requests: amounts, limits: amounts }, { requiredKeys: [] });
  const factor = fc.constantFrom("0.5", "0.333", "0.0001", "0.99");
  const texts = fc.dictionary(fc.constantFrom("a", "b", "__proto__"), fc.constantFrom("1", "2"));
  const parts = {
    path: fc.constantFrom("a", "b/c", "__proto__"),
    value: fc.oneof(fc.record({ string: fc.constantFrom("1", "2") }), fc.record({ stringMap: texts })),
    resources,
    resourcesOversell: fc.record({ cpuFactor: factor, memoryFactor: factor, diskFactor: factor }, { requiredKeys: [] }),
    tolerations: fc.array(toleration, { maxLength: 3 }),
    affinity,
  };
  const type = fc.constantFrom("annotations", "labels", "resources", "resourcesOversell", "tolerations", "affinity");
  const template = fc.record({ type, operation: fc.constantFrom("add", "replace", "remove"), ...parts });
  const pod = fc.record(
    {
      tolerations: fc.array(toleration, { maxLength: 3 }),
      affinity,
      containers: fc.array(fc.record({ resources, name: fc.constant("c") }, { requiredKeys: ["name"] }), {
        maxLength: 2,
      }),
      other: fc.jsonValue({ maxDepth: 1 }),
    },
    { requiredKeys: [] },
  );
  const object = fc
    .tuple(pod, fc.record({ labels: texts, annotations: texts }, { requiredKeys: [] }))
    .map(([spec, metadata]): ReturnType<typeof podOf> => JSON.parse(JSON.stringify(podOf(spec, metadata))));

  it("changes a draft as it changes an object, and an object only once", () => {
    fc.assert(
      fc.property(object, template, (before, template) => {
        const text = JSON.stringify(before);
        const { value, changes } = draft(before);
        let isChanged = false;
        try {
          isChanged = applied(value, template).isChanged;
        } catch (error) {
          assert.equal(error instanceof Error && error.name, "Error");
          return;
        }
        const patch = changes();
        assert.equal(patch.length > 0, isChanged, JSON.stringify(patch));
        assert.equal(JSON.stringify(before), text);
        const after = patched(before, patch) as KubernetesObject;
        assert.deepEqual(after, applied(JSON.parse(text), template).object);
        // Unknown fields are nobody's affair.
        assert.deepEqual(Reflect.get(Reflect.get(after, "spec"), "other"), before.spec.other);
        assert.equal(applied(structuredClone(after), template).isChanged, false, "twice");
      }),
      { numRuns: 3000 },
    );
  });

  it("ends in a sentence for whatever it is and whatever it is of", () => {
    const anything = fc.jsonValue({ maxDepth: 3 });
    const odd = fc.record({
      type,
      operation: fc.constantFrom("add", "replace", "remove"),
      ...Object.fromEntries(Object.entries(parts).map(([name, part]) => [name, fc.oneof(part, anything)])),
    });
    const oddPod = fc.record(
      {
        tolerations: anything,
        affinity: anything,
        containers: fc.oneof(
          anything,
          fc.tuple(fc.record({ resources: fc.oneof(anything, fc.record({ limits: anything, requests: anything })) })),
        ),
      },
      { requiredKeys: [] },
    );
    fc.assert(
      fc.property(oddPod, anything, odd, (spec, metadata, template) => {
        try {
          applied(podOf(spec, metadata), template);
        } catch (error) {
          assert.equal(error instanceof Error && error.name, "Error", String(error));
        }
      }),
      { numRuns: 3000 },
    );
  });
});
