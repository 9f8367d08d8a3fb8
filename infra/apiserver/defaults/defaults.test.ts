import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import type { KubernetesObject } from "#lib/review.ts";
import { readRows } from "../../../test/rows.ts";
import { convertFromInternal, fillDefaults, prepareForStorage } from "./defaults.ts";
import {
  normalizeBase64,
  normalizeMicroTime,
  normalizeQuantity,
  normalizeResourceAmount,
  normalizeTime,
} from "./scalars.ts";
import table from "./types.json" with { type: "json" };

const buildObject = (fields: object): KubernetesObject => JSON.parse(JSON.stringify(fields));
const buildPod = (spec: unknown, metadata: object = { name: "a" }) =>
  buildObject({ apiVersion: "v1", kind: "Pod", metadata, spec });
const kinds = Object.entries(table.kinds).flatMap(([apiVersion, kinds]) =>
  Object.keys(kinds).map((kind) => ({ apiVersion, kind })),
);

interface DefaultsOfMinors {
  name: string;
  /** What the API server does with the object: decodes a webhook's patch, or stores it; by default, reads a request. */
  step?: "patch" | "storage";
  given: object;
  /** The members that the result must have, by minor version of Kubernetes, such as "1.37" or "the newest". */
  minors: Record<string, object>;
}

const rows = readRows<{
  byMinor: DefaultsOfMinors[];
  pod: object;
  objectsOfUnknownKinds: KubernetesObject[];
  quantities: { given: string | number; normalized?: string; rounded?: string }[];
}>(import.meta.filename);

describe("an object with defaults", () => {
  it("an object with defaults has the API server's defaults for absent members", () => {
    const { object: filled } = fillDefaults(
      buildPod({ containers: [{ name: "a", image: "app", resources: { limits: { cpu: "1" } } }] }),
    );
    assert.deepEqual(filled, rows.pod);
  });
  const digest = `sha256:${"a".repeat(64)}`;
  for (const [image, policy] of [
    ["app", "Always"],
    ["host:5000/app", "Always"],
    ["host:5000/app:latest", "Always"],
    [`app:latest@${digest}`, "Always"],
    ["app:latest-1", "IfNotPresent"],
    ["host/app:1", "IfNotPresent"],
    [`host:5000/app@${digest}`, "IfNotPresent"],
    // These are invalid.
    ["app:latest:latest", "IfNotPresent"],
    ["App", "IfNotPresent"],
  ])
    it(`the default imagePullPolicy of the image ${image} is ${policy}`, () => {
      const { object: filled } = fillDefaults(buildPod({ containers: [{ name: "a", image }] }));
      assert.equal(Object(filled).spec.containers[0].imagePullPolicy, policy);
    });
  it("an object with defaults keeps the order of its members and adds defaults at the end", () => {
    const { object: filled } = fillDefaults(
      buildObject({ spec: { ports: [{ port: 80 }] }, kind: "Service", apiVersion: "v1" }),
    );
    assert.deepEqual(Object.keys(filled).slice(0, 3), ["spec", "kind", "apiVersion"]);
  });
  it("an object with defaults loses its unknown members, and they are reported", () => {
    const { object: filled, unknownFields } = fillDefaults(
      buildPod({ containers: [{ imagePullPolice: "Always" }], __proto__: 1 }),
    );
    assert.deepEqual(unknownFields, ["spec.containers[0].imagePullPolice"]);
    assert.doesNotMatch(JSON.stringify(filled), /imagePullPolice/);
  });
  it("an object with defaults keeps a key named __proto__", () => {
    const given = JSON.parse('{"apiVersion":"v1","kind":"ConfigMap","data":{"__proto__":"a"},"__proto__":{"a":1}}');
    const { object: filled, unknownFields } = fillDefaults(given);
    assert.match(JSON.stringify(filled), /"data":\{"__proto__":"a"\}/);
    assert.deepEqual(unknownFields, ["__proto__"]);
  });
  it("fillDefaults changes no object that the API server couldn't decode, and reports why", () => {
    const given = buildPod({
      containers: [{ name: 7, env: { A: "1" }, resources: { limits: { cpu: "one" } } }],
      hostPID: "yes",
    });
    const { object: filled, decodingErrors } = fillDefaults(given);
    assert.equal(filled, given);
    assert.deepEqual(decodingErrors, [
      "spec.containers[0].name must be a text, not 7",
      "spec.containers[0].env must be a list, not an object",
      'spec.containers[0].resources.limits.cpu must be a quantity, not "one"',
      'spec.hostPID must be true or false, not "yes"',
    ]);
  });
  for (const given of [...rows.objectsOfUnknownKinds, { apiVersion: "v1", kind: "__proto__" }])
    it(`is not changed if its kind is unknown: ${JSON.stringify(given)}`, () => {
      assert.equal(fillDefaults(given).object, given);
    });

  const unusualObject = fc
    .oneof(fc.constantFrom(...kinds), fc.object({ withNullPrototype: false, maxDepth: 5 }))
    .chain((fields) =>
      fc
        .record(
          Object.fromEntries(["metadata", "spec", "status", "data", "template"].map((key) => [key, fc.anything()])),
          {
            requiredKeys: [],
          },
        )
        .chain((parts) => fc.constantFrom(...kinds).map((kind) => ({ ...parts, ...fields, ...kind }))),
    );
  it("fillDefaults never changes its argument, and throws for no input", () =>
    fc.assert(
      fc.property(unusualObject, (given) => {
        const text = JSON.stringify(given, (_, value) => (typeof value === "bigint" ? 1 : value));
        const parsed = JSON.parse(text);
        fillDefaults(parsed);
        assert.equal(JSON.stringify(parsed), text);
      }),
    ));
  it("an object with defaults does not change if defaults are added again", () =>
    fc.assert(
      fc.property(fc.constantFrom(...kinds), (kind) => {
        const once = fillDefaults(buildObject({ ...kind, metadata: { name: "a" }, spec: {} }));
        assert.deepEqual(fillDefaults(once.object).object, once.object);
      }),
    ));
});

describe("an object by the minor of Kubernetes", () => {
  for (const { name, step, given, minors } of rows.byMinor)
    for (const [minor, expected] of Object.entries(minors))
      it(`${name} in ${minor}`, () => {
        const kubernetes = minor === "the newest" ? undefined : minor;
        const filled =
          step === "storage"
            ? prepareForStorage(fillDefaults(buildObject(given), kubernetes).object, kubernetes)
            : fillDefaults(buildObject(given), kubernetes, step).object;
        assert.partialDeepStrictEqual(filled, expected);
      });
});

describe("a Pod whose ServiceAccount a plugin has set", () => {
  for (const [kubernetes, serviceAccount] of [
    ["1.36", "new"],
    ["1.37", "old"],
  ])
    it(`webhooks of ${kubernetes} get the ServiceAccount ${serviceAccount} in serviceAccount after a plugin has named another`, () => {
      const pod = { apiVersion: "v1", kind: "Pod", spec: { serviceAccountName: "new", serviceAccount: "old" } };
      const spec = { serviceAccountName: "new", serviceAccount };
      assert.deepEqual(convertFromInternal(pod, kubernetes), { ...pod, spec });
    });
});

describe("a quantity", () => {
  for (const { given, normalized, rounded } of rows.quantities)
    it(`${JSON.stringify(given)} is normalized to ${normalized}, and to ${rounded} in a container's resources`, () => {
      assert.equal(normalizeQuantity(given), normalized);
      assert.equal(normalizeResourceAmount(given), rounded);
    });
});

describe("a time", () => {
  it("times become UTC", () => assert.equal(normalizeTime("2026-01-02T01:00:00.5+02:00"), "2026-01-01T23:00:00Z"));
  it("a time with microseconds keeps its six decimals, and is invalid without them", () => {
    assert.equal(normalizeMicroTime("2026-01-02T01:00:00.000001+02:00"), "2026-01-01T23:00:00.000001Z");
    assert.equal(normalizeMicroTime("2026-01-02T01:00:00Z"), undefined);
  });
  for (const text of ["", "today", "2026-01-02", "2026-13-02T01:00:00Z", "2026-01-02T01:00:00"])
    it(`isn't ${JSON.stringify(text)}`, () => assert.equal(normalizeTime(text), undefined));
});

describe("base64", () => {
  it("base64 may have line breaks", () => assert.equal(normalizeBase64("YW\nJj\r\n"), "YWJj"));
  for (const text of ["a", "YQ", "YQ=", "Y Q==", "ä==="])
    it(`isn't ${JSON.stringify(text)}`, () => assert.equal(normalizeBase64(text), undefined));
});
