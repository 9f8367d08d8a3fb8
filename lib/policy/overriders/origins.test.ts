import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import type { KubernetesObject } from "#lib/review.ts";
import type { Json } from "../../json.ts";
import { draft, applied as patched } from "../../patch.ts";
import type { OriginOverrider } from "../kinds.ts";
import { applyOrigins } from "./origins.ts";

const podOf = (spec: unknown, metadata: unknown = { name: "web" }) =>
  ({ apiVersion: "v1", kind: "Pod", metadata, spec }) as KubernetesObject & { metadata: Json; spec: Json };

const applied = (object: KubernetesObject, origins: unknown) => {
  const isChanged = applyOrigins(object, origins as OriginOverrider[]);
  return { isChanged, object };
};

const x = { key: "x", operator: "Exists", effect: "NoExecute" };
const sized = (resources: unknown) => ({ containers: [{ name: "a" }, { name: "b", resources }] });
const second = { type: "resourceOversell", operation: "replace", containerCount: 1 };

/** What becomes of a pod's spec. */
const specs: [name: string, origins: unknown[], before: Json, after: Json][] = [
  [
    "puts tolerations in front in their order, and takes their seconds",
    [{ type: "tolerations", operation: "add", tolerations: [{ ...x, tolerationSeconds: 5 }, { key: "a" }] }],
    { tolerations: [{ key: "b" }, { ...x, tolerationSeconds: 1 }] },
    { tolerations: [{ ...x, tolerationSeconds: 5 }, { key: "a" }, { key: "b" }] },
  ],
  [
    "takes what is left out of a toleration for empty",
    [{ type: "tolerations", operation: "remove", tolerations: [{ key: "a", value: "" }] }],
    { tolerations: [{ key: "b" }, { key: "a", operator: "" }] },
    { tolerations: [{ key: "b" }] },
  ],
  [
    "leaves no tolerations that are null",
    [{ type: "tolerations", operation: "remove", tolerations: [x] }],
    { tolerations: [x] },
    {},
  ],
  ["removes what isn't there", [{ type: "tolerations", operation: "remove", tolerations: [x] }], {}, {}],
  [
    "replaces tolerations by those given",
    [{ type: "tolerations", operation: "remove", replace: true, tolerations: [x] }],
    { tolerations: [{ key: "a" }] },
    { tolerations: [x] },
  ],
  [
    "merges a node selector",
    [{ type: "nodeSelector", operation: "replace", nodeSelector: { a: "1" } }],
    { nodeSelector: { a: "2", b: "3" } },
    { nodeSelector: { a: "1", b: "3" } },
  ],
  ["adds no empty node selector", [{ type: "nodeSelector", operation: "add" }], {}, {}],
  [
    "removes affinity where none is given",
    [{ type: "affinity", operation: "replace" }],
    { affinity: { nodeAffinity: {} } },
    {},
  ],
  [
    "says that the host's network isn't wanted",
    [{ type: "hostNetwork", operation: "replace" }],
    {},
    { hostNetwork: false },
  ],
  [
    "needs no operation where there is but one thing to do",
    [
      { type: "schedulerName", schedulerName: "s" },
      { type: "nodeSelector", replace: true, nodeSelector: { a: "1" } },
    ],
    { nodeSelector: { b: "2" } },
    { nodeSelector: { a: "1" }, schedulerName: "s" },
  ],
  [
    "replaces all resources of the container that is meant",
    [
      {
        type: "resourceRequirements",
        operation: "replace",
        containerCount: 1,
        resourceRequirements: { limits: { cpu: "1" } },
      },
    ],
    sized({ requests: { cpu: "1" }, claims: [] }),
    sized({ limits: { cpu: "1" } }),
  ],
  [
    "clears resources where none are given",
    [{ type: "resourceRequirements", operation: "replace", containerCount: 1 }],
    sized({ requests: { cpu: "1" } }),
    sized({}),
  ],
  [
    "multiplies requests and limits, each with its own factor",
    [
      {
        ...second,
        resourcesOversell: {
          requests: { cpu: "0.0005", memory: "2" },
          limits: { storage: "0.5", "ephemeral-storage": "0" },
        },
      },
    ],
    sized({
      requests: { cpu: "1500m", memory: "1.5Gi" },
      limits: { storage: 3, "ephemeral-storage": "1Gi", memory: "1" },
    }),
    sized({ requests: { cpu: "0", memory: "3Gi" }, limits: { storage: "1", "ephemeral-storage": "0", memory: "1" } }),
  ],
  [
    "multiplies as upstream does, in floating point",
    [{ ...second, resourcesOversell: { requests: { cpu: "0.29" }, limits: { memory: "0.29" } } }],
    sized({ requests: { cpu: "100" }, limits: { memory: "100" } }),
    sized({ requests: { cpu: "28999m" }, limits: { memory: "28" } }),
  ],
  [
    "leaves what is zero, absent or of another kind, whatever its factor is",
    [{ ...second, resourcesOversell: { requests: { cpu: "2", memory: "2", gpu: "much" }, others: 1 } }],
    sized({ requests: { cpu: "0", gpu: "1" } }),
    sized({ requests: { cpu: "0", gpu: "1" } }),
  ],
  [
    "computes all of the object as it was, so that the last of two stays",
    [
      { ...second, resourcesOversell: { requests: { cpu: "2" } } },
      { ...second, resourcesOversell: { requests: { memory: "2" } } },
    ],
    sized({ requests: { cpu: "1", memory: "1" } }),
    sized({ requests: { cpu: "1", memory: "2" } }),
  ],
];

const metadata: [name: string, origins: unknown[], before: Json, after: Json][] = [
  [
    "merges labels",
    [{ type: "labels", operation: "add", labels: { a: "1", "b/c": "2" } }],
    { labels: { a: "0", d: "3" } },
    { labels: { a: "1", "b/c": "2", d: "3" } },
  ],
  [
    "keeps the last of two additions",
    [
      { type: "labels", operation: "add", labels: { a: "1" } },
      { type: "labels", operation: "add", labels: { b: "1" } },
    ],
    {},
    { labels: { b: "1" } },
  ],
  [
    "removes labels by their keys",
    [{ type: "labels", operation: "remove", labels: { a: "", no: "" } }],
    { labels: { a: "0", d: "3" } },
    { labels: { d: "3" } },
  ],
  ["removes no labels where there are none", [{ type: "labels", operation: "remove", labels: { a: "" } }], {}, {}],
  [
    "replaces all annotations",
    [{ type: "annotations", operation: "remove", replace: true, annotations: { a: "1" } }],
    { annotations: { b: "2" } },
    { annotations: { a: "1" } },
  ],
  [
    "takes keys as they are, for upstream writes the whole map",
    [{ type: "annotations", operation: "add", annotations: { "example.io~1a": "1" } }],
    {},
    { annotations: { "example.io~1a": "1" } },
  ],
  [
    "removes all annotations where none replace them",
    [{ type: "annotations", operation: "add", replace: true }],
    { annotations: { b: "2" } },
    {},
  ],
  [
    "merges nothing",
    [
      { type: "labels", operation: "add" },
      { type: "annotations", operation: "remove" },
    ],
    { labels: { a: "1" }, annotations: {} },
    { labels: { a: "1" }, annotations: {} },
  ],
];

describe("a list of overriders", () => {
  for (const [name, origins, before, after] of [
    ...specs.map(([name, origins, before, after]) => [name, origins, podOf(before), podOf(after)] as const),
    ...metadata.map(([name, origins, before, after]) => [name, origins, podOf({}, before), podOf({}, after)] as const),
  ])
    it(name, () => {
      const text = JSON.stringify(before);
      const { isChanged, object } = applied(structuredClone(before), origins);
      assert.deepEqual(object, after);
      assert.equal(isChanged, JSON.stringify(object) !== text);
    });

  it("changes labels of any kind, and what is in a pod spec only where there is one", () => {
    const object: KubernetesObject = { apiVersion: "v1", kind: "ConfigMap", metadata: {} };
    applied(object, [
      { type: "labels", operation: "add", labels: { a: "1" } },
      { type: "hostNetwork", operation: "replace", hostNetwork: true },
    ]);
    assert.deepEqual(object, { apiVersion: "v1", kind: "ConfigMap", metadata: { labels: { a: "1" } } });
  });

  const wrong: [why: string, origin: unknown, message: string, spec?: unknown][] = [
    ["removing the host's network", { type: "hostNetwork", operation: "remove" }, "unsupported operator type error"],
    [
      "adding a scheduler",
      { type: "schedulerName", operation: "add", schedulerName: "s" },
      "unsupported operator type error",
    ],
    ["no operation", { type: "labels" }, "unsupported operator type error"],
    [
      "an unknown type",
      { type: "toString", operation: "add" },
      "type must be one of annotations, labels, nodeSelector, tolerations, hostNetwork, schedulerName, affinity, topologySpreadConstraints, resourceRequirements, resourceOversell",
    ],
    ["a merge that isn't said to be one", { type: "nodeSelector" }, "unsupported operator type error"],
    [
      "a factor that leads nowhere",
      { ...second, containerCount: 0, resourcesOversell: { limits: { cpu: "1e400" } } },
      "Infinity times 1 is more than there can be",
      { containers: [{ resources: { limits: { cpu: "1" } } }] },
    ],
    ["a pod without containers", { ...second }, "containers not found in pod spec", { containers: [] }],
    [
      "a container that isn't there",
      { ...second, containerCount: 2 },
      "containerCount cannot be greater than the number of containers in the pod",
    ],
    [
      "resources of a container that isn't there",
      { type: "resourceRequirements", operation: "replace", containerCount: 2 },
      "containerCount cannot be greater than the number of containers in the pod",
    ],
    [
      "a container below the first",
      { ...second, containerCount: -1 },
      "containerCount must be a whole number from 0 on",
    ],
    ["a container between two", { ...second, containerCount: "1" }, "containerCount must be a whole number from 0 on"],
    [
      "a container that is null",
      { ...second, containerCount: 0 },
      "containers[0] must be a map",
      { containers: [null] },
    ],
    [
      "a factor that is none",
      { ...second, resourcesOversell: { requests: { cpu: "abc" } } },
      'resourcesOversell.requests.cpu must be a decimal such as "0.5", not "abc"',
    ],
    [
      "a negative factor",
      { ...second, resourcesOversell: { requests: { cpu: "-1" } } },
      'resourcesOversell.requests.cpu must be a decimal such as "0.5", not "-1"',
    ],
    ["labels that are numbers", { type: "labels", operation: "add", labels: { a: 1 } }, 'labels["a"] must be a text'],
    ["labels that are a list", { type: "labels", operation: "add", labels: [] }, "labels must be a map"],
    [
      "tolerations that are texts",
      { type: "tolerations", operation: "add", tolerations: ["x"] },
      "tolerations must be maps",
    ],
    [
      "a network that is a text",
      { type: "hostNetwork", operation: "replace", hostNetwork: "yes" },
      "hostNetwork must be true or false",
    ],
    [
      "constraints that are a map",
      { type: "topologySpreadConstraints", operation: "replace", topologySpreadConstraints: {} },
      "topologySpreadConstraints must be a list",
    ],
  ];
  for (const [why, origin, message, spec = sized({ requests: { cpu: "1" } })] of wrong)
    it(`refuses ${why}`, () =>
      assert.throws(() => applied(podOf(spec), [{ type: "labels", operation: "add" }, origin]), {
        name: "Error",
        message: `origin[1]: ${message}`,
      }));
});

describe("every list of overriders", () => {
  const anything = fc.jsonValue({ maxDepth: 2 });
  const texts = fc.dictionary(fc.constantFrom("a", "b", "__proto__"), fc.constantFrom("1", "2"));
  const amounts = fc.dictionary(fc.constantFrom("cpu", "memory", "gpu"), fc.constantFrom("0.5", "3", "0", 2));
  const sizes = fc.record({ requests: amounts, limits: amounts }, { requiredKeys: [] });
  const tolerations = fc.array(
    fc.record({ key: fc.constantFrom("a", "b"), value: fc.constantFrom("1", "") }, { requiredKeys: [] }),
    { maxLength: 3 },
  );
  const type = fc.constantFrom(
    "annotations",
    "labels",
    "nodeSelector",
    "hostNetwork",
    "schedulerName",
    "resourceRequirements",
    "resourceOversell",
    "affinity",
    "tolerations",
    "topologySpreadConstraints",
  );
  const payload = {
    annotations: texts,
    labels: texts,
    nodeSelector: texts,
    hostNetwork: fc.boolean(),
    schedulerName: fc.constantFrom("a", ""),
    resourceRequirements: sizes,
    resourcesOversell: sizes,
    tolerations,
    replace: fc.boolean(),
    containerCount: fc.nat(2),
  };
  const operation = fc.constantFrom("add", "replace", "remove");
  const origin = fc.record({ type, operation, ...payload }, { requiredKeys: ["type", "operation"] });
  const odd = fc.record({
    type,
    operation,
    ...Object.fromEntries(Object.entries(payload).map(([name, part]) => [name, fc.oneof(part, anything)])),
  });
  const containers = fc.array(fc.record({ resources: sizes }, { requiredKeys: [] }), { minLength: 1, maxLength: 3 });
  const pod = fc.record({
    spec: fc.record({ containers, tolerations, nodeSelector: texts }, { requiredKeys: ["containers"] }),
    metadata: fc.record({ labels: texts }, { requiredKeys: [] }),
  });

  it("changes a draft as it changes an object", () => {
    fc.assert(
      fc.property(pod, fc.array(origin, { maxLength: 3 }), ({ spec, metadata }, origins) => {
        const text = JSON.stringify(podOf(spec, metadata));
        const before: KubernetesObject = JSON.parse(text);
        const { value, changes } = draft(before);
        try {
          applied(value, origins);
        } catch (error) {
          assert.equal(error instanceof Error && error.name, "Error");
          return;
        }
        assert.equal(JSON.stringify(before), text);
        assert.deepEqual(patched(before, changes()), applied(JSON.parse(text), origins).object);
      }),
      { numRuns: 2000 },
    );
  });

  it("ends in a sentence for whatever it is and whatever it is of", () => {
    fc.assert(
      fc.property(
        fc.record({ containers: anything, tolerations: anything, nodeSelector: anything }),
        anything,
        odd,
        (spec, metadata, origin) => {
          try {
            applied(podOf(spec, metadata), [origin]);
          } catch (error) {
            assert.equal(error instanceof Error && error.name, "Error", String(error));
          }
        },
      ),
      { numRuns: 2000 },
    );
  });
});
