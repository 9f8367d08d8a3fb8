import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import type { Progress } from "../../infra/cli/progress.ts";
import type { CanaryOptions } from "../../infra/rollout/versions/canary.ts";
import { buildKubeconfig, type Checkout, openCheckout } from "../checkout.ts";
import { requireBinaries } from "../control-plane/binaries.ts";
import { createTokenClient } from "../control-plane/client.ts";
import { bootCluster, type TestCluster } from "../control-plane/cluster.ts";
import { waitUntil } from "../parity/rule-server.ts";
import { needs } from "../parts.ts";
import { createPackager, loadJob, type StagePackager } from "../trees.ts";
import { type Account, openAccount } from "./account.ts";

// Tests a stage from its first deployment to its deletion, with a real API server and clients that write all the time.

/**
 * Returns the source of a rule that stamps notes, and refuses notes without a stamp. The arguments make different
 * versions. A rule's source must not name `process` or `Math` as globals, so this source gets both from `globalThis`.
 */
const buildRule = ({ stamp = "one", head = "", validate = "" } = {}) => `
import { rule } from "#lib/rule.ts";
const { process, Math } = Object.constructor("return globalThis")();
${head}
type Note = { metadata?: { name?: string; generateName?: string }; data?: Record<string, string> };
export default rule({
  summary: "Stamps notes.",
  match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["configmaps"], operations: ["CREATE"] }],
  mutate(note: Note) {
    note.data = { ...note.data, stamp: "${stamp}" };
  },
  validate(note: Note) {
    ${validate}
    if (!note.data?.stamp) return "data.stamp must be set";
  },
});
`;
const buildCases = (stamp = "one") => `
- name: stamps a note
  mutate: { metadata: { name: a }, data: { text: hello } }
  becomes: { metadata: { name: a }, data: { text: hello, stamp: ${stamp} } }
- name: takes a note that is stamped
  validate: { metadata: { name: a }, data: { stamp: two } }
  admitted: true
- name: refuses a note that is not
  validate: { metadata: { name: a }, data: {} }
  refused: data.stamp must be set
`;
const buildConfig = (failurePolicy: "Fail" | "Ignore") => `# A program that edits this file must keep this comment.
rules:
  stamp-notes: { failurePolicy: ${failurePolicy}, timeoutSeconds: 10 }
clusters:
  shop: { keyVersion: 1 }
stages:
  test: { account: "123456789012", region: eu-west-1 }
`;

/** The results of clients' writes: how many ConfigMaps they created, in all and by the rule's text in `data.stamp`. */
interface WriteCounts {
  created: number;
  createdByStamp: Record<string, number>;
  failures: string[];
}

describe("the life of a stage", await needs("moto", "runtime client", "API server"), () => {
  let account: Account;
  let cluster: TestCluster;
  let checkout: Checkout;
  let packageStage: StagePackager;
  let options: string[];
  const fn = "postern-test-stamp-notes";

  before(async () => {
    const binaries = await requireBinaries();
    [account, cluster, checkout] = await Promise.all([openAccount(), bootCluster(binaries), openCheckout()]);
    packageStage = await createPackager(checkout.folder);
    await writeRule(buildRule(), buildCases());
    await checkout.write("postern.yaml", buildConfig("Fail"));
    const kubeconfig = await checkout.write("kubeconfig", buildKubeconfig({ shop: cluster }));
    const ca = await checkout.write("ca.pem", account.ca);
    options = ["--stage", "test", "--kubeconfig", kubeconfig, "--ca", ca];
    Object.assign(process.env, account.actAs("deployer").env);
  });
  after(async () => {
    await Promise.all([account?.stop(), cluster?.stop()]);
    await checkout?.remove();
  });

  /** Runs postern at the command line, as a user would. */
  const runPostern = (...words: string[]) => checkout.postern(account.actAs("pipeline").env, ...words);
  /** Returns the options without `--ca`. */
  const getClusterOptions = () => options.slice(0, 4);
  let catalogues = 0;
  /** Writes another version of the rule, which the next deployment deploys, to the working tree. */
  const writeRule = async (rule: string, cases: string) => {
    catalogues += 1;
    // A process loads a module only once, so each catalogue is also written to its own folder.
    for (const folder of ["functions", `catalogues/${catalogues}`])
      await checkout.rule("stamp-notes", `${rule}// ${catalogues}\n`, cases, folder);
  };
  /** Deploys with canary times that no option of the command line accepts; returns the output. */
  const deployWithCanary = async (canary: Omit<CanaryOptions, "signal"> | undefined) => {
    const { deployStage: deploy } =
      await checkout.load<typeof import("../../infra/rollout/deploy.ts")>("infra/rollout/deploy.ts");
    const { output, job } = await openJob();
    const result = await deploy({ ...job, canary }, async () => {}, packageStage).catch(
      (error: Error) => error.message,
    );
    return [...output, result].join("\n");
  };
  const openJob = async () => {
    const output: string[] = [];
    const progress: Progress = {
      say: (line) => void output.push(line),
      step: async (_, act) => void output.push(await act(() => {})),
    };
    const text = await readFile(join(checkout.folder, "postern.yaml"), "utf8");
    const job = await loadJob(checkout.folder, `catalogues/${catalogues}`, text, { ca: account.ca, progress });
    return { output, job };
  };
  const getLiveAlias = () => account.lambda.functions.get(fn)?.aliases.get("live");

  /**
   * Lets several clients create notes all the time while `act` runs. They make short pauses, which leave the processor
   * to `act` and to other test files.
   */
  const writeMeanwhile = async (act: () => Promise<unknown>, clients = 4): Promise<WriteCounts> => {
    const writeCounts: WriteCounts = { created: 0, createdByStamp: {}, failures: [] };
    let isOver = false;
    const connections = Array.from({ length: clients }, () =>
      createTokenClient(cluster.server, cluster.ca, cluster.getToken("jane")),
    );
    const writes = connections.map(async ({ client, close }) => {
      const path = "/api/v1/namespaces/default/configmaps";
      while (!isOver) {
        const body = { metadata: { generateName: "note-" }, data: { by: "client" } };
        const answer = await client({ method: "POST", path, body });
        if (answer.code === 201) {
          writeCounts.created += 1;
          const stamp = String(Object(answer.body.data).stamp);
          writeCounts.createdByStamp[stamp] = (writeCounts.createdByStamp[stamp] ?? 0) + 1;
        } else writeCounts.failures.push(String(answer.body.message));
        await wait(100);
      }
      close();
    });
    // The clients also write before and after `act`, so that every moment is covered.
    await wait(500);
    try {
      await act();
      await wait(500);
    } finally {
      isOver = true;
      await Promise.all(writes);
    }
    return writeCounts;
  };
  const readUrls = async () => {
    const path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/postern";
    const { body } = await cluster.admin({ method: "GET", path });
    return Object(body).webhooks.map((entry: { clientConfig: { url: string } }) => entry.clientConfig.url);
  };
  const createNote = async (name: string) => {
    const path = "/api/v1/namespaces/default/configmaps";
    return cluster.admin({ method: "POST", path, body: { metadata: { name }, data: {} } });
  };
  const readStamp = async (name: string) => Object((await createNote(name)).body.data).stamp;
  it("`deploy --plan-only` prints a plan, and changes nothing", async () => {
    const { code, stdout } = await runPostern("deploy", ...options, "--plan-only", "-o", "json");
    assert.equal(code, 0, stdout);
    const plan = JSON.parse(stdout);
    assert.deepEqual(plan.rules, [
      { rule: "stamp-notes", changes: ["new"], settings: [], live: null, disarmedUntil: null },
    ]);
    assert.equal(plan.stack.isNew, true);
    assert.equal(plan.clusters[0].differences.length, 2);
    assert.equal(account.lambda.functions.size, 0);
  });

  it("a stage is deployed by one command, and a second deployment has nothing to do", async () => {
    // Invocations see the new route, the alias and its permission late. The entries must not be written before that.
    account.lambda.propagationMilliseconds = 4000;
    const first = await runPostern("deploy", ...options);
    account.lambda.propagationMilliseconds = 0;
    assert.equal(first.code, 0, first.stdout + first.stderr);
    assert.match(first.stderr, /release r1 is live in shop/);
    await waitUntil("notes were not stamped in time", async () => (await readStamp(`first-${Date.now()}`)) === "one");
    const callsBefore = account.recordedCalls.length;
    const second = await runPostern("deploy", ...options);
    assert.match(second.stderr, /nothing to do: release r1 is live/);
    const changing = account.recordedCalls
      .slice(callsBefore)
      .filter(({ action }) => /:(Update|Publish|Create)/.test(action));
    assert.deepEqual(changing, []);
  });

  it("a deployed stage is reported as healthy", async () => {
    const { code, stdout } = await runPostern("status", ...getClusterOptions());
    assert.equal(code, 0, stdout);
    assert.match(stdout, /^partition aws, account 123456789012, region eu-west-1, stage test\nrelease r1 of/);
    assert.match(stdout, /cluster shop, updated \S+: 2 entries, all answer/);
    const key = (await runPostern("key", "shop", "--stage", "test")).stdout.trim();
    const [url] = await readUrls();
    assert.equal(url, `${account.baseUrl}/${key}/stamp-notes/mutate`);
    assert.ok((await runPostern("manifests", "--stage", "test")).stdout.includes(`url: ${url}\n`));
  });

  it("a version that fails its cases does not become live", async () => {
    for (const [broken, reason] of [
      [buildRule({ head: 'if (process.env.POSTERN_STAGE) throw new Error("not here");' }), /it fails: .*not here/s],
      [buildRule({ validate: 'return "nothing is good enough";' }), /it is refused: /],
    ] as const) {
      await writeRule(broken, buildCases());
      const writeCounts = await writeMeanwhile(async () => {
        const { code, stdout, stderr } = await runPostern("deploy", ...options);
        assert.notEqual(code, 0, stdout);
        assert.match(stderr, reason);
      });
      assert.deepEqual(writeCounts.failures, []);
      assert.deepEqual(Object.keys(writeCounts.createdByStamp), ["one"]);
      assert.equal(getLiveAlias()?.version, "1");
    }
  });

  it("a version that refuses what the live version writes does not become live", async () => {
    const strictRule = buildRule({ stamp: "two", validate: 'if (note.data?.stamp === "one") return "one is out";' });
    await writeRule(strictRule, buildCases("two"));
    const { code, stderr } = await runPostern("deploy", ...options);
    assert.equal(code, 1);
    assert.match(stderr, /stamp-notes, "stamps a note": version \d+ refuses what version 1 writes: one is out/);
    assert.equal(getLiveAlias()?.version, "1");
  });

  /** The number of the version with the stamp "two". */
  let versionWithStampTwo: string | undefined;
  /** Times are in milliseconds: a canary of 8 seconds gets a tenth of the reviews. */
  const canary = { share: 0.1, milliseconds: 8000, every: 500, metricDelay: 0 };

  for (const [behaviour, validate, sentence, reason] of [
    ["denies", 'if (note.data?.by === "client") return "no clients";', /no clients/, /it denies \d+% of its reviews/],
    ["fails", 'if (note.data?.by === "client") throw new Error("boom");', /boom/, /it fails \d+% of its reviews/],
  ] as const)
    it(`a canary that ${behaviour} only with real reviews is rolled back`, async () => {
      await writeRule(buildRule({ validate }), buildCases());
      let output = "";
      const writeCounts = await writeMeanwhile(async () => {
        output = await deployWithCanary(canary);
      });
      assert.match(output, reason);
      assert.match(
        output,
        /the webhook entries in clusters were not changed, because the new versions of these rules did not pass the canary: stamp-notes/,
      );
      assert.deepEqual([getLiveAlias()?.version, getLiveAlias()?.weights], ["1", {}]);
      // The canary gets a tenth of the reviews.
      assert.ok(
        writeCounts.failures.length > 0 && writeCounts.failures.length < 0.2 * writeCounts.created,
        `${writeCounts.failures.length}`,
      );
      for (const failure of writeCounts.failures) assert.match(failure, sentence);
    });

  it("a canary that crashes is rolled back, even if CloudWatch shows the crashes late", async () => {
    const crash = 'if (note.data?.by === "client" && Math.random() < 0.3) process.exit(1);';
    await writeRule(buildRule({ validate: crash }), buildCases());
    account.cloudwatch.delayMilliseconds = 4000;
    let output = "";
    await writeMeanwhile(async () => {
      output = await deployWithCanary({ ...canary, share: 0.5, milliseconds: 3000, metricDelay: 5000 });
    });
    account.cloudwatch.delayMilliseconds = 0;
    assert.match(output, /was rolled back: it fails [\d.]+% of its reviews/);
    assert.deepEqual([getLiveAlias()?.version, getLiveAlias()?.weights], ["1", {}]);
  });

  it("a version that passes the canary becomes live, without a failed request", async () => {
    await writeRule(buildRule({ stamp: "two" }), buildCases("two"));
    let output = "";
    const writeCounts = await writeMeanwhile(async () => {
      output = await deployWithCanary(canary);
    });
    assert.match(output, /1 of 1 promoted\nstamp-notes: version \d+ is live: \d+ reviews, /);
    assert.match(output, /release r\d+ is live in shop/);
    assert.deepEqual(writeCounts.failures, []);
    assert.ok(
      (writeCounts.createdByStamp.one ?? 0) > 0 && (writeCounts.createdByStamp.two ?? 0) > 0,
      JSON.stringify(writeCounts.createdByStamp),
    );
    assert.equal(await readStamp("after-trial"), "two");
    versionWithStampTwo = getLiveAlias()?.version;
  });

  it("a version without reviews during the canary becomes live if its cases pass; deploy says so", async () => {
    await writeRule(buildRule({ stamp: "three" }), buildCases("three"));
    const output = await deployWithCanary({ ...canary, milliseconds: 1000, every: 300 });
    assert.match(output, /stamp-notes: version \d+ is live: 0 reviews, 3 cases, 0 faults\n/);
    assert.match(output, /release r\d+ is live in shop/);
    assert.equal(await readStamp("after-silence"), "three");
  });

  it("a canary that fails its only review is rolled back", async () => {
    const failingRule = buildRule({ stamp: "bad", validate: 'if (note.data?.once) throw new Error("boom");' });
    await writeRule(failingRule, buildCases("bad"));
    const path = "/api/v1/namespaces/default/configmaps";
    const body = { metadata: { generateName: "once-" }, data: { once: "yes" } };
    // The new version gets the first review, and the old version the next one.
    account.lambda.random = () => 0;
    const deployed = deployWithCanary({ ...canary, milliseconds: 4000, every: 300 });
    await waitUntil(
      "the canary did not begin in time",
      async () => Object.keys(getLiveAlias()?.weights ?? {}).length > 0,
    );
    await cluster.admin({ method: "POST", path, body });
    const output = await deployed;
    account.lambda.random = Math.random;
    assert.match(output, /was rolled back: it failed 1 of its 2 reviews\n/);
    assert.equal(await readStamp("after-once"), "three");
  });

  it("one rule and all rules are rolled back, and deployed again, without a failed request", async () => {
    const writeCounts = await writeMeanwhile(async () => {
      const { stdout: back } = await runPostern("rollback", "stamp-notes", "--stage", "test");
      assert.equal(back.trim(), `stamp-notes is at version ${versionWithStampTwo}`);
      assert.equal(await readStamp("rolled-back"), "two");
      await writeRule(buildRule({ stamp: "four" }), buildCases("four"));
      assert.match((await runPostern("deploy", ...options)).stderr, /release r\d+ is live/);
      assert.equal(await readStamp("four"), "four");
      const { stdout, stderr } = await runPostern("rollback", "--all", "--to", "r1", ...getClusterOptions());
      assert.match(stdout, /all rules are as in release r1/, stderr);
      assert.equal(await readStamp("all-back"), "one");
    });
    assert.deepEqual(writeCounts.failures, []);
  });

  describe("the replacement of a stage's keys", () => {
    let releaseWithOldKey: number;
    const retirement = { unusedMilliseconds: 2000, maxMilliseconds: 60_000, pollMilliseconds: 300 };
    it("rotating the stage's key loses no request, and afterwards only the new key is accepted", async () => {
      await writeRule(buildRule(), buildCases());
      await runPostern("deploy", ...options);
      const { stdout } = await runPostern("status", "-o", "json", ...getClusterOptions());
      releaseWithOldKey = JSON.parse(stdout).release.id;
      const { rotateStageKey } =
        await checkout.load<typeof import("../../infra/rollout/rotate.ts")>("infra/rollout/rotate.ts");
      const { probeEndpoint } =
        await checkout.load<typeof import("../../infra/clusters/probe.ts")>("infra/clusters/probe.ts");
      const [oldUrl] = await readUrls();
      const { job } = await openJob();
      const writeCounts = await writeMeanwhile(() => rotateStageKey(job, retirement));
      assert.deepEqual(writeCounts.failures, []);
      const [newUrl] = await readUrls();
      assert.notEqual(newUrl, oldUrl);
      assert.equal((await probeEndpoint(newUrl, account.ca)).ok, true);
      assert.match((await probeEndpoint(oldUrl, account.ca)).sentence, /doesn't know this cluster's key/);
    });

    it("rotating a cluster's key loses no request, and changes only its keyVersion in postern.yaml", async () => {
      const { rotateClusterKey } =
        await checkout.load<typeof import("../../infra/rollout/rotate.ts")>("infra/rollout/rotate.ts");
      const [oldUrl] = await readUrls();
      const { job } = await openJob();
      // For some seconds, versions that don't know the new key still answer.
      account.lambda.propagationMilliseconds = 3000;
      const writeCounts = await writeMeanwhile(() => rotateClusterKey(job, "shop", retirement));
      account.lambda.propagationMilliseconds = 0;
      assert.deepEqual(writeCounts.failures, []);
      assert.notDeepEqual(await readUrls(), [oldUrl]);
      const text = await readFile(join(checkout.folder, "postern.yaml"), "utf8");
      assert.equal(text, buildConfig("Fail").replace("keyVersion: 1", "keyVersion: 2"));
      assert.equal((await runPostern("status", ...getClusterOptions())).code, 0);
    });

    it("a rollback to versions that know only the old key is refused", async () => {
      const words = ["rollback", "--all", "--to", `r${releaseWithOldKey}`];
      const { code, stderr } = await runPostern(...words, ...getClusterOptions());
      assert.equal(code, 1, stderr);
      assert.match(stderr, /version \d+ of stamp-notes doesn't accept the keys that are in use now/);
    });
  });

  describe("emergencies of a stage", () => {
    it("a failing rule is disarmed within seconds", async (test) => {
      const validate = 'if (note.data?.by === "client") throw new Error("boom");';
      await writeRule(buildRule({ validate }), buildCases());
      await runPostern("deploy", ...options);
      let elapsed = 0;
      const writeCounts = await writeMeanwhile(async () => {
        const start = performance.now();
        assert.equal((await runPostern("disarm", "stamp-notes", "--for", "5m", "--stage", "test")).code, 0);
        elapsed = performance.now() - start;
      });
      test.diagnostic(`disarm took ${(elapsed / 1000).toFixed(1)} s`);
      assert.ok(writeCounts.failures.length > 0 && writeCounts.created > 0);
      assert.deepEqual((await writeMeanwhile(() => wait(500))).failures, []);
      assert.match((await runPostern("status", ...getClusterOptions())).stdout, /disarmed until/);
      await runPostern("rollback", "stamp-notes", "--stage", "test");
      assert.deepEqual((await writeMeanwhile(() => wait(500))).failures, []);
    });

    it("`destroy --configs-only` deletes the entries within seconds while the region is down", async (test) => {
      await account.stopGateways();
      let elapsed = 0;
      const writeCounts = await writeMeanwhile(async () => {
        const start = performance.now();
        const variables = { ...account.actAs("pipeline").env, AWS_ENDPOINT_URL: "http://127.0.0.1:9" };
        const words = ["destroy", "--configs-only", "--yes", ...getClusterOptions()];
        const { code, stderr } = await checkout.postern(variables, ...words);
        assert.equal(code, 0, stderr);
        elapsed = performance.now() - start;
      });
      test.diagnostic(`destroy --configs-only took ${(elapsed / 1000).toFixed(1)} s`);
      assert.ok(writeCounts.failures.length > 0);
      for (const failure of writeCounts.failures)
        assert.match(failure, /failed calling webhook "stamp-notes.postern.dev"/);
      assert.deepEqual((await writeMeanwhile(() => wait(500))).failures, []);
      await account.startGateways();
    });

    it("clients can write while the region is down if the rule's failurePolicy is Ignore", async () => {
      await writeRule(buildRule(), buildCases());
      await checkout.write("postern.yaml", buildConfig("Ignore").replace("keyVersion: 1", "keyVersion: 2"));
      const { code, stdout, stderr } = await runPostern("deploy", ...options);
      assert.equal(code, 0, stdout + stderr);
      await waitUntil("notes were not stamped in time", async () => (await readStamp(`again-${Date.now()}`)) === "one");
      await account.stopGateways();
      const writeCounts = await writeMeanwhile(() => wait(500));
      assert.deepEqual(writeCounts.failures, []);
      assert.deepEqual(Object.keys(writeCounts.createdByStamp), ["undefined"]);
      await account.startGateways();
    });
  });

  it("a stage is not deleted while a cluster still calls one of its functions", async () => {
    const path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    const { body } = await cluster.admin({ method: "GET", path: `${path}/postern` });
    const { webhooks } = Object(body);
    await cluster.admin({ method: "POST", path, body: { metadata: { name: "by-hand" }, webhooks } });
    const { code, stderr } = await runPostern("destroy", "--yes", ...getClusterOptions());
    assert.equal(code, 1);
    assert.match(
      stderr,
      /cluster shop still calls this stage: stamp-notes.postern.dev of the \w+ by-hand; delete that first/,
    );
    assert.equal(account.lambda.functions.size, 1);
    await cluster.admin({ method: "DELETE", path: `${path}/by-hand` });
  });

  const [functionsLog, accessLog] = ["/aws/lambda/postern-test", "/aws/vendedlogs/postern-test"];
  const countLines = () => account.logs.groups.get(functionsLog)?.length ?? 0;
  const deletedLines = `deleted:
  the webhook configurations, policies and roles in shop
  the stack postern-test with
`;

  it("`destroy` without --yes shows what would be deleted and kept, and deletes nothing", async () => {
    const { code, stderr } = await runPostern("deploy", ...options);
    assert.equal(code, 0, stderr);
    const callsBefore = account.recordedCalls.length;
    const preview = await runPostern("destroy", ...getClusterOptions());
    assert.equal(preview.code, 0, preview.stderr);
    assert.ok(preview.stdout.startsWith(`This would be the result; --yes deletes.\n${deletedLines}`), preview.stdout);
    assert.match(preview.stdout, /^ {4}1 AWS::Lambda::Function: postern-test-stamp-notes$/m);
    assert.match(preview.stdout, /^ {4}1 AWS::S3::Bucket: postern-test-serverlessdeploymentbuck\S+$/m);
    assert.ok(
      preview.stdout.endsWith(
        `keys that sign URLs\nkept, because --with-data is not given:\n  the log group ${functionsLog}\n  the log group ${accessLog}\n`,
      ),
      preview.stdout,
    );
    const actions = account.recordedCalls.slice(callsBefore).map(({ action }) => action);
    assert.deepEqual(
      actions.filter((action) => !/:(Get|List|Describe)/.test(action)),
      [],
    );
    const withData = await runPostern("destroy", "--with-data", ...getClusterOptions());
    assert.match(withData.stdout, /sign URLs\n {2}the log group \S+\n {2}the log group \S+\n$/);
  });

  it("a stage is deleted by one command, without a failed request", async () => {
    const writeCounts = await writeMeanwhile(async () => {
      const { code, stdout, stderr } = await runPostern("destroy", "--yes", ...getClusterOptions());
      assert.equal(code, 0, stderr);
      assert.ok(stdout.startsWith(`stage test is deleted\n${deletedLines}`), stdout);
    });
    assert.deepEqual(writeCounts.failures, []);
    assert.deepEqual([[...account.logs.groups.keys()].sort(), countLines() > 0], [[functionsLog, accessLog], true]);
    assert.equal(account.lambda.functions.size, 0);
    assert.deepEqual(
      [...account.cloudformation.stacks.values()].map(({ status }) => status),
      ["DELETE_COMPLETE"],
    );
  });

  it("a deleted stage can be deployed again, and still has its logs", async () => {
    const linesBefore = countLines();
    const { code, stderr } = await runPostern("deploy", ...options);
    assert.equal(code, 0, stderr);
    assert.match(stderr, /release r1 is live in shop/);
    await waitUntil("notes were not stamped in time", async () => (await readStamp(`anew-${Date.now()}`)) === "one");
    assert.ok(countLines() > linesBefore);
    assert.equal(account.logs.retention.get(functionsLog), 14);
    const again = await runPostern("deploy", ...options);
    assert.match(again.stderr, /nothing to do/);
  });

  it("`destroy --with-data` also deletes the logs of a stage, and of an already deleted stage", async () => {
    for (const words of [
      ["destroy", "--yes"],
      ["destroy", "--yes", "--with-data"],
    ]) {
      const { code, stderr } = await runPostern(...words, ...getClusterOptions());
      assert.equal(code, 0, stderr);
    }
    assert.deepEqual([...account.logs.groups.keys()], []);
    const { code, stderr } = await runPostern("destroy", "--yes", "--with-data", ...getClusterOptions());
    assert.deepEqual([code, stderr], [1, "there is no stage test: neither a stack nor keys\n"]);
  });
});
