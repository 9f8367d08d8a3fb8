import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { createLiveCapabilities } from "#lib/cluster/live-capabilities.ts";
import { createMemoryLedger } from "#lib/ledger.ts";
import { readCatalogue } from "../../infra/catalogue/registry.ts";
import { discoverClusterResources } from "../../infra/check/live/discovery.ts";
import { type ApiGet, openApiReader } from "../../infra/check/live/reader.ts";
import { readOrCreateServerCertificate } from "../../infra/keys/keys.ts";
import { printConfig, runAudit, runJsonAudit } from "../audits.ts";
import { buildKubeconfig } from "../checkout.ts";
import { requireBinaries } from "../control-plane/binaries.ts";
import type { TestClusterClient } from "../control-plane/client.ts";
import { bootCluster, type TestCluster } from "../control-plane/cluster.ts";
import {
  createTestWebhookConfigurations,
  extendWebhookTimeoutsForTests,
  serveTestRules,
  waitUntil,
  waitUntilWebhooksCalled,
} from "../parity/rule-server.ts";
import { buildReviewAnswer, openScriptedWebhookEndpoints } from "../parity/scripted-endpoints.ts";
import { needs } from "../parts.ts";
import { readRows } from "../rows.ts";

// `npx postern check --live` must give each object of a cluster the verdict that the cluster itself would give.
type AnyObject = Record<string, any>;

describe("an audit of a cluster", await needs("API server"), () => {
  let folder: string;
  let cluster: TestCluster;
  let admin: TestClusterClient;
  const stops: (() => Promise<unknown>)[] = [];
  const rules = ["always-pull-images", "allowed-registries", "security-context-deny", "deny-service-external-ips"];
  const yaml = printConfig(
    [
      "  always-pull-images: { exempt: { namespaceLabels: { pull: never } } }",
      "  allowed-registries: { settings: { registries: [docker.io] } }",
      "  security-context-deny: { mode: warn }",
      "  deny-service-external-ips:",
      "  limit-ranger:\n",
    ].join("\n"),
  );
  /** The objects that the test created, as the API server returned them. */
  const created: AnyObject[] = [];

  const createObjects = async (path: string, bodies: AnyObject[]) => {
    for (let start = 0; start < bodies.length; start += 20)
      await Promise.all(
        bodies.slice(start, start + 20).map(async (body) => {
          const { code, body: answer } = await admin({ method: "POST", path, body });
          assert.equal(code, 201, String(answer.message));
          created.push(answer);
        }),
      );
  };
  const createList = <T>(length: number, create: (index: number) => T) =>
    Array.from({ length }, (_, index) => create(index));

  before(async () => {
    const binaries = await requireBinaries();
    folder = await mkdtemp(join(tmpdir(), "postern-audited-"));
    cluster = await bootCluster(binaries, { rbac: true, disable: ["ServiceAccount"] });
    stops.push(cluster.stop);
    admin = cluster.admin;
    await writeFile(join(folder, "kubeconfig"), buildKubeconfig({ c: cluster }));
    await writeFile(join(folder, "janes"), buildKubeconfig({ c: cluster }, "jane"));
    await writeFile(join(folder, "postern.yaml"), yaml);
    await defineKind(admin, "Widget", "widgets", "example.com", "Namespaced", ["v1", "v1beta1"]);
    await createObjects(
      "/api/v1/namespaces",
      createList(6, (index) => ({ metadata: { name: `n${index}`, labels: index === 3 ? { pull: "never" } : {} } })),
    );
    const limits = [{ type: "Container", max: { cpu: "1" }, defaultRequest: { cpu: "10m" } }];
    await createObjects("/api/v1/namespaces/n4/limitranges", [{ metadata: { name: "l" }, spec: { limits } }]);
    for (let namespace = 0; namespace < 6; namespace++) {
      const images = ["docker.io/a:1", "evil.example/a:1", "docker.io/b"];
      const pods = createList(20, (index) => ({
        metadata: { name: `p${index}`, labels: { odd: String(index % 2) } },
        spec: {
          ...(index % 7 === 0 && { securityContext: { runAsUser: 1 } }),
          containers: [
            {
              name: "a",
              image: images[index % 3],
              resources: index % 5 === 0 ? { requests: { cpu: "500m" }, limits: { cpu: "900m" } } : {},
            },
          ],
        },
      }));
      await createObjects(`/api/v1/namespaces/n${namespace}/pods`, pods);
      const services = createList(10, (index) => ({
        metadata: { name: `s${index}` },
        spec: { ports: [{ port: 80 }], ...(index % 4 === 0 && { externalIPs: ["1.2.3.4"] }) },
      }));
      await createObjects(`/api/v1/namespaces/n${namespace}/services`, services);
      const widgets = createList(10, (index) => ({
        apiVersion: "example.com/v1",
        kind: "Widget",
        metadata: { name: `w${index}` },
        spec: { size: index },
      }));
      await createObjects(`/apis/example.com/v1/namespaces/n${namespace}/widgets`, widgets);
    }
    // The rules are registered only now, so all objects exist already.
    const certificate = await readOrCreateServerCertificate(folder, "127.0.0.1");
    const endpoints = await openScriptedWebhookEndpoints(certificate, {
      more: (review) => {
        const patch = [{ op: "add", path: "/data/more", value: "bW9yZQ==" }];
        const encoded = Buffer.from(JSON.stringify(patch)).toString("base64");
        return { body: buildReviewAnswer(review, { patchType: "JSONPatch", patch: encoded }) };
      },
      sizes: (review) => {
        const { object } = Object(review.request);
        const isLarge = Number(object?.spec?.size) > 7;
        const status = { code: 422, message: `a widget of ${object?.metadata?.namespace} is too large` };
        return { body: buildReviewAnswer(review, isLarge ? { allowed: false, status } : {}) };
      },
    });
    stops.push(endpoints.stop);
    const { server, ca, getToken } = cluster;
    const ledger = createMemoryLedger();
    const openCapabilities = createLiveCapabilities(
      { c: { server, ca, credentials: { token: getToken("admin") } } },
      { openLedger: () => ledger },
    );
    const catalogue = await readCatalogue();
    const servedRules = catalogue.filter(({ name }) => [...rules, "limit-ranger"].includes(name));
    const ruleServer = await serveTestRules(servedRules, yaml, { certificate, openCapabilities });
    stops.push(ruleServer.stop);
    await createTestWebhookConfigurations(admin, extendWebhookTimeoutsForTests(ruleServer.manifests()));
    const sizesConfiguration = {
      apiVersion: "admissionregistration.k8s.io/v1",
      kind: "ValidatingWebhookConfiguration",
      metadata: { name: "sizes" },
      webhooks: [
        {
          name: "sizes.example.com",
          sideEffects: "None",
          admissionReviewVersions: ["v1"],
          clientConfig: { url: `${endpoints.url}/sizes`, caBundle: Buffer.from(certificate.ca).toString("base64") },
          // Widgets are stored as v1, so the API server converts them for this webhook.
          rules: [
            { apiGroups: ["example.com"], apiVersions: ["v1beta1"], resources: ["widgets"], operations: ["CREATE"] },
          ],
        },
      ],
    };
    await writeFile(join(folder, "sizes.json"), JSON.stringify(sizesConfiguration));
    const moreConfiguration = {
      apiVersion: sizesConfiguration.apiVersion,
      kind: "MutatingWebhookConfiguration",
      metadata: { name: "more" },
      webhooks: [
        {
          ...sizesConfiguration.webhooks[0],
          name: "more.example.com",
          clientConfig: { ...sizesConfiguration.webhooks[0]?.clientConfig, url: `${endpoints.url}/more` },
          rules: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["secrets"], operations: ["CREATE"] }],
        },
      ],
    };
    await writeFile(join(folder, "more.json"), JSON.stringify(moreConfiguration));
    const configurations = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    await admin({ method: "POST", path: configurations, body: sizesConfiguration });
    let isCalled = false;
    await waitUntilWebhooksCalled(
      async () => {
        const spec = { containers: [{ name: "a", image: "evil.example/a" }] };
        const body = { metadata: { name: "probe" }, spec };
        const pod = await admin({ method: "POST", path: "/api/v1/namespaces/n0/pods?dryRun=All", body });
        const widget = { apiVersion: "example.com/v1", kind: "Widget", metadata: { name: "probe" }, spec: { size: 9 } };
        const path = "/apis/example.com/v1/namespaces/n0/widgets?dryRun=All";
        const second = await admin({ method: "POST", path, body: widget });
        isCalled = pod.code === 403 && second.code === 422;
      },
      () => isCalled,
    );
  });
  after(async () => {
    await Promise.all(stops.map((stop) => stop()));
    await rm(folder, { recursive: true, force: true });
  });

  const webhookOptions = ["--webhooks", "sizes.json", "--call", "loopback"];

  it("an audit lists each object once, with the verdict that the object's creation would get", async () => {
    const options = [...webhookOptions, "--page", "50"];
    const { code, objects, summary, faults, notes, stderr } = await runJsonAudit(folder, options);
    assert.equal(code, 1);
    assert.deepEqual([faults, notes, summary.undecided], [[], [], 0], stderr);
    assert.match(stderr, /^ +\d+\.\d s {2}pods: 120 objects, \d+ denied$/m);
    assert.match(stderr, /^ +\d+\.\d s {2}widgets\.example\.com: 60 objects, 12 denied$/m);
    const byUid = new Map(objects.map((object) => [object.uid, object]));
    assert.equal(byUid.size, objects.length);
    const evaluated = created.filter(({ kind }) => ["Pod", "Service", "Widget"].includes(kind));
    const outcomes: Record<string, number> = {};
    /** Creates an object again in a dry run, and compares the API server's answer with the audit's verdict. */
    const compareVerdict = async (object: AnyObject) => {
      const { kind, apiVersion, metadata, spec } = object;
      const { clusterIP: _, clusterIPs: __, ...rest } = spec;
      const { name, namespace, labels } = metadata;
      const root = apiVersion.includes("/") ? `/apis/${apiVersion}` : `/api/${apiVersion}`;
      const path = `${root}/namespaces/${namespace}/${kind.toLowerCase()}s?dryRun=All`;
      const body = { apiVersion, kind, metadata: { name, labels }, spec: kind === "Service" ? rest : spec };
      const { code, body: answer, warnings } = await admin({ method: "POST", path, body });
      const title = `${kind} ${namespace}/${name}`;
      const auditedObject = byUid.get(metadata.uid);
      assert.ok(auditedObject, title);
      outcomes[`${kind} ${auditedObject.verdict}`] = (outcomes[`${kind} ${auditedObject.verdict}`] ?? 0) + 1;
      // The object exists, so a creation that admission allows ends with a conflict.
      if (auditedObject.verdict !== "denied") assert.equal(code, 409, `${title}: ${answer.message}`);
      else {
        const messages = auditedObject.denials.map(({ rule, message }) => `${rule}: ${message}`);
        const [, hook = "", text] = /"(.*?)" denied the request: (.*)$/s.exec(String(answer.message)) ?? [];
        assert.ok(messages.includes(`${hook.replace(".postern.dev", "")}: ${text}`), `${title}: ${answer.message}`);
      }
      const warningsOfAudit = auditedObject.warnings.map(({ rule, text }) => `${rule} ${text}`);
      const warningsOfServer = warnings.filter((warning) => warning.includes(" would deny: "));
      assert.deepEqual(warningsOfAudit, warningsOfServer, title);
    };
    for (let start = 0; start < evaluated.length; start += 8)
      await Promise.all(evaluated.slice(start, start + 8).map(compareVerdict));
    const expected = "Pod denied, Pod changed, Pod allowed, Service denied, Service allowed, Widget denied";
    for (const outcome of expected.split(", ")) assert.ok(outcomes[outcome], JSON.stringify(outcomes));
  });

  it("an audit covers only the namespaces of --namespace, and fails if such a namespace doesn't exist", async () => {
    const { objects } = await runJsonAudit(folder, ["--namespace", "n1,n3", "--rules", "always-pull-images"]);
    assert.deepEqual([...new Set(objects.map(({ namespace }) => namespace))], ["n1", "n3"]);
    assert.equal(objects.length, 40);
    // A label exempts namespace n3.
    const changed = objects.filter(({ verdict }) => verdict === "changed").map(({ namespace }) => namespace);
    assert.deepEqual([...new Set(changed)], ["n1"]);
    const { code, stderr } = await runAudit(folder, ["--namespace", "nowhere"]);
    assert.equal(code, 2);
    assert.equal(stderr, '--namespace nowhere: the API server answers 404: namespaces "nowhere" not found\n');
  });

  it("an audit evaluates the cluster's plugins and policies with the cluster's objects that they read", async () => {
    /** Returns a request that sets the Pod Security label of namespace n5. */
    const buildLabelRequest = (level: string | null) => ({
      method: "PATCH" as const,
      path: "/api/v1/namespaces/n5",
      contentType: "application/merge-patch+json",
      body: { metadata: { labels: { "pod-security.kubernetes.io/enforce": level } } },
    });
    const api = "/apis/admissionregistration.k8s.io/v1";
    const rule = { apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE"] };
    const namespaceSelector = { matchLabels: { "kubernetes.io/metadata.name": "n1" } };
    const matchConstraints = { resourceRules: [rule], namespaceSelector };
    const metadata = { name: "closed" };
    const expression = "Object{metadata: Object.metadata{labels: {'closed': 'yes'}}}";
    const mutations = [{ patchType: "ApplyConfiguration", applyConfiguration: { expression } }];
    const mutating = { metadata, spec: { matchConstraints, mutations, reinvocationPolicy: "Never" } };
    const validations = [{ expression: "object.metadata.labels[?'closed'].orValue('') != 'yes'", message: "closed" }];
    const validating = { metadata, spec: { matchConstraints, validations } };
    const binding = { metadata, spec: { policyName: "closed" } };
    const denying = { metadata, spec: { policyName: "closed", validationActions: ["Deny"] } };
    const limits = [{ type: "Container", max: { cpu: "600m" } }];
    const bodies: [path: string, body: AnyObject][] = [
      ["/api/v1/namespaces/n4/limitranges", { metadata: { name: "small" }, spec: { limits } }],
      [`${api}/validatingadmissionpolicies`, validating],
      [`${api}/validatingadmissionpolicybindings`, denying],
      [`${api}/mutatingadmissionpolicies`, mutating],
      [`${api}/mutatingadmissionpolicybindings`, binding],
    ];
    const words = ["--namespace", "n1,n4,n5", "--rules", "always-admit", "--plugins=-ServiceAccount"];
    const countDenials = async (...options: string[]) => {
      const { objects, summary } = await runJsonAudit(folder, [...words, ...options]);
      assert.equal(summary.undecided, 0);
      const denials = objects.flatMap(({ kind, namespace, denials }) =>
        denials.map(({ rule, message }) => {
          const [policyMessage] = /^ValidatingAdmissionPolicy '.*/.exec(message.replace(/^.*?: /, "")) ?? [];
          return [kind, namespace, rule, ...(policyMessage === undefined ? [] : [policyMessage])].join(" ");
        }),
      );
      return Object.fromEntries([...Map.groupBy(denials, String)].map(([denial, all]) => [denial, all.length]));
    };
    assert.equal((await admin(buildLabelRequest("restricted"))).code, 200);
    try {
      for (const [path, body] of bodies) assert.equal((await admin({ method: "POST", path, body })).code, 201, path);
      const expectedCounts = { "Pod n4 LimitRanger": 20, "Pod n5 PodSecurity": 20 };
      const denial = "ValidatingAdmissionPolicy 'closed' with binding 'closed' denied request: closed";
      assert.deepEqual(await countDenials(), {
        ...expectedCounts,
        [`Pod n1 ValidatingAdmissionPolicy ${denial}`]: 20,
      });
      // One policy sets a label, and the other policy refuses objects with this label. Without the first policy, no
      // object is refused.
      assert.deepEqual(await countDenials("--plugins=-MutatingAdmissionPolicy"), expectedCounts);
    } finally {
      for (const [path, { metadata }] of bodies) await admin({ method: "DELETE", path: `${path}/${metadata.name}` });
      await admin(buildLabelRequest(null));
    }
  });

  it("an audit lets the cluster's authorizer answer the questions in a matchCondition", async () => {
    const { webhooks, ...configuration } = JSON.parse(await readFile(join(folder, "sizes.json"), "utf8"));
    const check = "authorizer.group('example.com').resource('widgets').namespace(request.namespace).check('approve')";
    // The API server doesn't call this webhook for users who may approve Widgets.
    const matchConditions = [{ name: "may-not-approve", expression: `!${check}.allowed()` }];
    const conditional = { ...configuration, webhooks: [{ ...webhooks[0], matchConditions }] };
    await writeFile(join(folder, "conditional.json"), JSON.stringify(conditional));
    const options = ["--webhooks", "conditional.json", "--call", "loopback", "--rules", "deny-service-external-ips"];
    const countWidgets = async (...user: string[]) => {
      const { objects } = await runJsonAudit(folder, [...options, ...user]);
      const verdicts = objects.filter(({ kind }) => kind === "Widget").map(({ verdict }) => verdict);
      return Object.fromEntries(
        [...new Set(verdicts)].map((verdict) => [verdict, verdicts.filter((other) => other === verdict).length]),
      );
    };
    assert.deepEqual(await countWidgets("--as", "jane"), { allowed: 48, denied: 12 });
    assert.deepEqual(await countWidgets("--as", "ann", "--as-group", "system:masters"), { allowed: 60 });
  });

  it("an audit lists the kinds that the user may not read, and evaluates the objects of all other kinds", async () => {
    const role = { metadata: { name: "looking" }, rules: [{ apiGroups: [""], resources: ["pods"], verbs: ["list"] }] };
    const rbac = "/apis/rbac.authorization.k8s.io/v1";
    await admin({ method: "POST", path: `${rbac}/clusterroles`, body: role });
    const binding = {
      metadata: { name: "looking" },
      roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "looking" },
      subjects: [{ apiGroup: "rbac.authorization.k8s.io", kind: "User", name: "jane" }],
    };
    await admin({ method: "POST", path: `${rbac}/clusterrolebindings`, body: binding });
    const rules = "deny-service-external-ips,allowed-registries";
    const options = ["--kubeconfig", "janes", "--rules", rules];
    const { code, objects, faults, stderr } = await runJsonAudit(folder, options);
    assert.equal(code, 1);
    assert.equal(objects.length, 120);
    const unreadKinds = "CronJob DaemonSet Deployment Job ReplicaSet ReplicationController Service StatefulSet";
    assert.deepEqual(faults.map(({ kind }) => kind).toSorted(), unreadKinds.split(" "));
    for (const { undecided } of objects)
      assert.equal(
        undecided.at(-1),
        "whether a MutatingAdmissionPolicy or a ResourceQuota or a ValidatingAdmissionPolicy matches it",
      );
    assert.match(
      stderr,
      /^resourcequotas could not be read whole, and may match any request: the API server answers 403/m,
    );
    assert.match(
      stderr,
      /^services could not be read whole: the API server answers 403: services is forbidden: .*jane/m,
    );
    // This rule exempts namespaces by a label that jane can't read.
    const withoutLabels = await runJsonAudit(folder, ["--kubeconfig", "janes", "--rules", "always-pull-images"]);
    assert.equal(withoutLabels.code, 3);
    assert.equal(withoutLabels.summary.undecided, 120);
    const [first] = withoutLabels.objects;
    assert.match(first?.undecided.join() ?? "", /^always-pull-images: whether its namespace has the label pull;/);
    assert.match(
      withoutLabels.notes.join("\n"),
      /^namespaces such as n0 can't be read, [^\n]*: [^\n]* 403: [^\n]*jane[^\n]*$/m,
    );
    // jane can't read Services, the only objects of this rule.
    const withoutObjects = await runAudit(folder, ["--kubeconfig", "janes", "--rules", "deny-service-external-ips"]);
    assert.equal(withoutObjects.code, 3);
  });

  it("an audit does not show the content of Secrets", async () => {
    const annotations = {
      "kubectl.kubernetes.io/last-applied-configuration": '{"kind":"Secret","data":{"password":"bW9yZQ=="}}',
    };
    const secret = { metadata: { name: "key", annotations }, stringData: { password: "correct horse" } };
    await createObjects("/api/v1/namespaces/n0/secrets", [secret]);
    const words = ["--webhooks", "more.json", "--call", "loopback", "--rules", "allowed-registries"];
    const { objects, stdout } = await runJsonAudit(folder, words);
    const found = objects.find(({ kind }) => kind === "Secret");
    assert.equal(found?.verdict, "changed");
    assert.match(JSON.stringify(found?.difference), /more: /);
    for (const text of ["correct horse", "more"]) assert.ok(!stdout.includes(Buffer.from(text).toString("base64")));
  });

  it("an audit evaluates the Pod of each workload's template once, even if no rule matches the workload", async () => {
    const labels = { app: "web" };
    const template = { metadata: { labels }, spec: { containers: [{ name: "a", image: "evil.example/web" }] } };
    const spec = { selector: { matchLabels: labels }, template };
    const deployment = { metadata: { name: "web" }, spec: { replicas: 3, ...spec } };
    await createObjects("/apis/apps/v1/namespaces/n0/deployments", [deployment]);
    const { uid } = created.at(-1)?.metadata ?? {};
    const owner = { apiVersion: "apps/v1", kind: "Deployment", name: "web", uid, controller: true };
    const replicaSet = { metadata: { name: "web-1", ownerReferences: [owner] }, spec: { replicas: 0, ...spec } };
    await createObjects("/apis/apps/v1/namespaces/n0/replicasets", [replicaSet]);
    const words = ["--namespace", "n0", "--rules", "allowed-registries"];
    const listVerdicts = async (...options: string[]) =>
      (await runJsonAudit(folder, [...words, ...options])).objects
        .filter(
          ({ uid, madeBy, kind }) =>
            madeBy !== undefined || (uid !== undefined && /^(Deployment|ReplicaSet)$/.test(kind)),
        )
        .map(({ kind, madeBy, verdict }) => [kind, ...(madeBy ? [`of ${madeBy}`] : []), verdict].join(" "));
    assert.deepEqual(await listVerdicts(), [
      "Deployment allowed",
      "Pod of Deployment web denied",
      "ReplicaSet allowed",
    ]);
    assert.deepEqual(await listVerdicts("--no-pod-templates"), []);
    const { stdout } = await runAudit(folder, words);
    assert.match(stdout, /^Deployment n0\/web \(its Pods\) denied$/m);
  });

  it("without the cluster's plugins, an audit is undecided about objects under a policy or a quota", async () => {
    const api = "/apis/admissionregistration.k8s.io/v1";
    const rule = { apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE"] };
    const namespaceSelector = { matchLabels: { "kubernetes.io/metadata.name": "n1" } };
    const policy = {
      metadata: { name: "closed" },
      spec: { matchConstraints: { resourceRules: [rule], namespaceSelector }, validations: [{ expression: "false" }] },
    };
    const binding = { metadata: { name: "closed" }, spec: { policyName: "closed", validationActions: ["Deny"] } };
    const quota = { metadata: { name: "none" }, spec: { hard: { pods: "0" } } };
    const bodies: [path: string, body: AnyObject][] = [
      [`${api}/validatingadmissionpolicies`, policy],
      [`${api}/validatingadmissionpolicybindings`, binding],
      ["/api/v1/namespaces/n2/resourcequotas", quota],
    ];
    for (const [path, body] of bodies) assert.equal((await admin({ method: "POST", path, body })).code, 201);
    try {
      const options = ["--namespace", "n1,n2,n3", "--rules", "always-pull-images"];
      const { code, objects } = await runJsonAudit(folder, options);
      assert.equal(code, 3);
      const byReason = Map.groupBy(objects, ({ namespace, undecided }) => `${namespace}: ${undecided.join()}`);
      assert.deepEqual(
        [...byReason].map(([reason, undecidedObjects]) => [reason, undecidedObjects.length]),
        [
          ["n1: ValidatingAdmissionPolicy closed matches it, and it can't be evaluated here", 20],
          ["n2: ResourceQuota: quota none of namespace n2 counts it, and is not evaluated here", 20],
          ["n3: ", 20],
        ],
      );
    } finally {
      for (const [path, body] of bodies) await admin({ method: "DELETE", path: `${path}/${body.metadata.name}` });
    }
  });

  it("an audit denies an object only if its amounts exceed what the other objects leave of a quota", async () => {
    const quotas: [namespace: string, hard: Record<string, string>, used: Record<string, string>][] = [
      ["n1", { "requests.cpu": "2" }, { "requests.cpu": "2" }],
      ["n2", { pods: "20", services: "9" }, { pods: "20", services: "10" }],
      ["n5", { pods: "19" }, { pods: "20" }],
    ];
    const template = { metadata: { labels: { a: "b" } }, spec: { containers: [{ name: "a", image: "docker.io/a" }] } };
    const spec = { replicas: 2, selector: { matchLabels: { a: "b" } }, template };
    const deployments = "/apis/apps/v1/namespaces/n2/deployments";
    const patch = (path: string, status: object) =>
      admin({ method: "PATCH", path, contentType: "application/merge-patch+json", body: { status } });
    const words = ["--namespace", "n1,n2,n3,n5", "--rules", "always-pull-images", "--plugins=-ServiceAccount"];
    const countVerdicts = async (...options: string[]) => {
      const { objects } = await runJsonAudit(folder, [...words, ...options]);
      const texts = objects.map(({ kind, namespace, madeBy, verdict, denials, undecided }) =>
        [
          madeBy ?? kind,
          namespace,
          verdict === "changed" ? "allowed" : verdict,
          ...denials.map(({ message }) => message.replace(/^.*?: /, "")),
          ...undecided,
        ].join(" "),
      );
      return Object.fromEntries([...Map.groupBy(texts, String)].map(([text, all]) => [text, all.length]));
    };
    try {
      for (const [namespace, hard, used] of quotas) {
        const path = `/api/v1/namespaces/${namespace}/resourcequotas`;
        const quota = { metadata: { name: "q" }, spec: { hard } };
        assert.equal((await admin({ method: "POST", path, body: quota })).code, 201);
        assert.equal((await patch(`${path}/q/status`, { hard, used })).code, 200);
      }
      const deployment = { metadata: { name: "web" }, spec };
      assert.equal((await admin({ method: "POST", path: deployments, body: deployment })).code, 201);
      const pods = {
        "Pod n1 denied failed quota: q: must specify requests.cpu for: a": 16,
        "Pod n1 allowed": 4,
        "Pod n2 allowed": 20,
        "Pod n3 allowed": 20,
        "Pod n5 denied exceeded quota: q, requested: pods=1, used: pods=19, limited: pods=19": 20,
      };
      const unknown = "ResourceQuota: how many Pods it creates, which quota q of namespace n2 counts";
      assert.deepEqual(await countVerdicts(), {
        ...pods,
        [`Deployment web n2 undecided ${unknown}`]: 1,
        "Deployment n2 allowed": 1,
      });
      await patch(`${deployments}/web/status`, { replicas: 2, updatedReplicas: 2, observedGeneration: 1 });
      assert.deepEqual(await countVerdicts(), { ...pods, "Deployment web n2 allowed": 1, "Deployment n2 allowed": 1 });
      const unchanged = await countVerdicts("--operation", "UPDATE");
      assert.deepEqual(
        Object.keys(unchanged).filter((text) => !/ allowed$/.test(text)),
        [],
      );
    } finally {
      for (const [namespace] of quotas)
        await admin({ method: "DELETE", path: `/api/v1/namespaces/${namespace}/resourcequotas/q` });
      await admin({ method: "DELETE", path: `${deployments}/web` });
    }
  });

  it("an audit finds the same kinds by aggregated discovery and by requests for each group", async () => {
    const { server, ca, getToken } = cluster;
    const connection = { server, ca, credentials: { token: getToken("admin") }, credentialsAdvice: "" };
    const read = openApiReader(connection, new AbortController().signal);
    const listResources = async (get: ApiGet) => {
      const { resources, unknown } = await discoverClusterResources(get, String);
      assert.deepEqual(unknown, []);
      return resources
        .map((kind) => ({ ...kind, verbs: kind.verbs.toSorted(), subresources: kind.subresources.toSorted() }))
        .toSorted((left, right) => (JSON.stringify(left.kind) < JSON.stringify(right.kind) ? -1 : 1));
    };
    const aggregated = await listResources(read);
    // Without the second argument, the media type, `read` requests no aggregated discovery.
    const byGroup = await listResources((path) => read(path));
    assert.ok(aggregated.length > 50);
    assert.deepEqual(aggregated, byGroup);
    assert.equal(byGroup.filter(({ resource }) => resource.resource === "widgets").length, 2, "v1 and v1beta1");
  });

  it("an audit lists all objects that exist during the whole audit, while others are created and deleted", async () => {
    const path = "/api/v1/namespaces/n5/configmaps";
    let isOver = false;
    const otherWrites = (async () => {
      for (let index = 0; !isOver; index++) {
        await admin({ method: "POST", path, body: { metadata: { name: `c${index}` } } });
        if (index % 2 === 0) await admin({ method: "DELETE", path: `${path}/c${index}` });
      }
    })();
    const { code, objects, summary } = await runJsonAudit(folder, ["--rules", "always-admit", "--page", "7"]).finally(
      () => {
        isOver = true;
      },
    );
    await otherWrites;
    assert.equal(code, 0);
    assert.equal(summary.undecided, 0);
    assert.equal(new Set(objects.map(({ uid }) => uid)).size, objects.length);
    const uids = new Set(objects.map(({ uid }) => uid));
    for (const { kind, metadata } of created) assert.ok(uids.has(metadata.uid), `${kind} ${metadata.name}`);
    // Events are served in two groups. Events and all other kinds are listed once.
    const lists = new Set(objects.map(({ apiVersion, kind }) => `${apiVersion} ${kind}`));
    const kinds = ["v1 Namespace", "v1 ConfigMap", "example.com/v1 Widget", "rbac.authorization.k8s.io/v1 ClusterRole"];
    for (const kind of kinds) assert.ok(lists.has(kind), kind);
    assert.ok(!lists.has("example.com/v1beta1 Widget"));
  });

  it("an audit prints PolicyReports or Reports that the API server accepts, even if they exist already", async () => {
    const auditBeforeCrds = await runAudit(folder, [...webhookOptions, "-o", "policyreport"]);
    assert.match(
      auditBeforeCrds.stderr,
      /^cluster c does not serve reports; kubectl apply accepts them once the cluster has the CRDs of openreports/m,
    );
    // The newer group comes last: reports use the newer group if a cluster serves both groups.
    const groups: [apiVersion: string, kind: string, plural: string][] = [
      ["wgpolicyk8s.io/v1alpha2", "PolicyReport", "policyreports"],
      ["openreports.io/v1alpha1", "Report", "reports"],
    ];
    for (const [apiVersion, kind, plural] of groups) {
      const [group = "", version = ""] = apiVersion.split("/");
      await defineKind(admin, kind, plural, group, "Namespaced", [version], report);
      await defineKind(admin, `Cluster${kind}`, `cluster${plural}`, group, "Cluster", [version], report);
      for (const _ of ["first", "again"]) {
        const { stdout, stderr } = await runAudit(folder, [...webhookOptions, "-o", "policyreport"]);
        assert.doesNotMatch(stderr, /does not serve reports/);
        const { items } = JSON.parse(stdout);
        assert.deepEqual(
          items.map(({ metadata }: AnyObject) => `${metadata.namespace}/${metadata.name}`).toSorted(),
          ["default", "n0", "n1", "n2", "n3", "n4", "n5"].map((name) => `${name}/postern`),
        );
        for (const item of items) {
          assert.deepEqual([item.apiVersion, item.kind], [apiVersion, kind]);
          const path = `/apis/${apiVersion}/namespaces/${item.metadata.namespace}/${plural}/postern?fieldManager=test&fieldValidation=Strict`;
          const contentType = "application/apply-patch+yaml";
          const { code, body } = await admin({ method: "PATCH", path, contentType, body: item });
          assert.ok(code === 200 || code === 201, JSON.stringify(body));
          assert.deepEqual(
            { results: body.results, summary: body.summary },
            { results: item.results, summary: item.summary },
          );
        }
      }
    }
  });
});

const report = readRows<object>(import.meta.filename);
const anything = { type: "object", "x-kubernetes-preserve-unknown-fields": true };

/** Creates a CRD, and waits until the API server serves the kind. */
const defineKind = async (
  admin: TestClusterClient,
  kind: string,
  plural: string,
  group: string,
  scope: string,
  versions: string[],
  schema: object = anything,
) => {
  const buildVersion = (name: string, index: number) => {
    return { name, served: true, storage: index === 0, schema: { openAPIV3Schema: schema } };
  };
  const body = {
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    metadata: { name: `${plural}.${group}` },
    spec: { group, scope, names: { kind, plural, singular: kind.toLowerCase() }, versions: versions.map(buildVersion) },
  };
  const path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
  const { code, body: answer } = await admin({ method: "POST", path, body });
  assert.equal(code, 201, String(answer.message));
  await waitUntil(`the API server did not serve ${kind} in time`, async () => {
    const answers = await Promise.all(
      versions.map((version) => admin({ method: "GET", path: `/apis/${group}/${version}/${plural}` })),
    );
    return answers.every(({ code }) => code === 200);
  });
};
