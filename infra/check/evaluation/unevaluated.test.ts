import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import { parse } from "yaml";
import { celEvaluator } from "#infra/apiserver/admission/conditions.ts";
import type { KubernetesObject, Operation } from "#lib/review.ts";
import { buildKindIndex } from "../../apiserver/kinds/kinds.ts";
import { buildAdmissionAttributes } from "./requests.ts";
import { createUnevaluatedPolicyMatcher } from "./unevaluated.ts";

/** A request for an object in a namespace. */
interface RequestSample {
  object?: object;
  operation?: Operation;
  old?: object;
  /** The object after mutating policies and webhooks. */
  finalObject?: object;
  subResource?: string;
  namespaceObject?: KubernetesObject;
  /** True if only the name of the namespace is known. */
  isNamespaceAssumed?: boolean;
  /** False if other policies may exist. */
  isComplete?: boolean;
}

interface PolicyCase {
  name: string;
  /** Members of the policy's only rule. */
  rule?: object;
  constraints?: object;
  condition?: string;
  bindings?: object[];
  isMutating?: boolean;
  /** True if the bindings exist, but not the policy itself. */
  hasOnlyBindings?: boolean;
  sample?: RequestSample;
  found: boolean; // whether the policy is reported
}

const tables: { policies: PolicyCase[] } = parse(
  readFileSync(new URL("unevaluated.test.yaml", import.meta.url), "utf8"),
);
const kinds = buildKindIndex([]);
const group = "admissionregistration.k8s.io/v1";

const toObject = (given: KubernetesObject & object): KubernetesObject => {
  const metadata = { name: "o", namespace: "shop", ...given.metadata };
  return { apiVersion: "v1", kind: "Pod", spec: {}, ...given, metadata } as KubernetesObject;
};

/** Returns the kinds and names of the policies that match a request. */
const findNames = (objects: KubernetesObject[], sample: RequestSample = {}): string[] => {
  const object = toObject(sample.object ?? {});
  const { operation = "CREATE", subResource, isNamespaceAssumed = false } = sample;
  const { namespaceObject = { metadata: { name: "shop" } } } = sample;
  const kind = kinds.of(String(object.apiVersion), String(object.kind));
  assert.ok(kind);
  const user = { username: "jane" };
  const old = operation === "UPDATE" ? toObject(sample.old ?? sample.object ?? {}) : null;
  const request = buildAdmissionAttributes(object, old, kind, { operation, user, namespace: "" });
  const context = {
    findNamespace: () => namespaceObject,
    equivalents: kinds.equivalents,
    convert: kinds.convert,
    cel: celEvaluator,
    addDefaults: (object: unknown) => object,
    prepare: (object: unknown) => object,
    call: async () => ({ unsupported: "it is not called" }),
  };
  const attributes = { ...request, ...(subResource !== undefined && { subResource }) };
  const { findMatching } = createUnevaluatedPolicyMatcher(objects, sample.isComplete ?? true);
  // The request has the object as the client sent it. Policies may also match what webhooks made of it.
  const mutated = sample.finalObject ? toObject(sample.finalObject) : object;
  const finalObject = operation === "DELETE" ? null : mutated;
  const sentences = findMatching(attributes, finalObject, context, isNamespaceAssumed);
  return sentences.map((sentence) => sentence.split(" ", 2).join(" "));
};

describe("a request that admission policies match", () => {
  const usual = {
    apiGroups: [""],
    apiVersions: ["v1"],
    resources: ["pods"],
    operations: ["CREATE", "UPDATE", "DELETE"],
  };
  for (const { name, sample, found, bindings = [{}], hasOnlyBindings, ...policyCase } of tables.policies)
    it(name, () => {
      const kind = policyCase.isMutating ? "MutatingAdmissionPolicy" : "ValidatingAdmissionPolicy";
      const matchConstraints = { resourceRules: [{ ...usual, ...policyCase.rule }], ...policyCase.constraints };
      const conditions = policyCase.condition && { matchConditions: [{ name: "c", expression: policyCase.condition }] };
      const spec = { matchConstraints, ...Object(conditions) };
      const policy = { apiVersion: group, kind, metadata: { name: "p" }, spec };
      const bound = bindings.map((fields) => {
        const bindingSpec = { policyName: "p", ...fields };
        return { apiVersion: group, kind: `${kind}Binding`, metadata: { name: "b" }, spec: bindingSpec };
      });
      assert.deepEqual(findNames([...(hasOnlyBindings ? [] : [policy]), ...bound], sample), found ? [`${kind} p`] : []);
    });
});
