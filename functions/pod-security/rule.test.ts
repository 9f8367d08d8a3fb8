import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import type { Capabilities } from "postern/needs";
import { isSelected, type LabelSelector } from "postern/objects/selection";
import type { AdmissionRequest } from "postern/review";
import { getVariants, type RuleVariant, selectPhase } from "postern/rule";
import { mergeSettings, openRule, recorded } from "postern/test";
import { getDefaultPolicy, isPrivileged, type Label, type Labels, modes, parsePolicy, toLabelKey } from "./policy.ts";
import podSecurity from "./rule.ts";
import { getEntryLabels } from "./selections.ts";
import { type Settings, settings as standard } from "./settings.ts";

const { decide, entries } = await openRule(import.meta.dirname);

const one = fc.constantFrom;
const rarely = <T>(value: fc.Arbitrary<T>) => fc.oneof(fc.constant(undefined), fc.constant(undefined), value);

const level = one("privileged", "baseline", "restricted");
const version = one("latest", "v1.0", "v1.21", "v1.35", "v1.99");
const defaults = fc.record({
  ...{ enforce: level, audit: level, warn: level },
  ...{ "enforce-version": version, "audit-version": version, "warn-version": version },
});
const exemptions = fc.record({
  usernames: one([], ["boss"]),
  runtimeClasses: one([], ["kata"]),
  namespaces: one<string[][]>([], ["spared"], ["spared", "b"]),
});
const settingsOf = fc.record({ defaults, exemptions }).map((given) => mergeSettings(standard, given) as Settings);

const saidLevel = rarely(one("privileged", "baseline", "restricted", "", "Baseline", "none"));
const saidVersion = rarely(rarely(one("latest", "v1.0", "v1.24", "v1.99", "", "1.24", `v1.${"9".repeat(30)}`)));
const labels = fc
  .record({
    ...{ enforce: saidLevel, audit: saidLevel, warn: saidLevel },
    ...{ "enforce-version": saidVersion, "audit-version": saidVersion, "warn-version": saidVersion },
  })
  .map((said): Labels => {
    const entries = Object.entries<string | undefined>(said);
    return Object.fromEntries(
      entries.flatMap(([label, value]) => (value === undefined ? [] : [[toLabelKey(label as Label), value]])),
    );
  });
const name = one("a", "b", "spared");

const plain = { containers: [{ name: "c", image: "app:1" }] };
const bold = { ...plain, hostNetwork: true };

const variantsUnder = (settings: Settings) => {
  const found = known.get(settings) ?? getVariants(podSecurity, settings) ?? [];
  known.set(settings, found);
  return found;
};
const known = new WeakMap<Settings, readonly RuleVariant<object>[]>();

/** The entries by which a namespace's objects of a resource come here. */
const entriesFor = (resource: string, labels: Labels, settings: Settings) =>
  variantsUnder(settings).filter((variant) => {
    const matches = selectPhase(variant.match, "validate", settings) ?? [];
    const selector = variant.namespaceSelector as LabelSelector | undefined;
    return matches.some(({ resources }) => resources.includes(resource)) && (!selector || isSelected(selector, labels));
  });

describe("its entries", () => {
  const judging = { pods: modes, deployments: ["audit", "warn"] } as const;
  for (const resource of ["pods", "deployments"] as const)
    it(`take every namespace once for ${resource}, under the policy that its labels ask for`, () => {
      const namespaces = fc.array(fc.tuple(labels, name), { minLength: 50, maxLength: 50 });
      fc.assert(
        fc.property(settingsOf, namespaces, (settings, namespaces) => {
          const defaults = getDefaultPolicy(settings);
          for (const [own, name] of namespaces) {
            const labels = { ...own, "kubernetes.io/metadata.name": name };
            const asked = parsePolicy(labels, defaults).policy;
            const [entry, ...others] = entriesFor(resource, labels, settings);
            assert.deepEqual(others, []);
            if (entry === undefined) {
              const isExempt = settings.exemptions.namespaces.includes(name);
              assert.ok(isExempt || isPrivileged(asked, judging[resource]));
              continue;
            }
            assert.ok(!settings.exemptions.namespaces.includes(name));

            const named = getEntryLabels(entry.name);
            if (named === undefined) {
              assert.match(entry.name, /-(enforce|audit|warn)-version$/);
              continue;
            }
            const { policy } = parsePolicy(named, defaults);
            assert.equal(entry.guards, resource === "pods" && !isPrivileged(policy, ["enforce"]));
            for (const mode of judging[resource]) assert.deepEqual(policy[mode], asked[mode], entry.name);
            assert.ok(!isPrivileged(policy, judging[resource]), "nobody is called for nothing");
          }
        }),
        { numRuns: 100 },
      );
    });

  it("are less than a hundred, whatever the defaults", () => {
    fc.assert(
      fc.property(settingsOf, (settings) => {
        const all = getVariants(podSecurity, settings) ?? [];
        const names = all.map(({ name }) => name);
        assert.deepEqual(names, [...new Set(names)]);
        assert.ok(all.filter(({ match }) => selectPhase(match, "validate", settings)?.length !== 0).length < 100);
        const usual = (getVariants(podSecurity, standard) ?? []).map(({ name }) => name);
        assert.deepEqual(names.toSorted(), usual.toSorted(), "their names are the same under all settings");
      }),
      { numRuns: 30 },
    );
  });

  it("can be stored with 200 users exempt", () => {
    const usernames = Array.from({ length: 200 }, (_, index) => `system:serviceaccount:team-${index}:some-builder`);
    const made = entries({ settings: { exemptions: { usernames } } }, true);
    assert.ok(Buffer.byteLength(JSON.stringify(made)) < 1e6);
  });

  it("come to the same as reading the namespace, word by word", async () => {
    await fc.assert(
      fc.asyncProperty(
        settingsOf,
        labels,
        one("pods", "deployments"),
        one(bold, plain),
        async (settings, own, resource, spec) => {
          const labels = { ...own, "kubernetes.io/metadata.name": "a" };
          const namespace = { apiVersion: "v1", kind: "Namespace", metadata: { name: "a", labels } };
          const world = recorded({ objects: [namespace] });
          const [entry] = entriesFor(resource, labels, settings);
          const object = resource === "pods" ? { metadata: { name: "p" }, spec } : { spec: { template: { spec } } };
          const whole = await judged(object, { resource, settings, world });
          if (entry === undefined) return assert.deepEqual([whole.allowed, whole.warnings ?? []], [true, []]);

          const { audit, ...rest } = await judged(object, { resource, settings, world, variant: entry.name });
          const { audit: wanted, ...wantedRest } = whole;
          assert.deepEqual(rest, wantedRest);
          // Of a label that means nothing, only who reads it can tell.
          assert.deepEqual({ ...audit, error: "" }, { ...wanted, error: "" });
        },
      ),
      { numRuns: 300 },
    );
  });

  it("read nothing but where a label names a version", async () => {
    const nobody = () => assert.fail("it reads");
    const world = { ...recorded({}), get: nobody, list: nobody };
    for (const { name, match } of getVariants(podSecurity, standard) ?? [])
      if (selectPhase(match, "validate", standard)?.length !== 0 && getEntryLabels(name))
        await judged({ metadata: { name: "p" }, spec: plain }, { resource: "pods", world, variant: name });
  });
});

describe("a namespace that asks for more", () => {
  const labels = { [toLabelKey("enforce")]: "baseline" };
  const tightened = { metadata: { name: "a", labels } };
  const tighten = (world: Capabilities, settings: Partial<Settings> = {}) =>
    judged(tightened, {
      resource: "namespaces",
      world,
      settings: { ...standard, ...settings },
      oldObject: { metadata: { name: "a" } },
    });
  const pod = (name: string, uid?: string) => {
    const ownerReferences = uid
      ? [{ apiVersion: "apps/v1", kind: "ReplicaSet", name: "r", uid, controller: true }]
      : [];
    return {
      apiVersion: "v1",
      kind: "Pod",
      metadata: { name, namespace: "a", ownerReferences },
      spec: uid ? bold : plain,
    };
  };

  it("may do so where its pods can't be listed", async () => {
    const list = async () => {
      throw new Error("it is late");
    };
    assert.deepEqual((await tighten({ ...recorded({}), list })).warnings, [
      "failed to list pods while checking new PodSecurity enforce level",
    ]);
  });

  it("has the first 500 pods judged, and hears where there are more", async () => {
    const numbered = (count: number, uid: string) =>
      Array.from({ length: count }, (_, index) => pod(`${uid}-${String(index).padStart(3, "0")}`, uid));
    const violating = 'existing pods in namespace "a" violate the new PodSecurity enforce level "baseline:latest"';
    const warned = async (count: number, settings = {}) => {
      const objects = [...numbered(count, "1"), pod("z")];
      return (await tighten(recorded({ objects }), settings)).warnings;
    };
    assert.deepEqual(await warned(499), [violating]);
    const few = "new PodSecurity enforce level only checked against the first 500 existing pods";
    assert.deepEqual(await warned(500), [few, violating]);
    const named = await warned(500, { namesExistingPods: true });
    assert.deepEqual(named, [few, violating, "1-000 (and 499 other pods): host namespaces"]);
  });
});

interface Circumstances {
  resource: string;
  world: Capabilities;
  settings?: Settings;
  variant?: string;
  oldObject?: object;
}

async function judged(object: object, { resource, world, settings = standard, variant, oldObject }: Circumstances) {
  const group = resource === "deployments" ? "apps" : "";
  const kind = { group, version: "v1", kind: resource === "namespaces" ? "Namespace" : "Pod" };
  const request: AdmissionRequest = {
    ...{ uid: "1", kind, resource: { group, version: "v1", resource }, name: "a", namespace: "a" },
    operation: oldObject ? "UPDATE" : "CREATE",
    ...{ userInfo: { username: "jane" }, object, oldObject: oldObject ?? null },
  };
  return (await decide("validate", request, { settings, variant, world })).outcome;
}
