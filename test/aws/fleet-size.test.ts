import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { readOrCreateServerCertificate } from "../../infra/keys/keys.ts";
import { formatFleetMeasurement } from "../bench/bench-report.ts";
import { measureFleet } from "../bench/fleet.ts";
import { buildKubeconfig, type Checkout, openCheckout } from "../checkout.ts";
import { needs } from "../parts.ts";
import { loadJob, recordProgress } from "../trees.ts";
import { type Account, openAccount } from "./account.ts";
import { type LightClusters, openLightClusters } from "./light-clusters.ts";

// Tests with one stage and many clusters what a deployment does for each cluster, and what it does only once. Each
// cluster is a light API server.
const rules = ["always-pull-images", "default-toleration-seconds", "minimum-replicas"];

describe("a stage with many clusters", await needs("moto"), () => {
  let folder: string;
  let account: Account;
  let servers: LightClusters;
  let checkout: Checkout;
  let ca: string;

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), "postern-fleet-"));
    const certificate = await readOrCreateServerCertificate(folder, "127.0.0.1");
    ca = certificate.ca;
    [account, servers, checkout] = await Promise.all([
      openAccount("eu-west-1", { isInProcess: true }),
      openLightClusters(certificate),
      openCheckout(rules),
    ]);
    account.lambda.updateMilliseconds = 0;
    Object.assign(process.env, account.actAs("deployer").env);
  });
  after(async () => {
    await Promise.all([account?.stop(), servers?.stop(), checkout?.remove()]);
    await rm(folder, { recursive: true, force: true });
  });

  const listNames = (count: number) => Array.from({ length: count }, (_, index) => `cluster-${index}`);
  /**
   * Deploys to the first `count` clusters. `firstSection` is the YAML for the first of these clusters in postern.yaml.
   * Returns the final sentence, the steps and the bytes of the newest release.
   */
  const deploy = async (count: number, firstSection = "") => {
    const clusters = listNames(count).map((name) => [name, { server: servers.url, ca, getToken: () => name }]);
    await checkout.write("kubeconfig", buildKubeconfig(Object.fromEntries(clusters)));
    const sections = listNames(count).map((name, index) => `${name}: {${index === 0 ? firstSection : ""}}`);
    const text = `rules: { ${rules.map((name) => `${name}: `).join(", ")} }\nclusters: { ${sections.join(", ")} }\n`;
    const steps: string[] = [];
    const progress = recordProgress(steps);
    const job = await loadJob(checkout.folder, "functions", text, { progress, wave: 5, ca: account.ca });
    const { deployStage } =
      await checkout.load<typeof import("../../infra/rollout/deploy.ts")>("infra/rollout/deploy.ts");
    const finalSentence = await deployStage(job, async () => {}).catch((error: Error) => error.message);
    const sizes: number[] = [];
    const bucket = await job.stage.openStageBucket();
    for await (const { bytes } of bucket?.list("releases/") ?? []) sizes.push(bytes);
    return { finalSentence, steps, bytes: sizes.at(-1) ?? 0 };
  };
  const countVersions = () => [...account.lambda.functions.values()].map(({ published }) => published);
  const listUpdatedClusters = (steps: string[]) =>
    steps.flatMap((step) => /^cluster (\S+): entries$/.exec(step)?.[1] ?? []).sort();

  let first: Awaited<ReturnType<typeof deploy>>;

  it("a stage with many clusters is deployed in waves", async () => {
    first = await deploy(20);
    assert.match(first.finalSentence, /^release r1 is live in cluster-0, /);
    assert.deepEqual(listUpdatedClusters(first.steps), listNames(20).sort());
  });

  it("a new cluster needs no new version of a function, and no change of another cluster", async () => {
    const versions = countVersions();
    const { finalSentence, steps, bytes } = await deploy(21);
    assert.match(finalSentence, /^release r2 is live in cluster-0, .*, cluster-20$/);
    assert.deepEqual(countVersions(), versions);
    assert.deepEqual(
      [...new Set(steps)].filter((step) => !step.startsWith("cluster ")),
      [],
    );
    assert.deepEqual(listUpdatedClusters(steps), ["cluster-20"]);
    assert.ok(bytes > 1000 && bytes - first.bytes < 1000, `${first.bytes} and ${bytes} bytes`);
  });

  it("the endpoint of a changed rule is probed only once for all clusters with the same settings", async () => {
    const invokedFunctions: string[] = [];
    const { invoke } = account.lambda;
    account.lambda.invoke = (name, ...rest) => {
      invokedFunctions.push(name);
      return invoke(name, ...rest);
    };
    const { finalSentence, steps } = await deploy(
      21,
      " rules: { default-toleration-seconds: { settings: { notReadySeconds: 9 } } } ",
    );
    account.lambda.invoke = invoke;
    assert.match(finalSentence, /^release r3 is live/);
    assert.deepEqual(listUpdatedClusters(steps), []);
    // There are two kinds of settings now: those of the first cluster, and those of all later clusters.
    assert.deepEqual(invokedFunctions, Array(2).fill("postern-test-default-toleration-seconds"));
  });

  it("`npm run bench` measures the deployment of a fleet", async () => {
    const measured = await measureFleet(folder, [2], 12); // 2 clusters and 12 rules
    assert.ok("steps" in measured, JSON.stringify(measured));
    assert.deepEqual([measured.rules, measured.steps.length], [12, 4]);
    for (const { wall, usage } of measured.steps) assert.ok(wall > 0 && usage.seconds > 0 && usage.memory > 0);
    assert.match(formatFleetMeasurement(measured), /^FLEET, 12 rules .*\n2 clusters: a plan of a new stage +1\.00 /);
  });
});
