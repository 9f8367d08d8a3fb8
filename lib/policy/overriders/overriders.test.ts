import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import fc from "fast-check";
import { parse } from "yaml";
import type { KubernetesObject } from "#lib/review.ts";
import { applyPatch, createDraft } from "../../core/patch.ts";
import type { JsonMap } from "../../json.ts";
import type { OriginOverrider, OverrideTemplate, PolicyPatchOperation } from "../types.ts";
import { applyOriginOverriders } from "./origins.ts";
import { applyPolicyPatch } from "./plaintext.ts";
import { applyTemplate } from "./templates.ts";

/** One of three descriptions of a change to an object. Its content can be any JSON. */
interface Given {
  template?: unknown; // a change of one part of the object, such as its labels
  origin?: unknown; // a list of overriders: each changes the part of the object that its `type` names
  patch?: unknown; // a JSON patch
}
interface Case extends Given {
  name: string;
  spec?: unknown;
  metadata?: unknown;
  /** The expected spec, or the expected metadata if the case has metadata. */
  becomes?: unknown;
  fails?: string;
}

const buildPod = (spec: unknown, metadata: unknown = { name: "web" }) =>
  structuredClone({ apiVersion: "v1", kind: "Pod", metadata, spec }) as KubernetesObject & {
    metadata: JsonMap;
    spec: JsonMap;
  };

/** Applies a template, changes in `origin` (each to the part that its `type` names) or a patch. Reports any change. */
const apply = (object: KubernetesObject, { template, origin, patch }: Given): boolean => {
  if (template !== undefined) return applyTemplate(object, template as OverrideTemplate, undefined);
  return origin
    ? applyOriginOverriders(object, origin as OriginOverrider[])
    : applyPolicyPatch(object, patch as PolicyPatchOperation[]);
};

const chooseSpec = ({ template }: Given) =>
  template ? { containers: [{}] } : { a: 1, list: ["x", "y", "z"], none: null, "b/c": 1, "~1": { d: 1 } };

const cases: Case[] = parse(readFileSync(new URL("cases.yaml", import.meta.url), "utf8"));
for (const kind of ["template", "origin", "patch"] as const)
  describe(`a ${kind} in cases.yaml`, () => {
    for (const { name, spec, metadata, becomes, fails, ...overriders } of cases.filter((entry) => entry[kind]))
      it(name, () => {
        const before = buildPod(spec ?? chooseSpec(overriders), metadata);
        if (fails !== undefined)
          return assert.throws(() => apply(before, overriders), { name: "Error", message: fails });
        const after = structuredClone(before);
        const isChanged = apply(after, overriders);
        const part = metadata === undefined ? "spec" : "metadata";
        assert.deepEqual(after[part], becomes === "unchanged" ? before[part] : becomes);
        assert.equal(isChanged, JSON.stringify(after) !== JSON.stringify(before));
      });
  });

describe("a template", () => {
  const x = { key: "x", operator: "Exists" };
  const template = { type: "tolerations", operation: "add", tolerations: [x] };
  const inTemplate = { template: { spec: {} } };
  const workloads: [apiVersion: string, kind: string, spec: unknown][] = [
    ["v1", "Pod", {}],
    ["v1", "ReplicationController", inTemplate],
    ["apps/v1", "Deployment", inTemplate],
    ["apps/v1", "ReplicaSet", inTemplate],
    ["apps/v1", "StatefulSet", inTemplate],
    ["apps.own.io/v1", "StatefulSet", inTemplate],
    ["apps/v1", "DaemonSet", inTemplate],
    ["batch/v1", "Job", inTemplate],
    ["batch/v1beta1", "CronJob", { jobTemplate: { spec: inTemplate } }],
  ];
  for (const [apiVersion, kind, spec] of workloads)
    it(`finds the pod spec of a ${kind} of ${apiVersion}`, () => {
      const object = structuredClone({ apiVersion, kind, spec }) as KubernetesObject;
      apply(object, { template });
      assert.equal(
        JSON.stringify(object),
        JSON.stringify({ apiVersion, kind, spec }).replace("{}", JSON.stringify({ tolerations: [x] })),
      );
    });
  for (const [apiVersion, kind, spec] of [
    ["v1", "ConfigMap", {}],
    ["serving.own.io/v1", "Service", inTemplate],
    ["v1", "constructor", {}],
    ["apps/v1", "Deployment", {}],
    ["v1", "Pod", null],
  ])
    it(`does not change a ${kind} of ${apiVersion} with spec ${JSON.stringify(spec)}`, () =>
      assert.equal(apply({ apiVersion, kind, spec } as KubernetesObject, { template }), false));

  it("a template does nothing if the reference has no value, and writes the value of a reference as text", () => {
    const valueRef = { from: "current", path: "b" } as const;
    const template: OverrideTemplate = { type: "labels", operation: "add", path: "a", valueRef };
    const object = buildPod({});
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

describe("a list of origin overriders", () => {
  it("origin overriders change the labels of any object, but pod fields only if it has a pod spec", () => {
    const object: KubernetesObject = { apiVersion: "v1", kind: "ConfigMap", metadata: {} };
    const labels = { type: "labels", operation: "add", labels: { a: "1" } };
    apply(object, { origin: [labels, { type: "hostNetwork", operation: "replace", hostNetwork: true }] });
    assert.deepEqual(object, { apiVersion: "v1", kind: "ConfigMap", metadata: { labels: { a: "1" } } });
  });
});

describe("a patch", () => {
  it("a patch refuses a path that is too long and a value that is nested too deeply", () => {
    const addAt = (path: string, value: unknown) => () => apply(buildPod({}), { patch: [{ op: "add", path, value }] });
    assert.throws(addAt("/a".repeat(4000), 1), /path of an operation must be a text of at most 4096 characters/);
    let nested: unknown = 1;
    for (let depth = 0; depth < 50_000; depth++) nested = [nested];
    assert.throws(addAt("/spec/a", nested), /nested more than 1000 levels/);
  });

  it("a patch sets the key __proto__ like any other key", () => {
    const value = buildPod({});
    apply(value, { patch: [{ op: "add", path: "/metadata/labels/__proto__", value: "x" }] });
    assert.equal(JSON.stringify(value.metadata), '{"name":"web","labels":{"__proto__":"x"}}');
  });

  it("a patch copies the policy's values, so that later changes don't change the policy", () => {
    const value = { a: [1] };
    const object = buildPod({});
    apply(object, { patch: ["b", "c"].map((key) => ({ op: "add", path: `/spec/${key}`, value })) });
    assert.notEqual(object.spec.b, value);
    assert.notEqual(object.spec.b, object.spec.c);
  });
});

const pickFrom = <T>(...values: T[]) => fc.constantFrom(...values);
const buildPartial = <T>(model: { [K in keyof T]: fc.Arbitrary<T[K]> }) => fc.record(model, { requiredKeys: [] });
const listUpTo = <T>(most: number, of: fc.Arbitrary<T>) => fc.array(of, { maxLength: most });

const required = "requiredDuringSchedulingIgnoredDuringExecution";
const preferred = "preferredDuringSchedulingIgnoredDuringExecution";
const tolerations = listUpTo(
  3,
  buildPartial({
    key: pickFrom("a", "b"),
    operator: pickFrom("Exists", "Equal", ""),
    value: pickFrom("1", "2"),
    effect: pickFrom("NoExecute", "NoSchedule"),
  }),
);
const terms = listUpTo(3, pickFrom<object>({ a: 1 }, { a: 2 }, { b: 1 }));
const pods = buildPartial({ [required]: terms, [preferred]: terms });
const nodes = buildPartial({ [required]: fc.record({ nodeSelectorTerms: terms }), [preferred]: terms });
const affinity = buildPartial({ nodeAffinity: nodes, podAffinity: pods, podAntiAffinity: pods });
const amounts = fc.dictionary(
  pickFrom("cpu", "memory", "ephemeral-storage", "gpu"),
  pickFrom<unknown>("1", "0", 2, "300m", "1.5Gi", "12E", "0.5"),
);
const resources = buildPartial({ requests: amounts, limits: amounts });
const texts = fc.dictionary(pickFrom("a", "b", "__proto__"), pickFrom("1", "2"));
const factor = pickFrom("0.5", "0.333", "0.0001", "0.99");
const operation = pickFrom("add", "replace", "remove");
const anything = fc.jsonValue({ maxDepth: 3 });

const templateFields = {
  path: pickFrom("a", "b/c", "__proto__"),
  value: fc.oneof(fc.record({ string: pickFrom("1", "2") }), fc.record({ stringMap: texts })),
  resources,
  resourcesOversell: buildPartial({ cpuFactor: factor, memoryFactor: factor, diskFactor: factor }),
  tolerations,
  affinity,
};
const templateType = pickFrom("annotations", "labels", "resources", "resourcesOversell", "tolerations", "affinity");
const template = fc.record({ type: templateType, operation, ...templateFields });

const originFields = {
  annotations: texts,
  labels: texts,
  nodeSelector: texts,
  tolerations,
  hostNetwork: fc.boolean(),
  schedulerName: pickFrom("a", ""),
  replace: fc.boolean(),
  containerCount: fc.nat(2),
  resourceRequirements: resources,
  resourcesOversell: resources,
};
const originType = pickFrom(
  "annotations",
  "labels",
  "nodeSelector",
  "hostNetwork",
  "schedulerName",
  "resourceRequirements",
  "resourceOversell", // the type; the field has an s
  "affinity",
  "tolerations",
  "topologySpreadConstraints",
);
/** The overriders in the list `origin` of a policy: each changes the part of the object that its `type` names. */
const origin = listUpTo(
  3,
  fc.record({ type: originType, operation, ...originFields }, { requiredKeys: ["type", "operation"] }),
);

const pathStep = pickFrom(
  "a",
  "b",
  "0",
  "1",
  "-1",
  "-",
  "__proto__",
  "annotations",
  "metadata",
  "spec",
  "containers",
  "other",
);
const patch = listUpTo(
  6,
  fc.record({
    op: pickFrom("add", "remove", "replace", "test"),
    path: fc.array(pathStep, { minLength: 1, maxLength: 4 }).map((steps) => `/${steps.join("/")}`),
    value: fc.jsonValue({ maxDepth: 2 }),
  }),
);

const overriders: fc.Arbitrary<Given> = fc.oneof(fc.record({ template }), fc.record({ origin }), fc.record({ patch }));
const object = fc
  .tuple(
    buildPartial({
      tolerations,
      affinity,
      nodeSelector: texts,
      containers: listUpTo(2, fc.record({ resources, name: fc.constant("c") }, { requiredKeys: ["name"] })),
      other: fc.oneof(fc.jsonValue({ maxDepth: 1 }), fc.constant({ a: [{ b: [1, 2] }, 2], b: { a: 1 } })),
    }),
    buildPartial({ labels: texts, annotations: texts }),
  )
  .map(([spec, metadata]): ReturnType<typeof buildPod> => JSON.parse(JSON.stringify(buildPod(spec, metadata))));

/** Applies overriders. Returns whether the object was changed, or the error's text. */
const applyOrGetError = (object: KubernetesObject, sample: Given): { isChanged: boolean } | { error: string } => {
  try {
    return { isChanged: apply(object, sample) };
  } catch (error) {
    assert.equal(error instanceof Error && error.name, "Error", String(error));
    return { error: String(error) };
  }
};

/** Sorts the members of maps by their names. */
const sortMembers = (_: string, value: unknown) =>
  typeof value === "object" && value !== null && !Array.isArray(value)
    ? Object.fromEntries(Object.entries(value).sort(([left], [right]) => (left < right ? -1 : 1)))
    : value;

describe("any template, list of origin overriders or patch", () => {
  it("overriders change a draft as they change an object, and leave the draft's object unchanged", () => {
    fc.assert(
      fc.property(object, overriders, (before, sample) => {
        const textBefore = JSON.stringify(before);
        const plain: ReturnType<typeof buildPod> = JSON.parse(textBefore);
        const { value: draft, changes } = createDraft<KubernetesObject>(before);
        const result = applyOrGetError(draft, sample);
        assert.deepEqual(applyOrGetError(plain, sample), result);
        const patch = changes();
        assert.equal(JSON.stringify(before), textBefore);
        assert.equal(JSON.stringify(applyPatch(before, patch), sortMembers), JSON.stringify(plain, sortMembers));
        if (sample.patch || "error" in result) return; // a patch may change any field
        assert.deepEqual(plain.spec.other, before.spec.other, "unknown fields stay");
        if (!sample.template) return; // overriders in `origin` may undo each other, or multiply amounts twice
        assert.equal(patch.length > 0, result.isChanged, JSON.stringify(patch));
        assert.equal(apply(structuredClone(plain), sample), false, "applied twice");
      }),
      { numRuns: 5000 },
    );
  });

  it("overriders succeed or fail with an Error for any JSON", () => {
    const mixWithAnything = (parts: Record<string, fc.Arbitrary<unknown>>) =>
      Object.fromEntries(Object.entries(parts).map(([name, part]) => [name, fc.oneof(part, anything)]));
    const changes = fc.oneof(
      fc.record({ template: fc.record({ type: templateType, operation, ...mixWithAnything(templateFields) }) }),
      fc.record({ origin: fc.tuple(fc.record({ type: originType, operation, ...mixWithAnything(originFields) })) }),
    );
    const resources = fc.oneof(anything, fc.record({ limits: anything, requests: anything }));
    const containers = fc.oneof(anything, fc.tuple(fc.record({ resources })));
    const podSpec = buildPartial({ tolerations: anything, affinity: anything, nodeSelector: anything, containers });
    fc.assert(
      fc.property(
        podSpec,
        anything,
        changes,
        (spec, metadata, sample) => void applyOrGetError(buildPod(spec, metadata), sample),
      ),
      { numRuns: 5000 },
    );
  });
});
