import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { runAdmissionChain } from "./admit.ts";
import { celEvaluator } from "./conditions.ts";
import { parseWebhookConfigurations } from "./hooks.ts";
import type { AdmissionAttributes, HookCallResult, ImitatedServerFunctions } from "./types.ts";

const attributes: AdmissionAttributes = {
  operation: "CREATE",
  name: "c",
  namespace: "default",
  dryRun: false,
  options: null,
  kind: { group: "", version: "v1", kind: "ConfigMap" },
  resource: { group: "", version: "v1", resource: "configmaps" },
  userInfo: { username: "jane" },
  object: { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "c", labels: { a: "b" } } },
};

const buildEntry = (name: string, fields: object = {}) => {
  return {
    name: `${name}.example.com`,
    clientConfig: { url: `https://127.0.0.1:1/${name}/` },
    rules: [{ apiGroups: ["*"], apiVersions: ["*"], resources: ["*"], operations: ["*"] }],
    sideEffects: "None",
    admissionReviewVersions: ["v1"],
    timeoutSeconds: 1,
    reinvocationPolicy: "IfNeeded",
    ...fields,
  };
};
const buildConfiguration = (kind: string, webhooks: object[]) => {
  return {
    apiVersion: "admissionregistration.k8s.io/v1",
    kind: `${kind}WebhookConfiguration`,
    metadata: { name: "x" },
    webhooks,
  };
};

type HookStub = (
  uid: string,
  object: { metadata: { labels: Record<string, string> } },
) => HookCallResult | Promise<HookCallResult>;

const answer = (uid: string, response: object = {}): HookCallResult => {
  return {
    body: { apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview", response: { uid, allowed: true, ...response } },
  };
};
const buildPatch = (changes: unknown) => {
  return { patchType: "JSONPatch", patch: Buffer.from(JSON.stringify(changes)).toString("base64") };
};

/** Sends a request through the admission chain. Stubs answer for hooks with their names; other hooks admit it. */
const run = async (
  mutating: object[],
  validating: object[],
  stubs: Record<string, HookStub>,
  overrides: Partial<AdmissionAttributes> = {},
  kubernetes?: string,
) => {
  const called: string[] = [];
  const context: ImitatedServerFunctions = {
    kubernetes,
    findNamespace: (name) => (name === "default" ? { metadata: { name } } : undefined),
    equivalents: () => [],
    convert: (object) => object,
    addDefaults: (object) => object,
    prepare: (object) => object,
    cel: celEvaluator,
    call: async (hook, { request }) => {
      const [name = ""] = hook.name.split(".");
      called.push(name);
      return stubs[name]?.(request.uid, request.object as Parameters<HookStub>[1]) ?? answer(request.uid);
    },
  };
  const hooks = parseWebhookConfigurations([
    buildConfiguration("Mutating", mutating),
    buildConfiguration("Validating", validating),
  ]);
  assert.deepEqual(hooks.faults, []);
  const trace = await runAdmissionChain({ ...attributes, ...overrides }, hooks, context);
  return { trace, called: called.join(" ") };
};

describe("a write", () => {
  it("a write calls mutating hooks in order, those before a change again, and then all validating hooks", async () => {
    const label = (uid: string, _: unknown) =>
      answer(uid, buildPatch([{ op: "add", path: "/metadata/labels/new", value: "1" }]));
    const { trace, called } = await run(
      [buildEntry("a"), buildEntry("b"), buildEntry("c")],
      [buildEntry("v"), buildEntry("w")],
      { b: label },
    );
    assert.equal(called, "a b c a v w");
    assert.ok(trace.allowed);
    assert.deepEqual(Object(trace.object).metadata.labels, { a: "b", new: "1" });
    const [step] = trace.steps.filter(({ patch }) => patch);
    assert.deepEqual(Object(step?.before).metadata.labels, { a: "b" });
    assert.equal(
      trace.audit["mutation.webhook.admission.k8s.io/round_0_index_1"],
      '{"configuration":"x","webhook":"b.example.com","mutated":true}',
    );
  });

  it("a write is refused with the message of the first hook that denies, and calls no later hook", async () => {
    const deny: HookStub = (uid) =>
      answer(uid, { allowed: false, status: { code: 403, message: "no" }, warnings: ["w"] });
    const { trace, called } = await run([buildEntry("a"), buildEntry("b")], [buildEntry("v")], { a: deny });
    assert.equal(called, "a");
    assert.deepEqual(trace.status, { code: 403, message: 'admission webhook "a.example.com" denied the request: no' });
    assert.deepEqual(trace.warnings, ["w"]);
  });

  it("a write reports the refusals of all validating hooks", async () => {
    const deny: HookStub = (uid) => answer(uid, { allowed: false });
    const { trace, called } = await run([], [buildEntry("v"), buildEntry("w"), buildEntry("x")], { v: deny, x: deny });
    assert.equal(called, "v w x");
    assert.deepEqual(
      trace.refusals.map(({ message }) => message),
      ["v", "x"].map((name) => `admission webhook "${name}.example.com" denied the request without explanation`),
    );
  });

  it("a write fails if a webhook times out, unless that is ignored", async () => {
    const neverAnswer: HookStub = () => new Promise(() => {});
    const text =
      'failed calling webhook "a.example.com": failed to call webhook: Post "https://127.0.0.1:1/a?timeout=1s": context deadline exceeded';
    const { trace } = await run([buildEntry("a")], [], { a: neverAnswer });
    assert.equal(trace.status?.message, `Internal error occurred: ${text}`);
    const { trace: ignoring } = await run([buildEntry("a", { failurePolicy: "Ignore" })], [], { a: neverAnswer });
    assert.ok(ignoring.allowed);
    assert.deepEqual(
      ignoring.steps.map(({ failure, ignored }) => [failure, ignored]),
      [[text, true]],
    );
  });

  it("a write fails if a patch can't be applied, even if failurePolicy is Ignore", async () => {
    const sendUnfitPatch: HookStub = (uid) => answer(uid, buildPatch([{ op: "remove", path: "/data/none" }]));
    const { trace } = await run([buildEntry("a", { failurePolicy: "Ignore" })], [], { a: sendUnfitPatch });
    assert.match(String(trace.status?.message), /^Internal error occurred: remove operation does not apply/);
  });

  it("a write fails with the API server's text for a malformed patch, unless the hook ignores failures", async () => {
    const sendNoPatch: HookStub = (uid) => answer(uid, buildPatch({}));
    const { trace } = await run([buildEntry("a")], [], { a: sendNoPatch });
    const text =
      'Internal error occurred: failed calling webhook "a.example.com": received undecodable patch in webhook response: ';
    assert.ok(trace.status?.message?.startsWith(text), trace.status?.message);
    const { trace: ignoring } = await run([buildEntry("a", { failurePolicy: "Ignore" })], [], { a: sendNoPatch });
    assert.ok(ignoring.allowed);
  });

  it("a write is not sent to a hook with side effects if it is a dry run", async () => {
    const { trace, called } = await run([buildEntry("a", { sideEffects: "Some" })], [], {}, { dryRun: true });
    assert.equal(called, "");
    assert.equal(trace.status?.message, 'admission webhook "a.example.com" does not support dry run');
  });

  it("a write is undecided if a condition can't be evaluated, and skips the hook", async () => {
    const matchConditions = [{ name: "may", expression: "authorizer.path('/x').check('get').allowed()" }];
    const { trace, called } = await run([], [buildEntry("v", { matchConditions }), buildEntry("w")], {});
    assert.equal(called, "w");
    assert.equal(trace.undecided.length, 1);
    assert.equal(trace.steps[0]?.outcome, "can't say");
  });

  it("a write is undecided if a hook that matches can't be called", async () => {
    const { trace } = await run([], [buildEntry("v")], { v: () => ({ unsupported: "it is far away" }) });
    assert.deepEqual(trace.undecided, ["v.example.com (x): it is far away"]);
    assert.equal(trace.steps[0]?.outcome, "can't say");
  });

  it("a write gets the error that the namespace is not found, if a namespaceSelector needs its labels", async () => {
    const namespaceSelector = { matchLabels: { a: "b" } };
    const { trace } = await run([], [buildEntry("v", { namespaceSelector })], {}, { namespace: "gone" });
    assert.equal(trace.status?.message, 'namespaces "gone" not found');
  });

  const reviews = { group: "authorization.k8s.io", version: "v1", resource: "subjectaccessreviews" };
  const configurations = {
    group: "admissionregistration.k8s.io",
    version: "v1",
    resource: "mutatingwebhookconfigurations",
  };
  for (const [resource, kubernetes, calls] of [
    [configurations, "1.33", ""],
    [configurations, undefined, ""],
    [reviews, "1.36", "a v"],
    [reviews, "1.37", ""],
    [reviews, undefined, ""],
  ] as const)
    it(`calls ${calls === "" ? "no" : "every"} hook for ${resource.resource} in Kubernetes ${kubernetes}`, async () => {
      const { trace, called } = await run([buildEntry("a")], [buildEntry("v")], {}, { resource }, kubernetes);
      assert.deepEqual([called, trace.allowed], [calls, true]);
    });

  for (const [kubernetes, message] of [
    ["1.33", undefined],
    ["1.34", 'failed calling webhook "a.example.com": received undecodable patch in webhook response'],
  ] as const)
    it(`is ${message ? "not " : ""}refused for a patch that is no JSON patch, in Kubernetes ${kubernetes}`, async () => {
      const entry = buildEntry("a", { failurePolicy: "Ignore" });
      const stub: HookStub = (uid) => answer(uid, buildPatch(7));
      const { trace } = await run([entry], [], { a: stub }, {}, kubernetes);
      assert.equal(trace.allowed, message !== undefined);
      assert.equal(trace.status?.code, message ? undefined : 500);
      assert.equal(trace.steps[0]?.failure?.startsWith(message ?? "") ?? true, true);
    });

  it("a write gets a generated name before validating hooks are called", async () => {
    const object = { apiVersion: "v1", kind: "ConfigMap", metadata: { generateName: "g-" } };
    const { name: _, ...unnamed } = attributes;
    const { trace } = await run([], [buildEntry("v")], {}, { ...unnamed, name: "", object });
    assert.match(String(trace.steps[0]?.request?.name), /^g-.{5}$/);
    assert.deepEqual(trace.object, object);
  });

  const pod = (spec: object) => ({ apiVersion: "v1", kind: "Pod", metadata: { name: "p" }, spec });
  const containers = [{ name: "c", image: "a", resources: { requests: { cpu: "1" } } }];
  const resized = { name: "c", image: "a", resources: { requests: { cpu: "2" } } };
  for (const [subResource, now, stored] of [
    ["resize", { containers: [{ ...resized, image: "b" }], nodeName: "n" }, { containers: [resized] }],
    ["resize", { containers: [{ name: "other" }] }, { containers: [{ name: "other" }] }],
    [
      "ephemeralcontainers",
      { containers: [], ephemeralContainers: [{ name: "e" }] },
      { containers, ephemeralContainers: [{ name: "e" }] },
    ],
    ["ephemeralcontainers", {}, { containers }],
  ] as const)
    it(`of the subresource ${subResource} stores ${JSON.stringify(stored)} of ${JSON.stringify(now)}`, async () => {
      const { trace } = await run(
        [],
        [],
        {},
        {
          operation: "UPDATE",
          subResource,
          kind: { group: "", version: "v1", kind: "Pod" },
          object: pod(now),
          oldObject: pod({ containers }),
        },
      );
      assert.deepEqual(trace.object, pod(stored));
    });
});
