import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { cp, mkdir, readFile, readlink, realpath, symlink, writeFile } from "node:fs/promises";
import { createServer } from "node:https";
import { dirname, join } from "node:path";
import { before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { stripVTControlCharacters } from "node:util";
import { parse, stringify } from "yaml";
import { readOrCreateServerCertificate } from "../../infra/keys/keys.ts";
import type { ProgramOutput } from "../checkout.ts";
import { createTestFolder } from "../folders.ts";
import { close, listen } from "../listen.ts";
import { needs } from "../parts.ts";
import { runVerb } from "../verb.ts";

// These tests run `npx postern check` in a folder of manifests.
const program = fileURLToPath(new URL("../../infra/postern.js", import.meta.url));
const folder = await createTestFolder();
const needsModule = await needs("Kubernetes module");

const fixtures = fileURLToPath(new URL("../fixtures/check/", import.meta.url));
const [deploymentText = "", podsText = "", servicesText = ""] = await Promise.all(
  ["web.yaml", "deep/pods.yaml", "list.json"].map((name) => readFile(join(fixtures, "k8s", name), "utf8")),
);

before(async () => {
  await cp(fixtures, folder, { recursive: true });
  await mkdir(join(folder, "empty"));
});

const write = async (name: string, text: string): Promise<void> => {
  await mkdir(dirname(join(folder, name)), { recursive: true });
  await writeFile(join(folder, name), text);
};

/**
 * Runs `npx postern check …` until it ends: by default with postern.yaml, for the cluster `test`, and without the API
 * server's plugins, because their answers depend on the objects in a cluster.
 */
const check = (words: string[], stdin = "", cluster = "test", plugins = ["--plugins=none"]): Promise<ProgramOutput> => {
  const config = words.includes("--config") ? [] : ["--config", "postern.yaml"];
  return runVerb(folder, ["check", ...config, "--cluster", cluster, ...words, ...plugins], stdin);
};

/** The argument `plugins` of `check` for the plugins that are on by default. */
const defaultPlugins: string[] = [];

/** Runs `npx postern check … -o json`, and returns the parsed output. */
const runJson = async (words: string[], stdin?: string, cluster?: string) => {
  const { code, stdout, stderr } = await check([...words, "-o", "json"], stdin, cluster);
  assert.notEqual(stdout, "", stderr);
  const { objects, summary, faults, notes } = JSON.parse(stdout);
  return { code, objects: objects as any[], summary, faults: faults as any[], notes: notes as string[] };
};

const buildPod = (name: string, spec: object = {}, metadata: object = {}) => {
  const resources = { requests: { cpu: "1" } };
  const container = { name: "a", image: "docker.io/a:1", imagePullPolicy: "Always", resources };
  return { apiVersion: "v1", kind: "Pod", metadata: { name, ...metadata }, spec: { containers: [container], ...spec } };
};
/** Builds a recorded review. */
const buildReview = (kind: string, resource: string, requestFields: object, group = "", version = "v1") => ({
  apiVersion: "admission.k8s.io/v1",
  kind: "AdmissionReview",
  request: {
    uid: "u",
    kind: { group, version, kind },
    resource: { group, version, resource },
    namespace: "shop",
    operation: "CREATE",
    userInfo: { username: "jane" },
    oldObject: null,
    options: null,
    ...requestFields,
  },
});
const copyAnnotation = "kubectl.kubernetes.io/last-applied-configuration";
const joinDocuments = (...objects: object[]) => objects.map((object) => stringify(object)).join("---\n");

describe("postern check", () => {
  it("check prints no value of a Secret in any output format, with and without --fix", async () => {
    const metadata = { name: "db", annotations: { [copyAnnotation]: '{"data":{"password":"S3cret-applied"}}' } };
    const secret = { apiVersion: "v1", kind: "Secret", metadata };
    await write(
      "secrets/wrong.yaml",
      joinDocuments(
        { ...secret, data: { password: "S3cret-pa55!" }, stringData: { pin: 48151623 } },
        {
          apiVersion: "v1",
          kind: "List",
          items: [
            { ...secret, data: "S3cret-text" },
            { ...secret, data: ["S3cret-list"] },
          ],
        },
        { ...secret, metadata: { name: "map", annotations: { [copyAnnotation]: { a: "S3cret-map" } } } },
        { ...secret, stringData: { fine: "S3cret-fine" } },
      ),
    );
    await write("secrets/broken.yaml", "apiVersion: v1\nkind: Secret\nstringData:\n  a: *S3cret-alias\n");
    for (const format of ["text", "json", "junit", "sarif", "github", "policyreport"])
      for (const fix of [[], ["--fix"]]) {
        const { code, stdout, stderr } = await check(["secrets", "-o", format, ...fix]);
        assert.equal(code, 1);
        assert.match(stdout, /data\.password must be a text in base64, not .*\*\*\*/);
        assert.doesNotMatch(stdout + stderr, /S3cret|48151623/);
      }
    const { stderr } = await check(["k8s", "--state", "secrets/broken.yaml"]);
    assert.match(stderr, /an alias stands before its anchor/);
    assert.doesNotMatch(stderr, /S3cret/);
  });
  it("check reports the verdict of every object in a folder, with the line of each denied field", async () => {
    const { code, stdout, stderr } = await check(["k8s"]);
    assert.equal(code, 1);
    assert.equal(stdout, stripVTControlCharacters(stdout), "no terminal, no colours");
    assert.match(
      stdout,
      /^Service default\/s k8s\/list.json:1 denied\n {2}denied by deny-service-external-ips: services "s" is forbidden: /m,
    );
    assert.match(
      stdout,
      /^Deployment shop\/web k8s\/web.yaml:2 allowed\n {2}for the audit log, minimum-replicas would deny: /m,
    );
    assert.match(
      stdout,
      /^Deployment shop\/web \(its Pods\) k8s\/web.yaml:2 denied\n {2}denied by allowed-registries: .* k8s\/web.yaml:15$/m,
    );
    assert.match(
      stdout,
      /^Pod shop\/two k8s\/deep\/pods.yaml:13 denied\n {2}denied by allowed-registries: images must come from docker.io; container "b" has evil.example\/b k8s\/deep\/pods.yaml:21$/m,
    );
    assert.match(
      stdout,
      /^Pod default\/one k8s\/deep\/pods.yaml:1 changed\n(?: {2}.*\n)* {2}changed by always-pull-images\n {4}@@ /m,
    );
    assert.match(stdout, /\n {4}- +imagePullPolicy: IfNotPresent\n {4}\+ +imagePullPolicy: Always\n/);
    assert.match(stdout, /\n5 objects: 1 allowed, 1 changed, 3 denied\n$/);
    assert.match(stderr, /^k8s\/values.yaml holds no manifest, and is left out$/m);
    assert.match(
      stderr,
      /^Assumed of the cluster: namespaces? .*shop.* exists?, without limits, quotas or Pod Security labels/m,
    );
  });

  it("check evaluates the plugins of an assumed API server, of an unknown one, or of that of --state", async () => {
    const pod = buildPod("p", {}, { namespace: "shop" });
    await write("shop.yaml", stringify({ apiVersion: "v1", kind: "Namespace", metadata: { name: "shop" } }));
    const words = ["-", "--rules", "always-admit", "--all"];
    const assumed = await check(words, stringify(pod), "test", defaultPlugins);
    assert.deepEqual([assumed.code, assumed.stdout.split("\n")[0]], [0, "Pod shop/p standard input:1 allowed"]);
    assert.equal(
      assumed.stderr,
      "Assumed of the cluster: namespace shop exists, without limits, quotas or Pod Security labels; only the priorityclasses of the manifests exist (give --state or --live)\n",
    );
    // With --strict, nothing is assumed of the cluster.
    const unknown = await check([...words, "--strict"], stringify(pod), "test", defaultPlugins);
    assert.equal(unknown.code, 3);
    assert.match(unknown.stdout, /^Pod shop\/p standard input:1 undecided$/m);
    for (const plugin of ["NamespaceLifecycle: whether", "LimitRanger: which", "PodSecurity: what", "Priority: which"])
      assert.ok(unknown.stdout.includes(`\n  undecided ${plugin} `), unknown.stdout);
    const withState = await check([...words, "--state", "shop.yaml"], stringify(pod), "test", defaultPlugins);
    assert.deepEqual([withState.code, withState.stdout.split("\n")[0]], [0, "Pod shop/p standard input:1 allowed"]);
  });

  it("check denies unknown fields as kubectl does, and warns of repeated keys", async () => {
    await write("typo.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  name: b\ndate: {}\n");
    const { code, stdout } = await check(["typo.yaml"]);
    assert.equal(code, 1);
    assert.equal(
      stdout,
      [
        "ConfigMap default/b typo.yaml:1 denied",
        '  denied by the API server: unknown field "date"; did you mean data? typo.yaml:6',
        "  warning of field validation: name is there more than once; the last one counts, in line 5",
        "1 object: 1 denied, 1 warning\n",
      ].join("\n"),
    );
    const warned = await check(["typo.yaml", "--validate", "warn"]);
    assert.equal(warned.code, 0);
    assert.match(warned.stdout, /^ {2}warning of field validation: unknown field "date"$/m);
    const ignored = await check(["typo.yaml", "--validate", "ignore"]);
    assert.equal(ignored.code, 0);
    assert.doesNotMatch(ignored.stdout, /unknown field/);
    const wrongValue = await check(["typo.yaml", "--validate", "yes"]);
    assert.deepEqual([wrongValue.code, wrongValue.stderr], [2, '--validate takes strict, warn or ignore, not "yes"\n']);
  });

  it("check names the rule of each changed line if several rules changed the object", async () => {
    const pod = buildPod("p", { containers: [{ name: "a", image: "docker.io/a:1" }] });
    const { code, stdout } = await check(["-"], stringify(pod));
    assert.equal(code, 0);
    assert.match(stdout, /@@ default-requests-and-limits, always-pull-images\n/);
    assert.match(stdout, /\n {4}\+ +cpu: 100m {2}# default-requests-and-limits\n/);
    assert.match(stdout, /\n {4}\+ +imagePullPolicy: Always {2}# always-pull-images\n/);
    assert.equal(stdout.split("@@").length - 1, 2, "the output has one hunk");
  });

  it("check reads standard input, globs, and lists such as a PodList", async () => {
    const list = { apiVersion: "v1", kind: "PodList", items: [{ metadata: { name: "x" }, spec: {} }] };
    const { objects } = await runJson(["-", "k8s/*.json"], stringify(list));
    assert.deepEqual(objects.map(({ kind, name, file }) => [kind, name, file]).sort(), [
      ["Pod", "x", "-"],
      ["Service", "s", "k8s/list.json"],
    ]);
  });

  it("check evaluates the rules that postern.yaml has for the cluster, or those of --rules", async () => {
    const rootPod = joinDocuments(buildPod("root", { securityContext: { runAsUser: 0 } }));
    const [loose, strict] = [await runJson(["-"], rootPod), await runJson(["-"], rootPod, "strict")];
    assert.deepEqual([loose.code, loose.objects[0].warnings[0].rule], [0, "security-context-deny"]);
    assert.match(loose.objects[0].warnings[0].text, /^would deny: pods "root" is forbidden/);
    assert.deepEqual([strict.code, strict.objects[0].denials[0].rule], [1, "security-context-deny"]);
    assert.equal(strict.objects[0].denials[0].line, 14);
    const onlyAlwaysDeny = await runJson(["-", "--rules", "always-deny"], rootPod);
    assert.deepEqual(
      onlyAlwaysDeny.objects[0].denials.map(({ rule }: any) => rule),
      ["always-deny"],
    );
  });

  it("check evaluates rules for the cluster's minor of Kubernetes, or for the minor of --kubernetes", async () => {
    const labels = { "pod-security.kubernetes.io/enforce": "restricted" };
    const securityContext = { allowPrivilegeEscalation: false, capabilities: { drop: ["ALL"] } };
    // With hostUsers: false, runAsNonRoot isn't required since Kubernetes 1.35.
    const spec = {
      hostUsers: false,
      securityContext: { seccompProfile: { type: "RuntimeDefault" } },
      containers: [{ name: "a", image: "docker.io/a:1", securityContext }],
    };
    const pod = buildPod("root", spec, { namespace: "shop" });
    const namespace = { apiVersion: "v1", kind: "Namespace", metadata: { name: "shop", labels } };
    await write("labelled.yaml", stringify(namespace));
    const findVerdict = async (words: string[], cluster?: string) => {
      const command = ["-", "--rules", "pod-security", "--state", "labelled.yaml", ...words];
      return (await runJson(command, stringify(pod), cluster)).objects[0].verdict;
    };
    assert.equal(await findVerdict([]), "allowed");
    assert.equal(await findVerdict(["--kubernetes", "1.34"]), "denied");
    assert.equal(await findVerdict([], "older"), "denied");
    assert.equal(await findVerdict(["--kubernetes", "1.35"], "older"), "allowed");
  });

  it("check evaluates updates of existing objects, and deletions", async () => {
    const scaleDeployment = (replicas: number) => parse(deploymentText.replace("replicas: 1", `replicas: ${replicas}`));
    await write("old.yaml", stringify(scaleDeployment(3)));
    const words = ["-", "--rules", "minimum-replicas", "-n", "shop"];
    const update = await runJson([...words, "--old", "old.yaml"], stringify(scaleDeployment(1)));
    assert.equal(update.objects[0].hooks[0].outcome, "called");
    const unknown = await runJson([...words, "--operation", "UPDATE"], stringify(scaleDeployment(1)));
    assert.deepEqual(
      [unknown.code, unknown.objects[0].undecided],
      [3, ["there is nothing to update; --old or --state must hold it as it is now"]],
    );
    const deletionWords = ["-", "--operation", "delete", "--rules", "always-deny"];
    const deletion = await runJson(deletionWords, joinDocuments(buildPod("gone")));
    assert.equal(deletion.objects[0].verdict, "denied");
  });

  it("check evaluates the Pods of workloads, with the workload's name and the template's lines", async () => {
    const { objects, code } = await runJson(["k8s/web.yaml"]);
    assert.equal(code, 1);
    const predictedPod = objects.find(({ madeBy }) => madeBy === "Deployment web");
    assert.deepEqual(
      [predictedPod.kind, predictedPod.namespace, predictedPod.name, predictedPod.verdict],
      ["Pod", "shop", "web-", "denied"],
    );
    assert.deepEqual([predictedPod.denials[0].rule, predictedPod.denials[0].line], ["allowed-registries", 15]);
    const without = await runJson(["k8s/web.yaml", "--no-pod-templates"]);
    assert.deepEqual([without.code, without.objects.length], [0, 1]);
    const deletions = await runJson(["k8s/web.yaml", "--operation", "DELETE"]);
    assert.deepEqual([deletions.code, deletions.objects.length], [0, 1]);

    const text = stringify(buildReview("Deployment", "deployments", { object: parse(deploymentText) }, "apps"));
    await write("workload.yaml", text);
    const reviewed = await runJson(["--review", "workload.yaml"]);
    const line = text.slice(0, text.indexOf("image:")).split("\n").length;
    assert.equal(reviewed.objects[1].denials[0].line, line);
  });

  it("check evaluates requests of the given user, with the groups that an API server adds", async () => {
    const groups = `clusters: { test: { rules: { always-deny: { exempt: { groups: ["system:serviceaccounts:shop"] } } } } }`;
    await write("groups.yaml", `rules: {}\n${groups}\n`);
    const getVerdict = async (...words: string[]) =>
      (await runJson(["-", "--config", "groups.yaml", ...words], joinDocuments(buildPod("p")))).objects[0].verdict;
    const builder = ["--as", "system:serviceaccount:shop:builder"];
    assert.equal(await getVerdict(...builder), "allowed");
    // --as-group replaces all groups, as in kubectl.
    assert.equal(await getVerdict(...builder, "--as-group", "team"), "denied");
    assert.equal(await getVerdict("--as", "jane", "--as-group", "system:serviceaccounts:shop"), "allowed");
    assert.equal(await getVerdict("--as", "system:serviceaccount:other:builder"), "denied");
  });

  it("check evaluates recorded reviews of any kind", async () => {
    const object = { apiVersion: "v1", kind: "PodExecOptions", command: ["sh"] };
    const exec = { subResource: "exec", name: "p", operation: "CONNECT", object };
    const reviews = [exec, { ...exec, uid: 7 }].map((fields) => buildReview("PodExecOptions", "pods", fields));
    await write("reviews.yaml", joinDocuments(...reviews));
    const { objects, code } = await runJson(["--review", "reviews.yaml", "--rules", "always-deny"]);
    assert.equal(code, 1);
    assert.deepEqual(
      objects.map(({ verdict }) => verdict),
      ["denied", "undecided"],
    );
    assert.match(objects[1].undecided[0], /request.uid must be a non-empty string/);
  });

  it("check reports that no rule matches an unknown kind", async () => {
    const widget = { apiVersion: "shop.example/v1", kind: "Widget", metadata: { name: "x" } };
    const { code, stdout } = await check(["-", "--all"], joinDocuments(widget, buildPod("p")));
    assert.equal(code, 0);
    assert.match(
      stdout,
      /^Widget x standard input:1 allowed\n {2}no rule concerns its kind, which is not known here$/m,
    );
    assert.match(stdout, /\n2 objects: 2 allowed \(1 no rule\)\n$/);
  });

  it("check is undecided about other programs' webhooks, and calls only those at hosts of --call", async (test) => {
    const state = join(folder, ".postern");
    const certificate = await readOrCreateServerCertificate(state, "127.0.0.1");
    const requests: any[] = [];
    const server = createServer({ cert: certificate.cert, key: certificate.key }, (request, response) => {
      let body = "";
      request.on("data", (chunk) => {
        body += chunk;
      });
      request.on("end", () => {
        const review = JSON.parse(body);
        requests.push({ url: request.url, dryRun: review.request.dryRun });
        if (request.url?.startsWith("/on")) {
          response.writeHead(307, { location: "https://far.example/judge" }).end();
          return;
        }
        const status = { code: 403, message: "not on a Friday" };
        const answer = { uid: review.request.uid, allowed: false, status, warnings: ["rest", "", "a\u0007b"] };
        response.setHeader("content-type", "application/json");
        response.end(JSON.stringify({ ...review, request: undefined, response: answer }));
      });
    });
    const port = await listen(server);
    test.after(() => close(server));
    const buildHook = (name: string, url: string, fields: object = {}) => ({
      name,
      clientConfig: { url, caBundle: Buffer.from(certificate.ca).toString("base64") },
      sideEffects: "None",
      rules: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE"] }],
      admissionReviewVersions: ["v1"],
      ...fields,
    });
    const team = { namespaceSelector: { matchLabels: { team: "a" } } };
    const webhooks = [
      buildHook("friday.other.example", `https://127.0.0.1:${port}/judge`),
      buildHook("far.other.example", "https://far.example/judge"),
      buildHook("team.other.example", "https://far.example/judge", team),
    ];
    const configuration = {
      apiVersion: "admissionregistration.k8s.io/v1",
      kind: "ValidatingWebhookConfiguration",
      metadata: { name: "other" },
      webhooks,
    };
    await write("webhooks.yaml", stringify(configuration));
    const words = ["-", "--webhooks", "webhooks.yaml"];

    const harmful = buildHook("harmful.other.example", "https://far.example/judge", { sideEffects: "Some" });
    const clientConfig = { service: { name: "a", namespace: "b" } };
    const inCluster = buildHook("inside.other.example", "", { clientConfig });
    const uncalled = [...webhooks.slice(0, 2), harmful, inCluster];
    await write("uncalled.yaml", stringify({ ...configuration, webhooks: uncalled }));
    const withoutCalls = await runJson(["-", "--webhooks", "uncalled.yaml"], joinDocuments(buildPod("p")));
    assert.deepEqual(withoutCalls.objects[0].undecided, [
      "friday.other.example: it would call 127.0.0.1; --call 127.0.0.1 allows that",
      "far.other.example: it would call far.example; --call far.example allows that",
      "harmful.other.example: it isn't called, because its entry doesn't state that a dry run has no side effects",
      "inside.other.example: it isn't called, because it has no https URL",
    ]);
    assert.deepEqual([withoutCalls.code, requests], [3, []]);

    const shopPod = joinDocuments(buildPod("p", {}, { namespace: "shop" }));
    const called = await runJson([...words, "--call", "loopback", "--strict"], shopPod);
    assert.equal(called.code, 1);
    assert.deepEqual(
      called.objects[0].denials.map(({ rule, message }: any) => [rule, message]),
      [["friday.other.example", "not on a Friday"]],
    );
    assert.deepEqual(requests, [{ url: "/judge?timeout=10s", dryRun: true }]);
    // API servers drop warnings that are empty or have control characters.
    assert.deepEqual(called.objects[0].warnings, [{ rule: "friday.other.example", text: "rest" }]);
    assert.match(called.objects[0].undecided[0], /^far.other.example: it would call/);
    assert.match(called.objects[0].undecided[1], /^team.other.example: whether its namespace has the label team/);

    const redirected = [buildHook("moved.other.example", `https://127.0.0.1:${port}/on`)];
    await write("webhooks.yaml", stringify({ ...configuration, webhooks: redirected }));
    const moved = await runJson([...words, "--call", "loopback"], joinDocuments(buildPod("p")));
    assert.equal(moved.code, 3);
    assert.match(moved.objects[0].undecided[0], /it redirects to https:\/\/far\.example\/judge, which is not called/);

    await write("webhooks.yaml", stringify({ ...configuration, webhooks: [buildHook("bad", "http://x")] }));
    const refused = await check(words, joinDocuments(buildPod("p")));
    assert.equal(refused.code, 2);
    assert.match(
      refused.stderr,
      /^--webhooks: ValidatingWebhookConfiguration "other": .*should be a domain with at least three segments/,
    );
  });

  it("check ends with 3 if an object is undecided", async () => {
    // The rule certificate-approval asks the cluster's authorizer, and there is no cluster.
    const words = ["-", "--rules", "node-restriction,deny-escalating-exec,certificate-approval"];
    const metadata = { name: "c" };
    const [group, kind] = ["certificates.k8s.io", "CertificateSigningRequest"];
    const object = { apiVersion: `${group}/v1`, kind, metadata, spec: { signerName: "example.com/a" } };
    const update = { subResource: "approval", namespace: undefined, operation: "UPDATE", object, oldObject: object };
    const approval = buildReview(kind, "certificatesigningrequests", { ...metadata, ...update }, group);
    const { code, objects } = await runJson(words, stringify(approval));
    assert.deepEqual([code, objects[0].verdict], [3, "undecided"]);
  });

  it("check writes rules' changes back into the files, and changes nothing else there", async () => {
    await write("fix/pods.yaml", podsText);
    await write(
      "fix/one.json",
      `${JSON.stringify(buildPod("j", { containers: [{ name: "a", image: "docker.io/a" }] }), null, 2)}\n`,
    );
    const aliased =
      "apiVersion: v1\nkind: Pod\nmetadata: { name: al, labels: &l { a: b }, annotations: *l }\nspec: { containers: [{ name: a, image: docker.io/a }] }\n";
    await write("fix/aliased.yaml", aliased);
    const withByteOrderMark =
      "\uFEFFapiVersion: v1\r\nkind: Pod\r\nmetadata: { name: m }\r\nspec: { containers: [{ name: a, image: docker.io/a, imagePullPolicy: Never }] }\r\n";
    await write("fix/marked.yaml", withByteOrderMark);
    const object = buildPod("r", { containers: [{ name: "a", image: "docker.io/a" }] });
    const recorded = stringify(buildReview("Pod", "pods", { name: "r", userInfo: {}, object }));
    await write("reviewed.yaml", recorded);
    const { stderr } = await check(["fix", "--review", "reviewed.yaml", "--fix"]);
    assert.equal(await readFile(join(folder, "reviewed.yaml"), "utf8"), recorded);
    assert.match(stderr, /^fix\/aliased.yaml is left as it is: it has aliases/m);
    assert.equal(await readFile(join(folder, "fix/pods.yaml"), "utf8"), podsText.replace("IfNotPresent #", "Always #"));
    assert.equal(await readFile(join(folder, "fix/aliased.yaml"), "utf8"), aliased);
    // The byte order mark and the line ends stay as they were.
    const fixed = await readFile(join(folder, "fix/marked.yaml"), "utf8");
    assert.match(fixed, /^\uFEFFapiVersion: v1\r\n(.+\r\n){3}$/);
    assert.match(fixed, /imagePullPolicy: Always/);
    const { spec } = JSON.parse(await readFile(join(folder, "fix/one.json"), "utf8"));
    assert.deepEqual(spec.containers[0].resources, { requests: { cpu: "100m" } });
    const again = await runJson(["fix/one.json", "fix/pods.yaml", "fix/marked.yaml"]);
    assert.deepEqual([again.summary.changed, again.summary.denied], [0, 1]);
  });

  it("check does not write through symbolic links that lead out of the given folder", async () => {
    const container = { name: "a", image: "docker.io/a", imagePullPolicy: "Never" };
    const texts = Object.fromEntries(
      ["outside/target.yaml", "outside/one.yaml", "linked/here.yaml"].map((name, index) => [
        name,
        stringify(buildPod(`l${index}`, { containers: [container] })),
      ]),
    );
    for (const [name, text] of Object.entries(texts)) await write(name, text);
    await symlink("../outside/target.yaml", join(folder, "linked/away.yaml"));
    await symlink("here.yaml", join(folder, "linked/near.yaml"));
    await symlink("../outside", join(folder, "linked/all"));
    const outside = await realpath(join(folder, "outside"));
    const describeUnchanged = (name: string, target: string, given: string) =>
      `${name} is left as it is: it is a symbolic link to ${join(outside, target)}, outside of ${given}\n`;
    const cases: [path: string, message: string][] = [
      ["linked", describeUnchanged("linked/away.yaml", "target.yaml", "linked")],
      ["linked/away.yaml", describeUnchanged("linked/away.yaml", "target.yaml", "linked")],
      ["linked/al*", describeUnchanged("linked/all/one.yaml", "one.yaml", "linked")],
    ];
    for (const [path, message] of cases) {
      const { code, stderr } = await check([path, "--fix", "--rules", "always-pull-images"]);
      assert.deepEqual([code, stderr.includes(message)], [0, true], stderr);
    }
    for (const name of ["outside/target.yaml", "outside/one.yaml"])
      assert.equal(await readFile(join(folder, name), "utf8"), texts[name]);
    assert.match(await readFile(join(folder, "linked/here.yaml"), "utf8"), /imagePullPolicy: Always/);
    assert.equal(await readlink(join(folder, "linked/near.yaml")), "here.yaml");
  });

  it("check writes reports in several formats at once", async () => {
    const outputs = ["text", "sarif=out.sarif,junit=out.xml", "policyreport=out.json", "github"];
    const { stdout, code } = await check(["k8s", ...outputs.flatMap((output) => ["-o", output])]);
    assert.equal(code, 1);
    assert.match(stdout, /\n5 objects: .*\n$/);
    assert.match(stdout, /^::error file=.*pods.yaml,line=21,/m);
    assert.match(
      stdout,
      /^::error file=.*web.yaml,line=15,col=\d+,title=allowed-registries%3A Deployment shop\/web \(its Pods\)::/m,
    );
    assert.equal(JSON.parse(await readFile(join(folder, "out.sarif"), "utf8")).runs[0].results.length > 0, true);
    assert.match(await readFile(join(folder, "out.xml"), "utf8"), /<failure /);
    assert.equal(JSON.parse(await readFile(join(folder, "out.json"), "utf8")).kind, "List");
  });

  it("check continues after a file that can't be read, and ends with 3", async () => {
    await write("odd/broken.yaml", "apiVersion: v1\nkind: Pod\nmetadata: { name: 1 }\n---\n[1]\n");
    await write("odd/fine.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: c }\n");
    const { code, stdout, stderr } = await check(["odd", "--all"]);
    const faults = [
      "odd/broken.yaml:3 metadata.name must be a text, not 1; put it in quotes\n",
      "odd/broken.yaml:5 is no manifest: it must be a map\n",
    ];
    assert.deepEqual([code, stderr], [3, faults.join("")]);
    assert.match(stdout, /\n1 object: 1 allowed, 2 could not be read\n$/);
  });

  it("check prints names of objects so that no CI system takes a name for a command", async () => {
    const text = joinDocuments(
      { apiVersion: "v1", kind: "::error file=a::kind", metadata: { name: "a" } },
      { apiVersion: "example.com/v1", kind: "Foo\n::error::kind", metadata: { name: "\u202ea" } },
      buildPod("a", { containers: [{ name: "a", image: "##vso[task.setvariable variable=PATH]a" }] }),
      buildPod("b", {}, { namespace: "x\n::stop-commands::token\u001b[31m" }),
    );
    const { code, stdout, stderr } = await check(["-"], text);
    assert.equal(code, 1);
    for (const word of ["::kind", "setvariable", "::token"]) assert.ok(`${stdout}${stderr}`.includes(word), word);
    for (const line of `${stdout}${stderr}`.split("\n"))
      assert.doesNotMatch(line, /^\s*::|##\w*\[|\p{Cc}|\p{Bidi_Control}/u);
    await write("strange.yaml", joinDocuments({ apiVersion: "v1", kind: "a\n::error::b", metadata: { name: "a" } }));
    const refused = await check(["k8s", "--webhooks", "strange.yaml"]);
    assert.equal(refused.code, 2);
    assert.doesNotMatch(refused.stderr, /^\s*::[^:]*b/m);
  });
  it("check reads manifests from a pipe, and ends with the exit code of the check", () => {
    const getExitCode = (input: string, cluster = "test") => {
      const args = [program, "check", "--config", "postern.yaml", "--cluster", cluster, "--plugins=none", "-"];
      return spawnSync(process.execPath, args, { cwd: folder, input }).status;
    };
    const allowed = joinDocuments(buildPod("a"));
    assert.equal(getExitCode(allowed), 0);
    assert.equal(getExitCode(servicesText), 1);
    assert.equal(getExitCode("kind: [\n"), 3);
    assert.equal(getExitCode(allowed, "unknown-cluster"), 2);
  });
  it("check says that API validation isn't evaluated if Kubernetes' own handlers weren't built", () => {
    const args = [program, "check", "--config", "postern.yaml", "--cluster", "test", "--strict", "-"];
    const env = { ...process.env, XDG_CACHE_HOME: join(folder, "no-cache") };
    const result = spawnSync(process.execPath, args, { cwd: folder, env, input: joinDocuments(buildPod("A")) });
    assert.match(result.stdout.toString(), /^Pod default\/A standard input:1 undecided$/m);
    const note =
      "API validation isn't evaluated, because Kubernetes' own handlers aren't here; npm run kubernetes builds them\n";
    assert.equal(result.stderr.toString().split(note).length, 2, result.stderr.toString());
  });
  it("check reports huge objects as denied or undecided, and then evaluates further objects", needsModule, async () => {
    /** Builds a schema whose size doubles with each level. */
    const buildSchema = (depth: number): object => {
      if (depth === 0) return { type: "string" };
      return { type: "object", properties: { a: buildSchema(depth - 1), b: buildSchema(depth - 1) } };
    };
    const spec = {
      group: "example.com",
      scope: "Namespaced",
      names: { kind: "Big", plural: "bigs" },
      versions: [{ name: "v1", served: true, storage: true, schema: { openAPIV3Schema: buildSchema(10) } }],
    };
    const repeat = <T>(count: number, build: (index: number) => T) =>
      Array.from({ length: count }, (_, index) => build(index));
    const buildWithInvalidLabels = (name: string, count: number) => {
      const labels = Object.fromEntries(repeat(count, (index) => [`a!${index}`, "b"]));
      return { apiVersion: "v1", kind: "ConfigMap", metadata: { name, labels } };
    };
    const huge = [
      buildPod("containers", { containers: repeat(30_000, (index) => ({ name: `c${index}`, image: "docker.io/a" })) }),
      { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "text" }, data: { a: "x".repeat(5 << 20) } },
      buildWithInvalidLabels("labels", 5000),
      buildWithInvalidLabels("faults", 300),
      {
        apiVersion: "apiextensions.k8s.io/v1",
        kind: "CustomResourceDefinition",
        metadata: { name: "bigs.example.com" },
        spec,
      },
      { apiVersion: "example.com/v1", kind: "Big", metadata: { name: "big" }, a: { b: 1 } },
      { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "last", labels: { a: "!" } } },
    ];
    for (const [index, object] of huge.entries()) await write(`huge/${index}.json`, JSON.stringify(object));
    await write("home.yaml", stringify({ apiVersion: "v1", kind: "Namespace", metadata: { name: "default" } }));
    const words = ["huge", "--rules", "always-admit", "--state", "home.yaml", "-o", "json"];
    const { stdout } = await check(words, "", "test", defaultPlugins);
    const { objects } = JSON.parse(stdout);
    const outcomes = objects.map(({ name, verdict, denials, undecided }: any) => [
      name,
      verdict,
      denials.length,
      [...denials.map(({ message }: { message: string }) => message), ...undecided].at(-1)?.slice(0, 60),
    ]);
    assert.deepEqual(outcomes, [
      ["bigs.example.com", "allowed", 0, undefined],
      ["text", "denied", 1, "Request entity too large: limit is 3145728"],
      // The module fails at this object. A new instance of the module answers for the next objects.
      ["labels", "undecided", 0, "API validation: Kubernetes' handlers failed at this object"],
      ["faults", "denied", 101, "… and 200 more faults"],
      ["last", "denied", 1, 'metadata.labels: Invalid value: "!": a valid label must be a'],
      ["containers", "undecided", 0, "API validation: what is larger than 3 MB with its defaults"],
      ["big", "denied", 1, 'a.b: Invalid value: "integer": a.b in body must be of type o'],
    ]);
  });
  it("check does not exit with 0 if its standard output is closed", async () => {
    const containers = Array.from({ length: 2000 }, (_, index) => ({ name: `c${index}`, image: "docker.io/a" }));
    await write("loud.json", JSON.stringify(buildPod("loud", { containers })));
    for (const words of [["loud.json"], ["k8s/web.yaml"]]) {
      const args = [program, "check", "--config", "postern.yaml", "--cluster", "test", ...words];
      const child = spawn(process.execPath, args, { cwd: folder, stdio: ["ignore", "pipe", "ignore"] });
      child.stdout.destroy();
      const [code] = await once(child, "close");
      assert.ok([1, 3].includes(code), `${words}: ${code}`);
    }
  });
  it("check writes no report over a file that it reads, also through a link", async () => {
    await write("read/pod.yaml", stringify(buildPod("read")));
    await symlink("pod.yaml", join(folder, "read/link.yaml"));
    const settings = await readFile(join(folder, "postern.yaml"), "utf8");
    const inputs: [file: string, words: string[]][] = [
      ["read/pod.yaml", ["read/pod.yaml"]],
      ["read/pod.yaml", ["read"]],
      ["read/link.yaml", ["read/pod.yaml"]],
      ["read/pod.yaml", ["k8s", "--state", "read"]],
      ["read/pod.yaml", ["k8s", "--old", "read/pod.yaml"]],
      ["postern.yaml", ["k8s"]],
    ];
    for (const [file, words] of inputs) {
      const { code, stdout, stderr } = await check([...words, "-o", `json=${file}`]);
      const sentence = `--output ${file} would replace a file that this check reads; give the report another file\n`;
      assert.deepEqual([code, stdout, stderr.split("\n").slice(-2).join("\n")], [2, "", sentence]);
    }
    assert.equal(await readFile(join(folder, "read/pod.yaml"), "utf8"), stringify(buildPod("read")));
    assert.equal(await readFile(join(folder, "postern.yaml"), "utf8"), settings);
    const known = ["read/pod.yaml", "-o", "sarif=same.sarif"];
    await check(known);
    const { stderr } = await check([...known, "--known", "same.sarif"]);
    assert.doesNotMatch(stderr, /same\.sarif/);
  });
  it("check --save replaces only files that it has written, and refuses other files before it reads a cluster", async () => {
    const outcomes: [text: string, stderr: RegExp][] = [
      ["", /^--kubeconfig nowhere can't be read/],
      [
        "# What cluster prod-eu has, for postern check --state.\nkind: Namespace\n",
        /^--kubeconfig nowhere can't be read/,
      ],
      ["{}\n", /^--save saved\.yaml would replace a file that --save hasn't written; name a new file, or delete this/],
    ];
    for (const [text, stderr] of outcomes) {
      await write("saved.yaml", text);
      const words = "check --config postern.yaml --cluster test --live --kubeconfig nowhere --save saved.yaml";
      const result = await runVerb(folder, words.split(" "));
      assert.equal(result.code, 2);
      assert.match(result.stderr, stderr);
      assert.equal(await readFile(join(folder, "saved.yaml"), "utf8"), text);
    }
  });
  const usage: [name: string, words: string[], stderr: RegExp][] = [
    [
      "no path",
      [],
      /^name files or folders of manifests, or a cluster: postern check PATH…, or postern check --live; the path - is standard input\n$/,
    ],
    ["an unknown rule", ["k8s", "--rules", "nope"], /^there is no rule "nope"; postern rules lists them\n$/],
    [
      "two reports for standard output",
      ["k8s", "-o", "json,sarif"],
      /^json and sarif can't share standard output; give one a file/,
    ],
    [
      "what is no minor version of Kubernetes",
      ["k8s", "--kubernetes", "35"],
      /^--kubernetes takes a minor version from 1.33 on, such as 1.35, not "35"$/m,
    ],
    [
      "a folder without manifests for --state",
      ["k8s/web.yaml", "--state", "empty"],
      /^there is no manifest in --state empty\n$/m,
    ],
    [
      "a report in a folder that doesn't exist",
      ["k8s/web.yaml", "-o", "json=nowhere/a.json"],
      /^nowhere\/a\.json can't be written: there is no folder nowhere\n$/m,
    ],
    [
      "a folder for --known",
      ["k8s/web.yaml", "--known", "k8s"],
      /^--known takes the SARIF report of an earlier check, and k8s is a folder\n$/,
    ],
    ["an invalid file for --state", ["k8s", "--state", "postern.yaml"], /^--state postern.yaml:2 is no manifest/],
  ];
  for (const [name, words, stderr] of usage)
    it(`check refuses ${name} in one sentence`, async () => {
      const result = await check(words);
      assert.equal(result.code, 2);
      assert.match(result.stderr, stderr);
    });
});
