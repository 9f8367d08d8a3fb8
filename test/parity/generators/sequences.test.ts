import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { readCatalogue } from "../../../infra/catalogue/registry.ts";
import { comparisonConfigs, listRulesThatReplacePlugins } from "../plugins.ts";
import { scenarioGenerators } from "./scenarios.ts";
import { buildSequences } from "./sequences.ts";
import { generatorNamespaceNames } from "./surroundings.ts";

const everything = [{ apiGroups: ["*"], apiVersions: ["*"], resources: ["*/*"], operations: ["*" as const] }];

describe("generated requests", () => {
  const sampleSequences = (seed: number) => fc.sample(buildSequences(everything), { seed, numRuns: 2000 });

  it("generated requests are the same for the same seed", () => {
    assert.deepEqual(sampleSequences(7), sampleSequences(7));
    assert.notDeepEqual(sampleSequences(7), sampleSequences(8));
  });

  it("generated requests cover every kind, verb, patch type, subresource and user, and dry runs of each verb", () => {
    const sequences = sampleSequences(7);
    const steps = sequences.flatMap(({ steps }) => steps);
    assert.equal(new Set(sequences.map(({ kind }) => kind)).size, 13);
    assert.equal(new Set(steps.map(({ verb }) => verb)).size, 6);
    assert.equal(new Set(steps.map(({ user }) => user)).size, 3);
    assert.equal(new Set(steps.flatMap((step) => (step.verb === "patch" ? [step.type] : []))).size, 3);
    const subresources = steps.flatMap((step) => ("subresource" in step ? [step.subresource] : []));
    for (const subresource of ["status", "ephemeralcontainers", "binding", "eviction", "resize", "scale"])
      assert.ok(subresources.includes(subresource), subresource);
    const dryRunVerbs = new Set(steps.flatMap(({ verb, dryRun }) => (dryRun ? [verb] : [])));
    assert.equal(dryRunVerbs.size, 6);
    assert.ok(sequences.some(({ generateName }) => generateName));
  });

  it("generated requests have all fields that rules read", () => {
    const fields = new Set<string>();
    JSON.stringify(sampleSequences(7), (key, value) => {
      fields.add(key);
      return value;
    });
    const ofPods =
      "containers initContainers ephemeralContainers livenessProbe readinessProbe startupProbe lifecycle volumes image hostPath";
    const ofScheduling =
      "podAntiAffinity podAffinity nodeAffinity tolerations nodeName schedulingGates nodeSelector topologySpreadConstraints runtimeClassName";
    const ofResources = "requests limits example.com/gpu resizePolicy";
    const ofSecurity = "privileged runAsUser capabilities seLinuxOptions supplementalGroups fsGroup seccompProfile";
    const ofOthers =
      "externalIPs clusterIP taints unschedulable finalizers accessModes storageClassName capacity driverName replicas template serviceName";
    for (const field of [ofPods, ofScheduling, ofResources, ofSecurity, ofOthers].join(" ").split(" "))
      assert.ok(fields.has(field), field);
  });
});

describe("the requests for one plugin", () => {
  const sampleSequences = (namespaces: (string | undefined)[]) =>
    fc.sample(buildSequences(everything, { namespaces, scenarios: [scenarioGenerators.growth] }), {
      seed: 7,
      numRuns: 1000,
    });

  it("the requests for one plugin use `default` and the given namespaces; `undefined` stands for a new one", () => {
    const sequences = sampleSequences(["limited", undefined]);
    const usedNamespaces = new Set(sequences.map(({ namespace }) => namespace));
    assert.deepEqual(usedNamespaces, new Set(["default", "limited", undefined]));
    // The last step in a new namespace reads whether the namespace exists.
    for (const { namespace, steps } of sequences)
      assert.equal(steps.at(-1)?.verb === "look", namespace === undefined, JSON.stringify(steps));
  });

  it("the requests for one plugin leave existing objects in their namespaces, whichever namespaces are given", () => {
    const sequences = sampleSequences(["ending"]).filter(({ existingObject }) => existingObject !== undefined);
    const objectPaths = new Set(sequences.map(({ namespace, existingObject }) => `${namespace}/${existingObject}`));
    // The scenario `growth` has existing objects in the namespaces `default` and `limited`.
    assert.ok(objectPaths.has("default/bound-fast") && objectPaths.has("limited/bound-within"));
    assert.ok(![...objectPaths].some((path) => path.startsWith("ending/")));
  });

  it("the requests for one plugin use every scenario, and only namespaces and plugins that exist", async () => {
    const usedScenarios = new Set(Object.values(comparisonConfigs).flatMap(({ scenarios = [] }) => scenarios));
    assert.deepEqual(usedScenarios, new Set(Object.keys(scenarioGenerators)));
    const usedNamespaces = Object.values(comparisonConfigs).flatMap(({ namespaces = {} }) => Object.keys(namespaces));
    // `own` stands for a new namespace, and `nowhere` is meant to be missing.
    const knownNamespaces = new Set([...generatorNamespaceNames, "own", "nowhere"]);
    assert.deepEqual(new Set(usedNamespaces).difference(knownNamespaces), new Set());
    const plugins = new Set(
      listRulesThatReplacePlugins(await readCatalogue()).map(({ rule }) => rule.upstreamPlugin.plugin),
    );
    for (const plugin of Object.keys(comparisonConfigs)) assert.ok(plugins.has(plugin), plugin);
  });
});
