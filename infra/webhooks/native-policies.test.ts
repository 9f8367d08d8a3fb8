import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { readCatalogue } from "../catalogue/registry.ts";
import { parseConfig } from "../project/project.ts";
import { readRows } from "../testing/rows.ts";
import { buildWebhookConfigurations } from "./configurations.ts";
import {
  buildNativePolicies,
  createNativeCopyPredicate,
  describePlacements,
  placePolicies,
  toPolicySupport,
} from "./native-policies.ts";

const rows = readRows<{
  /** Policies, and whether the API server evaluates them (they are native) or a webhook entry does. */
  placements: {
    name: string;
    kind: "Validating" | "Mutating";
    /** The cluster's minor version of Kubernetes, by default 1.36; null if it isn't known. */
    minor?: string | null;
    /** Fields of the rule's section in postern.yaml. */
    ruleConfig?: object;
    spec?: object;
    /** How many matchConditions the policy has. */
    conditions?: number;
    /** The length of the policy's name. */
    policyNameLength?: number;
    /** Why the policy isn't native; undefined for a native one. */
    reason?: string;
  }[];
  objects: { kind: string; metadata: object; spec: { validationActions?: string[] } }[]; // expected native objects
  actions: Record<string, string[]>; // validationActions by mode
}>(import.meta.filename);

const catalogue = await readCatalogue();
const match = {
  resourceRules: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["configmaps"], operations: ["CREATE"] }],
};
const specs = {
  Validating: { matchConstraints: match, validations: [{ expression: "object.metadata.name != 'x'" }] },
  Mutating: {
    matchConstraints: match,
    reinvocationPolicy: "Never",
    mutations: [{ patchType: "JSONPatch", jsonPatch: { expression: "[JSONPatch{op: 'remove', path: '/data'}]" } }],
  },
};

const buildPolicies = (kind: "Validating" | "Mutating", name: string, spec: object, actions = ["Deny"]) =>
  [
    { kind: `${kind}AdmissionPolicy`, metadata: { name }, spec: { ...specs[kind], ...spec } },
    {
      kind: `${kind}AdmissionPolicyBinding`,
      metadata: { name },
      spec: { policyName: name, ...(kind === "Validating" && { validationActions: actions }) },
    },
  ].map((object) => ({ apiVersion: "admissionregistration.k8s.io/v1", ...object }));

const buildCluster = (
  kind: "Validating" | "Mutating",
  policies: object[],
  ruleConfig: object = {},
  { minor = "1.36" }: { minor?: string | null | undefined } = {}, // null for an unknown version
) => {
  const rule = `${kind.toLowerCase()}-admission-policy`;
  const connect = { kubeconfig: "unused" };
  const rules = { [rule]: { ...ruleConfig, settings: { policies } } };
  const config = parseConfig(JSON.stringify({ rules, clusters: { local: { connect } } }), catalogue);
  const cluster = config.clusters.get("local");
  assert.ok(cluster);
  return { ...cluster, policySupport: toPolicySupport(minor ?? undefined) };
};
const listEntryNames = (cluster: ReturnType<typeof buildCluster>) =>
  buildWebhookConfigurations(catalogue, cluster, {
    name: "postern",
    address: () => "https://a",
    harden: false,
  }).flatMap(({ webhooks }) => webhooks.map(({ name }) => name));

describe("a policy is evaluated by the API server, or its placement says why it needs a webhook entry", () => {
  for (const {
    name,
    kind,
    spec = {},
    ruleConfig,
    conditions = 0,
    policyNameLength = 3,
    reason,
    minor,
  } of rows.placements)
    it(name, () => {
      const policyName = "n".repeat(policyNameLength);
      const matchConditions = Array.from({ length: conditions }, (_, index) => ({
        name: `c${index}`,
        expression: "true",
      }));
      const found = buildCluster(kind, buildPolicies(kind, policyName, { matchConditions, ...spec }), ruleConfig, {
        minor,
      });
      const [placed] = placePolicies(catalogue, found);
      assert.equal(placed?.reason, reason);
      assert.equal(placed?.native, reason === undefined);
      assert.equal(placed?.policy, policyName);
      // A native policy has two objects: the policy and its binding.
      assert.equal(buildNativePolicies(catalogue, found, "postern").length, reason === undefined ? 2 : 0);
      assert.equal(listEntryNames(found).length, reason === undefined ? 0 : 1);
    });

  it("a policy without a binding has no placement", () => {
    const [policy] = buildPolicies("Validating", "unbound", {});
    assert.ok(policy);
    assert.deepEqual(placePolicies(catalogue, buildCluster("Validating", [policy])), []);
  });
});

describe("a native policy", () => {
  const spec = {
    matchConstraints: { ...match, namespaceSelector: { matchLabels: { a: "b" } } },
    matchConditions: [{ name: "user-is-not-exempt", expression: "object.metadata.name != 'y'" }],
  };
  const exempt = { users: ["root"], namespaces: ["quiet"] };
  const policies = buildPolicies("Validating", "own", spec, ["Deny", "Audit"]);
  for (const [mode, validationActions] of Object.entries(rows.actions))
    it(`has the exemptions and the actions of the mode ${mode}`, () => {
      const cluster = buildCluster("Validating", policies, { mode, exempt });
      const [policy, binding] = rows.objects;
      const wanted = [policy, { ...binding, spec: { ...binding?.spec, validationActions } }];
      assert.deepEqual(buildNativePolicies(catalogue, cluster, "postern"), wanted);
    });

  it("a native policy exempts the namespaces that its entry would exempt by default", () => {
    const [policy] = buildNativePolicies(catalogue, buildCluster("Validating", policies), "postern");
    const { matchExpressions } = Object(policy).spec.matchConstraints.namespaceSelector;
    assert.deepEqual(matchExpressions[0].values, ["kube-system", "kube-node-lease"]);
  });

  it("a native policy isn't evaluated for vital resources that it matches only by a wildcard", () => {
    const matchAll = (resources: string[]) => ({
      resourceRules: [{ apiGroups: [""], apiVersions: ["v1"], resources, operations: ["UPDATE"] }],
    });
    const listConditionNames = (resources: string[]) => {
      const wide = buildPolicies("Validating", "own", { matchConstraints: matchAll(resources) });
      const [policy] = buildNativePolicies(catalogue, buildCluster("Validating", wide), "postern");
      return (Object(policy).spec.matchConditions ?? []).map(({ name }: { name: string }) => name);
    };
    assert.deepEqual(listConditionNames(["*"]), ["postern.dev/keeps-the-control-plane-alive"]);
    assert.deepEqual(listConditionNames(["configmaps", "events"]), []);
  });

  it("a copy of a policy is recognized by its name, its annotation and the label of its rule", () => {
    const cluster = buildCluster("Validating", policies);
    const isCopy = createNativeCopyPredicate(catalogue, cluster);
    const prefix = "other"; // Copies are named PREFIX.POLICY, by the name of the webhook configurations.
    const natives = buildNativePolicies(catalogue, cluster, prefix);
    assert.deepEqual(natives.map(isCopy), [true, true]);
    const foreign = natives.map((object) => {
      const { metadata, ...rest } = Object(object);
      return { ...rest, metadata: { ...metadata, labels: { "postern.dev/rule": "mutating-admission-policy" } } };
    });
    const others = [...policies, ...buildPolicies("Validating", `${prefix}.own`, {}), ...foreign];
    assert.deepEqual(others.filter(isCopy), []);
  });

  it("a policy has an entry where the API server doesn't apply native policies", () => {
    const { policySupport, ...cluster } = buildCluster("Validating", policies);
    assert.ok(policySupport);
    const unapplied = ["ValidatingAdmissionPolicy"];
    assert.deepEqual(placePolicies(catalogue, { ...cluster, policySupport: { ...policySupport, unapplied } }), [
      {
        rule: "validating-admission-policy",
        policy: "own",
        native: false,
        reason: "its API server doesn't apply a new ValidatingAdmissionPolicy; the admission plugin must be on",
      },
    ]);
  });

  it("a native policy is described in one line together with other policies that have the same reason", () => {
    const others = buildPolicies("Validating", "b", { validations: [{ expression: "isSemver('1')" }] });
    const all = [...policies, ...buildPolicies("Validating", "a", {}), ...others];
    assert.deepEqual(
      describePlacements(placePolicies(catalogue, buildCluster("Validating", all, {}, { minor: "1.33" }))),
      [
        "evaluated by the API server: own, a",
        "evaluated by the Lambda: b (Kubernetes 1.33 refuses an expression: undeclared reference to 'isSemver' (in container ''))",
      ],
    );
  });
});
