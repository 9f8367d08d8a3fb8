import assert from "node:assert/strict";
import { createServer, request, type Server } from "node:https";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { openCertificate } from "../../infra/keys.ts";
import type { Progress } from "../../infra/progress.ts";
import type { Job } from "../../infra/rollout/ground.ts";
import type { Package } from "../../infra/rollout/package.ts";
import { type Checkout, kubeconfigOf, openCheckout } from "../checkout.ts";
import { requireBinaries } from "../cluster/binaries.ts";
import { bootCluster, type Cluster } from "../cluster/cluster.ts";
import { needs } from "../parts.ts";
import { type Account, openAccount } from "./account.ts";

// A deployment that ends after any of the calls it makes, to AWS or to a cluster, and is run again.
const stampNotes = (stamp: string) => `
import { rule } from "#lib/rule.ts";
export default rule({
  summary: "Stamps notes.",
  match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["configmaps"], operations: ["CREATE"] }],
  mutate(note) { note.data = { stamp: "${stamp}" }; },
  validate(note) { if (!note.data) return "data must be set"; },
});
`;
const casesOf = (stamp: string) => `
- name: stamps a note
  mutate: { metadata: { name: a } }
  becomes: { metadata: { name: a }, data: { stamp: ${stamp} } }
- name: refuses a note without data
  validate: { metadata: { name: a } }
  refused: data must be set
`;

describe("a deployment that ends midway", await needs("moto", "runtime client", "API server"), () => {
  let account: Account;
  let cluster: Cluster;
  let checkout: Checkout;
  let front: Front;
  const quiet: Progress = { say: () => {}, step: async (_, act) => void (await act(() => {})) };

  before(async () => {
    const binaries = await requireBinaries();
    [account, cluster, checkout] = await Promise.all([openAccount(), bootCluster(binaries), openCheckout()]);
    account.lambda.updating = 0;
    front = await openFront(cluster, checkout.folder);
    await checkout.write("kubeconfig", kubeconfigOf({ shop: { ...cluster, server: front.url, ca: front.ca } }));
    Object.assign(process.env, account.as("somebody").env);
  });
  after(async () => {
    await front?.stop();
    await Promise.all([account?.stop(), cluster?.stop()]);
    await checkout?.remove();
  });

  /** What a working tree has: a rule, and what its entries say. */
  interface Tree {
    job(caller: string): Promise<Job>;
    build(...of: Parameters<typeof import("../../infra/rollout/package.ts").pack>): Promise<Package>;
  }
  const load = {
    deploy: () => checkout.load<typeof import("../../infra/rollout/deploy.ts")>("infra/rollout/deploy.ts"),
    pack: () => checkout.load<typeof import("../../infra/rollout/package.ts")>("infra/rollout/package.ts"),
    prove: () => checkout.load<typeof import("../../infra/rollout/prove.ts")>("infra/rollout/prove.ts"),
    probe: () => checkout.load<typeof import("../../infra/clusters/probe.ts")>("infra/clusters/probe.ts"),
    stage: () => checkout.load<typeof import("../../infra/aws/stage.ts")>("infra/aws/stage.ts"),
    registry: () => checkout.load<typeof import("../../infra/registry.ts")>("infra/registry.ts"),
    config: () => checkout.load<typeof import("../../infra/config.ts")>("infra/config.ts"),
  };
  /** Stages are opened by whoever the environment says we are. */
  const stageOf = async (caller: string) => {
    process.env.AWS_ACCESS_KEY_ID = caller;
    const stage = (await load.stage()).openStage("test");
    await stage.identity();
    return stage;
  };
  const treeOf = async (name: string, stamp: string, said: string, cases = casesOf(stamp)): Promise<Tree> => {
    await checkout.rule("stamp-notes", stampNotes(stamp), cases, `trees/${name}`);
    const catalogue = await (await load.registry()).readCatalogue(join(checkout.folder, "trees", name));
    const config = (await load.config()).parseConfig(
      `rules: { stamp-notes: ${said} }\nclusters: { shop: {} }`,
      catalogue,
    );
    const file = join(checkout.folder, "postern.yaml");
    let built: Promise<Package> | undefined;
    return {
      job: async (caller) => ({
        ...{ stage: await stageOf(caller), config, catalogue, file, clusters: ["shop"], ca: account.ca },
        ...{ deployer: { kubeconfig: join(checkout.folder, "kubeconfig") }, harden: false, wave: 1, progress: quiet },
      }),
      // What it builds is the same each time.
      build: async (...of) => (built ??= (await load.pack()).pack(...of)),
    };
  };
  const roll = async (tree: Tree, caller: string): Promise<string> => {
    const { deploy } = await load.deploy();
    return deploy(await tree.job(caller), async () => {}, tree.build);
  };

  /** Where an entry names a rule, its alias points at a version that does what its cases say, and its address answers. */
  const check = async (trees: Tree[], when: string) => {
    const paths = ["mutating", "validating"].map(
      (kind) => `/apis/admissionregistration.k8s.io/v1/${kind}webhookconfigurations/postern`,
    );
    const found = await Promise.all(paths.map((path) => cluster.admin({ method: "GET", path })));
    const entries = found.flatMap(({ code, body }) => (code === 200 ? Object(body).webhooks : []));
    if (entries.length === 0) return;
    const [{ prove }, { probeAll }] = [await load.prove(), await load.probe()];
    const { functions } = await stageOf("observer");
    const { version, weights } = await functions.live("stamp-notes");
    assert.deepEqual(weights, {}, when);
    const proofs = await Promise.all(
      trees.map(async (tree) => {
        const [listed] = (await tree.job("observer")).catalogue;
        assert.ok(listed);
        return (await prove(functions, listed, version)).faults;
      }),
    );
    assert.ok(
      proofs.some((faults) => faults.length === 0),
      `${when}: version ${version}: ${JSON.stringify(proofs)}`,
    );
    for (const { ok, sentence } of await probeAll(entries, { tries: 1, timeoutSeconds: 20 }))
      assert.ok(ok, `${when}: ${sentence}`);
  };

  /**
   * Whoever is killed after so many changes gets nothing done any more, and may not have been told of the last one. Reads
   * between two changes make no difference to anybody else.
   */
  const killedAfter = (caller: string, most: number, isTold: boolean) => {
    let changes = 0;
    let dead = false;
    const before = (isChange: boolean) => {
      dead ||= isChange && changes === most;
      if (isChange && !dead) changes += 1;
      return !dead;
    };
    const after = (isChange: boolean) => {
      dead ||= isChange && changes === most && !isTold;
      return !dead;
    };
    const isChange = (action: string) => /:(Put|Update|Publish|Create|Delete)/.test(action);
    account.allow = (heard) => heard.caller !== caller || before(isChange(heard.action));
    account.fault = (heard, when) =>
      when === "after" && heard.caller === caller && !after(isChange(heard.action))
        ? { status: 400, error: "Killed" }
        : undefined;
    front.gate = { before, after };
    return () => {
      Object.assign(account, { allow: undefined, fault: undefined });
      front.gate = undefined;
      return changes;
    };
  };

  it("at any step: whatever clusters point at is proven and answers, and a second run ends it", async (test) => {
    const [one, two] = [
      await treeOf("one", "one", "{ timeoutSeconds: 3 }"),
      await treeOf("two", "two", "{ timeoutSeconds: 4 }"),
    ];
    const broken = await treeOf("broken", "three", "{ timeoutSeconds: 5 }", casesOf("other"));
    assert.match(await roll(one, "somebody"), /release r1 is live/);
    await check([one, two], "at first");
    let steps = 0;
    for (let ended = false, most = 0; !ended; most += 1) {
      for (const isTold of [true, false]) {
        const tree = steps++ % 2 === 0 ? two : one;
        const killed = `killed-${most}-${isTold}`;
        const end = killedAfter(killed, most, isTold);
        const said = await roll(tree, killed).catch((error: Error) => error.message);
        // One that made fewer changes than it may came to its end.
        ended ||= end() < most;
        const when = `killed after ${most} changes${isTold ? "" : ", not told of the last one"} (${said})`;
        await check([one, two], when);
        const stage = await stageOf("resumer");
        // Its term would be over some time.
        await stage.parameters.remove("lock");
        assert.match(await roll(tree, "resumer"), /release r\d+ is live/, when);
        await check([tree], `${when}, and run again`);
      }
      // Somebody tries something else in between, which is no good.
      if (most % 8 === 0) {
        await assert.rejects(roll(broken, "somebody"), /they don't do what their cases say/);
        await check([one, two], `after ${most} changes, and something that is no good`);
      }
    }
    test.diagnostic(`${steps} deployments were killed`);
    assert.ok(steps > 20, `${steps}`);
  });
});

/** Stands before an API server, and can be told to let nothing by any more. */
interface Front {
  url: string;
  ca: string;
  gate: { before(isChange: boolean): boolean; after(isChange: boolean): boolean } | undefined;
  stop(): Promise<void>;
}

const openFront = async (cluster: Cluster, folder: string): Promise<Front> => {
  const { ca, cert, key } = await openCertificate(join(folder, "front"), "127.0.0.1");
  const front: Omit<Front, "url" | "stop"> = { ca, gate: undefined };
  const server: Server = createServer({ cert, key }, (asked, answer) => {
    const { gate } = front;
    const refuse = () => answer.writeHead(403).end(JSON.stringify({ kind: "Status", message: "killed", code: 403 }));
    const { method, url = "", headers } = asked;
    const isChange = method !== "GET" && !url.includes("dryRun");
    if (gate && !gate.before(isChange)) return void refuse();
    const sent = request(`${cluster.server}${url}`, { method, headers, ca: cluster.ca, agent: false }, (given) => {
      if (gate && !gate.after(isChange)) {
        given.resume();
        given.on("end", refuse);
        return;
      }
      answer.writeHead(given.statusCode ?? 502, given.headers);
      given.pipe(answer);
    });
    sent.on("error", () => answer.destroy());
    asked.pipe(sent);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  // Listening on a port, it has one.
  const url = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const stop = async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  };
  return Object.assign(front, { url, stop });
};
