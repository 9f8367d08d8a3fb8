import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, it } from "node:test";
import { buildPolicySettings, usualValidations } from "../../test/bench/cel.ts";
import { buildBenchEndpointConfig } from "../../test/bench/handlers.ts";
import { createTestFolder } from "../../test/folders.ts";
import { readRule } from "../catalogue/registry.ts";
import { getFunctionsFolder } from "../catalogue/sources.ts";
import { bundleRule } from "./bundle.ts";

const measure = async (name: string, settings: object): Promise<number> => {
  const listed = await readRule(join(getFunctionsFolder(), name), name);
  const { bytes } = await bundleRule(listed, buildBenchEndpointConfig(listed, settings), await createTestFolder());
  return bytes / 1024;
};

const apiVersion = "admissionregistration.k8s.io/v1";
const paramKind = { apiVersion: "v1", kind: "ConfigMap" };
/** Validations that read more than the object: the policy's parameters, the namespace, and the user's rights. */
const validationsReadingMore = [
  "object.spec.containers.size() <= int(params.data.most)",
  "namespaceObject.metadata.?labels['team'].hasValue()",
  "authorizer.requestResource.check('approve').allowed()",
];
const expressions = {
  JSONPatch: '[JSONPatch{op: "add", path: "/metadata/labels/team", value: "a"}]',
  ApplyConfiguration: 'Object{metadata: Object.metadata{labels: {"team": "a"}}}',
};

/** Returns settings of mutating-admission-policy with a policy that adds a label. */
const buildMutation = (patchType: keyof typeof expressions, resource: { group: string; name: string }) => {
  const expression = { expression: expressions[patchType] };
  const mutation = { patchType, [patchType === "JSONPatch" ? "jsonPatch" : "applyConfiguration"]: expression };
  const resourceRules = [
    { apiGroups: [resource.group], apiVersions: ["*"], resources: [resource.name], operations: ["CREATE"] },
  ];
  const spec = { matchConstraints: { resourceRules }, reinvocationPolicy: "Never", mutations: [mutation] };
  const metadata = { name: "a" };
  return {
    policies: [
      { apiVersion, kind: "MutatingAdmissionPolicy", metadata, spec },
      { apiVersion, kind: "MutatingAdmissionPolicyBinding", metadata, spec: { policyName: "a" } },
    ],
  };
};

const pods = { group: "", name: "pods" };

// The kilobytes are those in docs/background/performance.md. They contain the code, the settings, the trees of
// expressions and the schemas of kinds.
const rows: [rule: string, what: string, settings: object, kilobytes: number][] = [
  ["validating-admission-policy", "ten usual validations", buildPolicySettings(usualValidations), 92],
  [
    "validating-admission-policy",
    "ten usual validations, parameters, namespaceObject and authorizer",
    buildPolicySettings([...usualValidations, ...validationsReadingMore], { paramKind }),
    110,
  ],
  ["mutating-admission-policy", "a JSON patch", buildMutation("JSONPatch", pods), 92],
  ["mutating-admission-policy", "an ApplyConfiguration for pods", buildMutation("ApplyConfiguration", pods), 115],
  [
    "mutating-admission-policy",
    "an ApplyConfiguration for all kinds",
    buildMutation("ApplyConfiguration", { group: "*", name: "*" }),
    215,
  ],
];

describe("the bundle of a rule with policies", () => {
  for (const [name, what, settings, kilobytes] of rows)
    it(`of ${name} has at most ${kilobytes} KB with ${what}`, async () => {
      const measured = await measure(name, settings);
      assert.ok(measured <= kilobytes, `${measured} KB`);
    });
});
