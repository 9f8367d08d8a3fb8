import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { isDeepStrictEqual, promisify } from "node:util";
import { parseAllDocuments } from "yaml";
import { findBuilders } from "../builders/builders.ts";
import { buildKubeconfig, type Checkout, openCheckout } from "../checkout.ts";
import { requireBinaries } from "../control-plane/binaries.ts";
import { bootCluster, type TestCluster } from "../control-plane/cluster.ts";
import { runKubectl } from "../kubectl/kubectl.ts";
import { waitUntil } from "../parity/rule-server.ts";
import { needs } from "../parts.ts";
import { type Account, openAccount } from "./account.ts";

// Tests docs/how-to/gitops.md. The pipeline has rights in AWS, but none in the cluster. kubectl applies the files as a
// GitOps tool does: on the server's side, with force, and under the tool's name.
const fileParts = ["roles", "policies", "entries"] as const;
type Part = (typeof fileParts)[number];
const policies = ["team", "owner"].map(
  (label) => `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: { name: require-${label} }
spec:
  matchConstraints:
    resourceRules: [{ apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE] }]
  validations: [{ expression: "has(object.metadata.labels) && '${label}' in object.metadata.labels", message: no ${label} }]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: { name: require-${label} }
spec: { policyName: require-${label}, validationActions: [Deny] }
`,
);
const rules = `
  always-pull-images:
  pod-node-selector: { failurePolicy: Fail }
  deny-service-external-ips:
`;
const policyRule = "  validating-admission-policy: { settings: { policies: policies/ } }\n";
/**
 * The text in URLs that Flux replaces by the key, or by `%` if it has no key: then the URL is invalid, so the API
 * server refuses the entry. The text is joined from two parts, because the linter forbids ${…} in quotes.
 */
const placeholder = ["$", "{POSTERN_KEY:=%}"].join("");

describe(
  "a cluster to which a GitOps tool applies files",
  await needs("moto", "runtime client", "API server", "kubectl", "helm and kustomize"),
  () => {
    let account: Account;
    let cluster: TestCluster;
    let checkout: Checkout;
    let authenticator: { stop(): Promise<void> };
    let kubeconfig: string;

    const writeConfig = (text: string, extraYaml = "") =>
      checkout.write(
        "postern.yaml",
        `rules:${text}clusters:\n  prod:\n    connect: { eks: prod, region: eu-west-1 }\n${extraYaml}`,
      );

    before(async () => {
      [account, checkout] = await Promise.all([
        openAccount(),
        openCheckout([
          "always-pull-images",
          "pod-node-selector",
          "deny-service-external-ips",
          "validating-admission-policy",
        ]),
      ]);
      const started = await account.eks.startAuthenticator("prod", checkout.folder);
      authenticator = started;
      cluster = await bootCluster(await requireBinaries(), { rbac: true, flags: started.flags });
      account.clusters.set("prod", { server: cluster.server, ca: cluster.ca, entries: new Map() });
      kubeconfig = await checkout.write("admin.kubeconfig", buildKubeconfig({ prod: cluster }));
      await checkout.write("ca.pem", account.ca);
      await writeConfig(rules);
    });
    after(async () => {
      await Promise.all([account?.stop(), cluster?.stop(), authenticator?.stop()]);
      await checkout?.remove();
    });

    const run = async (...words: string[]) => {
      const { code, stdout, stderr } = await checkout.postern(account.env, ...words, "--stage", "test");
      return { code, output: stdout + stderr };
    };
    const writeFiles = (folder: string, ...words: string[]) =>
      run("deploy", "--ca", "ca.pem", "--write", folder, "--key-from", placeholder, ...words);
    const requireWritten = async (folder = "files", ...words: string[]) => {
      const { code, output } = await writeFiles(folder, ...words);
      assert.equal(code, 0, output);
      return output;
    };
    const readFiles = async (folder = "files") => {
      const names = (await readdir(join(checkout.folder, folder))).sort();
      return Object.fromEntries(
        await Promise.all(
          names.map(async (name) => [name, await readFile(join(checkout.folder, folder, name), "utf8")] as const),
        ),
      );
    };
    const kubectl = (words: string[], input = "") => runKubectl(words, input, { KUBECONFIG: kubeconfig });
    const readKey = async () => {
      const { output } = await run("key", "prod");
      return output.trim().replace("prod.", "");
    };
    const apply = async (text: string, manager = "kustomize-controller") =>
      kubectl(["apply", "--server-side", "--force-conflicts", `--field-manager=${manager}`, "-f", "-"], text);
    /** Replaces the placeholder in a file by the key, and applies the file, as Flux does. */
    const applyPart = async (part: Part, { folder = "files", manager = "kustomize-controller" } = {}) => {
      const text = await readFile(join(checkout.folder, folder, `prod.${part}.yaml`), "utf8");
      if (/^kind: /m.test(text)) await apply(text.replaceAll(placeholder, await readKey()), manager);
    };
    const applyAll = async (options: { manager?: string } = {}) => {
      for (const part of fileParts) await applyPart(part, options);
    };
    const readConfiguration = async (kind: "mutating" | "validating") => {
      const path = `/apis/admissionregistration.k8s.io/v1/${kind}webhookconfigurations/postern`;
      return Object((await cluster.admin({ method: "GET", path })).body);
    };
    const readConfigurations = () => Promise.all([readConfiguration("mutating"), readConfiguration("validating")]);
    const readVersions = async () => (await readConfigurations()).map(({ metadata }) => metadata?.resourceVersion);
    const listEntries = async () =>
      (await readConfigurations()).flatMap(({ webhooks = [] }) => webhooks.map(({ name }: { name: string }) => name));
    const deleteConfigurations = () =>
      kubectl([
        "delete",
        "mutatingwebhookconfigurations,validatingwebhookconfigurations",
        "postern",
        "--ignore-not-found",
      ]);
    let count = 0;
    const createPod = (fields: object = {}, namespace = "default") => {
      count += 1;
      const spec = { containers: [{ name: "a", image: "nginx:1.29" }], ...fields };
      const path = `/api/v1/namespaces/${namespace}/pods`;
      return cluster.admin({ method: "POST", path, body: { metadata: { name: `pod-${count}` }, spec } });
    };
    const createConfigMap = async (labels: Record<string, string> = {}) => {
      count += 1;
      const body = { metadata: { name: `map-${count}`, labels } };
      const answer = await cluster.admin({ method: "POST", path: "/api/v1/namespaces/default/configmaps", body });
      return String(Object(answer.body).message ?? answer.code);
    };

    it("a file with entries is written only once every endpoint answers, so the roles are applied first", async () => {
      const { code, output } = await writeFiles("files");
      assert.equal(code, 1, output);
      assert.match(
        output,
        /pod-node-selector\.postern\.dev: .* it answers 503: (.|\n)*\nif it may not read the cluster yet: apply/,
      );
      assert.deepEqual(Object.keys(await readFiles()), ["prod.policies.yaml", "prod.roles.yaml"]);
      await applyPart("roles");
    });

    it("once the roles are applied, a file with entries is written, without the key", async () => {
      assert.match(await requireWritten(), /release r1 is live in prod\n$/);
      const { "prod.entries.yaml": entries = "" } = await readFiles();
      assert.ok(entries.includes(`/prod.${placeholder}/pod-node-selector/mutate`), entries);
      assert.ok(!entries.includes(await readKey()));
    });

    it("the API server refuses entries whose key was not replaced", async () => {
      const { code, output } = await run("deploy", "--ca", "ca.pem", "--write", "plain");
      assert.equal(code, 0, output);
      for (const text of [
        (await readFiles("plain"))["prod.entries.yaml"] ?? "",
        ((await readFiles())["prod.entries.yaml"] ?? "").replaceAll(placeholder, "%"),
      ])
        await assert.rejects(apply(text), /clientConfig\.url: .* invalid URL escape/);
      assert.deepEqual(await listEntries(), []);
    });

    it("the written files have the same bytes if the stage is unchanged, also in an empty folder", async () => {
      const before = await readFiles();
      for (const folder of ["files", "again"]) {
        assert.match(await requireWritten(folder), /\nnothing to do: release r1 is live\n$/);
        assert.deepEqual(await readFiles(folder), before);
      }
    });

    it("kustomize and helm build the same objects from the files; helm fails without the key", async () => {
      const builders = (await findBuilders())?.folder ?? "";
      const build = async (program: string, ...words: string[]) =>
        (await promisify(execFile)(join(builders, program), words, { cwd: checkout.folder })).stdout;
      const parseSorted = (output: string) =>
        parseAllDocuments(output)
          .flatMap((document) => document.toJS() ?? [])
          .sort((left, right) => left.kind.localeCompare(right.kind));
      const key = await readKey();
      const expectedObjects = parseSorted(
        Object.values(await readFiles())
          .join("---\n")
          .replaceAll(placeholder, key),
      );
      const resources = fileParts.map((part) => `../files/prod.${part}.yaml`);
      await checkout.write("kustomized/kustomization.yaml", JSON.stringify({ resources }));
      const built = await build("kustomize", "build", "--load-restrictor=LoadRestrictionsNone", "kustomized");
      assert.deepEqual(parseSorted(built.replaceAll(placeholder, key)), expectedObjects);
      await checkout.write("chart/Chart.yaml", "apiVersion: v2\nname: postern\nversion: 0.0.0\n");
      const { code, output } = await run(
        "deploy",
        "--ca",
        "ca.pem",
        "--write",
        "chart/templates",
        "--key-from",
        "{{ required `the key is missing` .Values.key }}",
      );
      assert.equal(code, 0, output);
      assert.deepEqual(
        parseSorted(await build("helm", "template", "postern", "chart", "--set-string", `key=${key}`)),
        expectedObjects,
      );
      await assert.rejects(build("helm", "template", "postern", "chart"), /the key is missing/);
    });

    it("the rules decide in the cluster once the files are applied", async () => {
      const annotations = { "scheduler.alpha.kubernetes.io/node-selector": "pool=payments" };
      await cluster.admin({
        method: "POST",
        path: "/api/v1/namespaces",
        body: { metadata: { name: "pay", annotations } },
      });
      await applyAll();
      await waitUntil("the entries were not called in time", async () => {
        const { code, body } = await createPod({}, "pay");
        return code === 201 && isDeepStrictEqual(Object(body).spec.nodeSelector, { pool: "payments" });
      });
    });

    it("the cluster doesn't differ from the files, and doesn't change when they are applied again", async () => {
      const versions = await readVersions();
      await applyAll();
      assert.deepEqual(await readVersions(), versions);
      // GitOps tools compare lists as a whole. So inside of lists, files have all fields for which the API server would
      // set defaults.
      const text = ((await readFiles())["prod.entries.yaml"] ?? "").replaceAll(placeholder, await readKey());
      const written = parseAllDocuments(text).map((document) => document.toJS());
      for (const [index, { webhooks }] of (await readConfigurations()).entries())
        for (const [position, entry] of written[index].webhooks.entries()) {
          const { namespaceSelector = {}, objectSelector = {} } = entry;
          assert.deepEqual(webhooks[position], { namespaceSelector, objectSelector, ...entry });
        }
    });

    it("two field managers with the same files don't change the entries alternately", async () => {
      for (const manager of ["argocd-controller", "kustomize-controller"]) await applyAll({ manager });
      const versions = await readVersions();
      for (const manager of ["argocd-controller", "kustomize-controller"]) await applyAll({ manager });
      assert.deepEqual(await readVersions(), versions);
    });

    it("a changed rule changes only its own lines of the files, and only one configuration", async () => {
      const [filesBefore, versions] = [await readFiles(), await readVersions()];
      await writeConfig(
        rules.replace("deny-service-external-ips:", "deny-service-external-ips: { timeoutSeconds: 4 }"),
      );
      await requireWritten();
      const changed = Object.entries(await readFiles()).flatMap(([name, text]) => {
        const oldLines = (filesBefore[name] ?? "").split("\n");
        return text.split("\n").flatMap((line, index) => (line === oldLines[index] ? [] : [`${name}: ${line.trim()}`]));
      });
      assert.deepEqual(changed, ["prod.entries.yaml: timeoutSeconds: 4"]);
      await applyAll();
      const newVersions = await readVersions();
      // The rule validates, so the configuration of mutating webhooks is unchanged.
      assert.deepEqual([newVersions[0] === versions[0], newVersions[1] === versions[1]], [true, false]);
    });

    it("applying the files restores edited fields, but keeps fields that were added to a selector", async () => {
      const patch = (operations: object[]) =>
        kubectl([
          "patch",
          "validatingwebhookconfiguration",
          "postern",
          "--type=json",
          "-p",
          JSON.stringify(operations),
        ]);
      const webhooksBefore = (await readConfiguration("validating")).webhooks;
      await patch([
        { op: "replace", path: "/webhooks/0/clientConfig/caBundle", value: Buffer.from(cluster.ca).toString("base64") },
        { op: "replace", path: "/webhooks/0/timeoutSeconds", value: 1 },
        { op: "remove", path: "/webhooks/1" },
      ]);
      await applyAll();
      assert.deepEqual((await readConfiguration("validating")).webhooks, webhooksBefore);
      await patch([{ op: "add", path: "/webhooks/0/objectSelector/matchLabels", value: { none: "has-this" } }]);
      await applyAll();
      assert.deepEqual((await readConfiguration("validating")).webhooks[0].objectSelector.matchLabels, {
        none: "has-this",
      });
      await patch([{ op: "remove", path: "/webhooks/0/objectSelector/matchLabels" }]);
    });

    it("rollback, disarm and arm of a rule need no right in the cluster, and change nothing there", async () => {
      const versions = await readVersions();
      await writeConfig(rules.replace("deny-service-external-ips:", "deny-service-external-ips: { mode: warn }"));
      await requireWritten();
      for (const words of [
        ["rollback", "deny-service-external-ips"],
        ["disarm", "deny-service-external-ips", "--for", "5m"],
        ["arm", "deny-service-external-ips"],
      ]) {
        const { code, output } = await run(...words);
        assert.equal(code, 0, output);
      }
      assert.deepEqual(await readVersions(), versions);
      await writeConfig(rules);
      await requireWritten();
      await applyAll();
    });

    it("if entries are applied before roles, only fail-closed rules refuse requests, outside kube-system", async () => {
      await deleteConfigurations();
      await kubectl(["delete", "clusterrole,clusterrolebinding", "-l", "app.kubernetes.io/managed-by=postern"]);
      await account.stopGateways();
      await applyPart("entries");
      // Only the entry of pod-node-selector has the failurePolicy Fail.
      await waitUntil("the entry was not called in time", async () => (await createPod()).code === 500);
      const createService = (externalIPs: string[]) => {
        count += 1;
        const body = { metadata: { name: `service-${count}` }, spec: { ports: [{ port: 80 }], externalIPs } };
        return cluster.admin({ method: "POST", path: "/api/v1/namespaces/default/services", body });
      };
      assert.equal((await createService(["10.1.2.3"])).code, 201);
      assert.equal((await createPod({}, "kube-system")).code, 201);
      await account.startGateways();
      await waitUntil(
        "the endpoint did not answer in time",
        async () => (await createService(["10.1.2.3"])).code === 403,
      );
      assert.match(String(Object((await createPod()).body).message), /pod-node-selector/);
      await applyPart("roles");
      await waitUntil("the function could not read the cluster in time", async () => (await createPod()).code === 201);
    });

    it("a rule that is turned off keeps its rights in the cluster until its function is deleted", async () => {
      const listAccess = () =>
        [...(account.clusters.get("prod")?.entries?.values() ?? [])].flatMap(
          ({ kubernetesGroups }) => kubernetesGroups,
        );
      const rulesWithoutSelector = rules.replace(/ {2}pod-node-selector.*\n/, "");
      await writeConfig(rulesWithoutSelector);
      for (const finalSentence of [/release r\d+ is live in prod\n$/, /nothing to do: release r\d+ is live\n$/])
        assert.match(await requireWritten(), finalSentence);
      assert.doesNotMatch((await readFiles())["prod.roles.yaml"] ?? "", /kind:/);
      assert.deepEqual(listAccess(), ["postern:pod-node-selector"]);
      assert.deepEqual(Object((await createPod({}, "pay")).body).spec?.nodeSelector, { pool: "payments" });
      await applyAll();
      await writeConfig(rules);
      await requireWritten();
      await applyAll();
    });

    it("a policy is removed by two runs of deploy, so that each entry gets answers", async () => {
      await checkout.write("policies/team.yaml", policies[0] ?? "");
      await checkout.write("policies/owner.yaml", policies[1] ?? "");
      await writeConfig(rules + policyRule);
      const firstRun = await writeFiles("files");
      if (firstRun.code !== 0) {
        await applyPart("roles");
        await requireWritten();
      }
      await applyAll();
      await waitUntil("the policy require-owner was not evaluated in time", async () =>
        /no owner/.test(await createConfigMap({ team: "a" })),
      );
      await checkout.write("policies/owner.yaml", "");
      const { code, output } = await writeFiles("files");
      assert.equal(code, 1, output);
      assert.match(output, /\nno new version is live yet, .*: apply the files in files, which lack these entries, /);
      assert.match(await createConfigMap({ team: "a" }), /no owner/);
      assert.deepEqual(await listEntries().then((entries) => entries.filter((name) => /owner/.test(name)).length), 1);
      await applyAll();
      assert.deepEqual(
        (await listEntries()).filter((name) => /validating-admission-policy/.test(name)),
        ["require-team.validating-admission-policy.postern.dev"],
      );
      await requireWritten();
      assert.match(await createConfigMap(), /no team/);
      assert.equal(await createConfigMap({ team: "a" }), "201");
    });

    it("the cluster evaluates a policy itself once postern.yaml states the cluster's Kubernetes version", async () => {
      const { minor } = Object((await cluster.admin({ method: "GET", path: "/version" })).body);
      await writeConfig(rules + policyRule, `    kubernetes: "1.${minor}"\n`);
      await requireWritten();
      const { "prod.policies.yaml": text = "" } = await readFiles();
      const [policy = "", binding = ""] = text.split("---\n");
      await applyPart("entries");
      await apply(binding);
      await waitUntil("an entry was still called", async () => (await createConfigMap()) === "201");
      await apply(policy);
      await waitUntil("the policy was not in effect in time", async () => /no team/.test(await createConfigMap()));
      assert.equal(await createConfigMap({ team: "a" }), "201");
    });

    it("deploy names files of a cluster that postern.yaml doesn't have, and replaces no foreign file", async () => {
      await checkout.write("files/gone.entries.yaml", "# Written by postern deploy --write.\n");
      assert.match(
        await requireWritten(),
        /^files\/gone\.entries\.yaml is of a cluster that postern\.yaml doesn't name/m,
      );
      await checkout.write("files/prod.roles.yaml", "kind: ConfigMap\n");
      const { code, output } = await writeFiles("files");
      assert.deepEqual([code, /prod\.roles\.yaml would be replaced, but /.test(output)], [2, true], output);
      assert.equal((await readFiles())["prod.roles.yaml"], "kind: ConfigMap\n");
    });
  },
);
