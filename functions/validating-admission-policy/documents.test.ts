import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { readRows } from "postern/test";
import { readPolicyDocuments } from "./documents.ts";

type Row = [name: string, spec: object, faults: string[]];
const rows = readRows<Record<"policies" | "bindings", Row[]>>(import.meta.filename);

const apiVersion = "admissionregistration.k8s.io/v1";
const buildPolicy = (spec: object, metadata: object = { name: "a" }) => {
  const resourceRules = [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE"] }];
  const valid = { matchConstraints: { resourceRules }, validations: [{ expression: "true" }] };
  return { apiVersion, kind: "ValidatingAdmissionPolicy", metadata, spec: { ...valid, ...spec } };
};
const buildBinding = (spec: object) => {
  const valid = { policyName: "a", validationActions: ["Deny"] };
  return { apiVersion, kind: "ValidatingAdmissionPolicyBinding", metadata: { name: "b" }, spec: { ...valid, ...spec } };
};
const listFaults = (document: object) =>
  readPolicyDocuments([document]).faults.map((fault) => (typeof fault === "string" ? fault : fault.sentence));

describe("policies in files", () => {
  for (const [name, spec, faults] of rows.policies)
    it(`are ${faults.length === 0 ? "valid" : "refused with upstream's errors"} with ${name}`, () =>
      assert.deepEqual(
        listFaults(buildPolicy(spec)),
        faults.map((fault) => `ValidatingAdmissionPolicy a: ${fault}`),
      ));
});

describe("a policy in a file has at most", () => {
  const list = <T>(length: number, create: (index: number) => T) => Array.from({ length }, (_, index) => create(index));
  const annotate = (length: number) => ({
    auditAnnotations: list(length, (index) => ({ key: `k${index}`, valueExpression: "'a'" })),
  });
  const select = (length: number) => ({
    matchConditions: list(length, (index) => ({ name: `c${index}`, expression: "true" })),
  });
  const describeValue = (length: number) => ({
    auditAnnotations: [{ key: "k", valueExpression: `'${"é".repeat((length - 2) / 2)}'` }],
  });

  for (const [name, most, tooMuch, fault] of [
    ["20 audit annotations", annotate(20), annotate(21), "must not have more than 20 auditAnnotations"],
    ["64 matchConditions", select(64), select(65), "spec.matchConditions: Too many: 65: must have at most 64 items"],
    [
      "5,120 bytes in a valueExpression",
      describeValue(5120),
      describeValue(5122),
      "must not exceed 5120 bytes in length",
    ],
  ] as const)
    it(name, () => {
      assert.deepEqual(listFaults(buildPolicy(most)), []);
      const [found = "", ...others] = listFaults(buildPolicy(tooMuch));
      assert.deepEqual([found.endsWith(fault), others], [true, []], found);
    });
});

describe("bindings in files", () => {
  for (const [name, spec, faults] of rows.bindings)
    it(`are ${faults.length === 0 ? "valid" : "refused with upstream's errors"} with ${name}`, () =>
      assert.deepEqual(
        listFaults(buildBinding(spec)),
        faults.map((fault) => `ValidatingAdmissionPolicyBinding b: ${fault}`),
      ));
});

describe("a file of policies", () => {
  it("a file of policies may have lists, empty documents, and objects that only another rule reads", () => {
    const items = [buildPolicy({}), buildBinding({})];
    const others = [
      { apiVersion, kind: "MutatingAdmissionPolicy", metadata: { name: "a" } },
      { apiVersion: "apiextensions.k8s.io/v1", kind: "CustomResourceDefinition", metadata: { name: "a" } },
    ];
    const { objects, faults } = readPolicyDocuments([null, { apiVersion: "v1", kind: "List", items }, ...others]);
    assert.deepEqual([objects, faults], [items, []]);
  });

  it("a file of policies may have no other objects", () =>
    assert.deepEqual(listFaults({ apiVersion: "v1", kind: "Pod", metadata: { name: "p" } }), [
      "Pod p: must be a ValidatingAdmissionPolicy or ValidatingAdmissionPolicyBinding of admissionregistration.k8s.io/v1; other objects belong in other files",
    ]));

  it("readPolicyDocuments returns the document and the path of a fault", () => {
    const items = [buildPolicy({ validations: [{ expression: "true" }, { expression: "1" }] })];
    const { faults } = readPolicyDocuments([null, { kind: "List", items }]);
    assert.deepEqual(faults, [
      {
        sentence:
          'ValidatingAdmissionPolicy a: spec.validations[1].expression: Invalid value: "1": must evaluate to bool but got int',
        document: 1,
        path: ["items", 0, "spec", "validations", 1, "expression"],
      },
    ]);
  });

  it("a file of policies must have valid names of objects", () =>
    assert.match(
      String(listFaults(buildPolicy({}, { name: "A" }))),
      /^ValidatingAdmissionPolicy A: metadata\.name: Inv/,
    ));
});
