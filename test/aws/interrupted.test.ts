import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer, request, type Server } from "node:https";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { after, before, describe, it } from "node:test";
import { readOrCreateServerCertificate } from "../../infra/keys/keys.ts";
import { lockTermMilliseconds } from "../../infra/rollout/stage/lock.ts";
import { buildKubeconfig, type Checkout, openCheckout } from "../checkout.ts";
import { choosePart } from "../choices.ts";
import { requireBinaries } from "../control-plane/binaries.ts";
import { bootCluster, type TestCluster } from "../control-plane/cluster.ts";
import { close, listen } from "../listen.ts";
import { needs } from "../parts.ts";
import { buildProgram, type CatalogueDeployment, deployCatalogue, openDeploymentJob, openStageAs } from "../trees.ts";
import { type Account, openAccount } from "./account.ts";
import type { RecordedCall } from "./aws-service.ts";
import { findAllowingStatement, listIamCalls, readAccess, region } from "./rights.ts";

// Kills a deployment, or stops it for some time, after each of its changes to AWS or to the cluster, and then runs it
// again. The deployment runs in its own process, with the rights of the role that deploys, and with a wrong clock.
const buildRule = (stamp: string) => `
import { rule } from "#lib/rule.ts";
export default rule({
  summary: "Stamps notes.",
  match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["configmaps"], operations: ["CREATE"] }],
  mutate(note) { note.data = { stamp: "${stamp}" }; },
  validate(note) { if (!note.data) return "data must be set"; },
});
`;
const buildCases = (stamp: string) => `
- name: stamps a note
  mutate: { metadata: { name: a } }
  becomes: { metadata: { name: a }, data: { stamp: ${stamp} } }
- name: refuses a note without data
  validate: { metadata: { name: a } }
  refused: data must be set
`;

describe("an interrupted deployment", await needs("moto", "runtime client", "API server"), () => {
  let account: Account;
  let cluster: TestCluster;
  let checkout: Checkout;
  /** The proxy between the interrupted deployment and the cluster. */
  let proxy: ApiProxy;
  let kubeconfig: string;

  before(async () => {
    const binaries = await requireBinaries();
    const [openedAccount, bootedCluster, openedCheckout, { role }] = await Promise.all([
      openAccount(region),
      bootCluster(binaries),
      openCheckout(),
      readAccess({ Stage: "test", GitHubRepository: "acme/postern" }),
    ]);
    [account, cluster, checkout] = [openedAccount, bootedCluster, openedCheckout];
    Object.assign(account.lambda, { updateMilliseconds: 0, warmingMilliseconds: 0 });
    proxy = await openProxy(cluster, checkout.folder);
    kubeconfig = await checkout.write("kubeconfig", buildKubeconfig({ shop: cluster }));
    await checkout.write("front.yaml", buildKubeconfig({ shop: { ...cluster, server: proxy.url, ca: proxy.ca } }));
    Object.assign(process.env, account.actAs("tester").env);
    const rights = role("DeployRole");
    isAllowed = (call) => listIamCalls(call).every((iamCall) => findAllowingStatement(rights, iamCall) !== undefined);
    account.allow = isAllowed;
  });
  after(async () => {
    await proxy?.stop();
    await Promise.all([account?.stop(), cluster?.stop()]);
    await checkout?.remove();
  });

  /** Reports whether the role for deployments in infra/aws/iam/pipeline.yml allows a call. */
  let isAllowed: (call: RecordedCall) => boolean;
  /** Functions that load modules of the checkout. */
  const modules = {
    runCases: () =>
      checkout.load<typeof import("../../infra/rollout/versions/case-runs.ts")>("infra/rollout/versions/case-runs.ts"),
    probe: () => checkout.load<typeof import("../../infra/clusters/probe.ts")>("infra/clusters/probe.ts"),
  };
  const writeCatalogue = async (
    name: string,
    stamp: string,
    ruleConfig: string,
    cases = buildCases(stamp),
  ): Promise<CatalogueDeployment> => {
    await checkout.rule("stamp-notes", buildRule(stamp), cases, `trees/${name}`);
    return { folder: checkout.folder, name, ruleConfig, kubeconfig, ca: account.ca, mark: "" };
  };

  /**
   * Asserts that the live version passes the cases of one of the catalogues, and that every entry answers a probe.
   * Asserts nothing while there are no entries.
   */
  const checkLiveVersion = async (catalogues: CatalogueDeployment[], when: string) => {
    const paths = ["mutating", "validating"].map(
      (kind) => `/apis/admissionregistration.k8s.io/v1/${kind}webhookconfigurations/postern`,
    );
    const configurations = await Promise.all(paths.map((path) => cluster.admin({ method: "GET", path })));
    const entries = configurations.flatMap(({ code, body }) => (code === 200 ? (Object(body).webhooks ?? []) : []));
    if (entries.length === 0) return;
    const [{ runCases }, { probeEntries }] = [await modules.runCases(), await modules.probe()];
    const { functions } = await openStageAs(checkout.folder, "observer");
    const { version, weights } = await functions.readAlias("stamp-notes");
    assert.deepEqual(weights, {}, when);
    const faultsByTree = await Promise.all(
      catalogues.map(async (catalogue) => {
        const [listed] = (await openDeploymentJob(catalogue, "observer")).catalogue;
        assert.ok(listed);
        return (await runCases(functions, listed, version)).faults;
      }),
    );
    assert.ok(
      faultsByTree.some((faults) => faults.length === 0),
      `${when}: version ${version}: ${JSON.stringify(faultsByTree)}`,
    );
    for (const { ok, sentence } of await probeEntries(entries, { tries: 1, timeoutSeconds: 20 }))
      assert.ok(ok, `${when}: ${sentence}`);
  };

  /** A deployment in its own process. */
  interface Deployment {
    /** The last line of its output; undefined if it was killed. */
    output: Promise<string | undefined>;
    /** Returns the number of its changes to AWS and to the cluster. */
    changes(): number;
    send(signal: NodeJS.Signals): void;
  }
  /** Starts a deployment with the access key `caller` and with a clock that is `ahead` milliseconds ahead. */
  const startDeployment = (
    catalogue: CatalogueDeployment,
    caller: string,
    ahead: number,
    /** A function that is called before and after each change. If it returns false, the change isn't made. */
    gate: (deployment: Deployment, when: "before" | "after") => boolean,
  ): Deployment => {
    const program = buildProgram({ ...catalogue, kubeconfig: join(checkout.folder, "front.yaml") }, caller, ahead);
    const { PATH = "" } = process.env;
    const child = spawn(process.execPath, ["--input-type=module", "--eval", program], {
      cwd: checkout.folder,
      env: { ...account.actAs(caller).env, PATH, NODE_COMPILE_CACHE: join(checkout.folder, ".compiled") },
      stdio: ["ignore", "pipe", "inherit"],
    });
    let changes = 0;
    const deployment: Deployment = {
      output: Promise.all([text(child.stdout), once(child, "close")]).then(([output]) => output.trim() || undefined),
      changes: () => changes,
      send: (signal) => void child.kill(signal),
    };
    const startChange = (isChange: boolean) => {
      if (!isChange) return true;
      const isMade = gate(deployment, "before");
      if (isMade) changes += 1;
      return isMade;
    };
    const endChange = (isChange: boolean) => void (isChange && gate(deployment, "after"));
    const isChange = ({ action }: RecordedCall) => /:(Put|Update|Publish|Create|Delete)/.test(action);
    account.allow = (call) => isAllowed(call) && (call.caller !== caller || startChange(isChange(call)));
    account.fault = (call, when) => {
      if (call.caller === caller && when === "after") endChange(isChange(call));
      return undefined;
    };
    proxy.gate = { before: startChange, after: endChange };
    deployment.output.finally(() => {
      Object.assign(account, { allow: isAllowed, fault: undefined });
      proxy.gate = undefined;
    });
    return deployment;
  };
  /** By how many milliseconds the clocks of deployments are ahead. */
  const clocks = [0, 180_000, -180_000];
  /** Moves only S3's clock, so that the lock has expired. */
  const expireLock = () => {
    account.s3.clockOffset += lockTermMilliseconds + 2_000;
  };
  const usesPackageAgain = true;
  const resume = (catalogue: CatalogueDeployment) => deployCatalogue(catalogue, "resumer", usesPackageAgain);
  const deployNew = (catalogue: CatalogueDeployment) => deployCatalogue(catalogue, "tester", !usesPackageAgain);

  it("after a kill at any change, only tested versions are live; a second run completes the changes", async (test) => {
    const catalogueOne = await writeCatalogue("one", "one", "{ timeoutSeconds: 3, warm: 1 }");
    const catalogueTwo = await writeCatalogue("two", "two", "{ timeoutSeconds: 4, warm: 2 }");
    /** Asserts that only the live version has warm environments, and as many as the configuration states. */
    const checkWarm = (catalogue: CatalogueDeployment, when: string) => {
      const fn = account.lambda.functions.get("postern-test-stamp-notes");
      const warm = [...(fn?.provisioned ?? [])].map(([version, { count }]) => [version, count]);
      assert.deepEqual(warm, [[fn?.aliases.get("live")?.version, catalogue.name === "one" ? 1 : 2]], when);
    };
    const broken = await writeCatalogue("broken", "three", "{ timeoutSeconds: 5 }", buildCases("other"));
    assert.match(await deployNew(catalogueTwo), /release r1 is live/);
    assert.match(await deployNew(catalogueOne), /release r2 is live/);
    await checkLiveVersion([catalogueOne], "at first");
    const isChosen = choosePart("interruptions", 2);
    const parts = isChosen(0) && isChosen(1) ? 1 : 2;
    // A deployment leaves a lock unless it is killed before its first change.
    const unlocked = isChosen(0) ? 1 : 0;
    let [rounds, killed, refused, stopped, noticed] = [0, 0, 0, 0, 0];
    for (let limit = 0, ended = false; !ended; limit += 1) {
      if (!isChosen(limit)) continue;
      rounds += 1;
      const catalogue = { ...(rounds % 2 === 0 ? catalogueOne : catalogueTwo), mark: String(limit) };
      const ahead = clocks[rounds % clocks.length] ?? 0;
      // The process is killed when it tries to make one more change than the limit.
      const deployment = startDeployment(catalogue, `killed-${limit}`, ahead, ({ changes, send }, when) => {
        const isOver = when === "before" && changes() === limit;
        if (isOver) send("SIGKILL");
        return !isOver;
      });
      const output = await deployment.output;
      ended = output !== undefined;
      const when = `killed after ${limit} changes, with a clock ${ahead / 1000} s ahead (${output})`;
      if (output === undefined) killed += 1;
      else assert.match(output, /release r\d+ is live/);
      await checkLiveVersion([catalogueOne, catalogueTwo], when);
      // The lock expires by S3's clock, whatever the clock of the deployment shows.
      if (!ended && limit > 0) {
        await assert.rejects(resume(catalogue), /^Error: this stage is locked by .* \(postern deploy\)/, when);
        refused += 1;
      }
      expireLock();
      assert.match(await resume(catalogue), /release r\d+ is live/, when);
      await checkLiveVersion([catalogue], `${when}, and run again`);
      checkWarm(catalogue, when);
      // Also between the two runs, a broken version must not become live.
      if (rounds % 8 === 1) {
        await assert.rejects(deployNew(broken), /the new versions fail their cases/);
        await checkLiveVersion([catalogueOne, catalogueTwo], `after ${limit} changes, and a broken version`);
      }

      // A process that was stopped until its lock expired must notice that another process has taken the lock, and must
      // change nothing more.
      if (rounds % 4 !== 2 || ended) continue;
      const otherCatalogue = { ...(rounds % 2 === 0 ? catalogueTwo : catalogueOne), mark: `${limit}-other` };
      const asleep = Promise.withResolvers<void>();
      const sleeper = startDeployment(otherCatalogue, `stopped-${limit}`, -ahead, ({ changes, send }, when) => {
        if (when === "after" && changes() === limit) {
          send("SIGSTOP");
          asleep.resolve();
        }
        return true;
      });
      await asleep.promise;
      expireLock();
      assert.match(await resume(catalogue), /release r\d+ is live|nothing to do/, `asleep after ${limit} changes`);
      sleeper.send("SIGCONT");
      const sentence = String(await sleeper.output);
      assert.equal(sleeper.changes(), limit, `awake after ${limit} changes (${sentence})`);
      // The steps after the last change only read. So the deployment may succeed.
      if (/^this command has lost the lock of the stage, and changes nothing more/.test(sentence)) noticed += 1;
      else
        assert.match(
          sentence,
          /^(another command is changing stamp-notes|cluster shop failed its checks|release r\d+ is live)/,
        );
      await checkLiveVersion([catalogue], `asleep after ${limit} changes, and another run meanwhile`);
      stopped += 1;
    }
    const counts = `${killed} deployments were killed, ${refused} others refused, ${stopped} slept, ${noticed} noticed`;
    test.diagnostic(counts);
    assert.ok(refused === killed - unlocked, counts);
    assert.ok(killed * parts > 10 && stopped * parts > 2 && noticed * parts > 1, counts);
  });
});

/** A proxy in front of an API server. */
interface ApiProxy {
  url: string;
  ca: string;
  /** Is called before and after each request. If `before` returns false, the proxy refuses the request. */
  gate: { before(isChange: boolean): boolean; after(isChange: boolean): void } | undefined;
  stop(): Promise<void>;
}

/** Starts a proxy in front of a cluster's API server. */
const openProxy = async (cluster: TestCluster, folder: string): Promise<ApiProxy> => {
  const { ca, cert, key } = await readOrCreateServerCertificate(join(folder, "front"), "127.0.0.1");
  const proxy: Omit<ApiProxy, "url" | "stop"> = { ca, gate: undefined };
  const server: Server = createServer({ cert, key }, (incoming, outgoing) => {
    const { gate } = proxy;
    const refuse = () => outgoing.writeHead(403).end(JSON.stringify({ kind: "Status", message: "killed", code: 403 }));
    const { method, url = "", headers } = incoming;
    const isChange = method !== "GET" && !url.includes("dryRun");
    if (gate && !gate.before(isChange)) return void refuse();
    const options = { method, headers, ca: cluster.ca, agent: false };
    const forwarded = request(`${cluster.server}${url}`, options, (response) => {
      gate?.after(isChange);
      outgoing.writeHead(response.statusCode ?? 502, response.headers);
      response.pipe(outgoing);
    });
    forwarded.on("error", () => outgoing.destroy());
    incoming.pipe(forwarded);
  });
  const url = `https://127.0.0.1:${await listen(server)}`;
  return Object.assign(proxy, { url, stop: () => close(server) });
};
