import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import fc from "fast-check";
import type { Capabilities } from "#lib/needs.ts";
import { isSelected, type LabelSelector } from "#lib/objects/selection.ts";
import { createRecordedCapabilities } from "#lib/recording/recorded-answers.ts";
import type { AdmissionRequest } from "#lib/review.ts";
import { getVariants, type RuleVariant, selectPhase } from "#lib/rule.ts";
import { mergeWithDefaults } from "#lib/settings.ts";
import {
  arePodSecurityModesPrivileged,
  getDefaultPolicy,
  type NamespaceLabels,
  type PodSecurityLabel,
  parseNamespacePolicy,
  podSecurityModes,
  toLabelKey,
} from "../functions/pod-security/policy.ts";
import podSecurity from "../functions/pod-security/rule.ts";
import { getNamespaceLabelsOfEntry } from "../functions/pod-security/selections.ts";
import {
  type PodSecuritySettings,
  defaultPodSecuritySettings as standard,
} from "../functions/pod-security/settings.ts";
import { openRule } from "../infra/testing/rule-test.ts";

const { decide, entries } = await openRule(fileURLToPath(new URL("../functions/pod-security", import.meta.url)));

const { constantFrom } = fc;
/** Generates undefined in two of three cases. */
const makeMostlyUndefined = <T>(value: fc.Arbitrary<T>) =>
  fc.oneof(fc.constant(undefined), fc.constant(undefined), value);

const level = constantFrom("privileged", "baseline", "restricted");
const version = constantFrom("latest", "v1.0", "v1.21", "v1.35", "v1.99");
const defaults = fc.record({
  enforce: level,
  audit: level,
  warn: level,
  "enforce-version": version,
  "audit-version": version,
  "warn-version": version,
});
const exemptions = fc.record({
  usernames: constantFrom([], ["boss"]),
  runtimeClasses: constantFrom([], ["kata"]),
  namespaces: constantFrom<string[][]>([], ["spared"], ["spared", "b"]),
});
const settingsOf = fc
  .record({ defaults, exemptions })
  .map((changes) => mergeWithDefaults(standard, changes) as PodSecuritySettings);

const labelLevel = makeMostlyUndefined(constantFrom("privileged", "baseline", "restricted", "", "Baseline", "none"));
// Each label with a version is absent in eight of nine cases.
const labelVersion = makeMostlyUndefined(
  makeMostlyUndefined(constantFrom("latest", "v1.0", "v1.24", "v1.99", "", "1.24", `v1.${"9".repeat(30)}`)),
);
const labels = fc
  .record({
    enforce: labelLevel,
    audit: labelLevel,
    warn: labelLevel,
    "enforce-version": labelVersion,
    "audit-version": labelVersion,
    "warn-version": labelVersion,
  })
  .map((values): NamespaceLabels => {
    const entries = Object.entries<string | undefined>(values);
    return Object.fromEntries(
      entries.flatMap(([label, value]) =>
        value === undefined ? [] : [[toLabelKey(label as PodSecurityLabel), value]],
      ),
    );
  });
const name = constantFrom("a", "b", "spared");

const plain = { containers: [{ name: "c", image: "app:1" }] };
const violatingSpec = { ...plain, hostNetwork: true };

/** Returns the webhook entries of the rule. Each is called a variant of the rule in the code. */
const getCachedEntries = (settings: PodSecuritySettings) => {
  const found = entriesBySettings.get(settings) ?? getVariants(podSecurity, settings) ?? [];
  entriesBySettings.set(settings, found);
  return found;
};
const entriesBySettings = new WeakMap<PodSecuritySettings, readonly RuleVariant<object>[]>();

/** Returns the webhook entries that are called for objects of a resource in a namespace with these labels. */
const selectEntries = (resource: string, labels: NamespaceLabels, settings: PodSecuritySettings) =>
  getCachedEntries(settings).filter((entry) => {
    const matches = selectPhase(entry.match, "validate", settings) ?? [];
    const selector = entry.namespaceSelector as LabelSelector | undefined;
    return matches.some(({ resources }) => resources.includes(resource)) && (!selector || isSelected(selector, labels));
  });

describe("the webhook entries of pod-security", () => {
  const checkedModes = { pods: podSecurityModes, deployments: ["audit", "warn"] } as const;
  for (const resource of ["pods", "deployments"] as const)
    it(`at most one entry for ${resource} selects a namespace, by the policy of the namespace's labels`, () => {
      const namespaces = fc.array(fc.tuple(labels, name), { minLength: 50, maxLength: 50 });
      fc.assert(
        fc.property(settingsOf, namespaces, (settings, namespaces) => {
          const defaults = getDefaultPolicy(settings);
          for (const [policyLabels, name] of namespaces) {
            const labels = { ...policyLabels, "kubernetes.io/metadata.name": name };
            const namespacePolicy = parseNamespacePolicy(labels, defaults).policy;
            const [entry, ...others] = selectEntries(resource, labels, settings);
            assert.deepEqual(others, []);
            if (entry === undefined) {
              const isExempt = settings.exemptions.namespaces.includes(name);
              assert.ok(isExempt || arePodSecurityModesPrivileged(namespacePolicy, checkedModes[resource]));
              continue;
            }
            assert.ok(!settings.exemptions.namespaces.includes(name));

            const entryLabels = getNamespaceLabelsOfEntry(entry.name);
            if (entryLabels === undefined) {
              assert.match(entry.name, /-(enforce|audit|warn)-version$/);
              continue;
            }
            const { policy } = parseNamespacePolicy(entryLabels, defaults);
            assert.equal(entry.guards, resource === "pods" && !arePodSecurityModesPrivileged(policy, ["enforce"]));
            for (const mode of checkedModes[resource])
              assert.deepEqual(policy[mode], namespacePolicy[mode], entry.name);
            assert.ok(!arePodSecurityModesPrivileged(policy, checkedModes[resource]), "the entry is necessary");
          }
        }),
        { numRuns: 100 },
      );
    });

  it("the entries of pod-security are less than a hundred, and no setting changes their names", () => {
    fc.assert(
      fc.property(settingsOf, (settings) => {
        const all = getVariants(podSecurity, settings) ?? [];
        const names = all.map(({ name }) => name);
        assert.deepEqual(names, [...new Set(names)]);
        assert.ok(all.filter(({ match }) => selectPhase(match, "validate", settings)?.length !== 0).length < 100);
        const defaultNames = (getVariants(podSecurity, standard) ?? []).map(({ name }) => name);
        assert.deepEqual(names.toSorted(), defaultNames.toSorted());
      }),
      { numRuns: 30 },
    );
  });

  it("the entries of pod-security have together less than a megabyte if the settings exempt 200 users", () => {
    const usernames = Array.from({ length: 200 }, (_, index) => `system:serviceaccount:team-${index}:some-builder`);
    const harden = true;
    const entriesWithUsers = entries({ settings: { exemptions: { usernames } } }, harden);
    assert.ok(Buffer.byteLength(JSON.stringify(entriesWithUsers)) < 1e6);
  });

  it("the entries of pod-security decide as the rule without a variant, which reads the namespace", async () => {
    await fc.assert(
      fc.asyncProperty(
        settingsOf,
        labels,
        constantFrom("pods", "deployments"),
        constantFrom(violatingSpec, plain),
        async (settings, policyLabels, resource, spec) => {
          const labels = { ...policyLabels, "kubernetes.io/metadata.name": "a" };
          const namespace = { apiVersion: "v1", kind: "Namespace", metadata: { name: "a", labels } };
          const capabilities = createRecordedCapabilities({ objects: [namespace] });
          const [entry] = selectEntries(resource, labels, settings);
          const object = resource === "pods" ? { metadata: { name: "p" }, spec } : { spec: { template: { spec } } };
          const outcome = await evaluateObject(object, { resource, settings, capabilities });
          if (entry === undefined) return assert.deepEqual([outcome.allowed, outcome.warnings ?? []], [true, []]);

          const variant = entry.name;
          const found = await evaluateObject(object, { resource, settings, capabilities, variant });
          // The annotation `error` about an invalid label is written only if the namespace is read.
          const removeError = (one: typeof outcome) => ({ ...one, audit: { ...one.audit, error: "" } });
          assert.deepEqual(removeError(found), removeError(outcome));
        },
      ),
      { numRuns: 300 },
    );
  });

  it("an entry of pod-security that states a namespace's labels doesn't read the namespace", async () => {
    const fail = () => assert.fail("it reads the cluster");
    const capabilities = { ...createRecordedCapabilities({}), get: fail, list: fail };
    const object = { metadata: { name: "p" }, spec: plain };
    for (const { name, match } of getVariants(podSecurity, standard) ?? [])
      if (selectPhase(match, "validate", standard)?.length !== 0 && getNamespaceLabelsOfEntry(name))
        await evaluateObject(object, { resource: "pods", capabilities, variant: name });
  });
});

interface ObjectContext {
  resource: string;
  capabilities: Capabilities;
  settings?: PodSecuritySettings;
  variant?: string;
}

async function evaluateObject(object: object, { resource, capabilities, settings = standard, variant }: ObjectContext) {
  const group = resource === "deployments" ? "apps" : "";
  const request: AdmissionRequest = {
    uid: "1",
    // The rule doesn't read the kind of the request.
    kind: { group, version: "v1", kind: "Pod" },
    resource: { group, version: "v1", resource },
    name: "a",
    namespace: "a",
    operation: "CREATE",
    userInfo: { username: "jane" },
    object,
  };
  return (await decide("validate", request, { settings, variant, capabilities })).outcome;
}
