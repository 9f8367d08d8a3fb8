import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { parseAllDocuments, stringify } from "yaml";
import type { KubernetesObject } from "#lib/review.ts";
import { buildKubeconfig } from "../checkout.ts";
import { requireBinaries } from "../control-plane/binaries.ts";
import type { TestClusterClient, TestClusterResponse } from "../control-plane/client.ts";
import { bootCluster, type TestCluster } from "../control-plane/cluster.ts";
import {
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
import { waitUntil } from "../parity/rule-server.ts";
import { needs } from "../parts.ts";

// Tests policies in a real cluster that is set up by the commands in the READMEs: with the shipped CRDs, with only the
// rights in Postern's manifests, and with the webhook entries that the policies need.
const root = fileURLToPath(new URL("../..", import.meta.url));
/** The milliseconds within which a changed policy must take effect. */
const staleness = 10_000;

describe("policies on a real API server", await needs("API server"), () => {
  let cluster: TestCluster;
  let admin: TestClusterClient;
  let folder = "";
  let url = "";
  /** What the gateway has printed. */
  let output = "";
  const stops: (() => unknown)[] = [];

  const writeKubeconfig = async (user: string): Promise<string> => {
    const file = join(folder, `${user}.kubeconfig`);
    await writeFile(file, buildKubeconfig({ here: cluster }, user), { mode: 0o600 });
    return file;
  };
  const startPostern = (...words: string[]) => {
    const { NODE_TEST_CONTEXT: _, ...env } = process.env;
    return spawn(process.execPath, ["infra/postern.js", ...words], { cwd: root, env });
  };
  const runPostern = async (...words: string[]) => {
    const child = startPostern(...words);
    const texts = { out: "", err: "" };
    child.stdout.on("data", (text) => (texts.out += text));
    child.stderr.on("data", (text) => (texts.err += text));
    const [code] = await once(child, "close");
    assert.equal(code, 0, texts.err);
    return texts;
  };
  const apply = (object: KinitirasFixtureObject) => applyObject(admin, object);
  const requireApplied = async (object: KinitirasFixtureObject) => {
    const answer = await apply(object);
    assert.ok(answer.code < 300, `${object.kind} ${object.metadata.name}: ${getMessage(answer)}`);
    return answer;
  };
  const create = (object: KubernetesObject, query = "") =>
    admin({ method: "POST", path: `${getFixtureCollectionPath(object)}${query}`, body: object });
  const remove = async (object: KinitirasFixtureObject) => {
    await admin({ method: "DELETE", path: `${getFixtureCollectionPath(object)}/${object.metadata.name}` });
  };
  /** Runs `npx postern manifests | kubectl apply -f -`. */
  const applyManifests = async () => {
    const files = ["--config", join(folder, "postern.yaml"), "--ca", join(folder, ".postern/ca.crt")];
    const kubeconfig = await writeKubeconfig("admin");
    const { out, err } = await runPostern("manifests", ...files, "--url", url, "--kubeconfig", kubeconfig);
    const manifests: KinitirasFixtureObject[] = parseAllDocuments(out).map((document) => document.toJS());
    for (const manifest of manifests) await requireApplied(manifest);
    return { manifests, notes: err };
  };
  /** Waits until a dry run of the object's creation has the expected answer. */
  const waitForAnswer = async (object: KubernetesObject, isExpected: (answer: TestClusterResponse) => boolean) => {
    let last: TestClusterResponse | undefined;
    const isAnswered = async () => {
      last = await create(object, "?dryRun=All");
      return isExpected(last);
    };
    await waitUntil("", isAnswered).catch(() => {
      assert.fail(`${object.metadata?.name} is still answered with ${JSON.stringify(last)}`);
    });
  };
  const getAnnotation = ({ body }: TestClusterResponse, key: string) => Object(Object(body.metadata).annotations)[key];

  before(async () => {
    const binaries = await requireBinaries();
    folder = await mkdtemp(join(tmpdir(), "postern-policies-"));
    stops.push(() => rm(folder, { recursive: true, force: true }));
    const users = { functions: ["override", "validate", "admission"].map((rule) => `postern:policy-${rule}`) };
    cluster = await bootCluster(binaries, { rbac: true, users });
    stops.push(cluster.stop);
    admin = cluster.admin;

    const names = ["policy-override", "policy-validate", "policy-admission"];
    const rules = Object.fromEntries(names.map((name) => [name, { failurePolicy: "Fail" }]));
    const config = { rules, clusters: { local: { connect: { kubeconfig: await writeKubeconfig("functions") } } } };
    await writeFile(join(folder, "postern.yaml"), stringify(config));
    const gateway = startPostern("serve", "--port", "0", "--config", join(folder, "postern.yaml"));
    stops.push(async () => {
      gateway.kill("SIGINT");
      await once(gateway, "exit");
    });
    for (const stream of [gateway.stdout, gateway.stderr]) stream.on("data", (text) => (output += text));
    await waitUntil("the gateway did not start", () => /https:\/\/\S+policy-override/.test(output));
    url = /https:\/\/[^/\s]+/.exec(output)?.[0] ?? "";

    const { notes } = await applyManifests();
    assert.match(notes, /their CRDs are in functions\/policy-admission\/crds/);
    await installKinitirasPolicyCrds(admin);
  });
  after(async () => {
    for (const stop of stops.reverse()) await stop();
  });

  it("without policies, only the webhook entry that checks policies is needed", async () => {
    const { manifests } = await applyManifests();
    const entries = manifests.flatMap(({ webhooks }) => (Array.isArray(webhooks) ? webhooks : []));
    assert.deepEqual([...new Set(entries.map(({ name }) => name))], ["policy-admission.postern.dev"]);
    const invalid = buildFixturePolicy("ClusterOverridePolicy", "probe", {
      overrideRules: [{ overriders: { template: { type: "labels", operation: "add" } } }],
    });
    await waitUntil(
      "the API server did not call policy-admission",
      async () => (await create(invalid, "?dryRun=All")).code === 403,
    );
  });

  it("policies that need new entries cause a warning, and have an effect once the entries are applied", async () => {
    const policy = buildFixturePolicy("ClusterOverridePolicy", "owner", buildAnnotatingPolicySpec("owner", "web"));
    const { warnings, body } = await requireApplied(policy);
    assert.ok(
      warnings.some((warning) => /policy-override.*pods.*postern manifests/i.test(warning)),
      warnings.join("\n"),
    );
    const [rule] = Object(body.spec).overrideRules;
    assert.match(rule.overriders.renderedCue, /patches/);

    const { manifests } = await applyManifests();
    const [entry] = manifests.flatMap(({ kind, webhooks }) =>
      kind === "MutatingWebhookConfiguration" && Array.isArray(webhooks)
        ? webhooks.filter(({ name }) => name.startsWith("policy-override"))
        : [],
    );
    assert.deepEqual(entry.rules, [
      { apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE", "UPDATE"], scope: "*" },
    ]);
    await waitForAnswer(buildFixturePod("a"), (answer) => getAnnotation(answer, "owner") === "web");
    const other = buildFixturePolicy("ClusterOverridePolicy", "other", buildAnnotatingPolicySpec("other", "web"));
    assert.deepEqual((await requireApplied(other)).warnings, []);
    await remove(other);
  });

  it("policies are not changed when their authors apply them again", async () => {
    const annotating = buildAnnotatingPolicySpec("again", "a");
    const spec = { ...annotating, overrideRules: [...annotating.overrideRules, { overriders: {} }] };
    const condition = { cond: "Exist", dataRef: { from: "current", path: "/metadata/labels/never" } };
    const rules = { resourceSelectors: [], validateRules: [{ template: { type: "condition", condition } }] };
    for (const policy of [
      buildFixturePolicy("ClusterOverridePolicy", "again", spec),
      buildFixturePolicy("ClusterValidatePolicy", "again", rules),
    ]) {
      const { body: first } = await requireApplied(policy);
      const { body: second } = await requireApplied(policy);
      assert.match(JSON.stringify(first.spec), /renderedCue/);
      assert.deepEqual(second, first);
      const patch = { contentType: "application/merge-patch+json", body: { spec: policy.spec } };
      const path = `${getFixtureApiPath(policy)}?fieldManager=other`;
      const { body: third } = await admin({ method: "PATCH", path, ...patch });
      assert.deepEqual(
        [Object(third.metadata).generation, third.spec],
        [Object(first.metadata).generation, first.spec],
      );
      await remove(policy);
    }
  });

  it("policies have an effect within ten seconds after a change, and none ten seconds after a deletion", async () => {
    const policy = buildFixturePolicy("ClusterOverridePolicy", "owner", buildAnnotatingPolicySpec("owner", "api"));
    await requireApplied(policy);
    await wait(staleness);
    assert.equal(getAnnotation(await create(buildFixturePod("a"), "?dryRun=All"), "owner"), "api");
    await remove(policy);
    await wait(staleness);
    assert.equal(getAnnotation(await create(buildFixturePod("a"), "?dryRun=All"), "owner"), undefined);
  });
});
