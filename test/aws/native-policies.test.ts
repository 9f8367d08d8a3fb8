import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { buildKubeconfig, type Checkout, openCheckout } from "../checkout.ts";
import { chooseUpgrade } from "../choices.ts";
import { requireBinaries } from "../control-plane/binaries.ts";
import { bootCluster, type TestCluster } from "../control-plane/cluster.ts";
import { waitUntil } from "../parity/rule-server.ts";
import { needs } from "../parts.ts";
import { type Account, openAccount } from "./account.ts";

// Tests a stage with policies, in a cluster that is upgraded between deployments.
const { older, newer, skip } = chooseUpgrade(0);

const policies = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: { name: require-team }
spec:
  matchConstraints:
    resourceRules: [{ apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE] }]
  validations: [{ expression: "has(object.metadata.labels) && 'team' in object.metadata.labels", message: no team }]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: { name: require-team }
spec: { policyName: require-team, validationActions: [Deny] }
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: { name: stamp }
spec:
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules: [{ apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE] }]
  mutations: [{ patchType: ApplyConfiguration, applyConfiguration: { expression: "Object{data: {'stamp': 'on'}}" } }]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: { name: stamp }
spec: { policyName: stamp }
`;
const buildConfig = (mutating = "") => `
rules:
  validating-admission-policy: { settings: { policies: policies/ }, timeoutSeconds: 10 }
  mutating-admission-policy: { settings: { policies: policies/ }, timeoutSeconds: 10${mutating} }
clusters:
  shop:
`;
const unserved = `its Kubernetes ${older} doesn't serve MutatingAdmissionPolicy admissionregistration.k8s.io/v1`;
/** The rule that a policy belongs to, and the name of the policy, as plan and status report them. */
const placement = {
  team: { rule: "validating-admission-policy", policy: "require-team" },
  stamp: { rule: "mutating-admission-policy", policy: "stamp" },
};

describe(
  "admission policies of a stage in an upgraded cluster",
  skip === undefined ? await needs("moto", "runtime client", "API server", "older API server") : { skip },
  () => {
    let account: Account;
    let cluster: TestCluster;
    let checkout: Checkout;
    let options: string[];

    const boot = async (minor: string, store?: string) => {
      // etcd 3.7 can't read data of etcd 3.5, so the newest etcd stores the data of both minors.
      const { etcd } = await requireBinaries(newer);
      cluster = await bootCluster({ ...(await requireBinaries(minor)), etcd }, store === undefined ? {} : { store });
      await checkout.write("kubeconfig", buildKubeconfig({ shop: cluster }));
    };
    before(async () => {
      [account, checkout] = await Promise.all([
        openAccount(),
        openCheckout(["validating-admission-policy", "mutating-admission-policy"]),
      ]);
      await boot(older);
      await checkout.write("postern.yaml", buildConfig());
      await checkout.write("policies/all.yaml", policies);
      const ca = await checkout.write("ca.pem", account.ca);
      options = ["--stage", "test", "--kubeconfig", join(checkout.folder, "kubeconfig"), "--ca", ca];
      Object.assign(process.env, account.actAs("deployer").env);
    });
    after(async () => {
      await Promise.all([account?.stop(), cluster?.stop()]);
      await checkout?.remove();
    });

    /** Returns the options without `--ca`. */
    const getClusterOptions = () => options.slice(0, 4);
    const runPostern = (...words: string[]) => checkout.postern(account.actAs("pipeline").env, ...words);
    const deploy = async (...words: string[]) => {
      const { code, stdout, stderr } = await runPostern("deploy", ...options, ...words);
      assert.equal(code, 0, stdout + stderr);
      return stdout;
    };
    const createConfigMap = async (labels: object) => {
      const body = { metadata: { generateName: "a-", labels } };
      return cluster.admin({ method: "POST", path: "/api/v1/namespaces/default/configmaps", body });
    };
    /**
     * Lets eight clients create ConfigMaps before, during and after a command. Throws if a ConfigMap without a team was
     * accepted, or if another one got no stamp.
     */
    const writeDuring = async (act: () => Promise<unknown>) => {
      const faults: string[] = [];
      let written = 0;
      let isOver = false;
      const work = async () => {
        while (!isOver) {
          const [refused, changed] = [await createConfigMap({}), await createConfigMap({ team: "a" })];
          if (!/denied request: no team$/.test(String(refused.body.message))) faults.push(JSON.stringify(refused.body));
          if (Object(changed.body.data).stamp !== "on") faults.push(JSON.stringify(changed.body));
          written += 2;
          await wait(50);
        }
      };
      const clients = Array.from({ length: 8 }, work);
      const waitUntilWritten = (count: number) =>
        waitUntil("clients could not write in time", () => faults.length > 0 || written >= count);
      try {
        await waitUntilWritten(50);
        await act();
        await waitUntilWritten(written + 200);
      } finally {
        isOver = true;
        await Promise.all(clients);
      }
      assert.deepEqual(faults, []);
    };
    const readStatus = async () => {
      const { code, stdout, stderr } = await runPostern("status", ...getClusterOptions(), "-o", "json");
      const [{ policies, drift, sick, unknown }] = JSON.parse(stdout).clusters;
      assert.deepEqual([sick, unknown], [[], []], stderr);
      return { code, policies, drift };
    };
    const list = async (resource: string): Promise<{ metadata: { name: string }; webhooks?: object[] }[]> => {
      const path = `/apis/admissionregistration.k8s.io/v1/${resource}`;
      const { body } = await cluster.admin({ method: "GET", path });
      return Object(body).items;
    };
    const listNames = async (resource: string) => (await list(resource)).map(({ metadata }) => metadata.name);
    const countEntries = async (kind: "mutating" | "validating") =>
      (await list(`${kind}webhookconfigurations`)).flatMap(({ webhooks = [] }) => webhooks).length;

    it("the plan states where each policy is evaluated, and why", async () => {
      const { clusters } = JSON.parse(await deploy("--plan-only", "-o", "json"));
      assert.deepEqual(clusters[0].policies, [
        { ...placement.stamp, native: false, reason: unserved },
        { ...placement.team, native: true },
      ]);
      const text = await deploy("--plan-only");
      assert.match(text, /^ {2}policies evaluated by the API server: require-team$/m);
      assert.ok(text.includes(`  policies evaluated by the Lambda: stamp (${unserved})\n`), text);
    });

    it("a stage with policies is deployed, and reported as healthy", async () => {
      await deploy();
      const { code, policies, drift } = await readStatus();
      assert.deepEqual([code, drift], [0, []]);
      assert.deepEqual(policies, [
        { ...placement.stamp, native: false, reason: unserved },
        { ...placement.team, native: true },
      ]);
      assert.deepEqual(await listNames("validatingadmissionpolicies"), ["postern.require-team"]);
      assert.equal(await countEntries("validating"), 0);
      assert.equal(await countEntries("mutating"), 1);
    });

    it("`disarm` names the policies that stay in effect while their rule is disarmed", async () => {
      const words = ["disarm", "validating-admission-policy", "--stage", "test", "--for", "1m"];
      const { code, stderr } = await runPostern(...words);
      assert.equal(code, 0, stderr);
      assert.match(
        stderr,
        /policies of validating-admission-policy that API servers evaluate stay as they are in shop; there, kubectl delete validatingadmissionpolicybindings,/,
      );
      assert.equal((await runPostern("arm", "validating-admission-policy", "--stage", "test")).code, 0);
    });

    it("after an upgrade, status announces and deploy makes the move of a policy into the API server", async () => {
      const store = join(checkout.folder, "etcd");
      await cluster.stopAndCopyData(store);
      await boot(newer, store);
      const before = await readStatus();
      assert.equal(before.code, 1);
      assert.deepEqual(before.drift, [
        `it runs Kubernetes ${newer}, but its functions were built for ${older}; postern deploy builds them again`,
        "the API server can evaluate policy stamp itself; postern deploy moves it",
      ]);
      assert.deepEqual(before.policies[0], { ...placement.stamp, native: false, reason: "postern deploy moves it" });
      await writeDuring(deploy);
      const after = await readStatus();
      assert.deepEqual([after.code, after.drift], [0, []]);
      assert.deepEqual(after.policies[0], { ...placement.stamp, native: true });
      assert.equal(await countEntries("mutating"), 0);
      assert.match((await runPostern("deploy", ...options)).stderr, /nothing to do/);
    });

    it("a rollback moves a policy back to a webhook entry, and another rollback reverses this", async () => {
      const rollBack = async (...words: string[]) => {
        const { code, stderr } = await runPostern("rollback", "--all", ...getClusterOptions(), ...words);
        assert.equal(code, 0, stderr);
      };
      await writeDuring(() => rollBack("--to", "r1"));
      assert.deepEqual(await listNames("mutatingadmissionpolicies"), []);
      assert.equal(await countEntries("mutating"), 1);
      await writeDuring(() => rollBack("--to", "r2"));
      assert.deepEqual(await listNames("mutatingadmissionpolicies"), ["postern.stamp"]);
    });

    it("a policy is evaluated by its function if the API server can't evaluate its mode", async () => {
      await checkout.write("postern.yaml", buildConfig(", mode: warn"));
      await deploy();
      const { policies } = await readStatus();
      const reason = "API servers have no mode warn for changes";
      assert.deepEqual(policies[0], { ...placement.stamp, native: false, reason });
      assert.deepEqual(await listNames("mutatingadmissionpolicies"), []);
    });

    it("the policies are deleted together with the stage", async () => {
      const { code, stderr } = await runPostern("destroy", "--yes", ...getClusterOptions());
      assert.equal(code, 0, stderr);
      for (const kind of [
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "mutatingwebhookconfigurations",
      ])
        assert.deepEqual(await listNames(kind), []);
    });
  },
);
