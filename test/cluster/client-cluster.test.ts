import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readdir, readFile, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { fileURLToPath, pathToFileURL } from "node:url";
import { promisify } from "node:util";
import {
  ApiException,
  CoreV1Api,
  createConfiguration,
  IsomorphicFetchHttpLibrary,
  KubeConfig,
  KubernetesObjectApi,
  PatchStrategy,
  PolicyV1Api,
  type RequestContext,
  ServerConfiguration,
  setHeaderOptions,
  type V1Pod,
} from "@kubernetes/client-node";
import { build } from "esbuild";
import { parseAllDocuments } from "yaml";
import type * as client from "#lib/client/client.ts";
import type { Rule } from "#lib/rule.ts";
import { requireBinaries } from "../control-plane/binaries.ts";
import { bootCluster, type TestCluster } from "../control-plane/cluster.ts";
import { createTestFolder } from "../folders.ts";
import { installPackage } from "../package.ts";
import { needs } from "../parts.ts";

// Tests the client of the installed package, in a project without Postern's sources and with a real API server.
const run = promisify(execFile);
const project = await createTestFolder();

before(async () => {
  await writeFile(join(project, "package.json"), '{"name":"project","private":true,"type":"module"}');
  await installPackage(project);
});
const importInstalled = (path: string) => import(pathToFileURL(join(project, "node_modules/postern", path)).href);

/** A program that prints a pod after a policy with a script and a rule have changed it. */
const program = `
    import { guard } from "postern/client";
    import { parsePolicies } from "postern/client/policies";
    import pulls from "postern/rules/always-pull-images";
    const write = async () => {
      const cue = 'object: _\\npatches: [{ op: "add", path: "/metadata/labels/of", value: object.metadata.name }]';
      const { policies } = parsePolicies([{
        apiVersion: "policy.kcloudlabs.io/v1alpha1", kind: "ClusterOverridePolicy", metadata: { name: "p" },
        spec: { overrideRules: [{ overriders: { cue } }] },
      }]);
      const send = async (_, { body }) => new Response(body);
      const guarded = guard(send, { policies, rules: { "always-pull-images": { rule: pulls } } });
      const pod = { apiVersion: "v1", kind: "Pod", metadata: { name: "x" }, spec: { containers: [{ name: "c", image: "i" }] } };
      const headers = { "content-type": "application/json" };
      const address = "https://host/api/v1/namespaces/a/pods";
      const answer = await guarded(address, { method: "POST", headers, body: JSON.stringify(pod) });
      process.stdout.write(await answer.text());
    };
    write();`;

describe("the client's package", () => {
  before(() => writeFile(join(project, "program.js"), program));
  /** Runs a program in its own folder. */
  const runProgram = async (folder: string, file: string) => {
    const { stdout } = await run(process.execPath, [file], { cwd: folder });
    return JSON.parse(stdout);
  };
  const requireChanges = ({ metadata, spec }: V1Pod) => {
    assert.deepEqual(metadata, { name: "x", labels: { of: "x" } });
    assert.equal(spec?.containers[0]?.imagePullPolicy, "Always");
  };
  const bundle = (format: "esm" | "cjs", outfile: string, options: { external?: string[] } = {}) =>
    build({
      absWorkingDir: project,
      entryPoints: ["program.js"],
      outfile,
      format,
      bundle: true,
      platform: "node",
      logLevel: "silent",
      ...options,
    });

  it("the client's package works in a separate project, even with policies that have scripts", async () =>
    requireChanges(await runProgram(project, "program.js")));

  for (const [format, file] of [
    ["esm", "bundle.mjs"],
    ["cjs", "bundle.cjs"],
  ] as const)
    it(`the client's package works in a bundle (${format}), except for policies with scripts`, async () => {
      await bundle(format, join(project, file));
      const { code, message } = await runProgram(project, file);
      assert.equal(code, 500);
      assert.match(message, /CUE can't be started: a program whose policies have scripts must not bundle postern/);

      await writeFile(
        join(project, "program.js"),
        program.replace(/cue }/, 'plaintext: [{ op: "add", path: "/metadata/labels", value: { of: "x" } }] }'),
      );
      await bundle(format, join(project, file));
      await writeFile(join(project, "program.js"), program);
      requireChanges(await runProgram(project, file));
    });

  it("the client's package works if a bundle only imports it, even if policies have scripts", async () => {
    await bundle("esm", join(project, "bundle.mjs"), { external: ["postern"] });
    requireChanges(await runProgram(project, "bundle.mjs"));
  });

  it("the client's package has complete types, which find errors in programs", async () => {
    const types = fileURLToPath(new URL("../../node_modules/@types", import.meta.url));
    const output = { noEmit: true, module: "nodenext", target: "esnext" };
    const compilerOptions = { ...output, strict: true, types: ["node"], typeRoots: [types] };
    await writeFile(join(project, "tsconfig.json"), JSON.stringify({ compilerOptions, files: ["program.ts"] }));
    const buildTypedProgram = (failurePolicy: string) => `
      import { type Guard, guard, readClusterPolicies } from "postern/client";
      import pulls from "postern/rules/always-pull-images";
      const options: Guard = { policies: readClusterPolicies, rules: { pulls: { rule: pulls, mode: "warn" } }, failurePolicy: "${failurePolicy}" };
      export const guarded: typeof fetch = guard(fetch, options);`;
    const tsc = fileURLToPath(new URL("../../node_modules/typescript/bin/tsc", import.meta.url));
    const compile = async (policy: string) => {
      await writeFile(join(project, "program.ts"), buildTypedProgram(policy));
      return run(process.execPath, [tsc, "-p", "."], { cwd: project }).then(
        () => "",
        ({ stdout }) => stdout,
      );
    };
    assert.equal(await compile("Ignore"), "");
    assert.match(await compile("Sometimes"), /^program\.ts.*"Sometimes"/);
  });
});

/** Returns a promise in the form in which the HTTP libraries of @kubernetes/client-node return it. */
const toLibraryPromise = <T>(answer: Promise<T>) => ({ toPromise: () => answer });

it("the client's README has two example programs that run without an error", async () => {
  const readme = await readFile(join(project, "node_modules/postern/lib/client/README.md"), "utf8");
  const programs = [...readme.matchAll(/```js\n(.*?)```/gs)].map(([, program = ""]) => program);
  assert.equal(programs.length, 2);
  const kubeconfig = join(project, "kubeconfig");
  await symlink(
    fileURLToPath(new URL("../../node_modules/@kubernetes", import.meta.url)),
    join(project, "node_modules/@kubernetes"),
  );
  await writeFile(kubeconfig, JSON.stringify({ apiVersion: "v1", kind: "Config", ...nowhere }));
  for (const program of programs) {
    await writeFile(join(project, "shown.js"), program);
    const env = { PATH: process.env.PATH, HOME: project, KUBECONFIG: kubeconfig };
    await run(process.execPath, ["shown.js"], { cwd: project, env });
  }
});

const nowhere = {
  clusters: [{ name: "c", cluster: { server: "https://127.0.0.1:1" } }],
  users: [{ name: "u", user: { token: "t" } }],
  contexts: [{ name: "x", context: { cluster: "c", user: "u" } }],
  "current-context": "x",
};

/** A program that creates a ConfigMap by fetch, and prints the code and the text of the answer. */
const fetchProgram = `
  import { guard, readClusterPolicies } from "postern/client";
  const { SERVER, TOKEN } = process.env;
  const headers = { authorization: "Bearer " + TOKEN, "content-type": "application/json" };
  const body = JSON.stringify({ apiVersion: "v1", kind: "ConfigMap", metadata: { generateName: "a-" } });
  const guarded = guard(fetch, { policies: readClusterPolicies });
  const answer = await guarded(SERVER + "/api/v1/namespaces/default/configmaps", { method: "POST", headers, body });
  console.log(answer.status, await answer.text());`;

describe("writes of @kubernetes/client-node", await needs("API server"), () => {
  let cluster: TestCluster;
  let config: KubeConfig;
  let guarded: KubeConfig;
  let pods: CoreV1Api;
  let unguardedPods: CoreV1Api;
  let postern: typeof client;
  const namespace = "default";
  const outcomes: string[] = [];

  const apply = (path: string, body: object) => cluster.admin({ method: "POST", path, body });
  const requireCreated = async (path: string, body: object) => {
    const { code, body: answer } = await apply(path, body);
    assert.equal(code, 201, JSON.stringify(answer));
  };
  const policyPath = "/apis/policy.kcloudlabs.io/v1alpha1";
  const buildPolicy = (kind: string, name: string, spec: object) => {
    return { apiVersion: "policy.kcloudlabs.io/v1alpha1", kind, metadata: { name }, spec };
  };

  before(async () => {
    const binaries = await requireBinaries();
    cluster = await bootCluster(binaries);
    const folder = new URL("../../functions/policy-admission/crds/", import.meta.url);
    for (const file of await readdir(folder))
      for (const document of parseAllDocuments(await readFile(new URL(file, folder), "utf8")))
        await requireCreated("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", document.toJS());
    for (const kind of ["clusteroverridepolicies", "overridepolicies", "clustervalidatepolicies"])
      for (const end = Date.now() + 120_000; Date.now() < end; await wait(100))
        if ((await cluster.admin({ method: "GET", path: `${policyPath}/${kind}` })).code === 200) break;
    await requireCreated("/api/v1/namespaces/default/configmaps", {
      metadata: { name: "owners", labels: { of: "teams" } },
      data: { team: "red" },
    });
    const podSelectors = [{ apiVersion: "v1", kind: "Pod" }];
    const k8s = { apiVersion: "v1", kind: "ConfigMap", namespace, name: "owners" };
    const valueRef = { from: "k8s", path: "/data/team", k8s };
    const owner = { type: "annotations", operation: "add", path: "owner", valueRef };
    await requireCreated(
      `${policyPath}/clusteroverridepolicies`,
      buildPolicy("ClusterOverridePolicy", "owner", {
        resourceSelectors: podSelectors,
        overrideRules: [{ overriders: { template: owner, cue: cueScript } }],
      }),
    );
    const dataRef = { from: "current", path: "/metadata/labels/keep" };
    const keepCondition = { cond: "Exist", dataRef, message: "it is kept" };
    await requireCreated(
      `${policyPath}/clustervalidatepolicies`,
      buildPolicy("ClusterValidatePolicy", "kept", {
        resourceSelectors: podSelectors,
        validateRules: [{ targetOperations: ["DELETE"], template: { type: "condition", condition: keepCondition } }],
      }),
    );

    config = new KubeConfig();
    config.loadFromOptions({
      clusters: [{ name: "c", server: cluster.server, caData: Buffer.from(cluster.ca).toString("base64") }],
      users: [{ name: "u", token: cluster.getToken("admin") }],
      contexts: [{ name: "x", cluster: "c", user: "u" }],
      currentContext: "x",
    });
    postern = await importInstalled("lib/client/client.js");
    const pulls: { default: Rule } = await importInstalled("functions/always-pull-images/rule.js");
    guarded = postern.guardConfig(config, {
      policies: postern.readClusterPolicies,
      rules: { "always-pull-images": { rule: pulls.default } },
      onOutcome: ({ rule, phase, decision, failure }) =>
        void outcomes.push(`${rule} ${phase} ${failure?.message ?? decision?.operations}`),
    });
    pods = guarded.makeApiClient(CoreV1Api);
    unguardedPods = config.makeApiClient(CoreV1Api);
  });
  after(() => cluster?.stop());

  it("writes by fetch instead of @kubernetes/client-node trust the CA in NODE_EXTRA_CA_CERTS", async () => {
    await writeFile(join(project, "ca.crt"), cluster.ca);
    await writeFile(join(project, "fetching.js"), fetchProgram);
    const env = { PATH: process.env.PATH, SERVER: cluster.server, TOKEN: cluster.getToken("admin") };
    const runFetching = async (variables: object) =>
      (await run(process.execPath, ["fetching.js"], { cwd: project, env: { ...env, ...variables } })).stdout.trim();
    assert.match(await runFetching({ NODE_EXTRA_CA_CERTS: join(project, "ca.crt") }), /^201 /);
    assert.match(await runFetching({}), /^500 .*fetch failed: .*certificate/);
  });

  const cueScript = `
    object: _
    if object.metadata.labels == _|_ {
      patches: [{ op: "add", path: "/metadata/labels", value: { guarded: "yes" } }]
    }
    if object.metadata.labels != _|_ {
      patches: [{ op: "add", path: "/metadata/labels/guarded", value: "yes" }]
    }`;
  const buildPod = (name: string, labels?: Record<string, string>): V1Pod => ({
    metadata: { name, ...(labels && { labels }) },
    spec: { containers: [{ name: "c", image: "i", imagePullPolicy: "IfNotPresent" }] },
  });
  const readPod = (name: string) => unguardedPods.readNamespacedPod({ name, namespace });
  const requireStoredChanges = async (name: string) => {
    const { metadata, spec } = await readPod(name);
    assert.equal(spec?.containers[0]?.imagePullPolicy, "Always");
    assert.equal(metadata?.labels?.guarded, "yes");
    assert.equal(metadata?.annotations?.owner, "red");
  };
  it("writes of @kubernetes/client-node create an object with the changes of policies and rules", async () => {
    const answer = await pods.createNamespacedPod({ namespace, body: buildPod("created") });
    assert.equal(answer.metadata?.labels?.guarded, "yes");
    await requireStoredChanges("created");
    assert.ok(outcomes.includes("policy-override mutate 2"), outcomes.join("; "));
  });
  it("a write replaces a Namespace's finalizers by the subresource `finalize`, which has no GET", async () => {
    const admits: { default: Rule } = await importInstalled("functions/always-admit/rule.js");
    const guardedConfig = postern.guardConfig(config, { rules: { "always-admit": { rule: admits.default } } });
    const namespace = await unguardedPods.createNamespace({ body: { metadata: { name: "finalized" } } });
    const body = { ...namespace, spec: { finalizers: ["example.com/own"] } };
    const answer = await guardedConfig.makeApiClient(CoreV1Api).replaceNamespaceFinalize({ name: "finalized", body });
    assert.deepEqual(answer.spec?.finalizers, ["example.com/own"]);
  });

  const patches: [name: string, strategy: string, body: unknown][] = [
    ["a JSON patch", PatchStrategy.JsonPatch, [{ op: "replace", path: "/metadata/labels", value: { more: "1" } }]],
    ["a merge", PatchStrategy.MergePatch, { metadata: { labels: { guarded: null, more: "1" } } }],
    ["a strategic merge", PatchStrategy.StrategicMergePatch, { metadata: { labels: { guarded: null, more: "1" } } }],
    [
      "a server-side apply",
      PatchStrategy.ServerSideApply,
      { apiVersion: "v1", kind: "Pod", metadata: { name: "patched", labels: { more: "1", guarded: "no" } } },
    ],
  ];
  for (const [name, strategy, body] of patches)
    it(`a write patches an object by ${name}, with the changes of policies and rules`, async () => {
      await unguardedPods.deleteNamespacedPod({ name: "patched", namespace, gracePeriodSeconds: 0 }).catch(() => {});
      await pods.createNamespacedPod({ namespace, body: buildPod("patched", { first: "1" }) });
      const isApply = strategy === PatchStrategy.ServerSideApply;
      const options = { name: "patched", namespace, body, fieldManager: "test", ...(isApply && { force: true }) };
      await pods.patchNamespacedPod(options, setHeaderOptions("Content-Type", strategy));
      await requireStoredChanges("patched");
      assert.equal((await readPod("patched")).metadata?.labels?.more, "1");
    });

  it("a write patches an object again if another client changed the object meanwhile", async () => {
    const name = "raced";
    await pods.createNamespacedPod({ namespace, body: buildPod(name) });
    const merge = setHeaderOptions("Content-Type", PatchStrategy.MergePatch);
    const library = new IsomorphicFetchHttpLibrary();
    let remainingRaces = 2;
    /** Sends requests, but before each of the first two writes, another client changes the object. */
    const libraryWithRaces = {
      send: (request: RequestContext) => {
        const isWrite = request.getHttpMethod() === "PATCH" && !request.getUrl().includes("dryRun");
        if (!isWrite || remainingRaces-- <= 0) return library.send(request);
        const body = { metadata: { labels: { race: String(remainingRaces) } } };
        const changing = unguardedPods.patchNamespacedPod({ name, namespace, body }, merge);
        return toLibraryPromise(changing.then(() => library.send(request).toPromise()));
      },
    };
    const httpApi = postern.guardLibrary(libraryWithRaces as never, { policies: postern.readClusterPolicies });
    const baseServer = new ServerConfiguration(cluster.server, {});
    const options = { baseServer, authMethods: { default: config }, httpApi: httpApi as never };
    const client = new CoreV1Api(createConfiguration(options));
    const body = { metadata: { labels: { guarded: null, mine: "1" } } };
    await client.patchNamespacedPod({ name, namespace, body }, merge);
    const { metadata } = await readPod(name);
    assert.deepEqual(metadata?.labels, { guarded: "yes", mine: "1", race: "0" });
  });

  it("a policy refuses a write with the error that an API server with webhooks would answer", async () => {
    await pods.createNamespacedPod({ namespace, body: buildPod("kept", { keep: "yes" }) });
    const requireRefusal = async (write: Promise<unknown>) => {
      const error = await write.then(
        () => assert.fail("the write was not refused"),
        (thrown) => thrown,
      );
      assert.ok(error instanceof ApiException, String(error));
      assert.equal(error.code, 403);
      const message = 'admission webhook "policy-validate.postern.dev" denied the request: it is kept';
      assert.equal(JSON.parse(error.body).message, message);
      assert.match(error.message, /it is kept/);
    };
    await requireRefusal(pods.deleteNamespacedPod({ name: "kept", namespace }));
    const objects = KubernetesObjectApi.makeApiClient(guarded);
    await requireRefusal(objects.delete({ apiVersion: "v1", kind: "Pod", metadata: { name: "kept", namespace } }));
    await readPod("kept");
    await pods.deleteNamespacedPod({ name: "created", namespace, gracePeriodSeconds: 0 });
    await assert.rejects(readPod("created"), /404/);
  });
  it("writes of @kubernetes/client-node get the errors that the API server itself answers", async () => {
    await pods.createNamespacedPod({ namespace, body: buildPod("twice") });
    const requireError = async (write: Promise<unknown>, code: number) =>
      assert.rejects(write, (error: ApiException<unknown>) => error.code === code);
    await requireError(pods.createNamespacedPod({ namespace, body: buildPod("twice") }), 409);
    await requireError(pods.deleteNamespacedPod({ name: "missing", namespace }), 404);
    await requireError(pods.replaceNamespacedPod({ name: "missing", namespace, body: buildPod("missing") }), 404);
    const body = [{ op: "remove", path: "/metadata/nothing" }];
    const strategy = setHeaderOptions("Content-Type", PatchStrategy.JsonPatch);
    await requireError(pods.patchNamespacedPod({ name: "twice", namespace, body }, strategy), 422);
  });
  it("writes about policies, and writes that no policy or rule matches, are sent unchanged", async () => {
    const objects = KubernetesObjectApi.makeApiClient(guarded);
    const spec = { resourceSelectors: [{ apiVersion: "v1", kind: "Secret" }], validateRules: [] };
    const stored = await objects.create(buildPolicy("ClusterValidatePolicy", "another", spec));
    assert.equal(stored.metadata?.name, "another");
    const eviction = { metadata: { name: "twice", namespace } };
    await pods.createNamespacedPodEviction({ name: "twice", namespace, body: eviction });
    const budgets = guarded.makeApiClient(PolicyV1Api);
    assert.deepEqual((await budgets.listNamespacedPodDisruptionBudget({ namespace })).items, []);
  });
  it("writes are evaluated if only the HTTP library of a configuration is guarded", async () => {
    const httpApi = postern.guardLibrary(new IsomorphicFetchHttpLibrary() as never, {
      policies: postern.readClusterPolicies,
    });
    const configuration = createConfiguration({
      baseServer: new ServerConfiguration(cluster.server, {}),
      authMethods: { default: config },
      httpApi: httpApi as never,
    });
    const client = new CoreV1Api(configuration);
    await client.createNamespacedPod({ namespace, body: buildPod("own") });
    assert.equal((await readPod("own")).metadata?.labels?.guarded, "yes");
  });
});
