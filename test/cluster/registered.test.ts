import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, beforeEach, describe, it } from "node:test";
import { buildKubeconfig } from "../checkout.ts";
import { requireBinaries } from "../control-plane/binaries.ts";
import { bootCluster, type TestCluster } from "../control-plane/cluster.ts";
import { runKubectl } from "../kubectl/kubectl.ts";
import { waitUntil } from "../parity/rule-server.ts";
import { needs } from "../parts.ts";
import { runVerb } from "../verb.ts";

// Tests the commands of docs/how-to/serve.md by which kubectl applies, prunes and removes objects, and the output of
// postern status about these objects.

/** Finds the command on the page that matches a pattern, and returns its words after `kubectl`. */
const readCommand = async (pattern: RegExp): Promise<string[]> => {
  const page = await readFile(new URL("../../docs/how-to/serve.md", import.meta.url), "utf8");
  const blocks = [...page.matchAll(/^```sh\n(.*?)^```/gms)].map(([, text = ""]) => text.replaceAll(/\\\n\s*/g, ""));
  const commands = blocks.filter((text) => pattern.test(text));
  assert.equal(commands.length, 1, `${pattern}`);
  return commands[0]?.split("kubectl ")[1]?.trim().split(/\s+/) ?? [];
};
const [pruneCommand, applySetCommand, removeCommand] = await Promise.all(
  [/--prune-allowlist/, /--applyset/, /kubectl delete/].map(readCommand),
);
assert.ok(pruneCommand && applySetCommand && removeCommand);

const modes = {
  "client-side": { apply: pruneCommand, variables: {} },
  "server-side": { apply: applySetCommand, variables: { KUBECTL_APPLYSET: "true" } },
};
/** A policy whose selector has the texts `y` and `on`, which YAML 1.1 reads as booleans. */
const policy = {
  apiVersion: "admissionregistration.k8s.io/v1",
  kind: "ValidatingAdmissionPolicy",
  metadata: { name: "no-exec" },
  spec: {
    matchConstraints: {
      objectSelector: { matchLabels: { y: "on" } },
      resourceRules: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE"] }],
    },
    validations: [{ expression: "true" }],
  },
};
const binding = {
  apiVersion: policy.apiVersion,
  kind: "ValidatingAdmissionPolicyBinding",
  metadata: policy.metadata,
  spec: { policyName: policy.metadata.name, validationActions: ["Deny"] },
};
const allRules = {
  "limit-ranger": {},
  "always-pull-images": { failurePolicy: "Fail" },
  "validating-admission-policy": { settings: { policies: [policy, binding] } },
};

describe("kubectl with the printed manifests", await needs("API server", "kubectl"), () => {
  let cluster: TestCluster;
  let folder = "";
  let kubeconfig = "";
  const kubectl = (words: readonly string[], input = "", variables = {}) =>
    runKubectl(words, input, { KUBECONFIG: kubeconfig, ...variables });

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), "postern-registered-"));
    cluster = await bootCluster(await requireBinaries(), { disable: ["ServiceAccount"] });
    kubeconfig = join(folder, "kubeconfig");
    await writeFile(kubeconfig, buildKubeconfig({ local: cluster }));
  });
  after(async () => {
    await cluster?.stop();
    await rm(folder, { recursive: true, force: true });
  });
  beforeEach(() => removeAll("postern", "other"));

  const useName = (words: readonly string[], name: string) =>
    words.map((word) => word.replace("instance=postern", `instance=${name}`).replace(/^postern$/, name));
  const removeAll = async (...names: string[]) => {
    for (const name of names) await kubectl(useName(removeCommand, name));
  };
  const runPostern = async (verb: string, rules: object, name: string, ...words: string[]) => {
    const local = { kubernetes: "1.37", connect: { kubeconfig } };
    await writeFile(join(folder, "postern.yaml"), JSON.stringify({ rules, clusters: { local } }));
    return runVerb(folder, [verb, "--config", join(folder, "postern.yaml"), "--name", name, ...words]);
  };
  const print = async (rules: object, name = "postern") => {
    const printed = await runPostern("manifests", rules, name, "--url", "https://127.0.0.1:1");
    assert.equal(printed.code, 0, printed.stderr);
    return printed.stdout;
  };
  const readStatus = async (rules: object, name = "postern") => {
    const { code, stdout, stderr } = await runPostern("status", rules, name, "-o", "json");
    assert.equal(stderr, "");
    const [registered] = JSON.parse(stdout).clusters;
    const differences: string[] = registered.differences.map(({ sentence }: { sentence: string }) => sentence);
    return { code, registered, differences };
  };
  const kinds =
    "mutatingwebhookconfigurations,validatingwebhookconfigurations,clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings";
  const listObjects = async (): Promise<string[]> => {
    const output = await kubectl(["get", kinds, "-l", "app.kubernetes.io/managed-by=postern", "-o", "name"]);
    return output
      .split("\n")
      .filter(Boolean)
      .map((line) => line.replace(/\.[^/]+/, ""))
      .sort();
  };
  const objectsOf = (name: string) => [
    `clusterrole/${name}:limit-ranger`,
    `clusterrolebinding/${name}:limit-ranger`,
    ...configurationsOf(name),
    `validatingadmissionpolicy/${name}.no-exec`,
    `validatingadmissionpolicybinding/${name}.no-exec`,
  ];
  const configurationsOf = (name: string) => [
    `mutatingwebhookconfiguration/${name}`,
    `validatingwebhookconfiguration/${name}`,
  ];
  /** Waits until the API server admits a pod, or refuses it because the endpoint of a rule can't be called. */
  const awaitPod = (expected: "admitted" | "refused") =>
    waitUntil(`no pod was ${expected}`, async () => {
      const spec = { containers: [{ name: "a", image: "a:1" }] };
      const pod = { apiVersion: "v1", kind: "Pod", metadata: { name: "a", namespace: "default" }, spec };
      const outcome = await kubectl(["create", "-f", "-", "--dry-run=server"], JSON.stringify(pod)).then(
        () => "admitted",
        (error) => (/failed calling webhook "always-pull-images.postern.dev"/.test(error) ? "refused" : String(error)),
      );
      return outcome === expected;
    });

  for (const [mode, { apply, variables }] of Object.entries(modes)) {
    const applyAs = (name: string, text: string) => kubectl(useName(apply, name), text, variables);

    it(`kubectl deletes objects of rules that were turned off, but none of another --name, by ${mode}`, async () => {
      await applyAs("postern", await print(allRules));
      await applyAs("other", await print(allRules, "other"));
      assert.deepEqual(await listObjects(), [...objectsOf("other"), ...objectsOf("postern")].sort());
      const { registered, differences, code } = await readStatus(allRules);
      assert.deepEqual([differences, code], [[], 0]);
      assert.deepEqual(registered.others, ["other"]);
      assert.ok(registered.objects.every(({ since }: { since: string }) => Date.parse(since) <= Date.now()));
      await awaitPod("refused");

      await applyAs("postern", await print({}));
      assert.deepEqual(await listObjects(), [...objectsOf("other"), ...configurationsOf("postern")].sort());
      assert.deepEqual((await readStatus({})).differences, []);
      await awaitPod("refused");

      await applyAs("other", await print({}, "other"));
      await awaitPod("admitted");
      await removeAll("postern");
      assert.deepEqual(await listObjects(), configurationsOf("other"));
    });

    it(`kubectl labels older objects, and lets status list the unneeded objects, if it applies ${mode}`, async () => {
      const withoutInstanceLabel = (await print(allRules)).replaceAll(/^ +app.kubernetes.io\/instance: .*\n/gm, "");
      await kubectl(["apply", "-f", "-", ...(mode === "server-side" ? ["--server-side"] : [])], withoutInstanceLabel);
      const { "limit-ranger": _, ...rulesStillOn } = allRules;
      await applyAs("postern", await print(rulesStillOn));
      const status = await runPostern("status", rulesStillOn, "postern");
      assert.equal(status.code, 1);
      const [, differences, deletion = ""] = /((?: {2}~ .*\n)+)\nkubectl (.*)\n$/.exec(status.stdout) ?? [];
      assert.equal(
        differences,
        "  ~ ClusterRoleBinding postern:limit-ranger should not be there\n  ~ ClusterRole postern:limit-ranger should not be there\n",
      );
      await kubectl(deletion.split(" "));
      const { stdout, code } = await runPostern("status", rulesStillOn, "postern");
      assert.match(stdout, /\nnothing is missing or left over\n$/);
      assert.equal(code, 0);
    });
  }

  it("kubectl doesn't delete an unneeded ServiceAccount, and status lists the ServiceAccount", async () => {
    const { "limit-ranger": _, ...rulesStillOn } = allRules;
    const text = await print(rulesStillOn);
    const account = {
      apiVersion: "v1",
      kind: "ServiceAccount",
      metadata: { name: "postern", namespace: "kube-system", labels: { "app.kubernetes.io/managed-by": "postern" } },
    };
    await kubectl(["apply", "-f", "-"], `${text}---\n${JSON.stringify(account)}`);
    const { stdout } = await runPostern("status", rulesStillOn, "postern");
    assert.match(stdout, /ServiceAccount postern in namespace kube-system should not be there\n\n/);
    await kubectl(stdout.trimEnd().split("\nkubectl ")[1]?.split(" ") ?? []);
    assert.equal((await runPostern("status", rulesStillOn, "postern")).code, 0);
  });

  it("kubectl deletes a role by the command that status prints, even if the role's name has shell syntax", async () => {
    const name = "postern:It's; $(touch x)";
    const metadata = { name, labels: { "app.kubernetes.io/managed-by": "postern" } };
    const role = { apiVersion: "rbac.authorization.k8s.io/v1", kind: "ClusterRole", metadata, rules: [] };
    await kubectl(["apply", "-f", "-"], `${await print({})}---\n${JSON.stringify(role)}`);
    const { stdout } = await runPostern("status", {}, "postern");
    const [, deletion = ""] = stdout.trimEnd().split("\nkubectl ");
    const words = execFileSync("bash", ["-c", `printf '%s\n' ${deletion}`], { encoding: "utf8" })
      .trimEnd()
      .split("\n");
    assert.deepEqual(words, ["delete", `clusterrole/${name}`]);
    await kubectl(words);
    assert.equal((await runPostern("status", {}, "postern")).code, 0);
  });

  it("kubectl stores a policy's selector `y: on` in postern.yaml as these texts, not as YAML booleans", async () => {
    await kubectl(["apply", "-f", "-"], await print(allRules));
    const { spec } = JSON.parse(await kubectl(["get", "validatingadmissionpolicy", "postern.no-exec", "-o", "json"]));
    assert.deepEqual(spec.matchConstraints.objectSelector, { matchLabels: { y: "on" } });
  });

  it("status compares the objects that kubectl applied with postern.yaml, without showing the URLs' key", async () => {
    assert.deepEqual(
      (await readStatus(allRules)).differences.filter((sentence) => !sentence.endsWith(" is missing")),
      [],
    );
    const text = await print({ ...allRules, "default-toleration-seconds": {} });
    const [key = ""] = /(?<=\/local\.)[^/]+/.exec(text) ?? [];
    assert.equal(key.length, 86);
    await kubectl(["apply", "-f", "-"], text);
    await kubectl(["delete", "clusterrolebinding", "postern:limit-ranger"]);
    const change = (object: string, patch: object[]) =>
      kubectl(["patch", object, "postern", "--type", "json", "-p", JSON.stringify(patch)]);
    const otherUrl = `https://127.0.0.1:2/prod.${key}/limit-ranger/validate`;
    await change("validatingwebhookconfiguration", [
      { op: "replace", path: "/webhooks/1/failurePolicy", value: "Ignore" },
      { op: "replace", path: "/webhooks/0/clientConfig/url", value: otherUrl },
    ]);
    await change("mutatingwebhookconfiguration", [{ op: "remove", path: "/webhooks/1" }]);
    const { "validating-admission-policy": _, ...fewer } = allRules;
    const { stdout, code } = await runPostern("status", fewer, "postern");
    assert.equal(code, 1);
    assert.doesNotMatch(stdout, new RegExp(key));
    assert.deepEqual(
      stdout.split("\n").filter((line) => line.startsWith("  ~ ")),
      [
        "  ~ ClusterRoleBinding postern:limit-ranger is missing",
        "  ~ mutating entry always-pull-images.postern.dev is missing",
        "  ~ mutating entry default-toleration-seconds.postern.dev should not be there: the rule default-toleration-seconds is off",
        "  ~ validating entry limit-ranger.postern.dev: clientConfig.url is https://127.0.0.1:2/prod.…/limit-ranger/validate, not https://127.0.0.1:1/local.…/limit-ranger/validate",
        "  ~ validating entry always-pull-images.postern.dev: failurePolicy is Ignore, not Fail",
        "  ~ ValidatingAdmissionPolicyBinding postern.no-exec should not be there",
        "  ~ ValidatingAdmissionPolicy postern.no-exec should not be there",
      ],
    );
  });
});
