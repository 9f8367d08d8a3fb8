import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer, request, type Server } from "node:https";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { after, before, describe, it } from "node:test";
import { readOrCreateServerCertificate } from "../../infra/keys/keys.ts";
import { requireBinaries } from "../../infra/parity/control-plane/binaries.ts";
import { bootCluster, type TestCluster } from "../../infra/parity/control-plane/cluster.ts";
import { lockTermMilliseconds } from "../../infra/rollout/lock.ts";
import { buildKubeconfig, type Checkout, openCheckout } from "../checkout.ts";
import { close, listen } from "../listen.ts";
import { needs } from "../parts.ts";
import { buildProgram, deployTree, openStageAs, openTreeJob, type TreeDeployment } from "../trees.ts";
import { type Account, openAccount } from "./account.ts";
import type { RecordedCall } from "./aws-service.ts";
import { findAllowingStatement, listIamCalls, readAccess, region } from "./rights.ts";

// A deployment that is killed, or falls asleep, after any of the changes it makes to AWS or to a cluster, and is run
// again: in a process of its own, by the rights of the role that deploys, with clocks that are wrong.
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

describe("a deployment that ends midway", await needs("moto", "runtime client", "API server"), () => {
  let account: Account;
  let cluster: TestCluster;
  let checkout: Checkout;
  /** A proxy between the cluster and the deployment that a test ends. */
  let front: ApiProxy;
  let kubeconfig: string;

  before(async () => {
    const binaries = await requireBinaries();
    const [opened, booted, place, { role }] = await Promise.all([
      openAccount(region),
      bootCluster(binaries),
      openCheckout(),
      readAccess({ Stage: "test", GitHubRepository: "acme/postern" }),
    ]);
    [account, cluster, checkout] = [opened, booted, place];
    account.lambda.updating = 0;
    front = await openProxy(cluster, checkout.folder);
    kubeconfig = await checkout.write("kubeconfig", buildKubeconfig({ shop: cluster }));
    await checkout.write("front.yaml", buildKubeconfig({ shop: { ...cluster, server: front.url, ca: front.ca } }));
    Object.assign(process.env, account.as("somebody").env);
    const rights = role("DeployRole");
    isAllowed = (heard) => listIamCalls(heard).every((call) => findAllowingStatement(rights, call) !== undefined);
    account.allow = isAllowed;
  });
  after(async () => {
    await front?.stop();
    await Promise.all([account?.stop(), cluster?.stop()]);
    await checkout?.remove();
  });

  /** Reports whether the shipped role for deployments allows a call. */
  let isAllowed: (heard: RecordedCall) => boolean;
  const load = {
    runCases: () => checkout.load<typeof import("../../infra/rollout/case-runs.ts")>("infra/rollout/case-runs.ts"),
    probe: () => checkout.load<typeof import("../../infra/clusters/probe.ts")>("infra/clusters/probe.ts"),
  };
  const writeTree = async (
    name: string,
    stamp: string,
    said: string,
    cases = buildCases(stamp),
  ): Promise<TreeDeployment> => {
    await checkout.rule("stamp-notes", buildRule(stamp), cases, `trees/${name}`);
    return { folder: checkout.folder, name, ruleConfig: said, kubeconfig, ca: account.ca, mark: "" };
  };

  /** Requires for each entry that its rule's live version passes the cases, and that its address answers. */
  const check = async (trees: TreeDeployment[], when: string) => {
    const paths = ["mutating", "validating"].map(
      (kind) => `/apis/admissionregistration.k8s.io/v1/${kind}webhookconfigurations/postern`,
    );
    const found = await Promise.all(paths.map((path) => cluster.admin({ method: "GET", path })));
    const entries = found.flatMap(({ code, body }) => (code === 200 ? Object(body).webhooks : []));
    if (entries.length === 0) return;
    const [{ runCases }, { probeEntries }] = [await load.runCases(), await load.probe()];
    const { functions } = await openStageAs(checkout.folder, "observer");
    const { version, weights } = await functions.readAlias("stamp-notes");
    assert.deepEqual(weights, {}, when);
    const proofs = await Promise.all(
      trees.map(async (tree) => {
        const [listed] = (await openTreeJob(tree, "observer")).catalogue;
        assert.ok(listed);
        return (await runCases(functions, listed, version)).faults;
      }),
    );
    assert.ok(
      proofs.some((faults) => faults.length === 0),
      `${when}: version ${version}: ${JSON.stringify(proofs)}`,
    );
    for (const { ok, sentence } of await probeEntries(entries, { tries: 1, timeoutSeconds: 20 }))
      assert.ok(ok, `${when}: ${sentence}`);
  };

  /** A deployment in a process of its own. */
  interface Deployment {
    /** The last line of its output; undefined if it was killed. */
    said: Promise<string | undefined>;
    /** Returns the number of its changes to AWS and to the cluster. */
    changes(): number;
    send(signal: NodeJS.Signals): void;
  }
  const start = (
    tree: TreeDeployment,
    caller: string,
    ahead: number,
    /** Is asked before and after each change; where it answers false, the change isn't made. */
    gate: (deployment: Deployment, when: "before" | "after") => boolean,
  ): Deployment => {
    const program = buildProgram({ ...tree, kubeconfig: join(checkout.folder, "front.yaml") }, caller, ahead);
    const { PATH = "" } = process.env;
    const child = spawn(process.execPath, ["--input-type=module", "--eval", program], {
      cwd: checkout.folder,
      env: { ...account.as(caller).env, PATH, NODE_COMPILE_CACHE: join(checkout.folder, ".compiled") },
      stdio: ["ignore", "pipe", "inherit"],
    });
    let changes = 0;
    const deployment: Deployment = {
      said: Promise.all([text(child.stdout), once(child, "close")]).then(([said]) => said.trim() || undefined),
      changes: () => changes,
      send: (signal) => void child.kill(signal),
    };
    const asked = (isChange: boolean) => {
      if (!isChange) return true;
      const isMade = gate(deployment, "before");
      if (isMade) changes += 1;
      return isMade;
    };
    const done = (isChange: boolean) => void (isChange && gate(deployment, "after"));
    const isChange = ({ action }: RecordedCall) => /:(Put|Update|Publish|Create|Delete)/.test(action);
    account.allow = (heard) => isAllowed(heard) && (heard.caller !== caller || asked(isChange(heard)));
    account.fault = (heard, when) => {
      if (heard.caller === caller && when === "after") done(isChange(heard));
      return undefined;
    };
    front.gate = { before: asked, after: done };
    deployment.said.finally(() => {
      Object.assign(account, { allow: isAllowed, fault: undefined });
      front.gate = undefined;
    });
    return deployment;
  };
  const clocks = [0, 180_000, -180_000];
  /** Moves S3's clock past the term of the lock, and no other clock. */
  const letTermPass = () => {
    account.s3.ahead += lockTermMilliseconds + 2_000;
  };
  const resume = (tree: TreeDeployment) => deployTree(tree, "resumer", true);

  it("leaves only tested and answering versions live after any step, and a second run completes it", async (test) => {
    const [one, two] = [
      await writeTree("one", "one", "{ timeoutSeconds: 3 }"),
      await writeTree("two", "two", "{ timeoutSeconds: 4 }"),
    ];
    const broken = await writeTree("broken", "three", "{ timeoutSeconds: 5 }", buildCases("other"));
    assert.match(await deployTree(two, "somebody", false), /release r1 is live/);
    assert.match(await deployTree(one, "somebody", false), /release r2 is live/);
    await check([one], "at first");
    let [killed, refused, stopped, lost] = [0, 0, 0, 0];
    for (let most = 0, ended = false; !ended; most += 1) {
      const tree = { ...(most % 2 === 0 ? two : one), mark: String(most) };
      const ahead = clocks[most % clocks.length] ?? 0;
      // It is killed at the change after so many, which isn't made.
      const deployment = start(tree, `killed-${most}`, ahead, ({ changes, send }, when) => {
        const isOver = when === "before" && changes() === most;
        if (isOver) send("SIGKILL");
        return !isOver;
      });
      const said = await deployment.said;
      ended = said !== undefined;
      const when = `killed after ${most} changes, with a clock ${ahead / 1000} s ahead${said === undefined ? "" : ` (${said})`}`;
      if (said === undefined) killed += 1;
      else assert.match(said, /release r\d+ is live/);
      await check([one, two], when);
      // Whatever its clock says, the lock holds as long as S3 says.
      if (!ended && most > 0) {
        await assert.rejects(resume(tree), /^Error: this stage is locked by .* \(postern deploy\)/, when);
        refused += 1;
      }
      letTermPass();
      assert.match(await resume(tree), /release r\d+ is live/, when);
      await check([tree], `${when}, and run again`);
      // Something else is tried in between, which is no good.
      if (most % 8 === 0) {
        await assert.rejects(deployTree(broken, "somebody", false), /the new versions fail their cases/);
        await check([one, two], `after ${most} changes, and something that is no good`);
      }

      // One that only sleeps, longer than its lock holds, finds another's work when it wakes up, and leaves it alone.
      if (most % 4 !== 1 || ended) continue;
      const other = { ...(most % 2 === 0 ? one : two), mark: `${most}-other` };
      const asleep = Promise.withResolvers<void>();
      const sleeper = start(other, `stopped-${most}`, -ahead, ({ changes, send }, when) => {
        if (when === "after" && changes() === most) {
          send("SIGSTOP");
          asleep.resolve();
        }
        return true;
      });
      await asleep.promise;
      letTermPass();
      assert.match(await resume(tree), /release r\d+ is live|nothing to do/, `asleep after ${most} changes`);
      sleeper.send("SIGCONT");
      const last = String(await sleeper.said);
      assert.equal(sleeper.changes(), most, `awake after ${most} changes (${last})`);
      // Its steps after the last change only read.
      if (/^this command has lost the lock of the stage, and changes nothing more/.test(last)) lost += 1;
      else assert.match(last, /^(cluster shop failed its checks|release r\d+ is live)/);
      await check([tree], `asleep after ${most} changes, and another run meanwhile`);
      stopped += 1;
    }
    const told = `${killed} deployments were killed, ${refused} others refused, ${stopped} slept, ${lost} noticed`;
    test.diagnostic(told);
    assert.ok(killed > 10 && refused === killed - 1 && stopped > 2 && lost > 1, told);
  });
});

/** A proxy of an API server that can refuse all further requests. */
interface ApiProxy {
  url: string;
  ca: string;
  gate: { before(isChange: boolean): boolean; after(isChange: boolean): void } | undefined;
  stop(): Promise<void>;
}

const openProxy = async (cluster: TestCluster, folder: string): Promise<ApiProxy> => {
  const { ca, cert, key } = await readOrCreateServerCertificate(join(folder, "front"), "127.0.0.1");
  const front: Omit<ApiProxy, "url" | "stop"> = { ca, gate: undefined };
  const server: Server = createServer({ cert, key }, (asked, answer) => {
    const { gate } = front;
    const refuse = () => answer.writeHead(403).end(JSON.stringify({ kind: "Status", message: "killed", code: 403 }));
    const { method, url = "", headers } = asked;
    const isChange = method !== "GET" && !url.includes("dryRun");
    if (gate && !gate.before(isChange)) return void refuse();
    const sent = request(`${cluster.server}${url}`, { method, headers, ca: cluster.ca, agent: false }, (given) => {
      gate?.after(isChange);
      answer.writeHead(given.statusCode ?? 502, given.headers);
      given.pipe(answer);
    });
    sent.on("error", () => answer.destroy());
    asked.pipe(sent);
  });
  const url = `https://127.0.0.1:${await listen(server)}`;
  return Object.assign(front, { url, stop: () => close(server) });
};
