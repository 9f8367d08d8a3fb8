import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { readOrCreateServerCertificate } from "../../infra/keys/keys.ts";
import type { DeploymentPlan } from "../../infra/rollout/plan/plan.ts";
import { buildKubeconfig, type Checkout, openCheckout } from "../checkout.ts";
import { needs } from "../parts.ts";
import { loadJob } from "../trees.ts";
import { type Account, openAccount } from "./account.ts";
import { type LightClusters, openLightClusters } from "./light-clusters.ts";

// Tests a stage with a policy, in a cluster that serves the policy's kind but whose admission plugin for it is off.
const name = "shop";
const rule = "validating-admission-policy";
const apiVersion = "admissionregistration.k8s.io/v1";
const metadata = { name: "require-team" };
const resourceRules = [{ apiGroups: [""], apiVersions: ["v1"], resources: ["configmaps"], operations: ["CREATE"] }];
const validations = [{ expression: "has(object.metadata.labels)" }];
const policies = [
  {
    apiVersion,
    kind: "ValidatingAdmissionPolicy",
    metadata,
    spec: { matchConstraints: { resourceRules }, validations },
  },
  {
    apiVersion,
    kind: "ValidatingAdmissionPolicyBinding",
    metadata,
    spec: { policyName: "require-team", validationActions: ["Deny"] },
  },
];
/** How plan and status report that the API server evaluates the policy, or that a function does. */
const byApiServer = { rule, policy: "require-team", native: true };
const byFunction = {
  ...byApiServer,
  native: false,
  reason: "its API server doesn't apply a new ValidatingAdmissionPolicy; the admission plugin must be on",
};

describe("a stage with a policy whose admission plugin is off", await needs("moto"), () => {
  let folder: string;
  let account: Account;
  let servers: LightClusters;
  let checkout: Checkout;

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), "postern-unapplied-"));
    const certificate = await readOrCreateServerCertificate(folder, "127.0.0.1");
    [account, servers, checkout] = await Promise.all([
      openAccount("eu-west-1", { isInProcess: true }),
      openLightClusters(certificate),
      openCheckout([rule]),
    ]);
    account.lambda.updateMilliseconds = 0;
    const cluster = { server: servers.url, ca: certificate.ca, getToken: () => name };
    await checkout.write("kubeconfig", buildKubeconfig({ [name]: cluster }));
    Object.assign(process.env, account.actAs("deployer").env);
  });
  after(async () => {
    await Promise.all([account?.stop(), servers?.stop(), checkout?.remove()]);
    await rm(folder, { recursive: true, force: true });
  });

  const openJob = (timeoutSeconds: number) => {
    const rules = { [rule]: { settings: { policies }, timeoutSeconds } };
    const config = JSON.stringify({ rules, clusters: { [name]: {} } });
    return loadJob(checkout.folder, "functions", config, { ca: account.ca });
  };
  /** Deploys. Returns the final sentence, and where the policy is evaluated according to the plan. */
  const deploy = async (timeoutSeconds: number) => {
    const { deployStage } =
      await checkout.load<typeof import("../../infra/rollout/deploy.ts")>("infra/rollout/deploy.ts");
    const plans: DeploymentPlan[] = [];
    const result = await deployStage(await openJob(timeoutSeconds), async (plan) => void plans.push(plan));
    return { sentence: result, planned: plans.flatMap(({ clusters }) => clusters.flatMap(({ policies }) => policies)) };
  };
  const readHealth = async (timeoutSeconds: number) => {
    const { probeClusterHealth } = await checkout.load<typeof import("../../infra/rollout/clusters/cluster-health.ts")>(
      "infra/rollout/clusters/cluster-health.ts",
    );
    const { readReleaseStore } = await checkout.load<typeof import("../../infra/rollout/versions/releases.ts")>(
      "infra/rollout/versions/releases.ts",
    );
    const job = await openJob(timeoutSeconds);
    const [release] = (await readReleaseStore(job.stage.openStageBucket)).all;
    assert.ok(release);
    const health = await probeClusterHealth(job, name, release);
    assert.deepEqual([health?.drift, health?.sick, health?.unknown], [[], [], []]);
    return { entries: health?.entries, policies: health?.policies };
  };

  it("a policy has a webhook entry while the admission plugin is off; status and the next plan say why", async () => {
    // Only the first deployment finds out that the plugin is off.
    assert.deepEqual(await deploy(10), { sentence: "release r1 is live in shop", planned: [byApiServer] });
    assert.deepEqual(await readHealth(10), { entries: 1, policies: [byFunction] });
    assert.deepEqual(await deploy(10), { sentence: "nothing to do: release r1 is live", planned: [byFunction] });
  });

  it("a policy has no webhook entry after the first deployment with the plugin on", async () => {
    servers.clustersWithPolicies.add(name);
    assert.deepEqual(await deploy(11), { sentence: "release r2 is live in shop", planned: [byFunction] });
    assert.deepEqual(await readHealth(11), { entries: 0, policies: [byApiServer] });
    assert.deepEqual(await deploy(11), { sentence: "nothing to do: release r2 is live", planned: [byApiServer] });
  });
});
