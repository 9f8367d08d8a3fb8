import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { readRows } from "postern/test";
import { readPolicyDocuments } from "./documents.ts";

type Row = [name: string, spec: object, faults: string[]];
const rows = readRows<Record<"policies" | "bindings" | "customKinds", Row[]>>(import.meta.filename);

const apiVersion = "admissionregistration.k8s.io/v1";
const buildPolicy = (spec: object) => {
  const resourceRules = [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE"] }];
  const mutations = [{ patchType: "ApplyConfiguration", applyConfiguration: { expression: "Object{}" } }];
  const valid = { matchConstraints: { resourceRules }, mutations, reinvocationPolicy: "Never" };
  return { apiVersion, kind: "MutatingAdmissionPolicy", metadata: { name: "a" }, spec: { ...valid, ...spec } };
};
const buildBinding = (spec: object) => {
  return {
    apiVersion,
    kind: "MutatingAdmissionPolicyBinding",
    metadata: { name: "b" },
    spec: { policyName: "a", ...spec },
  };
};
const buildCustomKind = (spec: object) => {
  const valid = { group: "example.com", names: { kind: "Widget", plural: "widgets" }, versions: [] };
  const metadata = { name: "c" };
  return {
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    metadata,
    spec: { ...valid, ...spec },
  };
};
const listFaults = (document: object) =>
  readPolicyDocuments([document]).faults.map((fault) => (typeof fault === "string" ? fault : fault.sentence));

const kinds = [
  ["policies", "MutatingAdmissionPolicy a", buildPolicy],
  ["bindings", "MutatingAdmissionPolicyBinding b", buildBinding],
  ["customKinds", "CustomResourceDefinition c", buildCustomKind],
] as const;
for (const [list, object, build] of kinds)
  describe(`${list} in files`, () => {
    for (const [name, spec, faults] of rows[list])
      it(`are ${faults.length === 0 ? "valid" : "refused"} with ${name}`, () =>
        assert.deepEqual(
          listFaults(build(spec)),
          faults.map((fault) => `${object}: ${fault}`),
        ));
  });

describe("a CustomResourceDefinition in a file", () => {
  it("a CustomResourceDefinition in a file is reduced to its schemas, without their descriptions", () => {
    const properties = { description: { type: "string", description: "A text." } };
    const schema = { openAPIV3Schema: { type: "object", description: "A widget.", properties } };
    const versions = [{ name: "v1", served: true, storage: true, schema, subresources: { status: {} } }];
    const { objects } = readPolicyDocuments([buildCustomKind({ versions, scope: "Namespaced" })]);
    const reduced = { openAPIV3Schema: { type: "object", properties: { description: { type: "string" } } } };
    assert.deepEqual(objects, [
      {
        kind: "CustomResourceDefinition",
        metadata: { name: "c" },
        spec: {
          group: "example.com",
          names: { kind: "Widget", plural: "widgets" },
          versions: [{ name: "v1", served: true, schema: reduced }],
        },
      },
    ]);
  });
});
