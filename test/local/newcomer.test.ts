import assert from "node:assert/strict";
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { copyFile, cp, link, mkdir, readFile, rename, rm, symlink, writeFile } from "node:fs/promises";
import { createServer, request as httpsRequest } from "node:https";
import { dirname, join } from "node:path";
import { after, before, describe, it } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import jsonPatch from "fast-json-patch";
import { parseAllDocuments, parse as parseYaml } from "yaml";
import { schemaLine } from "../../infra/config/schemas.ts";
import { readOrCreateServerCertificate } from "../../infra/keys/keys.ts";
import { type ProgramOutput, runProgram } from "../checkout.ts";
import { createTestFolder } from "../folders.ts";
import { close, listen } from "../listen.ts";

// Runs commands that newcomers may try, in a copy of the project. test/pages.ts runs the commands that the pages show.
const root = fileURLToPath(new URL("../..", import.meta.url));
const copy = await createTestFolder();
/** The rules that the copy's postern.yaml turns on. */
const turnedOn = [
  "always-pull-images",
  "default-toleration-seconds",
  "deny-service-external-ips",
  "extended-resource-toleration",
  "limit-pod-hard-anti-affinity-topology",
  "minimum-replicas",
  "security-context-deny",
  "storage-object-in-use-protection",
  "taint-nodes-by-condition",
];

before(async () => {
  for (const part of ["functions", "infra", "lib", "test", "package.json", "tsconfig.json"])
    await cp(join(root, part), join(copy, part), {
      recursive: true,
      filter: (source) => !source.includes("node_modules"),
    });
  await symlink(join(root, "node_modules"), join(copy, "node_modules"));
  const entries = turnedOn.map((name) => `  ${name}:\n`);
  await writeFile(join(copy, "postern.yaml"), `rules:\n${entries.join("")}`);
  // The compile cache of the copy is deleted with it.
  process.env.NODE_COMPILE_CACHE ??= join(copy, ".compiled");
});

/** Runs `npx postern …` in the copy until it ends. */
const runPostern = (...words: string[]): Promise<ProgramOutput> => {
  const { NODE_TEST_CONTEXT: _, ...env } = process.env;
  return runProgram(["infra/postern.js", ...words], { cwd: copy, env, timeout: 120_000 });
};

/** Code that prints a line for each thread that its process starts, except the one that watches for loops in rules. */
const codeThatReportsThreads =
  'process.on("worker", ({ threadName }) => threadName === "rule-loops" || console.log("a thread started"))';

const startedGateways: ChildProcess[] = [];
// A test that fails doesn't stop its gateway.
after(() => startedGateways.forEach((gateway) => void gateway.kill("SIGINT")));

/** Runs `npx postern serve …` until it is stopped. */
const serve = async (...words: string[]) => {
  // Before its program, the process runs this code, which prints a line for each thread that starts.
  const importedCode = `data:text/javascript,${encodeURIComponent(codeThatReportsThreads)}`;
  const env = { ...process.env, NODE_OPTIONS: `--import=${importedCode}` };
  const child = spawn(process.execPath, ["infra/postern.js", "serve", "--port", "0", ...words], { cwd: copy, env });
  let printed = "";
  const listeners: (() => void)[] = [];
  for (const stream of [child.stdout, child.stderr])
    stream.on("data", (chunk) => {
      printed += chunk;
      for (const checkPrinted of listeners) checkPrinted();
    });
  const ended = new Promise<number | null>((resolve) => child.once("exit", resolve));
  startedGateways.push(child);
  /** Waits until the output matches a pattern, and returns the match. Rejects if the gateway ends or after a minute. */
  const waitFor = (pattern: RegExp): Promise<string> =>
    new Promise((resolve, reject) => {
      const checkPrinted = () => pattern.test(printed) && resolve(pattern.exec(printed)?.[0] ?? "");
      setTimeout(() => reject(new Error(`did not say ${pattern} in time: ${printed}`)), 60_000).unref();
      listeners.push(checkPrinted);
      checkPrinted();
      ended.then(() => reject(new Error(`ended without saying ${pattern}: ${printed}`)));
    });
  const stop = () => {
    child.kill("SIGINT");
    return ended;
  };
  return { waitFor, stop, ended, printed: () => printed };
};

/** Returns the review that a command of docs/how-to/serve.md writes to a file. */
const readShownReview = async (): Promise<string> => {
  const page = await readFile(join(root, "docs/how-to/serve.md"), "utf8");
  const [, text] = page.split("cat > review.json <<'END'\n");
  return text?.split("END\n")[0] ?? assert.fail("the page writes no review.json");
};

/** Sends a review, by default that of docs/how-to/serve.md, over TLS with the CA that the gateway made. */
const sendReview = async (url: string, review?: object): Promise<{ code: number; body: string }> => {
  const ca = await readFile(join(copy, ".postern/ca.crt"));
  const body = review ? JSON.stringify(review) : await readShownReview();
  return new Promise((resolve, reject) => {
    const options = { method: "POST", ca, headers: { "content-type": "application/json" } };
    const sent = httpsRequest(url, options, async (response) => {
      let text = "";
      for await (const chunk of response) text += chunk;
      resolve({ code: response.statusCode ?? 0, body: text });
    });
    sent.on("error", reject);
    sent.end(body);
  });
};

/** A command in a project with a broken rule, its output, and whether stderr has the rule's fault. */
type BrokenRuleCase = [name: string, words: string[], code: number, stdout: string, hasFault: boolean];

describe("a newcomer", () => {
  it("a newcomer lists rules, commands and options", async () => {
    const { code, stdout } = await runPostern("rules");
    assert.equal(code, 0);
    assert.match(stdout, /^always-pull-images +mutate, validate +enforce/m);
    assert.match((await runPostern("--help")).stdout, /^manifests +Prints/m);
    assert.match((await runPostern("explain", "always-pull-images")).stdout, /CREATE, UPDATE of pods/);
    const { version } = JSON.parse(await readFile(join(copy, "package.json"), "utf8"));
    assert.equal((await runPostern("--version")).stdout, `postern ${version}\n`);
    const help = await runPostern("check", "--help");
    assert.match(help.stdout, /--rules RULE….*\n/);
    assert.match(
      help.stdout,
      /\nAn option with … takes several values: --rules A B, or --rules A --rules B\. Write PATH… before/,
    );
    assert.deepEqual(await runPostern("help", "check"), help);
  });

  it("a newcomer sees which rules a cluster may not need, and the costs of rules", async () => {
    await writeFile(
      join(copy, "managed.yaml"),
      `rules: { always-pull-images: , limit-ranger: , node-restriction: }
clusters: { prod-eu: { kubernetes: "1.35", connect: { eks: prod-eu, region: eu-west-1 } } }
`,
    );
    const { stdout } = await runPostern("rules", "--config", "managed.yaml");
    const page = "https://docs.aws.amazon.com/eks/latest/userguide/platform-versions.html";
    const costs = "about $0.69 for a million reviews with function URLs, and $1.81 with an HTTP API";
    assert.ok(
      stdout.endsWith(`
rules that an API server may not need, because it has their plugin on (npx postern explain RULE says what else they do)
  limit-ranger: ${costs}
    LimitRanger is probably on in prod-eu: it is on by default in Kubernetes 1.35
  node-restriction: ${costs}
    NodeRestriction is on in prod-eu: EKS 1.35 has it on (${page})
`),
      stdout,
    );
    const listed = JSON.parse((await runPostern("rules", "--config", "managed.yaml", "-o", "json")).stdout);
    const { presentPlugin, millionReviews } = listed.find(({ name }: { name: string }) => name === "limit-ranger");
    const reason = "it is on by default in Kubernetes 1.35";
    const clusters = [{ cluster: "prod-eu", isSure: false, reason, settings: [] }];
    assert.deepEqual(presentPlugin, { plugin: "LimitRanger", clusters });
    assert.deepEqual([millionReviews.url.toFixed(2), millionReviews.http.toFixed(2)], ["0.69", "1.81"]);
  });

  it("a newcomer can name a rule by its upstream plugin, also in postern.yaml", async () => {
    await writeFile(join(copy, "upstream.yaml"), "rules: { AlwaysPullImages: { mode: warn } }\n");
    const { stdout } = await runPostern("explain", "AlwaysPullImages", "--config", "upstream.yaml");
    assert.match(stdout, /^always-pull-images\n[\s\S]*\n {2}local:\n {4}mode: warn\n/);
    const words = ["--rules", "AlwaysPullImages", "always-deny", "--to", "built", "-o", "json"];
    const { stdout: built } = await runPostern("build", ...words);
    assert.deepEqual(
      JSON.parse(built).map(({ rule }: { rule: string }) => rule),
      ["always-pull-images", "always-deny"],
    );
    await rm(join(copy, "built"), { recursive: true });
  });

  it("a newcomer can use an older Node, because postern starts the Node 24 that npm installed", async () => {
    const run = (...words: string[]) => promisify(execFile)(process.execPath, words, { cwd: copy, timeout: 120_000 });
    // infra/postern.js starts infra/main.ts if it runs on an older Node.
    const { stdout } = await run("infra/main.ts", "key", "local");
    assert.match(stdout, /^local\.[\w-]{86}\n$/);
    const version = await run("infra/node.js", "--version");
    assert.equal(version.stdout.trim(), process.version);
  });

  it("a newcomer can create rules for a custom kind, and the rules pass all checks", async () => {
    const names = { kind: "Widget", plural: "widgets" };
    const spec = { group: "example.com", names, versions: [{ name: "v1", storage: true }] };
    const definition = { apiVersion: "apiextensions.k8s.io/v1", kind: "CustomResourceDefinition", spec };
    await writeFile(join(copy, "widgets.json"), JSON.stringify(definition));
    const config = await readFile(join(copy, "postern.yaml"));
    for (const name of ["require-newcomers-owner", "default-newcomers-owner"]) {
      assert.equal((await runPostern("new", name, "--crd", "widgets.json")).stderr, "");
      const { code, stdout, stderr } = await runPostern("test", name);
      assert.deepEqual([code, stderr], [0, ""], stdout);
      await rm(join(copy, "functions", name), { recursive: true });
    }
    await writeFile(join(copy, "postern.yaml"), config);
  });

  it("a newcomer can create a rule that passes all checks, and an edit applies to the next review", async () => {
    const created = await runPostern("new", "require-newcomers-label");
    assert.deepEqual([created.code, created.stderr], [0, ""]);
    assert.equal((await runPostern("test", "require-newcomers-label")).code, 0);
    assert.match(await readFile(join(copy, "functions/README.md"), "utf8"), /require-newcomers-label/);
    const rule = join(copy, "functions/require-newcomers-label/rule.ts");
    const originalCode = await readFile(rule, "utf8");
    const [, shown] =
      /rule\.ts` contains the whole rule:\n\n```ts\n(.*?)```/s.exec(await readFile(join(root, "README.md"), "utf8")) ??
      [];
    assert.equal(originalCode, shown, "the README has the same rule");

    await writeFile(rule, originalCode.replace('resources: ["pods"]', 'resources: ["pod"]'));
    const wrongMatch = await runPostern("test", "require-newcomers-label");
    assert.match(wrongMatch.stdout, /did you mean pods\?\n\n1 test: 0 passed, 1 failed\n$/);

    await writeFile(rule, originalCode.replace("must have a label", "lacks the label"));
    const failed = await runPostern("test", "require-newcomers-label");
    assert.equal(failed.code, 1);
    const difference = [
      "failed  refuses a pod without it",
      "        functions/require-newcomers-label/cases.yaml:5",
      "        the case says (-), the rule does (+):",
      `        - refused: 'metadata.labels must have a label "owner"'`,
      `        + refused: 'metadata.labels lacks the label "owner"'`,
      "          code: 403",
      "          reason: Forbidden",
      "failed  takes an empty label for none\n",
    ].join("\n");
    assert.ok(failed.stdout.includes(difference), failed.stdout);
    assert.doesNotMatch(failed.stdout + failed.stderr, /deepStrictEqual|infra\/cases|node:internal/);
    assert.match(failed.stdout, /\n10 tests: 7 passed, 3 failed\n$/);
    const [json, xml] = [
      await runPostern("test", "require-newcomers-label", "-o", "json"),
      await runPostern("test", "require-newcomers-label", "-o", "junit"),
    ];
    const { because, ...place } = JSON.parse(json.stdout).cases[2];
    const file = "functions/require-newcomers-label/cases.yaml";
    assert.deepEqual(place, {
      rule: "require-newcomers-label",
      file,
      line: 5,
      name: "refuses a pod without it",
      result: "failed",
    });
    assert.equal(because.length, 5);
    assert.match(
      xml.stdout,
      /^<\?xml[\s\S]* tests="10" failures="3" errors="0" [\s\S]*<failure message="functions\/require-newcomers-label\/cases.yaml:5" /,
    );
    assert.deepEqual([json.code, xml.code], [1, 1]);
    await writeFile(rule, originalCode);

    const gateway = await serve("--watch");
    const url = (await gateway.waitFor(/https:\S+\/require-newcomers-label\/validate/)).trim();
    assert.match((await sendReview(url)).body, /metadata.labels must have a label \\"owner\\"/);
    await gateway.waitFor(/local require-newcomers-label\/validate CREATE Pod default\/web denied [\d.]+ ms/);

    await writeFile(rule, originalCode.replace("must have a label", "lacks the label"));
    await gateway.waitFor(/reloaded: .*require-newcomers-label/);
    assert.match((await sendReview(url)).body, /metadata.labels lacks the label/);

    await writeFile(rule, `${originalCode}\nconst broken = ;\n`);
    await gateway.waitFor(
      /not reloaded, serving as before: functions\/require-newcomers-label\/rule.ts does not load: .*line 14/,
    );
    assert.match((await sendReview(url)).body, /metadata.labels lacks the label/);
    await writeFile(rule, originalCode);
    await gateway.waitFor(/reloaded: [\s\S]*reloaded: /);

    assert.equal(await gateway.stop(), 0);
  });

  it("a newcomer sees an edit of a policy or of manifests apply to the next review, if the file is valid", async () => {
    const buildTemplate = (path: string) => ({
      type: "annotations",
      operation: "add",
      path,
      valueRef: {
        from: "k8s",
        path: "data.of",
        k8s: { apiVersion: "v1", kind: "ConfigMap", name: "a", namespace: "b" },
      },
    });
    const printPolicy = (path: string) =>
      JSON.stringify({
        apiVersion: "policy.kcloudlabs.io/v1alpha1",
        kind: "ClusterOverridePolicy",
        metadata: { name: "a" },
        spec: {
          resourceSelectors: [{ apiVersion: "v1", kind: "Pod" }],
          overrideRules: [{ overriders: { template: buildTemplate(path) } }],
        },
      });
    const printMap = (of: string) =>
      JSON.stringify({ apiVersion: "v1", kind: "ConfigMap", metadata: { name: "a", namespace: "b" }, data: { of } });
    // Renames the complete file, because the watcher could read a half-written one.
    const write = async (file: string, text: string) => {
      await mkdir(dirname(join(copy, file)), { recursive: true });
      await writeFile(join(copy, "half"), text);
      await rename(join(copy, "half"), join(copy, file));
    };
    await write(
      "watched.yaml",
      "rules: { policy-override: { settings: { policies: own/ } } }\nclusters: { paper: { connect: { manifests: paper/ } } }\n",
    );
    await write("own/deep/a.json", printPolicy("first"));
    await write("paper/map.json", printMap("one"));
    const gateway = await serve("--watch", "--config", "watched.yaml");
    const url = (await gateway.waitFor(/https:\S+\/policy-override\/mutate/)).trim();
    const patch = async () => {
      const { body } = await sendReview(url);
      return Buffer.from(JSON.parse(body).response?.patch ?? "", "base64").toString() || body;
    };
    /** Waits until the gateway has printed a sentence, which is a pattern, `count` times. */
    const waitForLines = (count: number, sentence: string) =>
      gateway.waitFor(new RegExp(`(?:${sentence}[^]*){${count}}`));
    assert.match(await patch(), /"first":"one"/);

    await write("own/deep/a.json", printPolicy("second"));
    await waitForLines(1, " reloaded: policy-override");
    assert.match(await patch(), /"second":"one"/);
    await write("own/deep/a.json", printPolicy(""));
    await waitForLines(
      1,
      " not reloaded, serving as before: watched.yaml:1 .* own/deep/a.json: ClusterOverridePolicy a: .*path",
    );
    assert.match(await patch(), /"second":"one"/);
    await write("own/deep/a.json", printPolicy("third"));
    await waitForLines(2, " reloaded: policy-override");
    assert.match(await patch(), /"third":"one"/);

    await write("paper/map.json", printMap("two"));
    await waitForLines(3, " reloaded: policy-override");
    assert.match(await patch(), /"third":"two"/);
    await write("paper/map.json", "{");
    await waitForLines(
      1,
      " not reloaded, serving as before: watched.yaml clusters.paper.connect: paper/map.json:1 is no YAML",
    );
    assert.match(await patch(), /"third":"two"/);
    await rm(join(copy, "own"), { recursive: true });
    await waitForLines(
      1,
      " not reloaded, serving as before: watched.yaml:1 .*there is no file, folder or match for .*own",
    );
    assert.match(await patch(), /"third":"two"/);
    await write("paper/map.json", printMap("three"));
    await write("own/b.json", printPolicy("last"));
    await waitForLines(4, " reloaded: policy-override");
    // The watcher may see the folder before its files.
    for (let tries = 0; tries < 1000 && !(await patch()).includes('"last"'); tries += 1) await wait(50);
    assert.match(await patch(), /"last":"three"/);

    const config = await readFile(join(copy, "watched.yaml"), "utf8");
    await write("watched.yaml", "");
    await waitForLines(
      1,
      " not reloaded, serving as before: watched.yaml is empty; it must name the rules that are on",
    );
    assert.match(await patch(), /"last":"three"/);
    await write("more/a.json", "{");
    await write("watched.yaml", config.replace("own/", "more/"));
    await waitForLines(1, " not reloaded, serving as before: watched.yaml:1 .*a.json:1 is no YAML");
    await write("more/a.json", printPolicy("other"));
    for (let tries = 0; tries < 1000 && !(await patch()).includes('"other"'); tries += 1) await wait(50);
    assert.match(await patch(), /"other":"three"/);

    // CUE starts with the first policy that has a script, before any review needs it.
    assert.doesNotMatch(gateway.printed(), /a thread started/);
    const { spec: _, ...scripted } = JSON.parse(printPolicy(""));
    const overriders = { cue: "patches: []" };
    await write("more/a.json", JSON.stringify({ ...scripted, spec: { overrideRules: [{ overriders }] } }));
    await gateway.waitFor(/a thread started/);
    assert.equal(await gateway.stop(), 0);
  });

  it("a newcomer sees an edit of a kubeconfig, or of a file that it names, apply to the next review", async (test) => {
    const { ca, ...certificate } = await readOrCreateServerCertificate(join(copy, "api-server"), "127.0.0.1");
    // The server has the namespace only for the token `right`.
    const apiServer = createServer(certificate, ({ headers: { authorization } }, response) => {
      const isAuthorized = authorization === "Bearer right";
      const kind = isAuthorized
        ? { kind: "Namespace", metadata: { name: "default" } }
        : { kind: "Status", code: 404, details: { name: "default" } };
      response.writeHead(isAuthorized ? 200 : 404, { "content-type": "application/json" });
      response.end(JSON.stringify({ apiVersion: "v1", ...kind }));
    });
    const server = `https://127.0.0.1:${await listen(apiServer)}`;
    test.after(() => close(apiServer));
    const kube = join(copy, "kube");
    await mkdir(kube);
    // Renames the complete file, because the watcher could read a half-written one.
    const write = async (file: string, text: string) => {
      await writeFile(join(copy, "half"), text);
      await rename(join(copy, "half"), join(kube, file));
    };
    const printKubeconfig = (user: object) =>
      JSON.stringify({
        "current-context": "a",
        contexts: [{ name: "a", context: { cluster: "a", user: "a" } }],
        clusters: [{ name: "a", cluster: { server, "certificate-authority": "ca.crt" } }],
        users: [{ name: "a", user }],
      });
    await write("ca.crt", ca);
    await write("config", printKubeconfig({ token: "wrong" }));
    const config = "rules: { namespace-exists: }\nclusters: { one: { connect: { kubeconfig: kube/config } } }\n";
    await writeFile(join(copy, "connected.yaml"), config);
    const gateway = await serve("--watch", "--config", "connected.yaml");
    const url = (await gateway.waitFor(/https:\S+\/namespace-exists\/mutate/)).trim();
    const isAllowed = async () => JSON.parse((await sendReview(url)).body).response.allowed;
    const reloaded = " reloaded: namespace-exists";
    const notReloaded = " not reloaded, serving as before: connected.yaml clusters.one.connect ";
    const edits: [file: string, text: string, printed: string, count: number, allowed: boolean][] = [
      ["config", printKubeconfig({ token: "right" }), reloaded, 1, true],
      ["config", "{", `${notReloaded}finds .*kube/config to be no YAML`, 1, true],
      ["config", printKubeconfig({ tokenFile: "token" }), `${notReloaded}.*ENOENT`, 1, true],
      ["token", "wrong", reloaded, 2, false],
      ["token", "right", reloaded, 3, true],
      ["ca.crt", "none", `${notReloaded}finds no certificate in PEM in the certificate-authority of `, 1, true],
      ["ca.crt", ca, reloaded, 4, true],
    ];
    assert.equal(await isAllowed(), false);
    for (const [file, text, printed, count, allowed] of edits) {
      await write(file, text);
      await gateway.waitFor(new RegExp(`(?:${printed}[^]*){${count}}`));
      assert.equal(await isAllowed(), allowed, `${file}: ${text}`);
    }
    assert.equal(await gateway.stop(), 0);
  });

  const turnOnCases: [name: string, before: string, wanted: string][] = [
    [
      "after the last rule",
      "rules:\n    always-admit: # why\n\nclusters:\n  a:\n",
      "rules:\n    always-admit: # why\n    forbid-newcomers-thing:\nclusters:\n  a:\n",
    ],
    ["in a file without rules", "clusters:\n  a:\n", "clusters:\n  a:\nrules:\n  forbid-newcomers-thing:\n"],
    ["in an empty list of rules", "rules:\n", "rules:\n  forbid-newcomers-thing:\n"],
    ["in an empty file", "", "rules:\n  forbid-newcomers-thing:\n"],
  ];
  for (const [name, before, wanted] of turnOnCases)
    it(`a newcomer creates a rule, which is then turned on ${name}`, async () => {
      await writeFile(join(copy, "other.yaml"), before);
      assert.equal((await runPostern("new", "forbid-newcomers-thing", "--config", "other.yaml")).stderr, "");
      assert.equal(await readFile(join(copy, "other.yaml"), "utf8"), `${schemaLine}\n${wanted}`);
      await rm(join(copy, "functions/forbid-newcomers-thing"), { recursive: true });
    });

  it("a newcomer creates two rules one after the other, and both rules are turned on", async () => {
    await writeFile(join(copy, "other.yaml"), "rules:\n");
    for (const name of ["forbid-newcomers-one", "forbid-newcomers-two"]) {
      assert.equal((await runPostern("new", name, "--config", "other.yaml")).stderr, "");
      // A developer replaces the rule's files.
      await rm(join(copy, "functions", name), { recursive: true });
      await mkdir(join(copy, "functions", name));
      await cp(join(root, "functions/always-admit"), join(copy, "functions", name), { recursive: true });
    }
    assert.equal(
      await readFile(join(copy, "other.yaml"), "utf8"),
      `${schemaLine}\nrules:\n  forbid-newcomers-one:\n  forbid-newcomers-two:\n`,
    );
    for (const name of ["forbid-newcomers-one", "forbid-newcomers-two"])
      await rm(join(copy, "functions", name), { recursive: true });
  });

  it("a newcomer sees workloads recounted while the rules are served", async () => {
    const pod = { apiVersion: "v1", kind: "Pod", metadata: { name: "web", namespace: "a" }, spec: { containers: [] } };
    const quotas = [{ name: "team", hard: { pods: 1 } }];
    const config = {
      rules: { "workload-quota": { settings: { quotas } } },
      clusters: { local: { connect: { manifests: "recounted" } } },
    };
    await mkdir(join(copy, "recounted"));
    await writeFile(join(copy, "recounted/pod.json"), JSON.stringify(pod));
    await writeFile(join(copy, "recounted.yaml"), JSON.stringify(config));
    const { waitFor, stop } = await serve("--config", "recounted.yaml");
    await waitFor(/ local workload-quota read 1 objects, charged 1 that weren't counted, /);
    assert.equal(await stop(), 0);
  });

  it("a newcomer gets the same answer from the gateway and from check for a folder of manifests", async () => {
    await mkdir(join(copy, "limits"));
    const limits = `
apiVersion: v1
kind: LimitRangeList
items:
  - metadata: { name: most, namespace: default }
    spec:
      limits:
        - &container { type: Container, max: { cpu: 2 } }
        - { <<: *container, type: Pod }
`;
    await writeFile(join(copy, "limits/limits.yaml"), limits);
    await writeFile(
      join(copy, "limits.yaml"),
      "rules: { limit-ranger: }\nclusters: { local: { connect: { manifests: limits } } }\n",
    );
    const metadata = { name: "web", namespace: "default" };
    const pod = { apiVersion: "v1", kind: "Pod", metadata, spec: { containers: [{ name: "web", image: "web:1" }] } };
    await writeFile(join(copy, "pod.json"), JSON.stringify(pod));
    const checked = await runPostern("check", "pod.json", "--config", "limits.yaml", "--plugins=none", "-o", "json");
    assert.equal(checked.code, 0, checked.stdout + checked.stderr);

    const gateway = await serve("--config", "limits.yaml");
    const url = await gateway.waitFor(/https:\S+\/limit-ranger\/mutate/);
    const sendPod = async (phase: string, object: object) => {
      const review = {
        apiVersion: "admission.k8s.io/v1",
        kind: "AdmissionReview",
        request: {
          uid: "1",
          operation: "CREATE",
          userInfo: { username: "jane" },
          ...metadata,
          object,
          oldObject: null,
          kind: { group: "", version: "v1", kind: "Pod" },
          resource: { group: "", version: "v1", resource: "pods" },
        },
      };
      return JSON.parse((await sendReview(url.replace(/mutate$/, phase), review)).body).response;
    };
    const { patch } = await sendPod("mutate", pod);
    const operations = JSON.parse(Buffer.from(patch ?? "", "base64").toString() || "[]");
    const { newDocument: limited } = jsonPatch.applyPatch(structuredClone(pod), operations);
    assert.deepEqual(Object(limited.spec.containers[0]).resources.limits, { cpu: "2" });
    const { allowed, status } = await sendPod("validate", limited);
    assert.ok(allowed, status?.message);
    const containers = ["c0", "c1"].map((name) => ({ ...limited.spec.containers[0], name }));
    const large = { ...pod, spec: { containers } };
    assert.match((await sendPod("validate", large)).status.message, /maximum cpu usage per Pod is 2/);
    assert.equal(await gateway.stop(), 0);
  });

  it("a newcomer gets the same CA and the same URLs from the gateway after a restart", async () => {
    const before = await runPostern("key", "local");
    const first = await serve();
    const url = await first.waitFor(/https:\S+\/always-pull-images\/mutate/);
    assert.ok(url.includes(before.stdout.trim()));
    await first.stop();
    const ca = await readFile(join(copy, ".postern/ca.crt"), "utf8");
    const second = await serve("--host", "localhost");
    await second.waitFor(/https:\/\/localhost:/);
    await second.stop();
    assert.equal(await readFile(join(copy, ".postern/ca.crt"), "utf8"), ca);
  });

  const skip = !process.execPath.includes("node_modules") && "npm has no Node for this machine: there is one process";
  it("a newcomer's gateway leaves no process running when npx is killed", { skip, timeout: 120_000 }, async (test) => {
    // The copy is another file than the installed Node, so postern.js starts a second process, as on an older Node.
    const node = join(copy, "node");
    await link(process.execPath, node).catch(() => copyFile(process.execPath, node));
    const child = spawn(node, ["infra/postern.js", "serve", "--port", "0"], { cwd: copy, detached: true });
    const { pid } = child;
    assert.ok(pid);
    let hasEnded = false;
    // Both processes are in this process group.
    test.after(() => hasEnded || process.kill(-pid, "SIGKILL"));
    let printed = "";
    child.stdout.on("data", (chunk) => {
      printed += chunk;
    });
    while (!printed.includes("Serving")) await once(child.stdout, "data");
    child.kill("SIGKILL");
    // The output ends when both processes have ended.
    await once(child.stdout, "end");
    hasEnded = true;
    assert.match(printed, /shutting down: answering open requests\n$/);
  });

  it("a newcomer gets manifests in which the rules have the order of the compiled-in plugins", async () => {
    const { stdout } = await runPostern("manifests", "--url", "https://rules.example.com/", "--cluster", "local");
    const [mutating, validating] = parseAllDocuments(stdout).map((document) => document.toJS());
    assert.deepEqual(
      [mutating.kind, validating.kind],
      ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"],
    );
    const names = mutating.webhooks.map(({ name }: { name: string }) => name);
    assert.ok(
      names.indexOf("always-pull-images.postern.dev") < names.indexOf("default-toleration-seconds.postern.dev"),
    );
    const [pull] = validating.webhooks.filter(({ name }: { name: string }) => name.startsWith("always-pull"));
    assert.match(
      pull.clientConfig.url,
      /^https:\/\/rules.example.com\/local\.[\w-]{86}\/always-pull-images\/validate$/,
    );
    assert.equal(pull.clientConfig.caBundle, undefined);
  });

  it("a newcomer is warned about an object that is too large for kubectl apply", async () => {
    const { ca } = await readOrCreateServerCertificate(join(copy, "large"), "127.0.0.1");
    await writeFile(join(copy, "large.crt"), ca.repeat(100));
    const { code, stdout, stderr } = await runPostern("manifests", "--url", "https://x", "--ca", "large.crt");
    assert.equal(code, 0);
    const large = parseAllDocuments(stdout).map((document) => document.toJS());
    const sentence = (kind: string) =>
      `${kind} postern is too large for plain kubectl apply, which would store \\d+ bytes of annotations; the limit is 262144; use kubectl apply --server-side\n`;
    assert.match(stderr, new RegExp(`^if endpoints hang, .*\n${large.map(({ kind }) => sentence(kind)).join("")}$`));
  });

  /** Each row has the mistake, the words of the command, and its standard error as a pattern. */
  const { sentences, brokenRule }: { sentences: [string, string[], string][]; brokenRule: BrokenRuleCase[] } =
    parseYaml(readFileSync(new URL("newcomer.test.yaml", import.meta.url), "utf8"));
  for (const [name, words, stderr] of sentences)
    it(`a newcomer gets one sentence about ${name}`, async () => {
      const result = await runPostern(...words);
      assert.equal(result.code, 2);
      assert.match(result.stderr, new RegExp(stderr));
    });

  it("a newcomer gets one sentence about a port in use", async () => {
    const gateway = await serve();
    const [, port] = /127.0.0.1:(\d+)/.exec(await gateway.waitFor(/Serving .*/)) ?? [];
    const second = await runPostern("serve", "--port", String(port));
    assert.deepEqual([second.code, second.stderr], [1, `port ${port} of 127.0.0.1 is in use; --port takes another\n`]);
    await gateway.stop();
  });

  it("a newcomer gets the line of a mistake in postern.yaml", async () => {
    await writeFile(join(copy, "broken.yaml"), "rules:\n  always-admit:\n    mode: loud\n  nope:\n");
    const broken = await runPostern("serve", "--config", "broken.yaml");
    assert.deepEqual(broken.stderr.split("\n").slice(0, 2), [
      'broken.yaml:3 rules.always-admit.mode must be one of enforce, warn, audit, off, not "loud"',
      "broken.yaml:4 rules.nope is no rule; there is no folder functions/nope",
    ]);
  });

  describe("a newcomer with a broken rule", () => {
    const getFolder = () => join(copy, "functions/forbid-newcomers-nothing");
    const sentence =
      'functions/forbid-newcomers-nothing/rule.ts does not load: Expected identifier but found "{" (line 1)';
    before(async () => {
      await writeFile(join(copy, "nothing.yaml"), "rules:\n  always-admit:\n");
      await runPostern("new", "forbid-newcomers-nothing", "--config", "nothing.yaml");
      await writeFile(join(getFolder(), "rule.ts"), "export default {{\n");
      await writeFile(join(copy, "other.yaml"), "rules: { always-admit: }\n");
      await writeFile(
        join(copy, "pod.yaml"),
        "apiVersion: v1\nkind: Pod\nmetadata: { name: a }\nspec: { containers: [{ name: a, image: a }] }\n",
      );
    });
    after(() => rm(getFolder(), { recursive: true }));

    for (const [name, words, code, stdout, hasFault] of brokenRule)
      it(`with a broken rule, postern ${name}`, async () => {
        const result = await runPostern(...words);
        // `manifests` also prints how long the API server waits if endpoints hang.
        const faults = result.stderr.replace(/^if endpoints hang, .*\n/m, "");
        assert.deepEqual([result.code, faults], [code, hasFault ? `${sentence}\n` : ""]);
        assert.match(result.stdout, new RegExp(stdout));
      });

    it("a newcomer can serve the other rules, and the broken rule once it is repaired", async () => {
      const gateway = await serve("--watch", "--config", "nothing.yaml");
      await gateway.waitFor(/forbid-newcomers-nothing is not served: functions\/.* \(line 1\)/);
      const url = (await gateway.waitFor(/https:\S+\/always-admit\/validate/)).trim();
      assert.equal((await sendReview(url)).code, 200);
      await cp(join(copy, "functions/always-admit/rule.ts"), join(getFolder(), "rule.ts"));
      await gateway.waitFor(/reloaded: .*forbid-newcomers-nothing/);
      assert.equal((await sendReview(url.replace("always-admit", "forbid-newcomers-nothing"))).code, 200);
      assert.equal(await gateway.stop(), 0);
    });
  });
});
