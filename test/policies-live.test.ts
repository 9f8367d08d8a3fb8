import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { parse, parseAllDocuments, stringify } from "yaml";
import { worlds } from "#lib/cluster/live.ts";
import { memoryOf } from "#lib/cluster/memory.ts";
import type { KubernetesObject } from "#lib/review.ts";
import { merge } from "#lib/settings.ts";
import { findBinaries } from "./cluster/binaries.ts";
import type { Answer, Client } from "./cluster/client.ts";
import { bootCluster, type Cluster } from "./cluster/cluster.ts";
import { noticed, register, servePostern, until } from "./cluster/postern.ts";
import { exampleCases, normalised } from "./policies.ts";

// Policies in a real cluster, set up by the commands that the READMEs give: the kinds as they are, Postern served with
// the rights that its manifests give it and no others, and the entries that these policies need.
const binaries = await findBinaries();
const missing = "kube-apiserver and etcd are not here: npm run cluster builds them";
if (process.env.POSTERN_REQUIRE_ALL && !binaries) throw new Error(missing);

const root = fileURLToPath(new URL("..", import.meta.url));
/** For how long a change of a policy may go unnoticed, in milliseconds. */
const staleness = 10_000;

type Manifest = KubernetesObject & { metadata: { name?: string; namespace?: string } } & Record<string, unknown>;

const places: Record<string, string> = {
  CustomResourceDefinition: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
  ClusterOverridePolicy: "/apis/policy.kcloudlabs.io/v1alpha1/clusteroverridepolicies",
  ClusterValidatePolicy: "/apis/policy.kcloudlabs.io/v1alpha1/clustervalidatepolicies",
  OverridePolicy: "/apis/policy.kcloudlabs.io/v1alpha1/namespaces/NAMESPACE/overridepolicies",
  ClusterRole: "/apis/rbac.authorization.k8s.io/v1/clusterroles",
  ClusterRoleBinding: "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
  MutatingWebhookConfiguration: "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
  ValidatingWebhookConfiguration: "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
  ConfigMap: "/api/v1/namespaces/NAMESPACE/configmaps",
  Deployment: "/apis/apps/v1/namespaces/NAMESPACE/deployments",
  Namespace: "/api/v1/namespaces",
  Pod: "/api/v1/namespaces/NAMESPACE/pods",
  ReplicaSet: "/apis/apps/v1/namespaces/NAMESPACE/replicasets",
  Service: "/api/v1/namespaces/NAMESPACE/services",
};
const collectionOf = ({ kind = "", metadata }: KubernetesObject) =>
  String(places[kind]).replace("NAMESPACE", metadata?.namespace ?? "default");

const said = ({ body }: Answer) => String(body.message);
const of = (kind: string, name: string, spec: object, metadata: object = {}): Manifest => {
  return { apiVersion: "policy.kcloudlabs.io/v1alpha1", kind, metadata: { name, ...metadata }, spec };
};
const pods = [{ apiVersion: "v1", kind: "Pod" }];
const pod = (name: string, metadata: object = {}): Manifest => ({
  ...{ apiVersion: "v1", kind: "Pod", metadata: { name, namespace: "default", ...metadata } },
  ...{ spec: { containers: [{ name: "c", image: "nginx" }] } },
});
/** Writes an annotation. */
const writes = (key: string, value: string, resourceSelectors: object[] = pods) => ({
  resourceSelectors,
  overrideRules: [
    { overriders: { template: { type: "annotations", operation: "add", path: key, value: { string: value } } } },
  ],
});

/** As `kubectl apply --server-side` does it. */
const applyAs = (client: Client, object: KubernetesObject): Promise<Answer> =>
  client({
    ...{ method: "PATCH", contentType: "application/apply-patch+yaml", body: object },
    path: `${pathOf(object)}?fieldManager=kubectl&force=true`,
  });
const pathOf = (object: KubernetesObject) => `${collectionOf(object)}/${object.metadata?.name}`;

/** Has a cluster serve the kinds of policies, from their files as they are. */
const serveKinds = async (client: Client): Promise<void> => {
  const crds = join(root, "functions/policy-admission/crds");
  for (const file of await readdir(crds)) {
    const answer = await applyAs(client, parse(await readFile(join(crds, file), "utf8")));
    assert.ok(answer.code < 300, said(answer));
  }
  const kinds = ["ClusterOverridePolicy", "ClusterValidatePolicy", "OverridePolicy"];
  const isServed = async (kind: string) => (await client({ method: "GET", path: collectionOf({ kind }) })).code === 200;
  await until("the kinds are not served", async () => (await Promise.all(kinds.map(isServed))).every(Boolean));
};

describe("policies on a real API server", { skip: binaries ? false : missing }, () => {
  let cluster: Cluster;
  let admin: Client;
  let folder = "";
  let url = "";
  let printed = "";
  const stops: (() => unknown)[] = [];

  const kubeconfig = async (user: string): Promise<string> => {
    const file = join(folder, `${user}.kubeconfig`);
    const { server, ca } = cluster;
    const named = { name: "here" };
    const content = {
      ...{ apiVersion: "v1", kind: "Config", "current-context": "here" },
      clusters: [{ ...named, cluster: { server, "certificate-authority-data": Buffer.from(ca).toString("base64") } }],
      users: [{ ...named, user: { token: cluster.tokenOf(user) } }],
      contexts: [{ ...named, context: { cluster: "here", user: "here" } }],
    };
    await writeFile(file, JSON.stringify(content), { mode: 0o600 });
    return file;
  };
  const postern = (...words: string[]) => {
    const { NODE_TEST_CONTEXT: _, ...env } = process.env;
    return spawn(process.execPath, ["infra/postern.js", ...words], { cwd: root, env });
  };
  const printedBy = async (...words: string[]) => {
    const child = postern(...words);
    const texts = { out: "", err: "" };
    child.stdout.on("data", (text) => (texts.out += text));
    child.stderr.on("data", (text) => (texts.err += text));
    const [code] = await once(child, "close");
    assert.equal(code, 0, texts.err);
    return texts;
  };
  const apply = (object: Manifest) => applyAs(admin, object);
  const applied = async (object: Manifest) => {
    const answer = await apply(object);
    assert.ok(answer.code < 300, `${object.kind} ${object.metadata.name}: ${said(answer)}`);
    return answer;
  };
  const create = (object: KubernetesObject, query = "") =>
    admin({ method: "POST", path: `${collectionOf(object)}${query}`, body: object });
  const remove = async (object: Manifest) => {
    await admin({ method: "DELETE", path: `${collectionOf(object)}/${object.metadata.name}` });
  };
  /** What `npx postern manifests | kubectl apply -f -` does. */
  const renew = async () => {
    const { out, err } = await printedBy(
      ...["manifests", "--config", join(folder, "postern.yaml"), "--url", url, "--ca", join(folder, ".postern/ca.crt")],
      ...["--kubeconfig", await kubeconfig("admin")],
    );
    const manifests: Manifest[] = parseAllDocuments(out).map((document) => document.toJS());
    for (const manifest of manifests) await applied(manifest);
    return { manifests, notes: err };
  };
  /** Until an object that is tried, dry, is answered so. */
  const soon = async (object: KubernetesObject, isSo: (answer: Answer) => boolean) => {
    let last: Answer | undefined;
    const isAnsweredSo = async () => {
      last = await create(object, "?dryRun=All");
      return isSo(last);
    };
    await until("", isAnsweredSo).catch(() => {
      assert.fail(`${object.metadata?.name} is still answered with ${JSON.stringify(last)}`);
    });
  };
  const annotation = ({ body }: Answer, key: string) => Object(Object(body.metadata).annotations)[key];

  before(async () => {
    assert.ok(binaries);
    folder = await mkdtemp(join(tmpdir(), "postern-policies-"));
    stops.push(() => rm(folder, { recursive: true, force: true }));
    const users = { functions: ["override", "validate", "admission"].map((rule) => `postern:policy-${rule}`) };
    cluster = await bootCluster(binaries, { rbac: true, users });
    stops.push(cluster.stop);
    admin = cluster.admin;

    const rules = {
      "policy-override": {
        failurePolicy: "Fail",
        settings: { http: { hosts: ["169.254.169.254", "localhost:1"] } },
      },
      ...{ "policy-validate": { failurePolicy: "Fail" }, "policy-admission": { failurePolicy: "Fail" } },
    };
    const config = { rules, clusters: { local: { connect: { kubeconfig: await kubeconfig("functions") } } } };
    await writeFile(join(folder, "postern.yaml"), stringify(config));
    const gateway = postern("serve", "--port", "0", "--config", join(folder, "postern.yaml"));
    stops.push(async () => {
      gateway.kill("SIGINT");
      await once(gateway, "exit");
    });
    for (const stream of [gateway.stdout, gateway.stderr]) stream.on("data", (text) => (printed += text));
    await until("the gateway did not start", () => /https:\/\/\S+policy-override/.test(printed));
    url = /https:\/\/[^/\s]+/.exec(printed)?.[0] ?? "";

    await serveKinds(admin);
  });
  after(async () => {
    for (const stop of stops.reverse()) await stop();
  });

  it("has entries for policies alone, as long as there are none", async () => {
    const { manifests } = await renew();
    const entries = manifests.flatMap(({ webhooks }) => (Array.isArray(webhooks) ? webhooks : []));
    assert.deepEqual([...new Set(entries.map(({ name }) => name))], ["policy-admission.postern.dev"]);
    await until("admission is not asked", async () => {
      const answer = await create(
        of("ClusterOverridePolicy", "probe", {
          overrideRules: [{ overriders: { template: { type: "labels", operation: "add" } } }],
        }),
        "?dryRun=All",
      );
      return answer.code === 403;
    });
  });

  it("refuses a broken policy with all that is wrong with it, and admits it when it is mended", async () => {
    const broken = of("ClusterValidatePolicy", "broken", {
      validateRules: [
        { template: { type: "condition", condition: { cond: "Gt", dataRef: { from: "current", path: "" } } } },
        { cue: "object: _\nvalidate: {valid: objekt.a}" },
      ],
    });
    const refused = await apply(broken);
    assert.equal(refused.code, 403);
    assert.match(said(refused), /spec\.validateRules\[0\]\.template\.condition\.dataRef\.path/);
    const scripted = await apply({ ...broken, spec: { validateRules: [Object(broken.spec).validateRules[1]] } });
    assert.match(said(scripted), /spec\.validateRules\[0\]\.cue.*reference "objekt" not found/s);
    const mended = await apply({
      ...broken,
      spec: { validateRules: [{ cue: "object: _\nvalidate: {valid: object.a}" }] },
    });
    assert.ok(mended.code < 300, said(mended));
    await remove(broken);
  });

  it("warns of a policy that no entry serves, and serves it when the entries are renewed", async () => {
    const policy = of("ClusterOverridePolicy", "owner", writes("owner", "web"));
    const { warnings, body } = await applied(policy);
    assert.ok(
      warnings.some((one) => /policy-override.*pods.*postern manifests/i.test(one)),
      warnings.join("\n"),
    );
    const [rule] = Object(body.spec).overrideRules;
    assert.match(rule.overriders.renderedCue, /patches/);

    const { manifests } = await renew();
    const [entry] = manifests.flatMap(({ kind, webhooks }) =>
      kind === "MutatingWebhookConfiguration" && Array.isArray(webhooks)
        ? webhooks.filter(({ name }) => name.startsWith("policy-override"))
        : [],
    );
    assert.deepEqual(entry.rules, [
      { apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE", "UPDATE"], scope: "*" },
    ]);
    await soon(pod("a"), (answer) => annotation(answer, "owner") === "web");
    assert.deepEqual((await applied(of("ClusterOverridePolicy", "other", writes("other", "web")))).warnings, []);
    await remove(of("ClusterOverridePolicy", "other", {}));
  });

  it("sees a changed policy and one that is gone within ten seconds", async () => {
    await applied(of("ClusterOverridePolicy", "owner", writes("owner", "api")));
    await wait(staleness);
    assert.equal(annotation(await create(pod("a"), "?dryRun=All"), "owner"), "api");
    await remove(of("ClusterOverridePolicy", "owner", {}));
    await wait(staleness);
    assert.equal(annotation(await create(pod("a"), "?dryRun=All"), "owner"), undefined);
  });

  it("does not let a policy lock out what mends it", async () => {
    const everything = of("ClusterValidatePolicy", "everything", {
      validateRules: [{ cue: 'validate: {valid: false, reason: "nothing is let in"}' }],
    });
    const failing = of("ClusterOverridePolicy", "failing", {
      overrideRules: [{ overriders: { plaintext: [{ op: "remove", path: "/metadata/nothing" }] } }],
    });
    await applied(everything);
    await applied(failing);
    await renew();
    await soon(pod("a"), (answer) => /ClusterOverridePolicy failing, overrideRules\[0\]/.test(said(answer)));
    await remove(failing);
    await soon(pod("a"), (answer) => /denied the request: nothing is let in/.test(said(answer)));
    const service = {
      apiVersion: "v1",
      kind: "Service",
      metadata: { name: "s", namespace: "default" },
      spec: { ports: [{ port: 1 }] },
    };
    await soon(service, (answer) => /nothing is let in/.test(said(answer)));
    await applied({ ...everything, spec: { validateRules: [{ cue: "validate: {valid: true}" }] } });
    await soon(pod("a"), ({ code }) => code === 201);
    await remove(everything);
  });

  it("bounds what hostile policies do", async () => {
    const hostile: [string, object, RegExp][] = [
      [
        "loop",
        {
          cue: `import "list"\nobject: _\nx: list.Range(0, 100000000 * len(object.spec.containers), 1)\npatches: [for i in x {op: "add", path: "/metadata/annotations/\\(i)", value: "a"}]`,
        },
        /time|memory|long/,
      ],
      [
        "grow",
        {
          cue: `import "strings"\nobject: _\npatches: [{op: "add", path: "/metadata/annotations/a", value: strings.Repeat("x", 1000000000 * len(object.spec.containers))}]`,
        },
        /time|memory|characters/,
      ],
      [
        "imds",
        {
          template: {
            type: "annotations",
            operation: "add",
            path: "a",
            valueRef: {
              from: "http",
              path: "role",
              http: { url: "http://169.254.169.254/latest/meta-data/", method: "GET" },
            },
          },
        },
        /169\.254\.169\.254/,
      ],
      [
        "local",
        {
          template: {
            type: "annotations",
            operation: "add",
            path: "a",
            valueRef: { from: "http", path: "role", http: { url: "https://localhost:1/", method: "GET" } },
          },
        },
        /127\.0\.0\.1/,
      ],
      [
        "secret",
        {
          template: {
            type: "annotations",
            operation: "add",
            path: "a",
            valueRef: {
              from: "k8s",
              path: "data.a",
              k8s: { apiVersion: "v1", kind: "Secret", namespace: "default", name: "s" },
            },
          },
        },
        /Secrets are read only where/,
      ],
    ];
    for (const [name, overriders, sentence] of hostile) {
      const policy = of("ClusterOverridePolicy", name, { resourceSelectors: pods, overrideRules: [{ overriders }] });
      await applied(policy);
      await renew();
      await soon(
        pod("a"),
        (answer) =>
          answer.code >= 500 && sentence.test(said(answer)) && said(answer).includes(`ClusterOverridePolicy ${name}`),
      );
      await remove(policy);
      await soon(pod("a"), ({ code }) => code === 201);
    }
    const tool = await apply(
      of("ClusterOverridePolicy", "tool", {
        overrideRules: [{ overriders: { cue: 'import "tool/exec"\npatches: []' } }],
      }),
    );
    assert.equal(tool.code, 403);
    assert.match(said(tool), /tool\/exec/);
  });
});

describe("the example policies on a real API server", { skip: binaries ? false : missing }, () => {
  let cluster: Cluster;
  let postern: Awaited<ReturnType<typeof servePostern>>;
  let service: Awaited<ReturnType<typeof openService>>;
  const answers = new Map<string, unknown>();

  before(async () => {
    assert.ok(binaries);
    cluster = await bootCluster(binaries);
    await serveKinds(cluster.admin);
    service = await openService(answers);
    const settings = { intercept: [{ apiGroups: ["*"], apiVersions: ["*"], resources: ["*"] }] };
    const http = { hosts: [new URL(service.url).host], addresses: ["127.0.0.1/32"] };
    const applying = { failurePolicy: "Fail", settings: { ...settings, http } };
    const rules = { "policy-override": applying, "policy-validate": applying };
    const yaml = stringify({ rules: { ...rules, "policy-admission": { failurePolicy: "Fail" } } });
    const connection = { server: cluster.server, ca: cluster.ca, credentials: { token: cluster.tokenOf("admin") } };
    // What was read is forgotten at once: a policy holds as soon as it is there.
    postern = await servePostern(yaml, worlds({ local: connection }, memoryOf({ entries: 0, bytes: 0 })));
    await register(cluster.admin, postern.manifests());
    const probe = of("ClusterOverridePolicy", "probe", {
      overrideRules: [{ overriders: { template: { type: "labels", operation: "add" } } }],
    });
    await noticed(
      () => cluster.admin({ method: "POST", path: `${collectionOf(probe)}?dryRun=All`, body: probe }),
      () => postern.reports.length > 0,
    );
    await noticed(
      () => cluster.admin({ method: "POST", path: `${collectionOf(pod("probe"))}?dryRun=All`, body: pod("probe") }),
      () => ["policy-override", "policy-validate"].every((name) => postern.reports.some(({ rule }) => rule === name)),
    );
  });
  after(async () => {
    await postern?.stop();
    await cluster?.stop();
    await service?.stop();
  });

  /** Something that a request must find, or that is in its way. */
  const put = async (object: KubernetesObject) => {
    const { admin } = cluster;
    // Nobody here would finish the deletion of a namespace.
    const isKept = object.kind === "Namespace";
    if (!isKept) await admin({ method: "DELETE", path: `${pathOf(object)}?gracePeriodSeconds=0` });
    const answer = isKept
      ? await applyAs(admin, object)
      : await admin({ method: "POST", path: collectionOf(object), body: object });
    assert.ok(answer.code < 300, said(answer));
  };

  for (const one of exampleCases)
    it(one.id, async () => {
      const { operation, expect, cluster: there = [], http = [] } = one;
      const named = operation === "DELETE" ? one.oldObject : one.object;
      assert.ok(named);
      // What is there already can't be created.
      const isNew = operation === "CREATE";
      const object = isNew ? { ...named, metadata: { ...named.metadata, name: `${named.metadata?.name}-new` } } : named;
      for (const neighbour of there) await put(merge(workload, neighbour));
      if (!isNew) await put(one.oldObject ?? object);
      answers.clear();
      for (const { path, body } of http) answers.set(path, body);
      const policies: Manifest[] = one.policies.map((policy) =>
        JSON.parse(JSON.stringify(policy).replaceAll("http://mock/", `${service.url}/`)),
      );
      try {
        for (const policy of policies) {
          const { code, body } = await applyAs(cluster.admin, policy);
          assert.equal(code < 300, expect.policy !== "rejected", String(body.message));
        }
        if (expect.policy === "rejected") return;
        const { method, path } = ways[operation];
        const answer = await cluster.admin({
          method,
          path: `${path(object)}?dryRun=All`,
          ...(operation !== "DELETE" && { body: object }),
        });
        if (expect.error) {
          assert.equal(answer.code, 500);
          assert.match(said(answer), /Policy .*Rules\[\d+\]: /);
        } else if (isRefusedByKubernetes(one)) {
          assert.equal(answer.code, 422);
          assert.match(said(answer), /spec\.affinity\.nodeAffinity\.preferred\S+matchFields\[0\]\.key/);
          return;
        } else if (expect.allowed === false)
          assert.match(said(answer), new RegExp(`denied the request: ${expect.reason}$`));
        else assert.ok(answer.code < 300, said(answer));
        if (expect.object) {
          const metadata = { ...expect.object.metadata, name: object.metadata?.name };
          const expected = { ...expect.object, metadata };
          assert.deepEqual(within(expected, answer.body), normalised(expected));
        }
      } finally {
        for (const policy of policies) await cluster.admin({ method: "DELETE", path: pathOf(policy) });
      }
    });
});

/** What the API server makes of an affinity that the example has: the policy put it there all the same. */
const isRefusedByKubernetes = ({ id }: { id: string }) => id.startsWith("affinity/");

/** What workloads must have, and cases leave out. */
const labels = { app: "web" };
const { spec } = pod("any");
const workload = { spec: { selector: { matchLabels: labels }, template: { metadata: { labels }, spec } } };

const ways = {
  CREATE: { method: "POST", path: collectionOf },
  UPDATE: { method: "PUT", path: pathOf },
  DELETE: { method: "DELETE", path: pathOf },
  CONNECT: { method: "GET", path: pathOf },
} as const;

/** What the API server made of an object, as far as it was expected: it fills in much that nobody asked for. */
const within = (expected: unknown, actual: unknown, isWhole = false): unknown => {
  if (isWhole) return normalised(actual);
  if (Array.isArray(expected) && Array.isArray(actual))
    return actual.map((inner, index) => within(expected[index], inner));
  if (typeof expected !== "object" || expected === null || Array.isArray(expected)) return actual;
  const entries = Object.entries(Object(actual)).flatMap(([key, inner]) => {
    const isExpected = Object.hasOwn(expected, key);
    return isExpected || whole.has(key) ? [[key, within(Reflect.get(expected, key), inner, whole.has(key))]] : [];
  });
  return normalised(Object.fromEntries(entries));
};
const whole = new Set(["annotations", "labels", "resources", "affinity"]);

/** A service that answers with JSON under the paths that it is told. */
const openService = async (answers: Map<string, unknown>) => {
  const server = createServer(({ url = "" }, response) => {
    const { pathname } = new URL(url, "http://mock");
    response.statusCode = answers.has(pathname) ? 200 : 404;
    response.end(JSON.stringify(answers.get(pathname) ?? {}));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  return { url: `http://127.0.0.1:${port}`, stop: () => server.close() };
};
