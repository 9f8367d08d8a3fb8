import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { before, describe, it } from "node:test";
import { isDeepStrictEqual } from "node:util";
import fc from "fast-check";
import type { RuleEvaluationContext } from "#lib/core/evaluation.ts";
import { evaluateRule } from "#lib/core/evaluation.ts";
import type { Pod } from "#lib/kubernetes/core/v1.ts";
import { createRecordedCapabilities } from "#lib/recording/recorded-answers.ts";
import type { KubernetesObject } from "#lib/review.ts";
import { type Rule, rule } from "#lib/rule.ts";
import allowedRegistries from "../functions/allowed-registries/rule.ts";
import limitRanger from "../functions/limit-ranger/rule.ts";
import resize from "../functions/pod-resize-validator/rule.ts";
import podSecurity from "../functions/pod-security/rule.ts";
import tolerations from "../functions/pod-toleration-restriction/rule.ts";
import { describeEdits, suggestFix } from "../infra/check/evaluation/suggestions.ts";
import { pods } from "./cluster/pods.ts";
import { createTestFolder } from "./folders.ts";
import { buildPodRequest } from "./requests.ts";
import { readRows } from "./rows.ts";
import { runVerb } from "./verb.ts";

// Tests the suggestions for refused objects. rule-tests.ts tests that each rule admits an object that its suggestion
// edits.

const buildRequest = (object: KubernetesObject, oldObject: KubernetesObject | null = null) =>
  buildPodRequest({
    name: "a",
    namespace: "shop",
    operation: oldObject ? "UPDATE" : "CREATE",
    object,
    oldObject,
  });

const baseContext = { name: "made-up", settings: {}, now: new Date(0) };

// The YAML file beside this test: objects before and after edits, the edits in words, and files for `postern check`.
const fixtures = readRows<{
  edits: { before: unknown; after: unknown; words: string }[];
  files: Record<string, string>;
}>(import.meta.filename);

describe("edits in words", () => {
  // YAML can't have this key.
  const [one, two] = [1, 2].map((value) => JSON.parse(`{"__proto__":{"a":${value}}}`));
  const table = [...fixtures.edits, { before: one, after: two, words: "set __proto__.a to 2" }];
  for (const { before, after, words } of table)
    it(`the edits of ${JSON.stringify(before)} into ${JSON.stringify(after)} are "${words}"`, () =>
      assert.equal(describeEdits(before, after), words));
  it("edits in words have paths that begin with the given path", () =>
    assert.equal(describeEdits({}, { spec: { a: 1 } }, ["spec", "template"]), "set spec.template.spec.a to 1"));
  it("edits in words are truncated, with the number of edits that are left out", () => {
    const many = Object.fromEntries(Array.from({ length: 40 }, (_, index) => [`${"long".repeat(9)}${index}`, index]));
    assert.match(describeEdits({}, many), /^set .{200,270}; and \d+ more$/);
    assert.match(
      describeEdits({ of: Array(9).fill({ a: 1 }) }, { of: Array(9).fill({ a: 2 }) }),
      /^set of\[0, 1, 2, 3, …\]\.a /,
    );
  });
  it("edits in words are one short line for any objects, and empty if the objects are equal", () =>
    fc.assert(
      fc.property(fc.object({ withNullPrototype: true }), fc.object(), (some, others) => {
        const [before, after] = [some, others].map((one) => JSON.parse(JSON.stringify(one)));
        const words = describeEdits(before, after);
        assert.equal(words === "", isDeepStrictEqual(before, after));
        assert.ok(words.length <= 290 && words.isWellFormed() && !/\p{Cc}/u.test(words), words);
      }),
    ));
});

describe("a suggestion", () => {
  /** Creates a rule with this suggestion. It refuses all objects, or those for which `isRefused` is true. */
  const createRefusingRule = (suggest: Rule["suggest"], isRefused = (_: Pod) => true): Rule =>
    rule<Pod>({ summary: "Refuses.", match: [], validate: (pod) => (isRefused(pod) ? "no" : undefined), suggest });
  const findFix = (rule: Rule, object: KubernetesObject = { metadata: { name: "a" } }) =>
    suggestFix(rule, "validate", buildRequest(object), baseContext);

  it("a suggestion describes an edit in words, and says if the rule also refuses the edited object", async () => {
    const suggest = ({ metadata }: KubernetesObject) => {
      if (metadata) metadata.labels = { team: "payments" };
    };
    const fixableRule = createRefusingRule(suggest, ({ metadata }) => metadata?.labels?.team === undefined);
    const refusedObject = Object.freeze({ metadata: Object.freeze({ name: "a" }) });
    assert.deepEqual(await findFix(fixableRule, refusedObject), {
      text: "set metadata.labels.team to payments",
      object: { metadata: { name: "a", labels: { team: "payments" } } },
      isStillRefused: false,
    });
    assert.equal((await findFix(createRefusingRule(suggest)))?.isStillRefused, true);
  });
  it("a suggestion is the rule's sentence, with ? for control characters, even if there is an edit", async () => {
    const advisingRule = createRefusingRule((object) => {
      object.metadata = {};
      return "ask\na person \u001b[31melse";
    });
    assert.deepEqual(await findFix(advisingRule), { text: "ask?a person ?[31melse" });
  });
  it("a suggestion is undefined if the rule has no suggestion", async () => {
    assert.equal(await findFix(createRefusingRule(undefined)), undefined);
    assert.equal(await findFix(createRefusingRule(() => {})), undefined);
  });
  it("a suggestion depends on the rule's settings and the request", async () => {
    const settingsRule = rule<KubernetesObject, { minimum: number }>({
      summary: "Refuses.",
      match: [],
      settings: { minimum: 1 },
      validate: (_, { settings: { minimum } }) => `not ${minimum}`,
      suggest: async (_, { settings: { minimum }, request }) => `have ${minimum} in ${request.namespace}`,
    });
    const context = { ...baseContext, settings: { minimum: 4 } };
    const found = await suggestFix(settingsRule, "validate", buildRequest({}), context);
    assert.equal(found?.text, "have 4 in shop");
  });
});

const buildNamespace = (level: string, version: string) => {
  const labels = {
    "pod-security.kubernetes.io/enforce": level,
    "pod-security.kubernetes.io/enforce-version": version,
  };
  return { apiVersion: "v1", kind: "Namespace", metadata: { name: "shop", labels } };
};

it("the suggestion of pod-security fixes any refused pod, at every level and version", () =>
  fc.assert(
    fc.asyncProperty(
      pods,
      fc.constantFrom("baseline", "restricted"),
      fc.constantFrom("latest", "v1.0", "v1.18", "v1.19", "v1.22", "v1.27", "v1.34"),
      async (generatedPod, level, version) => {
        const pod = JSON.parse(JSON.stringify(generatedPod));
        const settings = podSecurity.settings ?? {};
        const capabilities = createRecordedCapabilities({ objects: [buildNamespace(level, version)] });
        const context = { ...baseContext, settings, capabilities };
        const request = buildRequest(pod);
        const { refused } = await evaluateRule(podSecurity, "validate", request, { ...context, mode: "enforce" });
        const found = await suggestFix(podSecurity, "validate", request, context);
        if (refused) assert.equal(found?.isStillRefused, false, `nothing helps ${JSON.stringify(pod)}`);
        else assert.equal(found, undefined);
      },
    ),
    { numRuns: 1000 },
  ));

describe("the suggestion of a rule", () => {
  const name = "a";
  const buildPod = (spec: object) => ({ metadata: { name, namespace: "shop" }, spec: { containers: [], ...spec } });
  const buildClaim = (storage: string) => ({ metadata: { name }, spec: { resources: { requests: { storage } } } });
  const createCapabilities = (kind: string, metadata: object, fields: object, apiVersion = "v1") =>
    createRecordedCapabilities({ objects: [{ apiVersion, kind, metadata: { name, ...metadata }, ...fields }] });
  const getSuggestion = async (
    rule: Rule,
    {
      object,
      resource = "pods",
      oldObject = null,
      subResource,
      ...more
    }: Partial<RuleEvaluationContext> & {
      object: KubernetesObject;
      resource?: string;
      oldObject?: KubernetesObject | null;
      subResource?: string;
    },
  ) => {
    const request = buildRequest(object, oldObject);
    const sample = { ...request, resource: { ...request.resource, resource }, ...(subResource && { subResource }) };
    const context = { ...baseContext, settings: rule.settings ?? {}, ...more };
    const { refused } = await evaluateRule(rule, "validate", sample, { ...context, mode: "enforce" });
    assert.ok(refused);
    return (await suggestFix(rule, "validate", sample, context))?.text;
  };

  it("the suggestion of a rule does not make an existing claim smaller, which the API server refuses", async () => {
    const spec = { limits: [{ type: "PersistentVolumeClaim", max: { storage: "2Gi" } }] };
    const capabilities = createCapabilities("LimitRange", { namespace: "shop" }, { spec });
    const sample = { object: buildClaim("5Gi"), resource: "persistentvolumeclaims", capabilities };
    const text = "set spec.resources.requests.storage to 2Gi";
    assert.equal(await getSuggestion(limitRanger, sample), text);
    assert.equal(await getSuggestion(limitRanger, { ...sample, oldObject: buildClaim("1Gi") }), text);
    assert.equal(await getSuggestion(limitRanger, { ...sample, oldObject: buildClaim("5Gi") }), undefined);
  });
  it("the suggestion of a rule names an allowed repository of Docker Hub only if its owner is set", async () => {
    const object = buildPod({ containers: [{ name, image: "quay.io/team/app" }] });
    const suggestFor = (...registries: string[]) =>
      getSuggestion(allowedRegistries, { object, settings: { registries } });
    for (const registry of ["docker.io", "docker.io/library", "docker.io/library/nginx"])
      assert.equal(await suggestFor(registry), undefined);
    // Images in docker.io without an owner, or in docker.io/library, are Docker's own.
    const text = "copy quay.io/team/app to an allowed registry, and use docker.io/acme/team/app";
    assert.equal(await suggestFor("docker.io", "docker.io/acme"), text);
  });
  it("the suggestion of a rule replaces a hostPath volume with a claim", async () => {
    const object = buildPod({ volumes: [{ name: "data", hostPath: { path: "/srv" } }] });
    const capabilities = createRecordedCapabilities({ objects: [buildNamespace("baseline", "latest")] });
    assert.equal(
      await getSuggestion(podSecurity, { object, capabilities }),
      "remove spec.volumes[0].hostPath; set spec.volumes[0].persistentVolumeClaim.claimName to data",
    );
  });
  it("the suggestion of a rule removes no tolerations from an existing pod, which the API server refuses", async () => {
    const object = buildPod({ tolerations: [{ key: "k", operator: "Exists" }] });
    const settings = { default: [], whitelist: [{ key: "other", operator: "Exists" }] };
    const capabilities = createCapabilities("Namespace", { name: "shop" }, {});
    assert.equal(await getSuggestion(tolerations, { object, settings, capabilities }), "remove spec.tolerations");
    assert.equal(await getSuggestion(tolerations, { object, oldObject: object, settings, capabilities }), undefined);
  });
  it("the suggestion of a rule is undefined if a node does not state its capacity", async () => {
    const buildResizedPod = (cpu: string, generation: number) => ({
      ...buildPod({ nodeName: name, containers: [{ name, resources: { requests: { cpu } } }] }),
      metadata: { name, namespace: "shop", generation },
    });
    const sample = { object: buildResizedPod("2", 2), oldObject: buildResizedPod("1", 1), subResource: "resize" };
    const buildCapabilities = (allocatable: object) => createCapabilities("Node", {}, { status: { allocatable } });
    assert.equal(await getSuggestion(resize, { ...sample, capabilities: buildCapabilities({}) }), undefined);
    assert.match(
      String(await getSuggestion(resize, { ...sample, capabilities: buildCapabilities({ cpu: "1", memory: "1Gi" }) })),
      /^request at most 1 of cpu /,
    );
  });
});

const folder = await createTestFolder();

describe("postern check", () => {
  let printed = "";
  before(async () => {
    for (const [name, text] of Object.entries(fixtures.files)) await writeFile(join(folder, name), text);
    const state = ["--state", "state.yaml", "--plugins", "none"];
    const options = ["--config", "postern.yaml", ...state, "-o", "text", "-o", "json=report.json"];
    const { stdout, stderr } = await runVerb(folder, ["check", "web.yaml", ...options]);
    printed = stdout + stderr;
  });

  it("postern check prints the suggestion after a denial", () =>
    assert.match(printed, /denied by minimum-replicas: .*\n {4}to fix it, set spec\.replicas to 3\n/));
  it("postern check prints the path in the workload's template if a Pod of the workload is denied", () =>
    assert.match(printed, /to fix it, remove spec\.template\.spec\.hostPID\n/));
  it("postern check prints no suggestion if the rule would refuse the edited object", () =>
    assert.match(printed, /denied by limit-ranger: .*minimum memory.*\n(?! {4}to fix it)/));
  it("postern check has the suggestion in its JSON output", async () => {
    const { objects } = JSON.parse(await readFile(join(folder, "report.json"), "utf8"));
    assert.equal(objects[0].denials[0].suggestion, "set spec.replicas to 3");
  });
});
