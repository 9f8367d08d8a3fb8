import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import type { AnsweredReviewFacts } from "#lib/core/log-line.ts";
import type { Pod } from "#lib/kubernetes/core/v1.ts";
import { get } from "#lib/needs.ts";
import { type Phase, type Rule, rule } from "#lib/rule.ts";
import { type CatalogueRule, readCatalogue } from "../../infra/catalogue/registry.ts";
import { readOrCreateServerCertificate, type ServerCertificate } from "../../infra/keys/keys.ts";
import type { GatewayHandler, GatewayRequest } from "../../infra/serve/gateway.ts";
import { requireBinaries } from "../control-plane/binaries.ts";
import type { TestClusterClient, TestClusterResponse } from "../control-plane/client.ts";
import { bootCluster, type TestCluster } from "../control-plane/cluster.ts";
import {
  applyConfigurations,
  buildTestRule,
  deleteTestWebhookConfigurations,
  extendWebhookTimeoutsForTests,
  serveTestRules,
  type TestRuleServerOptions,
  type TestWebhookOptions,
  waitUntil,
} from "../parity/rule-server.ts";
import { type ConfigurationUseDetector, openScriptedWebhookEndpoints } from "../parity/scripted-endpoints.ts";
import { createTestSigner } from "../parity/test-key.ts";
import { needs } from "../parts.ts";

// A real API server calls rules through Postern's gateway. The tests check the calls, and how the API server handles
// the responses.
const catalogue = await readCatalogue();
const selectRules = (...names: string[]) => catalogue.filter(({ name }) => names.includes(name));

type Fields = Record<string, unknown>;
const image = "registry.example.com/app:1";
const getPath = (resource: string, namespace = "default") => `/api/v1/namespaces/${namespace}/${resource}`;
const createPod = (metadata: Fields, spec: Fields = {}, container: Fields = {}) => {
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata,
    spec: { containers: [{ name: "a", image, ...container }], ...spec },
  };
};
const createService = (name: string, externalIPs: string[]) => {
  return { apiVersion: "v1", kind: "Service", metadata: { name }, spec: { ports: [{ port: 80 }], externalIPs } };
};
const createConfigMap = (name: string, data: Fields = {}, labels: Fields = {}) => {
  return { apiVersion: "v1", kind: "ConfigMap", metadata: { name, labels }, data };
};
const create = (client: TestClusterClient, where: string, body: unknown) =>
  client({ method: "POST", path: where, body });

const configMaps = [
  { apiGroups: [""], apiVersions: ["v1"], resources: ["configmaps"], operations: ["CREATE" as const] },
];
const pods = configMaps.map((match) => ({ ...match, resources: ["pods"], operations: ["CREATE", "UPDATE"] as const }));
/** Returns a match and a condition with which a rule is called for ConfigMaps of one name. */
const matchByName = (name: string) => ({
  match: configMaps,
  matchConditions: { "is-meant": `object.metadata.name == "${name}"` },
});

describe("a real API server that calls Postern", await needs("API server"), () => {
  let folder: string;
  let certificate: ServerCertificate;
  let endpoints: Awaited<ReturnType<typeof openScriptedWebhookEndpoints>>;
  let detector: ConfigurationUseDetector;
  let clusterOne: TestCluster;
  let clusterTwo: TestCluster;
  const opened: { stop(): Promise<void> }[] = [];

  before(async () => {
    const binaries = await requireBinaries();
    folder = await mkdtemp(join(tmpdir(), "postern-dispatch-"));
    certificate = await readOrCreateServerCertificate(folder, "127.0.0.1");
    endpoints = await openScriptedWebhookEndpoints(certificate);
    detector = endpoints.detector;
    const disable = ["DefaultTolerationSeconds"];
    [clusterOne, clusterTwo] = await Promise.all([
      bootCluster(binaries, { disable, audit: true }),
      bootCluster(binaries),
    ]);
  });
  after(async () => {
    await Promise.all([clusterOne, clusterTwo, endpoints, ...opened].map((server) => server?.stop()));
    await rm(folder, { recursive: true, force: true });
  });

  /** Serves rules at the gateway, and registers them with the first cluster. */
  const startServing = async (rules: CatalogueRule[], yaml: string, host: Partial<TestRuleServerOptions> = {}) => {
    const postern = await serveTestRules(rules, yaml, { certificate, ...host });
    opened.push(postern);
    const apply = (caller?: TestWebhookOptions, cluster = clusterOne) =>
      applyConfigurations(cluster.admin, extendWebhookTimeoutsForTests(postern.manifests(caller)), detector);
    const stop = async () => {
      await deleteTestWebhookConfigurations(clusterOne.admin, postern.manifests(), detector);
      await postern.stop();
    };
    return { ...postern, apply, close: postern.stop, stop };
  };
  type Serving = Awaited<ReturnType<typeof startServing>>;

  /** Serves rules while a test runs. */
  const runWhileServing = async (rules: CatalogueRule[], yaml: string, act: (postern: Serving) => Promise<void>) => {
    const postern = await startServing(rules, yaml);
    try {
      await postern.apply();
      await act(postern);
    } finally {
      await postern.stop();
    }
  };

  /** Returns the annotations of an answered request in the audit log of the first cluster. */
  const readAuditAnnotations = async ({ auditId = "" }: TestClusterResponse): Promise<[string, string][]> => {
    const annotations = await clusterOne.readAuditAnnotations([auditId]);
    return Object.entries(annotations.get(auditId) ?? {});
  };

  describe("a mutating rule that is called again, because a later mutating rule changed the object", () => {
    let postern: Serving;
    const sidecar = rule<Pod>({
      summary: "Gives every pod a second container.",
      match: pods,
      mutate({ spec }) {
        if (spec?.containers.every(({ name }) => name !== "sidecar")) spec.containers.push({ name: "sidecar", image });
      },
    });
    const counting = rule<Pod>({
      summary: "Writes down how many containers a pod has.",
      order: 1,
      match: pods,
      mutate({ metadata, spec }) {
        if (metadata) metadata.annotations = { ...metadata.annotations, containers: String(spec?.containers.length) };
      },
    });
    before(async () => {
      const rules = [
        buildTestRule("count", counting),
        ...selectRules("always-pull-images"),
        buildTestRule("sidecar", sidecar),
      ];
      postern = await startServing(rules, "rules: { count: , always-pull-images: , sidecar: }");
      await postern.apply();
    });
    after(() => postern.stop());
    const formatReports = (reports: AnsweredReviewFacts[]) =>
      reports.map(({ rule, phase, operations }) => `${rule} ${phase} ${operations}`);

    it("after two rounds of calls, the object has the changes of all rules", async () => {
      const never = createPod({ name: "twice" }, {}, { imagePullPolicy: "Never" });
      const [answer, reports] = await postern.during(() => create(clusterOne.admin, getPath("pods"), never));
      assert.equal(answer.code, 201);
      const { metadata, spec } = answer.body as Pod;
      assert.equal(metadata?.annotations?.containers, "2");
      assert.deepEqual(
        spec?.containers.map(({ name, imagePullPolicy }) => [name, imagePullPolicy]),
        [
          ["a", "Always"],
          ["sidecar", "Always"],
        ],
      );
      const earlier = ["count mutate 1", "always-pull-images mutate 1"];
      // In round two, the earlier rules change the object, so the API server calls the later rule again.
      assert.deepEqual(formatReports(reports), [...earlier, "sidecar mutate 1", ...earlier, "sidecar mutate 0"]);
    });

    it("an update of the changed object has one round of calls, in which no rule changes anything", async () => {
      const body = { metadata: { labels: { touched: "yes" } } };
      const path = `${getPath("pods")}/twice`;
      const contentType = "application/merge-patch+json";
      const [answer, reports] = await postern.during(() =>
        clusterOne.admin({ method: "PATCH", path, body, contentType }),
      );
      assert.equal(answer.code, 200);
      assert.deepEqual(formatReports(reports), ["count mutate 0", "sidecar mutate 0"]);
    });

    it("a rule that isn't called in round one isn't called in round two either, and refuses the object", async () => {
      const always = createPod({ name: "late" }, {}, { imagePullPolicy: "Always" });
      const [answer, reports] = await postern.during(() => create(clusterOne.admin, getPath("pods"), always));
      assert.equal(answer.code, 403);
      assert.match(String(answer.body.message), /spec\.containers\[1\]\.imagePullPolicy: Unsupported value/);
      assert.deepEqual(formatReports(reports), [
        "count mutate 1",
        "sidecar mutate 1",
        "count mutate 1",
        "sidecar mutate 0",
        "always-pull-images validate 0",
      ]);
    });
  });

  it("the API server calls rules in the order of the compiled-in plugins, not in that of postern.yaml", async () => {
    const names = ["default-requests-and-limits", "extended-resource-toleration", "default-toleration-seconds"];
    const yaml = `rules: { default-requests-and-limits: { settings: { requests: { cpu: 100m } } }, ${names.slice(1).join(": , ")}: , always-pull-images: }`;
    await runWhileServing(selectRules(...names, "always-pull-images"), yaml, async (postern) => {
      const container = { imagePullPolicy: "Never", resources: { limits: { "example.com/gpu": "1" } } };
      const [answer, reports] = await postern.during(() =>
        create(clusterOne.admin, getPath("pods"), createPod({ name: "chain" }, {}, container)),
      );
      assert.equal(answer.code, 201);
      assert.deepEqual(
        reports.map(({ rule, operations }) => [rule, operations > 0]),
        ["always-pull-images", ...names.toReversed()].map((name) => [name, true]),
      );
    });
  });

  describe("a dry run", () => {
    let postern: Serving;
    before(async () => {
      const names = ["always-pull-images", "deny-service-external-ips"];
      postern = await startServing(selectRules(...names), `rules: { ${names.join(": , ")}: }`);
      await postern.apply();
    });
    after(() => postern.stop());

    const table: [what: string, resource: string, body: { metadata: Fields }, code: number][] = [
      ["a change", "pods", createPod({ name: "dry" }, {}, { imagePullPolicy: "Never" }), 201],
      ["a refusal", "services", createService("dry", ["192.0.2.1"]), 403],
    ];
    for (const [what, resource, body, code] of table)
      it(`the dry run of ${what} gets the response that the real request gets, and stores nothing`, async () => {
        const [dryRun, dryRunReports] = await postern.during(() =>
          create(clusterOne.admin, `${getPath(resource)}?dryRun=All`, body),
        );
        assert.equal((await clusterOne.admin({ method: "GET", path: `${getPath(resource)}/dry` })).code, 404);
        const [realRun, realReports] = await postern.during(() => create(clusterOne.admin, getPath(resource), body));
        assert.deepEqual(dropVaryingFields(dryRun), dropVaryingFields(realRun));
        assert.equal(dryRun.code, code);
        const summarize = (reports: AnsweredReviewFacts[]) =>
          reports.map(({ rule, phase, refused, operations }) => ({ rule, phase, refused, operations }));
        assert.deepEqual(summarize(dryRunReports), summarize(realReports));
        assert.deepEqual([...new Set(dryRunReports.map(({ request }) => request?.dryRun))], [true]);
        assert.deepEqual([...new Set(realReports.map(({ request }) => request?.dryRun))], [false]);
      });
  });

  describe("the API server's report of an endpoint's failure", () => {
    let postern: Serving;
    const changeRequest =
      (change: Partial<GatewayRequest>) =>
      (handler: GatewayHandler): GatewayHandler =>
      (received) =>
        handler({ ...received, ...change });
    const changedRequests: Record<string, (handler: GatewayHandler) => GatewayHandler> = {
      "gives-400": changeRequest({ body: Buffer.from("{") }),
      "gives-404": changeRequest({ path: "/local.nobody/gives-404/validate" }),
      "gives-405": changeRequest({ method: "GET" }),
      "gives-415": changeRequest({ headers: { "content-type": "text/plain" } }),
    };
    // The ConfigMap is small enough to be stored. In a review, it has six times as many bytes, because the API server
    // writes each `<` as \u003c.
    const large = { text: "<".repeat(1_000_000) };
    const throwError = () => {
      throw new Error("what a rule may not do");
    };
    const needs = { node: get("nodes") };
    const reading = rule<object, object, typeof needs>({
      summary: "Reads a node.",
      needs,
      match: configMaps,
      async validate(_, { node }) {
        await node({ name: "n1" });
      },
    });
    const table: { code: number; sentence: string; data?: Fields; rule?: Partial<Rule> }[] = [
      { code: 400, sentence: "the body is not JSON (at position 1); an AdmissionReview is expected" },
      { code: 404, sentence: "there is nothing here" },
      { code: 405, sentence: "GET is not answered here; a review is sent by POST" },
      { code: 413, sentence: "the review is larger than the 6291456 bytes that Lambda takes", data: large },
      { code: 415, sentence: 'the content type is "text/plain"; a review is application/json' },
      { code: 500, sentence: "the rule failed: Error: what a rule may not do", rule: { validate: throwError } },
      { code: 503, sentence: 'nothing can be read from cluster "local": it has no connection here', rule: reading },
      {
        code: 504,
        sentence: "the rule did not answer in time",
        rule: { timeoutSeconds: 1, validate: () => new Promise(() => {}) },
      },
    ];
    const cases = table.flatMap((row) =>
      ["Ignore", "Fail"].map((policy) => ({ ...row, policy, name: `gives-${row.code}-${policy.toLowerCase()}` })),
    );
    before(async () => {
      const rules = cases.map(({ name, rule }) =>
        buildTestRule(name, createPhaseRule("validate", { summary: "Fails.", ...rule, ...matchByName(name) })),
      );
      const yaml = `rules: { ${cases.map(({ name, policy }) => `${name}: { failurePolicy: ${policy} }`).join(", ")} }`;
      postern = await startServing(rules, yaml, {
        wrapHandler: (name, handler) => changedRequests[name.replace(/-[a-z]+$/, "")]?.(handler) ?? handler,
      });
      await postern.apply();
    });
    after(() => postern.stop());

    for (const { code, name, policy, sentence, data } of cases)
      it(`an endpoint's status ${code}, with failurePolicy ${policy}: ${policy === "Ignore" ? "the audit log names the webhook" : "the answer has the sentence"}`, async () => {
        const answer = await create(clusterOne.admin, getPath("configmaps"), createConfigMap(name, data));
        if (policy === "Ignore") {
          assert.equal(answer.code, 201);
          const notes = await readAuditAnnotations(answer);
          const ignored = notes.filter(([key]) => key.startsWith("failed-open.validating.webhook.admission.k8s.io/"));
          return assert.deepEqual(
            ignored.map(([, webhook]) => webhook),
            [`${name}.postern.dev`],
          );
        }
        assert.deepEqual([answer.code, answer.body.reason], [500, "InternalError"]);
        const start = `Internal error occurred: failed calling webhook "${name}.postern.dev": failed to call webhook: `;
        assert.equal(answer.body.message, start + sentence);
      });
  });

  it("the API server gets an answer to a review that is too large, before it has sent the whole body", async () => {
    const rules = [buildTestRule("vast", createPhaseRule("mutate", { summary: "Is called before API validation." }))];
    await runWhileServing(rules, "rules: { vast: { failurePolicy: Fail } }", async () => {
      // In the review, each `<` has six bytes, so the review is larger than the 10 MB that API Gateway takes.
      const configMap = createConfigMap("vast", { text: "<".repeat(3_000_000) });
      const answer = await create(clusterOne.admin, getPath("configmaps"), configMap);
      const failure = 'failed calling webhook "vast.postern.dev": failed to call webhook:';
      const sentence = "the review is larger than the 6291456 bytes that Lambda takes";
      assert.equal(answer.body.message, `Internal error occurred: ${failure} ${sentence}`);
    });
  });

  for (const mode of ["warn", "audit"])
    describe(`rules in mode ${mode}`, () => {
      let postern: Serving;
      before(async () => {
        const names = ["always-pull-images", "deny-service-external-ips"];
        const yaml = `rules: { ${names.map((name) => `${name}: { mode: ${mode} }`).join(", ")} }`;
        postern = await startServing(selectRules(...names), yaml);
        await postern.apply();
      });
      after(() => postern.stop());

      const pull = 'spec.containers[0].imagePullPolicy: Unsupported value: "Never": supported values: "Always"';
      const table: [resource: string, outcome: string, body: Fields, annotations: Record<string, string>][] = [
        [
          "pods",
          "changed, or denied",
          createPod({ name: mode }, {}, { imagePullPolicy: "Never" }),
          {
            "always-pull-images.postern.dev/would-change": "/spec/containers/0/imagePullPolicy",
            "always-pull-images.postern.dev/would-deny": `pods "${mode}" is forbidden: ${pull}`,
          },
        ],
        [
          "services",
          "denied",
          createService(mode, ["192.0.2.1"]),
          {
            "deny-service-external-ips.postern.dev/would-deny": `services "${mode}" is forbidden: Use of external IPs is denied by admission control`,
          },
        ],
      ];
      for (const [resource, outcome, body, annotations] of table)
        it(`a report says that an object would be ${outcome}, and the object is stored unchanged`, async () => {
          const answer = await create(clusterOne.admin, getPath(resource), body);
          assert.equal(answer.code, 201);
          const warnings = answer.warnings.filter((text) => / would (deny|change): /.test(text));
          const expectedWarnings = Object.entries(annotations).map(([key, what]) => {
            return `${key.replace(".postern.dev/would-", " would ")}: ${what}`;
          });
          assert.deepEqual(warnings, mode === "warn" ? expectedWarnings : []);
          const storedObject = await clusterOne.admin({ method: "GET", path: `${getPath(resource)}/${mode}` });
          assert.partialDeepStrictEqual(storedObject.body.spec, body.spec);
          const notes = await readAuditAnnotations(answer);
          const notesOfRules = notes.filter(([key]) => key.includes(".postern.dev/"));
          assert.deepEqual(Object.fromEntries(notesOfRules), mode === "audit" ? annotations : {});
        });
    });

  describe("exempt requests", () => {
    let postern: Serving;
    const looking = rule({ summary: "Looks at it.", timeoutSeconds: 2, match: configMaps, mutate() {}, validate() {} });
    const exemptions: Record<string, string> = {
      namespaces: "{ exempt: { namespaces: [spared] } }",
      labels: "{ exempt: { namespaceLabels: { spared: by-label } } }",
      users: "{ exempt: { users: [jane] } }",
      groups: "{ exempt: { groups: [developers] } }",
      both: "{ exempt: { namespaces: [spared], users: [jane] } }",
      closed: "{ failurePolicy: Fail }",
      everywhere: "{ failurePolicy: Fail, exempt: { namespaces: [] } }",
    };
    const namespaces: Record<string, Fields> = {
      spared: {},
      labelled: { spared: "by-label" },
      mislabelled: { spared: "no" },
      "kube-system": {},
      "kube-node-lease": {},
    };
    before(async () => {
      for (const [name, labels] of Object.entries(namespaces)) {
        const body = { apiVersion: "v1", kind: "Namespace", metadata: { name, labels } };
        assert.ok([201, 409].includes((await create(clusterOne.admin, "/api/v1/namespaces", body)).code));
      }
      const rules = Object.keys(exemptions).map((name) => buildTestRule(name, looking));
      const setups = Object.entries(exemptions).map(([name, setup]) => `${name}: ${setup}`);
      postern = await startServing(rules, `rules: { ${setups.join(", ")} }`);
      await postern.apply();
    });
    after(() => postern.stop());

    const allRules = Object.keys(exemptions);
    const table: [sentence: string, user: "admin" | "jane", namespace: string, exemptRules: string[]][] = [
      ["nothing is exempt by default", "admin", "default", []],
      ["a namespace by name", "admin", "spared", ["namespaces", "both"]],
      ["a namespace by label", "admin", "labelled", ["labels"]],
      ["not a namespace with another label", "admin", "mislabelled", []],
      ["a user, or a group", "jane", "default", ["users", "groups", "both"]],
      ["kube-system, if the entry fails closed", "admin", "kube-system", ["closed"]],
      ["kube-node-lease, if the entry fails closed", "admin", "kube-node-lease", ["closed"]],
    ];
    for (const [index, [sentence, user, namespace, exempt]] of table.entries())
      it(`rules are not called for exempt requests: ${sentence}`, async () => {
        const client = user === "admin" ? clusterOne.admin : clusterOne.as(user);
        const [answer, reports] = await postern.during(() =>
          create(client, getPath("configmaps", namespace), createConfigMap(`exempt-${index}`)),
        );
        assert.equal(answer.code, 201);
        const listCalled = (phase: Phase) => reports.filter((report) => report.phase === phase).map(({ rule }) => rule);
        const wanted = allRules.filter((name) => !exempt.includes(name));
        assert.deepEqual(listCalled("mutate"), wanted);
        assert.deepEqual(listCalled("validate").sort(), wanted.toSorted());
      });
  });

  it("rules are called for a namespace whose label kubernetes.io/metadata.name names an exempt namespace", async () => {
    const namespaces = configMaps.map((match) => ({ ...match, resources: ["namespaces"] }));
    const looking = rule({ summary: "Looks at it.", match: namespaces, mutate() {}, validate() {} });
    await runWhileServing(
      [buildTestRule("names", looking)],
      "rules: { names: { exempt: { namespaces: [spared] } } }",
      async (postern) => {
        // The API server generates a name only after it has called the mutating webhooks.
        const table: [metadata: Fields, phases: Phase[]][] = [
          [{ name: "claiming" }, ["mutate", "validate"]],
          [{ generateName: "claiming-" }, ["validate"]],
        ];
        for (const [metadata, phases] of table) {
          const labels = { "kubernetes.io/metadata.name": "spared" };
          const body = { apiVersion: "v1", kind: "Namespace", metadata: { ...metadata, labels } };
          const [answer, reports] = await postern.during(() => create(clusterOne.admin, "/api/v1/namespaces", body));
          assert.equal(answer.code, 201);
          assert.deepEqual(
            reports.map(({ phase }) => phase),
            phases,
          );
        }
      },
    );
  });

  it("objects in kube-system are stored if no endpoint responds and each failurePolicy is Fail", async () => {
    const match = [{ apiGroups: ["*"], apiVersions: ["*"], resources: ["*/*"], operations: ["*" as const] }];
    const rules = [buildTestRule("everything", rule({ summary: "Validates everything.", match, validate() {} }))];
    const postern = await startServing(rules, "rules: { everything: { failurePolicy: Fail } }");
    await postern.apply();
    await postern.close();
    const table: [path: string, body: unknown, code: number][] = [
      [getPath("configmaps"), createConfigMap("healing"), 500],
      ["/api/v1/nodes", { apiVersion: "v1", kind: "Node", metadata: { name: "healing" } }, 500],
      [getPath("configmaps", "kube-system"), createConfigMap("healing"), 201],
      [getPath("pods", "kube-system"), createPod({ name: "healing" }), 201],
    ];
    for (const [path, body, code] of table) assert.equal((await create(clusterOne.admin, path, body)).code, code, path);
    await postern.stop();
    assert.equal((await create(clusterOne.admin, getPath("configmaps"), createConfigMap("healed"))).code, 201);
  });

  it("leases, events and node statuses are stored while the endpoint of a rule for all resources hangs", async () => {
    const { admin } = clusterOne;
    const everything = [{ apiGroups: ["*"], apiVersions: ["*"], resources: ["*/*"], operations: ["*" as const] }];
    const rules = (["mutate", "validate"] as const).map((phase) =>
      buildTestRule(`hangs-to-${phase}`, createPhaseRule(phase, { match: everything, timeoutSeconds: 1 })),
    );
    const section = "{ failurePolicy: Fail, exempt: { namespaces: [] } }";
    const yaml = `rules: { ${rules.map(({ name }) => `${name}: ${section}`).join(", ")} }`;
    const released = Promise.withResolvers<void>();
    let isHanging = false;
    const postern = await startServing(rules, yaml, {
      wrapHandler: (_, handler) => async (received) => {
        if (isHanging) await released.promise;
        return handler(received);
      },
    });
    const node = { apiVersion: "v1", kind: "Node", metadata: { name: "alive" } };
    const lease = { apiVersion: "coordination.k8s.io/v1", kind: "Lease", metadata: { name: "alive" } };
    const involvedObject = { namespace: "default" };
    const event = { apiVersion: "v1", kind: "Event", metadata: { name: "alive" }, involvedObject };
    const leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    const patch = (path: string, body: object) =>
      admin({ method: "PATCH", path, contentType: "application/merge-patch+json", body });
    try {
      await postern.apply();
      assert.equal((await create(admin, "/api/v1/nodes", node)).code, 201);
      assert.ok(postern.reports.some(({ request }) => request?.resource.resource === "nodes"));
      isHanging = true;
      const start = postern.reports.length;
      const { code, body } = await create(admin, getPath("configmaps"), createConfigMap("hanging"));
      assert.equal(code, 500);
      assert.match(
        String(body.message),
        /failed calling webhook "hangs-to-mutate.postern.dev": .*https:.*\/local\.[\w-]{86}\/hangs-to-mutate\/mutate\?timeout=1s": context deadline exceeded/,
      );
      const conditions = [{ type: "Ready", status: "True" }];
      assert.equal((await create(admin, leases, lease)).code, 201);
      assert.equal((await patch(`${leases}/alive`, { spec: { holderIdentity: "a" } })).code, 200);
      assert.equal((await patch("/api/v1/nodes/alive/status", { status: { conditions } })).code, 200);
      assert.equal((await create(admin, getPath("events"), event)).code, 201);
      assert.equal((await admin({ method: "DELETE", path: `${leases}/alive` })).code, 200);
      released.resolve();
      await waitUntil("the hanging call has no end", () => postern.reports.length > start);
      assert.deepEqual(
        [...new Set(postern.reports.slice(start).map(({ request }) => request?.resource.resource))],
        ["configmaps"],
      );
    } finally {
      isHanging = false;
      released.resolve();
      await admin({ method: "DELETE", path: "/api/v1/nodes/alive" });
      await postern.stop();
    }
  });

  describe("an API server whose entries have a key in their URLs", () => {
    const ownSigner = createTestSigner(1);
    const otherSigner = createTestSigner(9);
    let postern: Serving;
    before(async () => {
      const rules = "rules: { deny-service-external-ips: { failurePolicy: Fail } }";
      const second = "two: { keyVersion: 3, rules: { deny-service-external-ips: { mode: warn } } }";
      postern = await startServing(
        selectRules("deny-service-external-ips"),
        `${rules}\nclusters: { one: , ${second} }`,
      );
      await postern.apply({ cluster: "one" });
      await postern.apply({ cluster: "two" }, clusterTwo);
    });
    after(async () => {
      await deleteTestWebhookConfigurations(clusterTwo.admin, postern.manifests({ cluster: "two" }), detector);
      await deleteTestWebhookConfigurations(clusterOne.admin, postern.manifests({ cluster: "one" }), detector);
      await postern.close();
    });

    it("each cluster gets answers by its own settings in postern.yaml, not by another cluster's", async () => {
      const external = createService("keys", ["192.0.2.1"]);
      const [answers, reports] = await postern.during(async () => [
        await create(clusterOne.admin, getPath("services"), external),
        await create(clusterTwo.admin, getPath("services"), external),
      ]);
      assert.deepEqual(
        answers.map(({ code, warnings }) => [code, warnings.some((text) => / would deny: /.test(text))]),
        [
          [403, false],
          [201, true],
        ],
      );
      const id = ownSigner.publicKey.slice(0, 8);
      assert.deepEqual(
        reports.map(({ cluster, key }) => [cluster, key]),
        [
          ["one", `${id}.1`],
          ["two", `${id}.3`],
        ],
      );
    });

    const getSignature = (segment: string) => segment.split(".")[1];
    const table: [key: string, segment: string][] = [
      ["the key of another cluster", `one.${getSignature(ownSigner.segment("two", 3))}`],
      ["its own key with another cluster's name", `two.${getSignature(ownSigner.segment("one"))}`],
      ["a key of a version that postern.yaml doesn't have", ownSigner.segment("one", 2)],
      ["a key of another signer", otherSigner.segment("one")],
      ["no key", "one"],
    ];
    for (const [index, [key, segment]] of table.entries())
      it(`the API server's call fails with ${key}`, async () => {
        await postern.apply({ cluster: "one", signer: { ...ownSigner, segment: () => segment } });
        const [answer, reports] = await postern.during(() =>
          create(clusterOne.admin, getPath("services"), createService(`wrong-${index}`, ["192.0.2.1"])),
        );
        const prefix = 'failed calling webhook "deny-service-external-ips.postern.dev": failed to call webhook:';
        assert.equal(answer.body.message, `Internal error occurred: ${prefix} there is nothing here`);
        assert.deepEqual(
          reports.map(({ code, cluster }) => [code, cluster]),
          [[404, undefined]],
        );
      });
  });

  describe("a change of the keys in URLs", () => {
    const closed = "rules: { always-pull-images: { failurePolicy: Fail } }";
    const buildYaml = (list: string) => `${closed}\nclusters: { local: { keyVersion: ${list} } }`;
    const [first, second] = [createTestSigner(1), createTestSigner(2)];
    const bothKeys = `${first.publicKey},${second.publicKey}`;
    type Stage = (postern: Serving) => unknown;
    const table: { what: string; stages: [Stage, Stage, Stage]; keys: [string, string] }[] = [
      {
        what: "from one signing key to the next",
        stages: [
          ({ serve }) => serve(closed, bothKeys),
          ({ apply }) => apply({ signer: second }),
          ({ serve }) => serve(closed, second.publicKey),
        ],
        keys: [`${first.publicKey.slice(0, 8)}.1`, `${second.publicKey.slice(0, 8)}.1`],
      },
      {
        what: "from one key version to the next",
        stages: [
          ({ serve }) => serve(buildYaml("[1, 2]")),
          ({ apply }) => apply(),
          ({ serve }) => serve(buildYaml("2")),
        ],
        keys: [`${first.publicKey.slice(0, 8)}.1`, `${first.publicKey.slice(0, 8)}.2`],
      },
    ];
    for (const { what, stages, keys } of table)
      it(`rules are called without a failure while URLs change ${what}`, async () => {
        const postern = await startServing(selectRules("always-pull-images"), closed);
        const clients = createClients(clusterOne.admin);
        try {
          await postern.apply();
          clients.start();
          await clients.waitForMorePods();
          for (const stage of stages) {
            await stage(postern);
            // The next stage may remove a key only after the requests that use this key have been answered.
            await clients.waitForMorePods();
          }
          const answers = await clients.stop();
          const failed = answers.filter(({ code }) => code !== 201).map(({ body }) => body.message);
          assert.deepEqual(failed, []);
          const policies = answers.map(({ body }) => (body as Pod).spec?.containers[0]?.imagePullPolicy);
          assert.deepEqual([...new Set(policies)], ["Always"]);
          const usedKeys = postern.reports.map(({ key }) => key);
          assert.deepEqual([...new Set(usedKeys)], keys);
        } finally {
          await clients.stop();
          await postern.stop();
        }
      });
  });
});

/** Creates a rule for one phase that does nothing, unless the definition has a function for it. */
const createPhaseRule = (phase: Phase, definition: Partial<Rule>): Rule =>
  ({ match: configMaps, [phase]: () => {}, ...definition }) as Rule;

/** Returns a response without the fields that differ between any two responses. */
const dropVaryingFields = ({ code, body, warnings }: TestClusterResponse) => {
  const varying = ["uid", "creationTimestamp", "resourceVersion", "managedFields", "clusterIP", "clusterIPs"];
  const comparable = JSON.parse(JSON.stringify(body, (key, value) => (varying.includes(key) ? undefined : value)));
  return { code, body: comparable, warnings };
};

/** Returns eight clients that create pods from `start` to `stop`. */
const createClients = (client: TestClusterClient) => {
  const counts = Array.from({ length: 8 }, () => 0);
  const answers: TestClusterResponse[] = [];
  let isStopped = false;
  let running: Promise<unknown> = Promise.resolve();
  const run = async (index: number) => {
    while (!isStopped) {
      const body = createPod({ generateName: "crowd-" }, {}, { imagePullPolicy: "Never" });
      answers.push(await create(client, getPath("pods"), body));
      counts[index] = (counts[index] ?? 0) + 1;
    }
  };
  return {
    start: () => {
      running = Promise.all(counts.map((_, index) => run(index)));
    },
    /** Waits until each client has created five more pods. */
    waitForMorePods: async () => {
      const wanted = counts.map((count) => count + 5);
      await waitUntil("pods are no longer answered", () =>
        counts.every((count, index) => count >= (wanted[index] ?? 0)),
      );
    },
    stop: async () => {
      isStopped = true;
      await running;
      return answers;
    },
  };
};
