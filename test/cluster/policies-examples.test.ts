import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, describe, it } from "node:test";
import { stringify } from "yaml";
import { createAnswerCache } from "#lib/cluster/answer-cache.ts";
import { createLiveCapabilities } from "#lib/cluster/live-capabilities.ts";
import type { KubernetesObject } from "#lib/review.ts";
import { mergeWithDefaults } from "#lib/settings.ts";
import { kinitirasExampleCases, normalizeObjectForComparison } from "../bench/inputs/example-policies.ts";
import { requireBinaries } from "../control-plane/binaries.ts";
import type { TestClusterResponse } from "../control-plane/client.ts";
import { bootCluster, type TestCluster } from "../control-plane/cluster.ts";
import { listen } from "../listen.ts";
import {
  allPodsResourceSelectors,
  applyObject,
  buildAnnotatingPolicySpec,
  buildFixturePod,
  buildFixturePolicy,
  getFixtureApiPath,
  getFixtureCollectionPath,
  getMessage,
  installKinitirasPolicyCrds,
  type KinitirasFixtureObject,
} from "../parity/policy-fixtures.ts";
import {
  createTestWebhookConfigurations,
  extendWebhookTimeoutsForTests,
  serveCatalogueForTests,
  waitUntilWebhooksCalled,
} from "../parity/rule-server.ts";
import { needs } from "../parts.ts";

// Tests policies in a real cluster: kinitiras' example policies, policies with faults, and hostile policies.
const buildOverridePolicy = (name: string, overriders: object) =>
  buildFixturePolicy("ClusterOverridePolicy", name, {
    resourceSelectors: allPodsResourceSelectors,
    overrideRules: [{ overriders }],
  });
const buildValidatePolicy = (name: string, cue: string) =>
  buildFixturePolicy("ClusterValidatePolicy", name, { validateRules: [{ cue }] });
const buildReferenceTemplate = (reference: object) => {
  const template = { type: "annotations", operation: "add", path: "a", valueRef: { path: "data.a", ...reference } };
  return { template };
};
const endlessScript = `import "list"
object: _
x: list.Range(0, 100000000 * len(object.spec.containers), 1)
patches: [for i in x {op: "add", path: "/metadata/annotations/\\(i)", value: "a"}]`;
const growingScript = `import "strings"
object: _
x: strings.Repeat("x", 1000000000 * len(object.spec.containers))
patches: [{op: "add", path: "/metadata/annotations/a", value: x}]`;

describe("policies in a real API server", await needs("API server"), () => {
  let cluster: TestCluster;
  let postern: Awaited<ReturnType<typeof serveCatalogueForTests>>;
  let service: Awaited<ReturnType<typeof openService>>;
  const answers = new Map<string, unknown>();

  before(async () => {
    const binaries = await requireBinaries();
    cluster = await bootCluster(binaries);
    await installKinitirasPolicyCrds(cluster.admin);
    service = await openService(answers);
    const settings = { intercept: [{ apiGroups: ["*"], apiVersions: ["*"], resources: ["*"] }] };
    const http = { hosts: [new URL(service.url).host, "169.254.169.254", "10.1.2.3"], addresses: ["127.0.0.1/32"] };
    const ruleConfig = { failurePolicy: "Fail", settings: { ...settings, http } };
    const rules = { "policy-override": ruleConfig, "policy-validate": ruleConfig };
    const yaml = stringify({ rules: { ...rules, "policy-admission": { failurePolicy: "Fail" } } });
    const connection = { server: cluster.server, ca: cluster.ca, credentials: { token: cluster.getToken("admin") } };
    // The rules cache nothing, so a policy applies as soon as it exists.
    postern = await serveCatalogueForTests(
      yaml,
      createLiveCapabilities({ local: connection }, { cache: createAnswerCache({ entries: 0, bytes: 0 }) }),
    );
    await createTestWebhookConfigurations(cluster.admin, extendWebhookTimeoutsForTests(postern.manifests()));
    const probe = buildFixturePolicy("ClusterOverridePolicy", "probe", {
      overrideRules: [{ overriders: { template: { type: "labels", operation: "add" } } }],
    });
    await waitUntilWebhooksCalled(
      () => cluster.admin({ method: "POST", path: `${getFixtureCollectionPath(probe)}?dryRun=All`, body: probe }),
      () => postern.reports.length > 0,
    );
    await waitUntilWebhooksCalled(
      () =>
        cluster.admin({
          method: "POST",
          path: `${getFixtureCollectionPath(buildFixturePod("probe"))}?dryRun=All`,
          body: buildFixturePod("probe"),
        }),
      () => ["policy-override", "policy-validate"].every((name) => postern.reports.some(({ rule }) => rule === name)),
    );
  });
  after(async () => {
    await postern?.stop();
    await cluster?.stop();
    await service?.stop();
  });

  /** Creates an object that must exist before a request, in place of an older object with the same name. */
  const createObject = async (object: KubernetesObject) => {
    const { admin } = cluster;
    // This cluster has no controller that finishes the deletion of a namespace.
    const isNamespace = object.kind === "Namespace";
    if (!isNamespace) await admin({ method: "DELETE", path: `${getFixtureApiPath(object)}?gracePeriodSeconds=0` });
    const answer = isNamespace
      ? await applyObject(admin, object)
      : await admin({ method: "POST", path: getFixtureCollectionPath(object), body: object });
    assert.ok(answer.code < 300, getMessage(answer));
  };

  for (const exampleCase of kinitirasExampleCases)
    it(`policies decide as kinitiras' example ${exampleCase.id} states`, async () => {
      const { operation, expect, cluster: neededObjects = [], http = [] } = exampleCase;
      const exampleObject = operation === "DELETE" ? exampleCase.oldObject : exampleCase.object;
      assert.ok(exampleObject);
      // An object that exists already can't be created again, so a new object gets a new name.
      const isNew = operation === "CREATE";
      const object = isNew
        ? { ...exampleObject, metadata: { ...exampleObject.metadata, name: `${exampleObject.metadata?.name}-new` } }
        : exampleObject;
      for (const needed of neededObjects) await createObject(mergeWithDefaults(requiredFields, needed));
      if (!isNew) await createObject(exampleCase.oldObject ?? object);
      answers.clear();
      for (const { path, body } of http) answers.set(path, body);
      const policies: KinitirasFixtureObject[] = exampleCase.policies.map((policy) =>
        JSON.parse(JSON.stringify(policy).replaceAll("http://mock/", `${service.url}/`)),
      );
      try {
        for (const policy of policies) {
          const { code, body } = await applyObject(cluster.admin, policy);
          assert.equal(code < 300, expect.policy !== "rejected", String(body.message));
        }
        if (expect.policy === "rejected") return;
        const { method, path } = requestsByOperation[operation];
        const answer = await cluster.admin({
          method,
          path: `${path(object)}?dryRun=All`,
          ...(operation !== "DELETE" && { body: object }),
        });
        if (expect.error) {
          assert.equal(answer.code, 500);
          assert.match(getMessage(answer), /Policy .*Rules\[\d+\]: /);
        } else if (isRefusedByKubernetes(exampleCase)) {
          assert.equal(answer.code, 422);
          assert.match(getMessage(answer), /spec\.affinity\.nodeAffinity\.preferred\S+matchFields\[0\]\.key/);
          return;
        } else if (expect.allowed === false)
          assert.match(getMessage(answer), new RegExp(`denied the request: ${expect.reason}$`));
        else assert.ok(answer.code < 300, getMessage(answer));
        if (expect.object) {
          const metadata = { ...expect.object.metadata, name: object.metadata?.name };
          const expected = { ...expect.object, metadata };
          assert.deepEqual(keepExpected(expected, answer.body), normalizeObjectForComparison(expected));
        }
      } finally {
        for (const policy of policies) await cluster.admin({ method: "DELETE", path: getFixtureApiPath(policy) });
      }
    });

  const requireApplied = async (object: KinitirasFixtureObject) => {
    const answer = await applyObject(cluster.admin, object);
    assert.ok(answer.code < 300, `${object.kind} ${object.metadata.name}: ${getMessage(answer)}`);
    return answer;
  };
  const deleteObject = (object: KubernetesObject) =>
    cluster.admin({ method: "DELETE", path: getFixtureApiPath(object) });
  /** Creates an object in a dry run. */
  const tryCreate = (object: KubernetesObject): Promise<TestClusterResponse> =>
    cluster.admin({ method: "POST", path: `${getFixtureCollectionPath(object)}?dryRun=All`, body: object });

  it("policies are refused if they have faults, and admitted when the faults are corrected", async () => {
    const broken = buildFixturePolicy("ClusterValidatePolicy", "broken", {
      validateRules: [
        { template: { type: "condition", condition: { cond: "Gt", dataRef: { from: "current", path: "" } } } },
        { cue: "object: _\nvalidate: {valid: objekt.a}" },
      ],
    });
    const refused = await applyObject(cluster.admin, broken);
    assert.equal(refused.code, 403);
    assert.match(getMessage(refused), /spec\.validateRules\[0\]\.template\.condition\.dataRef\.path/);
    const wrongScript = buildValidatePolicy("broken", "object: _\nvalidate: {valid: objekt.a}");
    const withWrongScript = await applyObject(cluster.admin, wrongScript);
    assert.match(getMessage(withWrongScript), /spec\.validateRules\[0\]\.cue.*reference "objekt" not found/s);
    await requireApplied(buildValidatePolicy("broken", "object: _\nvalidate: {valid: object.a}"));
    await deleteObject(broken);
    const importing = buildOverridePolicy("tool", { cue: 'import "tool/exec"\npatches: []' });
    const withImport = await applyObject(cluster.admin, importing);
    assert.equal(withImport.code, 403);
    assert.match(getMessage(withImport), /tool\/exec/);
  });

  it("a policy that refuses all objects does not refuse its own updates, so it can be repaired", async () => {
    const failing = buildOverridePolicy("failing", { plaintext: [{ op: "remove", path: "/metadata/nothing" }] });
    await requireApplied(buildValidatePolicy("everything", 'validate: {valid: false, reason: "nothing is let in"}'));
    await requireApplied(failing);
    const answer = await tryCreate(buildFixturePod("a"));
    assert.equal(answer.code, 500);
    assert.match(getMessage(answer), /ClusterOverridePolicy failing, overrideRules\[0\]: /);
    await deleteObject(failing);
    const service = { apiVersion: "v1", kind: "Service", metadata: { name: "s" }, spec: { ports: [{ port: 1 }] } };
    for (const object of [buildFixturePod("a"), service])
      assert.match(getMessage(await tryCreate(object)), /denied the request: nothing is let in$/);
    await requireApplied(buildValidatePolicy("everything", "validate: {valid: true}"));
    assert.equal((await tryCreate(buildFixturePod("a"))).code, 201);
    await deleteObject(buildValidatePolicy("everything", ""));
  });

  const hostileOverriders: [name: string, overriders: object, sentence: RegExp][] = [
    ["a script that never ends", { cue: endlessScript }, /the script (did not end in time|needs more than)/],
    ["a script that grows", { cue: growingScript }, /the script needs more than|more than \d+ characters/],
    [
      "the metadata service",
      buildReferenceTemplate({ from: "http", http: { url: "http://169.254.169.254/latest/" } }),
      /169\.254\.169\.254/,
    ],
    ["a private address", buildReferenceTemplate({ from: "http", http: { url: "http://10.1.2.3/" } }), /10\.1\.2\.3/],
    [
      "a host that is not listed",
      buildReferenceTemplate({ from: "http", http: { url: "https://example.com/" } }),
      /example\.com/,
    ],
    [
      "a secret",
      buildReferenceTemplate({ from: "k8s", k8s: { apiVersion: "v1", kind: "Secret", name: "s" } }),
      /Secrets are read only if the setting reads lists them/,
    ],
  ];
  for (const [name, overriders, sentence] of hostileOverriders)
    it(`policies that use ${name} make a request fail, with a sentence about the cause`, async () => {
      const policy = buildOverridePolicy("hostile", overriders);
      await requireApplied(policy);
      try {
        const { code, body } = await tryCreate(buildFixturePod("a"));
        assert.equal(code, 500);
        assert.match(String(body.message), /ClusterOverridePolicy hostile, overrideRules\[0\]: /);
        assert.match(String(body.message), sentence);
      } finally {
        await deleteObject(policy);
      }
      assert.equal((await tryCreate(buildFixturePod("a"))).code, 201);
    });

  it("a thousand policies change only their objects, also if an object has a megabyte", async () => {
    const otherPolicies = Array.from({ length: 1000 }, (_, index) =>
      buildFixturePolicy(
        "ClusterOverridePolicy",
        `other-${index}`,
        buildAnnotatingPolicySpec("a", "b", [{ apiVersion: "v1", kind: "Pod", name: `p-${index}` }]),
      ),
    );
    for (let first = 0; first < otherPolicies.length; first += 16)
      await Promise.all(otherPolicies.slice(first, first + 16).map(requireApplied));
    const data = { a: "x".repeat(1_000_000) };
    const large = { ...buildFixturePod("p-500"), kind: "ConfigMap", data, spec: undefined };
    const spec = buildAnnotatingPolicySpec("c", "d", [{ apiVersion: "v1", kind: "ConfigMap" }]);
    await requireApplied(buildFixturePolicy("ClusterOverridePolicy", "large", spec));
    const getAnnotations = async (object: KubernetesObject) =>
      Object((await tryCreate(object)).body.metadata).annotations;
    assert.deepEqual(await getAnnotations(buildFixturePod("p-500")), { a: "b" });
    assert.equal(await getAnnotations(buildFixturePod("another")), undefined);
    assert.deepEqual(await getAnnotations(large), { c: "d" });
    await cluster.admin({
      method: "DELETE",
      path: getFixtureCollectionPath(buildFixturePolicy("ClusterOverridePolicy", "any", {})),
    });
  });
});

/** Reports whether the API server itself refuses the affinity that the policy of this case sets. */
const isRefusedByKubernetes = ({ id }: { id: string }) => id.startsWith("affinity/");

/** Fields that workloads must have, and that the cases don't have. */
const labels = { app: "web" };
const { spec } = buildFixturePod("any");
const requiredFields = { spec: { selector: { matchLabels: labels }, template: { metadata: { labels }, spec } } };

const requestsByOperation = {
  CREATE: { method: "POST", path: getFixtureCollectionPath },
  UPDATE: { method: "PUT", path: getFixtureApiPath },
  DELETE: { method: "DELETE", path: getFixtureApiPath },
  CONNECT: { method: "GET", path: getFixtureApiPath },
} as const;

/**
 * Returns an object without the fields that the expected object doesn't have, because the API server adds defaults. In
 * the `comparedFields`, and if `comparesAll` is true, all fields are returned.
 */
const keepExpected = (expected: unknown, actual: unknown, comparesAll = false): unknown => {
  if (comparesAll) return normalizeObjectForComparison(actual);
  if (Array.isArray(expected) && Array.isArray(actual))
    return actual.map((inner, index) => keepExpected(expected[index], inner));
  if (typeof expected !== "object" || expected === null || Array.isArray(expected)) return actual;
  const entries = Object.entries(Object(actual)).flatMap(([key, inner]) => {
    const isExpected = Object.hasOwn(expected, key);
    return isExpected || comparedFields.has(key)
      ? [[key, keepExpected(Reflect.get(expected, key), inner, comparedFields.has(key))]]
      : [];
  });
  return normalizeObjectForComparison(Object.fromEntries(entries));
};
const comparedFields = new Set(["annotations", "labels", "resources", "affinity"]);

/** Starts a service that answers with JSON at the given paths. */
const openService = async (answers: Map<string, unknown>) => {
  const server = createServer(({ url = "" }, response) => {
    const { pathname } = new URL(url, "http://mock");
    response.statusCode = answers.has(pathname) ? 200 : 404;
    response.end(JSON.stringify(answers.get(pathname) ?? {}));
  });
  return { url: `http://127.0.0.1:${await listen(server)}`, stop: () => server.close() };
};
