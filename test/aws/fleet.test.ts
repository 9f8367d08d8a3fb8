import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { S3 } from "@aws-sdk/client-s3";
import type { Progress } from "../../infra/cli/progress.ts";
import { probeEntries } from "../../infra/clusters/probe.ts";
import type { DeploymentPlan } from "../../infra/rollout/plan/plan.ts";
import type { DeploymentJob } from "../../infra/rollout/preparation.ts";
import { lockTermMilliseconds } from "../../infra/rollout/stage/lock.ts";
import type { WebhookEntry } from "../../infra/webhooks/configurations.ts";
import { buildKubeconfig, type Checkout, openCheckout } from "../checkout.ts";
import { requireBinaries } from "../control-plane/binaries.ts";
import { bootCluster, type TestCluster } from "../control-plane/cluster.ts";
import { waitUntil } from "../parity/rule-server.ts";
import { needs } from "../parts.ts";
import { createPackager, loadJob, recordProgress, type StagePackager } from "../trees.ts";
import { type Account, openAccount } from "./account.ts";

// Deploys a stage to two clusters with real API servers, and checks which webhook entries each cluster gets, when, and
// in which order.

/** Returns the source of a rule for ConfigMaps, which are called notes here. `head` is code before the rule. */
const buildRule = (fields: string, head = "const needs = {};") => `
import { rule } from "#lib/rule.ts";
type Note = { metadata?: { name?: string }; data?: Record<string, string> };
${head}
export default rule<Note, { isSick: boolean; names: string[] }, typeof needs>({
  summary: "Looks at notes.",
  match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["configmaps"], operations: ["CREATE"] }],
  settings: { isSick: false, names: ["plain"] },
  ${fields}
});
`;
const buildCase = (caseFields = "") => `
- name: takes a note
  ${caseFields}
  validate: { metadata: { name: a } }
  admitted: true
`;
const buildMarkCase = (mark: string) => `
- name: marks a note
  mutate: { metadata: { name: a }, data: { text: hello } }
  becomes: { metadata: { name: a }, data: { text: hello, ${mark}: yes } }
`;
const buildMarkRule = (mark: string) => buildRule(`mutate(note) { note.data = { ...note.data, ${mark}: "yes" }; },`);
/** An expression that is true for the object of a probe. */
const isProbe = 'note.metadata?.name === "postern-probe"';
/** The source and the cases of each rule. */
const catalogue: Record<string, [rule: string, cases: string]> = {
  "look-at-notes": [
    buildRule(`since: { "1.0": {}, "1.34": {}, "1.99": {} },
      validate(note, { settings }) { if (settings.isSick && ${isProbe}) throw new Error("it is sick"); },`),
    buildCase(),
  ],
  "guard-notes": [
    buildRule(`guards: true,
      validate(note) { if (note.data?.boom) throw new Error("boom"); if (note.data?.bad) return "it is bad"; },`),
    buildCase(),
  ],
  "mark-left": [buildMarkRule("left"), buildMarkCase("left")],
  "mark-right": [buildMarkRule("right"), buildMarkCase("right")],
  "sort-notes": [
    buildRule("variants: ({ names }) => names.map((name) => ({ name })), validate() {},"),
    buildCase("variant: plain"),
  ],
  "ask-about-notes": [
    buildRule(
      `needs, async validate(note, { namespaces }) { if (!(${isProbe})) await namespaces({ name: "default" }); },`,
      'import { get } from "#lib/needs.ts"; const needs = { namespaces: get("namespaces") };',
    ),
    buildCase("needs: { objects: [{ apiVersion: v1, kind: Namespace, metadata: { name: default } }] }"),
  ],
};
const buildStampRule = (mutateSource: string): [rule: string, cases: string] => [
  buildRule(`${mutateSource} validate() {},`),
  buildCase(),
];
/**
 * Two other catalogues, by their folder. In trees/two-phases, stamp-notes mutates and validates. In trees/one-phase, it
 * only validates.
 */
const trees: Record<string, typeof catalogue> = {
  "trees/two-phases": {
    "stamp-notes": buildStampRule('mutate(note) { note.data = { ...note.data, stamp: "yes" }; },'),
    "keep-notes": [
      buildRule(
        `guards: true, validate(note) {
          if (note.data?.crash) process.exit(1);
          if (note.data?.hang) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
        },`,
        // A rule's source must not name these globals, so this source gets them from `globalThis`.
        `const needs = {};
        const { process, Atomics, SharedArrayBuffer } = Object.constructor("return globalThis")();`,
      ),
      buildCase(),
    ],
  },
  "trees/one-phase": { "stamp-notes": buildStampRule("") },
};
for (const tree of Object.values(trees)) {
  const { "sort-notes": sortNotes } = catalogue;
  if (sortNotes) tree["sort-notes"] = sortNotes;
}
/** Matches a cluster's key in a URL, which is a signature in base64url with 86 characters. */
const key = /\.[\w-]{86}\//;
const names = ["east", "west"] as const;
type Name = (typeof names)[number];

describe("a stage with two clusters", await needs("moto", "runtime client", "API server"), () => {
  let account: Account;
  let clusters: Record<Name, TestCluster>;
  let checkout: Checkout;
  let packageStage: StagePackager;
  let kubeconfig: string;

  before(async () => {
    const binaries = await requireBinaries();
    const [openedAccount, openedCheckout, east, west] = await Promise.all([
      openAccount(),
      openCheckout(),
      bootCluster(binaries),
      bootCluster(binaries),
    ]);
    [account, checkout, clusters] = [openedAccount, openedCheckout, { east, west }];
    packageStage = await createPackager(checkout.folder);
    account.lambda.updateMilliseconds = 0;
    for (const [name, [rule, cases]] of Object.entries(catalogue)) await checkout.rule(name, rule, cases);
    for (const [tree, rules] of Object.entries(trees))
      for (const [name, [rule, cases]] of Object.entries(rules)) await checkout.rule(name, rule, cases, tree);
    kubeconfig = await checkout.write("kubeconfig", buildKubeconfig(clusters));
    Object.assign(process.env, account.actAs("deployer").env);
  });
  after(async () => {
    await Promise.all([account?.stop(), ...Object.values(clusters ?? {}).map(({ stop }) => stop())]);
    await checkout?.remove();
  });

  /** The parts of postern.yaml as YAML, and the stage to deploy. */
  interface FleetConfig {
    rules: string;
    /** The configuration of the cluster east. */
    east?: string;
    west?: string;
    groups?: string;
    /** The folder of the catalogue. */
    tree?: string;
    /** The clusters in postern.yaml; by default, east and west. */
    only?: readonly Name[];
    stage?: string;
  }
  /** Returns a job for deployments, and the list to which it adds the names of its steps. */
  const openJob = async (config: FleetConfig, jobChanges: Partial<DeploymentJob> = {}) => {
    const { rules, groups = "{}", tree = "functions", only = names, stage = "fleet" } = config;
    const clusters = only.map((name) => `${name}: ${config[name] ?? "{}"}`).join(", ");
    const text = `rules: ${rules}\ngroups: ${groups}\nclusters: { ${clusters} }\n`;
    const { createAwsStageClients: openStage } =
      await checkout.load<typeof import("../../infra/aws/stage.ts")>("infra/aws/stage.ts");
    const steps: string[] = [];
    const progress = recordProgress(steps);
    const opened = { stage: openStage(stage), ca: account.ca, progress, ...jobChanges };
    const job = await loadJob(checkout.folder, tree, text, opened);
    return { job, steps };
  };
  /** Deploys. The outcome is the final sentence or the error's message. Also returns the steps and the plan's notes. */
  const deploy = async (config: FleetConfig, jobChanges: Partial<DeploymentJob> = {}) => {
    const { deployStage: deploy } =
      await checkout.load<typeof import("../../infra/rollout/deploy.ts")>("infra/rollout/deploy.ts");
    const { job, steps } = await openJob(config, jobChanges);
    const plans: DeploymentPlan[] = [];
    const show = async (plan: DeploymentPlan) => void plans.push(plan);
    const result = await deploy(job, show, packageStage).catch((error: Error) => error.message);
    return { outcome: result, steps, notes: plans.flatMap(({ clusters }) => clusters.flatMap(({ notes }) => notes)) };
  };
  const rollBackAll = async (config: FleetConfig, jobChanges: Partial<DeploymentJob> = {}) => {
    const { rollBackAll } = await checkout.load<typeof import("../../infra/rollout/versions/rollback.ts")>(
      "infra/rollout/versions/rollback.ts",
    );
    const { job, steps } = await openJob(config, jobChanges);
    // `undefined` stands for the release before.
    await rollBackAll(job, undefined);
    return steps;
  };
  const readNewestRelease = async () => {
    const { readReleaseStore } = await checkout.load<typeof import("../../infra/rollout/versions/releases.ts")>(
      "infra/rollout/versions/releases.ts",
    );
    const { job } = await openJob({ rules: "{}" });
    const { all } = await readReleaseStore(job.stage.openStageBucket);
    assert.ok(all[0]);
    return all[0];
  };

  const readEntries = async (name: Name): Promise<WebhookEntry[]> => {
    const configurations = ["mutating", "validating"].map(async (kind) => {
      const path = `/apis/admissionregistration.k8s.io/v1/${kind}webhookconfigurations/postern`;
      const { code, body } = await clusters[name].admin({ method: "GET", path });
      return code === 200 ? (Object(body).webhooks ?? []) : [];
    });
    return (await Promise.all(configurations)).flat();
  };
  /** Returns the failurePolicy of each entry by the entry's rule. */
  const readFailurePolicies = async (name: Name) =>
    Object.fromEntries(
      (await readEntries(name)).map(({ name, failurePolicy }) => [name.replace(".postern.dev", ""), failurePolicy]),
    );
  const listEntryRules = async (name: Name) => Object.keys(await readFailurePolicies(name));
  /** Asserts that every entry of both clusters answers a probe. */
  const requireHealthyEntries = async () => {
    const entries = (await Promise.all(names.map(readEntries))).flat();
    assert.ok(entries.length > 0);
    for (const { ok, sentence } of await probeEntries(entries, { tries: 1, timeoutSeconds: 20 }))
      assert.ok(ok, sentence);
  };
  let notes = 0;
  const createNote = (name: Name, data: Record<string, string> = {}) => {
    notes += 1;
    const body = { metadata: { name: `note-${notes}` }, data };
    return clusters[name].admin({ method: "POST", path: "/api/v1/namespaces/default/configmaps", body });
  };
  const listFunctions = () => [...account.lambda.functions.keys()].map((name) => name.replace("postern-fleet-", ""));

  describe("a failing endpoint of one cluster", () => {
    const sickInEast = "{ rules: { look-at-notes: { settings: { isSick: true } } } }";
    const withFailingRule: FleetConfig = { rules: "{ look-at-notes: }", east: sickInEast };

    it("a deployment stops at a cluster with a failing endpoint, and doesn't update later clusters", async () => {
      const { outcome } = await deploy(withFailingRule);
      const sentence = /^the entries of cluster east were not changed, .*\nlook-at-notes.postern.dev: .*it is sick/;
      assert.match(outcome, sentence);
      assert.deepEqual([await listEntryRules("east"), await listEntryRules("west")], [[], []]);
      assert.equal((await readNewestRelease()).complete, false);
    });

    it("a cluster with a failing endpoint doesn't stop the update of another cluster in the same wave", async () => {
      const { outcome } = await deploy(withFailingRule, { wave: 2 });
      assert.match(outcome, /^the entries of cluster east were not changed/);
      assert.deepEqual([await listEntryRules("east"), await listEntryRules("west")], [[], ["look-at-notes"]]);
      const { complete, clusters } = await readNewestRelease();
      assert.deepEqual([complete, Object.keys(clusters)], [false, ["west"]]);
    });

    it("a deployment updates all clusters when the failing endpoint answers again", async () => {
      const { outcome } = await deploy({ rules: "{ look-at-notes: }" });
      assert.equal(outcome, "release r1 is live in east, west");
      assert.deepEqual(
        [await listEntryRules("east"), await listEntryRules("west")],
        [["look-at-notes"], ["look-at-notes"]],
      );
      assert.equal((await readNewestRelease()).complete, true);
      await requireHealthyEntries();
    });
  });

  it("a deployment can update the entries of only one cluster, while the functions serve two clusters", async () => {
    const config: FleetConfig = { rules: "{ look-at-notes: { timeoutSeconds: 5 } }" };
    await deploy(config, { clusters: ["east"] });
    const readTimeouts = async () =>
      Promise.all(names.map(async (name) => (await readEntries(name)).map(({ timeoutSeconds }) => timeoutSeconds)));
    assert.deepEqual(await readTimeouts(), [[5], [3]]);
    await requireHealthyEntries();
    assert.match((await deploy(config)).outcome, /is live in east, west/);
    assert.deepEqual(await readTimeouts(), [[5], [5]]);
    assert.match((await deploy(config)).outcome, /^nothing to do/);
  });

  it("a function evaluates reviews of each cluster for the cluster's minor version of Kubernetes", async () => {
    const { major, minor } = Object((await clusters.east.admin({ method: "GET", path: "/version" })).body);
    const rules = "{ look-at-notes: }";
    await deploy({ rules });
    const liveMinor = `${major}.${minor}`;
    assert.deepEqual((await readNewestRelease()).kubernetes, { east: liveMinor, west: liveMinor });
    const otherMinor = liveMinor === "1.33" ? "1.34" : "1.33";
    const withOtherMinor: FleetConfig = { rules, west: `{ kubernetes: "${otherMinor}" }` };
    const sentence = `it runs Kubernetes ${liveMinor}, but its kubernetes in postern.yaml is "${otherMinor}"`;
    assert.deepEqual((await deploy(withOtherMinor)).notes, [sentence]);
    const release = await readNewestRelease();
    assert.deepEqual(release.kubernetes, { east: liveMinor, west: otherMinor });
    const { usual, clusters: setups } = release.rules["look-at-notes"]?.share ?? {};
    assert.deepEqual(setups, {
      east: { ...usual, kubernetes: liveMinor },
      west: { ...usual, kubernetes: otherMinor },
    });
    const { probeClusterHealth } = await checkout.load<typeof import("../../infra/rollout/clusters/cluster-health.ts")>(
      "infra/rollout/clusters/cluster-health.ts",
    );
    const { job } = await openJob(withOtherMinor);
    assert.deepEqual((await probeClusterHealth(job, "west", release))?.drift, [sentence]);
    assert.deepEqual((await probeClusterHealth(job, "east", release))?.drift, []);
  });

  describe("a rule that guards", () => {
    const config: FleetConfig = { rules: "{ look-at-notes: , guard-notes: }" };
    const readGuardPolicy = async (name: Name) => (await readFailurePolicies(name))["guard-notes"];

    it("the first deployment lets a guard fail open", async () => {
      const { notes } = await deploy(config, { harden: 30 });
      assert.deepEqual([await readGuardPolicy("east"), await readGuardPolicy("west")], ["Ignore", "Ignore"]);
      assert.deepEqual(notes, Array(2).fill("guard-notes still fails open: 0 of 30 reviews without a failure"));
      for (const name of names)
        await waitUntil(
          `${name} did not call the guard in time`,
          async () => (await createNote(name, { bad: "yes" })).code !== 201,
        );
    });

    it("a guard fails closed in a cluster after the given number of reviews without a failure", async () => {
      for (const name of names) for (let count = 0; count < 30; count++) await createNote(name);
      assert.equal((await createNote("west", { boom: "yes" })).code, 201);
      const { notes } = await deploy(config, { harden: 30 });
      assert.deepEqual([await readGuardPolicy("east"), await readGuardPolicy("west")], ["Fail", "Ignore"]);
      assert.match(notes.join(), /^guard-notes still fails open/);
      await waitUntil(
        "east still allowed a note for which the guard fails",
        async () => (await createNote("east", { boom: "yes" })).code === 500,
      );
      assert.equal((await createNote("west", { boom: "yes" })).code, 201);
    });

    it("a guard that fails closed stays so, even if a later deployment requires more reviews", async () => {
      await deploy({ rules: "{ look-at-notes: , guard-notes: { timeoutSeconds: 4 } }" }, { harden: 100_000 });
      assert.deepEqual([await readGuardPolicy("east"), await readGuardPolicy("west")], ["Fail", "Ignore"]);
    });

    it("the failurePolicy in postern.yaml, if there is one, decides whether a guard fails open", async () => {
      const explicit: FleetConfig = { ...config, east: "{ rules: { guard-notes: { failurePolicy: Ignore } } }" };
      await deploy(explicit, { harden: true });
      assert.deepEqual([await readGuardPolicy("east"), await readGuardPolicy("west")], ["Ignore", "Fail"]);
      await requireHealthyEntries();
    });
  });

  it("`--write` writes roles and entries to files, which have no key, without changing a cluster", async () => {
    const config: FleetConfig = { rules: "{ look-at-notes: { timeoutSeconds: 2 }, mark-left: , ask-about-notes: }" };
    const connect = "{ connect: { server: 'https://127.0.0.1:9', tokenSecret: a-token, region: eu-west-1 } }";
    const entriesBefore = await Promise.all(names.map(readEntries));
    const folder = join(checkout.folder, "written");
    const { outcome } = await deploy({ ...config, east: connect, west: connect }, { write: folder, deployer: {} });
    assert.match(outcome, /is live in east, west/);
    assert.deepEqual(await Promise.all(names.map(readEntries)), entriesBefore);
    for (const name of names) {
      const [roles, entries] = await Promise.all(
        ["roles", "entries"].map((what) => readFile(join(folder, `${name}.${what}.yaml`), "utf8")),
      );
      assert.match(roles ?? "", /kind: ClusterRole\n[\s\S]*name: postern:ask-about-notes/);
      assert.match(entries ?? "", new RegExp(`/${name}\\.%key%/look-at-notes/validate"?\n`));
      assert.doesNotMatch(`${roles}${entries}`, key);
    }
    assert.doesNotMatch(JSON.stringify(await readNewestRelease()), key);
    for (const { clientConfig } of entriesBefore.flat()) assert.match(clientConfig.url, key);
  });

  describe("a rule that is turned off", () => {
    const withMarkLeft: FleetConfig = { rules: "{ look-at-notes: , mark-left: { failurePolicy: Fail } }" };
    const withoutMarkLeft: FleetConfig = { rules: "{ look-at-notes: }" };
    const isMarked = async (name: Name) => Object((await createNote(name)).body.data).left === "yes";

    it("the function of a rule that is turned off stays for one more release, so a rollback is possible", async () => {
      await deploy(withMarkLeft);
      await deploy(withoutMarkLeft);
      assert.deepEqual(await listEntryRules("east"), ["look-at-notes"]);
      assert.ok(listFunctions().includes("mark-left"));
      assert.match((await deploy(withoutMarkLeft)).outcome, /^nothing to do/);
      assert.ok(listFunctions().includes("mark-left"));
      await rollBackAll(withoutMarkLeft);
      assert.deepEqual(await listEntryRules("west"), ["mark-left", "look-at-notes"]);
      for (const name of names) await waitUntil(`${name} did not mark a note in time`, () => isMarked(name));
      await requireHealthyEntries();
    });

    it("the function of a rule that is turned off stays while an entry of another cluster calls it", async () => {
      for (const timeoutSeconds of [4, 5])
        await deploy({ rules: `{ look-at-notes: { timeoutSeconds: ${timeoutSeconds} } }` }, { clusters: ["east"] });
      assert.deepEqual(await listEntryRules("east"), ["look-at-notes"]);
      await waitUntil("west did not mark a note in time", () => isMarked("west"));
      assert.equal((await createNote("east")).code, 201);
      await requireHealthyEntries();
    });

    it("the function of a rule that is turned off is deleted with the release after the next one", async () => {
      await deploy(withoutMarkLeft);
      assert.ok(listFunctions().includes("mark-left"));
      await deploy({ rules: "{ look-at-notes: { timeoutSeconds: 4 } }" });
      assert.deepEqual(listFunctions(), ["look-at-notes"]);
      await requireHealthyEntries();
    });
  });

  describe("a group of rules, and a rule with several entries", () => {
    const buildGroupConfig = (names: string, groups: string): FleetConfig => ({
      rules: `{ mark-left: , mark-right: , sort-notes: { failurePolicy: Fail, settings: { names: ${names} } } }`,
      groups,
    });
    const [separate, grouped] = [
      buildGroupConfig("[plain]", "{}"),
      buildGroupConfig("[plain, fancy]", "{ marks: [mark-left, mark-right] }"),
    ];
    const areBothMarked = async (name: Name) => {
      const { left, right } = Object((await createNote(name)).body.data);
      return left === "yes" && right === "yes";
    };

    it("a group has one entry, instead of an entry for each of its rules", async () => {
      await deploy(separate);
      assert.deepEqual(await listEntryRules("east"), ["mark-left", "mark-right", "plain.sort-notes"]);
      await deploy(grouped);
      for (const name of names) {
        assert.deepEqual(await listEntryRules(name), ["marks", "plain.sort-notes", "fancy.sort-notes"]);
        await waitUntil(`${name} did not mark a note in time`, () => areBothMarked(name));
      }
      await requireHealthyEntries();
    });

    it("a rollback to a release without a variant deletes the variant's entries before it moves aliases", async () => {
      const steps = await rollBackAll(grouped);
      assert.deepEqual(steps.toSorted(), ["aliases", "cluster east: entries", "cluster west: entries"]);
      assert.equal(steps.at(-1), "aliases");
      for (const name of names) {
        assert.deepEqual(await listEntryRules(name), ["mark-left", "mark-right", "plain.sort-notes"]);
        await waitUntil(`${name} did not mark a note in time`, () => areBothMarked(name));
      }
      await requireHealthyEntries();
    });
  });

  it("a deployment finds an EKS cluster by its name, and reports the missing access entry", async () => {
    account.clusters.set("prod-west", clusters.west);
    const rules = "{ sort-notes: , ask-about-notes: }";
    const jobChanges: Partial<DeploymentJob> = { clusters: ["west"], deployer: {} };
    const before = await readEntries("west");
    const earlierCalls = account.recordedCalls.length;
    const east = "{ rules: { ask-about-notes: { mode: off } } }";
    const west = "{ connect: { eks: prod-west, region: eu-west-1 } }";
    const { outcome } = await deploy({ rules, east, west }, jobChanges);
    assert.match(
      outcome,
      /^cluster west: the API server doesn't accept the credentials \(401: Unauthorized\); give the AWS identity that deploys an access entry of the EKS cluster prod-west/,
    );
    const bundleFolder = join(checkout.folder, "dist/ask-about-notes");
    const connections = JSON.parse(await readFile(join(bundleFolder, "clusters.json"), "utf8"));
    assert.deepEqual([Object.keys(connections), connections.west.server], [["west"], clusters.west.server]);
    assert.ok(!(await readFile(join(bundleFolder, "index.cjs"), "utf8")).includes(clusters.west.server));
    const actions = account.recordedCalls.slice(earlierCalls).map(({ action }) => action);
    assert.ok(actions.includes("eks:DescribeCluster"));
    assert.deepEqual(
      actions.filter((action) => /lambda:(Update|Publish)|cloudformation:Create/.test(action)),
      [],
    );
    assert.deepEqual(await readEntries("west"), before);
  });

  describe("entries that would get no answer", () => {
    const formatSortEntry = (names: string) => `sort-notes: { failurePolicy: Fail, settings: { names: ${names} } }`;
    const buildTreeConfig = (tree: "two-phases" | "one-phase", names: string, extraYaml = ""): FleetConfig => ({
      rules: `{ stamp-notes: { failurePolicy: Fail }, ${formatSortEntry(names)}${extraYaml} }`,
      tree: `trees/${tree}`,
    });
    const withGuard = buildTreeConfig("two-phases", "[plain, fancy]", ", keep-notes: ");
    // `reducedConfig` has neither the variant fancy of sort-notes nor the phase mutate of stamp-notes.
    const [fullConfig, reducedConfig] = [
      buildTreeConfig("two-phases", "[plain, fancy]"),
      buildTreeConfig("one-phase", "[plain]"),
    ];
    const load = {
      deploy: () => checkout.load<typeof import("../../infra/rollout/deploy.ts")>("infra/rollout/deploy.ts"),
      destroy: () => checkout.load<typeof import("../../infra/rollout/destroy.ts")>("infra/rollout/destroy.ts"),
      rollback: () =>
        checkout.load<typeof import("../../infra/rollout/versions/rollback.ts")>("infra/rollout/versions/rollback.ts"),
    };
    const rollBackOne = async (rule: string) => {
      const { job } = await openJob(reducedConfig);
      return (await load.rollback()).rollBackOne(job.stage, rule, undefined, job.progress);
    };
    const planClusters = async (config: FleetConfig, jobChanges: Partial<DeploymentJob>) => {
      const { job } = await openJob(config, jobChanges);
      return (await (await load.deploy()).planDeployment(job, packageStage)).clusters;
    };
    const destroy = async (config: FleetConfig, options: object = {}) => {
      const { job } = await openJob(config);
      // `noticeMilliseconds: 0`: destroyStage doesn't wait before it deletes the functions.
      const stageToDestroy = { ...job, forgotten: [], noticeMilliseconds: 0, ...options };
      return (await load.destroy()).destroyStage(stageToDestroy).catch((error: Error) => error.message);
    };
    const readAliases = async () => {
      const { job } = await openJob(reducedConfig);
      const rules = ["sort-notes", "stamp-notes"];
      const aliases = await Promise.all(rules.map((rule) => job.stage.functions.readAlias(rule)));
      return Object.fromEntries(rules.map((rule, index) => [rule, aliases[index]?.version]));
    };
    const readRecordedVersions = async () => {
      const { rules } = await readNewestRelease();
      return Object.fromEntries(["sort-notes", "stamp-notes"].map((rule) => [rule, rules[rule]?.version]));
    };
    const readAllEntries = () => Promise.all(names.map(readEntries));
    /** Runs a command that must fail, and returns its message. Asserts that it changed neither aliases nor entries. */
    const requireRefusal = async (act: () => Promise<unknown>) => {
      const before = [await readAliases(), await readAllEntries()];
      const message = await act();
      assert.deepEqual([await readAliases(), await readAllEntries()], before, String(message));
      return String(message);
    };

    describe("a rule that guards", () => {
      const jobChanges: Partial<DeploymentJob> = { clusters: ["east"], harden: 1 };
      const getGuardFunction = () => {
        const fn = account.lambda.functions.get("postern-fleet-keep-notes");
        assert.ok(fn);
        return fn;
      };
      /** Returns the notes of a plan for cluster east, without a build. */
      const readNotes = async () => {
        const { planCluster } = await checkout.load<typeof import("../../infra/rollout/clusters/cluster-plan.ts")>(
          "infra/rollout/clusters/cluster-plan.ts",
        );
        const { createStageCountsReader } = await checkout.load<typeof import("../../infra/rollout/plan/hardening.ts")>(
          "infra/rollout/plan/hardening.ts",
        );
        const { job } = await openJob(withGuard, jobChanges);
        const outputs = await job.stage.stack.readOutputs();
        const readCounts = createStageCountsReader(job, outputs);
        return (await planCluster(job, "east", { newest: await readNewestRelease(), outputs, readCounts })).notes;
      };
      const failsOpenNote = "keep-notes still fails open: 0 of 1 reviews without a failure";
      const clearCounts = () => {
        account.cloudwatch.clear();
        account.logs.clear();
      };

      it("a guard fails open as long as it got no reviews but probes", async () => {
        assert.match((await deploy(withGuard)).outcome, /is live in east, west/);
        assert.deepEqual(
          (await planClusters(withGuard, jobChanges)).flatMap(({ notes }) => notes),
          [failsOpenNote],
        );
        assert.deepEqual(await readNotes(), [failsOpenNote]);
      });

      /** Ways in which a review is lost, with the functions that lose one, and the causes in the plan's note. */
      const losses: [name: string, lose: () => unknown, causes: string][] = [
        [
          "a function that crashed",
          async () => assert.equal((await createNote("east", { crash: "yes" })).code, 201),
          "1 ended by a crash or a timeout, 1 answered 429 or 5xx by the gateway",
        ],
        [
          "a function that was ended by its timeout",
          async () => {
            const { live } = Object.fromEntries(getGuardFunction().aliases);
            const version = getGuardFunction().versions.get(live?.version ?? "");
            assert.ok(version);
            getGuardFunction().versions.set(live?.version ?? "", { ...version, timeout: 1 });
            assert.equal((await createNote("east", { hang: "yes" })).code, 201);
            getGuardFunction().versions.set(live?.version ?? "", version);
          },
          "1 ended by a crash or a timeout, 1 answered 429 or 5xx by the gateway",
        ],
        [
          "a call that Lambda throttled",
          async () => {
            getGuardFunction().reserved = 0;
            assert.equal((await createNote("east")).code, 201);
            getGuardFunction().reserved = undefined;
          },
          "1 throttled by Lambda, 1 answered 429 or 5xx by the gateway",
        ],
        [
          "a request that the gateway throttled",
          async () => {
            account.throttledRules.add("keep-notes");
            assert.equal((await createNote("east")).code, 201);
            account.throttledRules.clear();
          },
          "1 answered 429 or 5xx by the gateway",
        ],
        [
          "a request that the gateway throttled before it knew its route",
          () => {
            const line = { stage: "fleet", routeKey: "-", status: "429", function: "-" };
            account.logs.write("/aws/vendedlogs/postern-fleet", "stand-in", JSON.stringify(line));
          },
          "1 answered 429 or 5xx by the gateway",
        ],
        [
          "a 5xx of a function's URL",
          () => {
            const dimensions = { FunctionName: "postern-fleet-keep-notes" };
            const metric = "Url5xxCount";
            account.cloudwatch.record({ namespace: "AWS/Lambda", metric, dimensions, value: 1, time: Date.now() });
          },
          "1 answered 5xx at the function's URL",
        ],
      ];
      for (const [name, lose, causes] of losses)
        it(`a guard doesn't fail closed after ${name}`, async () => {
          clearCounts();
          await waitUntil("the guard got too few reviews in time", async () => {
            assert.equal((await createNote("east")).code, 201);
            return (await readNotes()).length === 0;
          });
          await lose();
          assert.deepEqual(await readNotes(), [`${failsOpenNote} (${causes})`]);
        });

      it("a guard doesn't fail closed if the stack doesn't count lost requests", async () => {
        clearCounts();
        await waitUntil("the guard got too few reviews in time", async () => {
          assert.equal((await createNote("east")).code, 201);
          return (await readNotes()).length === 0;
        });
        const stack = account.cloudformation.stack("postern-fleet");
        assert.ok(stack);
        const { LossMetric, ...otherOutputs } = stack.outputs;
        assert.ok(LossMetric);
        stack.outputs = otherOutputs;
        assert.deepEqual(await readNotes(), [
          `${failsOpenNote} (the stack doesn't count yet the requests that its gateway loses)`,
        ]);
        stack.outputs = { ...otherOutputs, LossMetric };
      });
    });

    it("deploy refuses --harden-after=0", async () => {
      await checkout.write("postern.yaml", "rules: { look-at-notes: }\nclusters: { east: {} }\n");
      const { code, stderr } = await checkout.postern(account.env, "deploy", "--stage=fleet", "--harden-after=0");
      assert.deepEqual([code, /--harden-after takes a number from 1, not 0/.test(stderr)], [2, true], stderr);
    });

    it("a deployment is refused if a cluster's keyVersion was changed without a rotation", async () => {
      const message = await requireRefusal(
        async () => (await deploy({ ...fullConfig, west: "{ keyVersion: 2 }" })).outcome,
      );
      assert.match(
        message,
        /^cluster west calls .* doesn't accept its key of version 1; postern rotate --cluster west /,
      );
    });

    it("a deployment without a variant is refused if a cluster that calls the variant isn't updated", async () => {
      const message = await requireRefusal(async () => (await deploy(reducedConfig, { clusters: ["east"] })).outcome);
      assert.match(
        message,
        /^cluster west calls .*; deploy to cluster west, too: the deployment then deletes this entry first$/,
      );
    });

    it("a deployment deletes the entries of removed variants and phases first, without a failed request", async () => {
      const steps: string[] = [];
      const created: [step: string, code: number][] = [];
      const create = async (step: string) => {
        for (const name of names) created.push([`${step}, ${name}`, (await createNote(name)).code]);
      };
      const progress: Progress = {
        say: () => {},
        step: async (name, act) => {
          steps.push(name);
          await create(`before ${name}`);
          await act(() => {});
          await create(`after ${name}`);
        },
      };
      assert.match((await deploy(reducedConfig, { progress })).outcome, /is live in east, west/);
      const aliasStep = steps.indexOf("aliases");
      assert.deepEqual(steps.slice(aliasStep - 2, aliasStep), [
        "cluster east: obsolete entries",
        "cluster west: obsolete entries",
      ]);
      assert.deepEqual(
        created.filter(([, code]) => code !== 201),
        [],
      );
      for (const name of names) assert.deepEqual(await listEntryRules(name), ["plain.sort-notes", "stamp-notes"]);
      await requireHealthyEntries();
    });

    it("a rollback of one rule to a version without a variant or phase that a cluster calls is refused", async () => {
      assert.match((await deploy(fullConfig)).outcome, /is live in east, west/);
      for (const [rule, sentence] of [
        [
          "sort-notes",
          /has no variant fancy, but cluster east still calls its webhook entry fancy.sort-notes, so it was not rolled back; postern rollback --all/,
        ],
        [
          "stamp-notes",
          /doesn't mutate, but cluster east still calls its webhook entry stamp-notes, so it was not rolled back; postern rollback --all/,
        ],
      ] as const)
        assert.match(await requireRefusal(() => rollBackOne(rule).catch((error: Error) => error.message)), sentence);
    });

    it("nothing is rolled back while a cluster with obsolete entries can't be reached", async () => {
      const unreachable = { ...clusters.west, server: "https://127.0.0.1:9" };
      const kubeconfigWithDeadCluster = await checkout.write(
        "dead",
        buildKubeconfig({ east: clusters.east, west: unreachable }),
      );
      const before = [await readAliases(), await readEntries("west")];
      await assert.rejects(
        rollBackAll(reducedConfig, { deployer: { kubeconfig: kubeconfigWithDeadCluster } }),
        (error: Error) => {
          assert.match(
            error.message,
            /^nothing was rolled back, because webhook entries that would then get no answer could not be deleted from their clusters:\n/,
          );
          assert.match(error.message, /west/);
          return Reflect.get(error, "exitCode") === 1;
        },
      );
      assert.deepEqual([await readAliases(), await readEntries("west")], before);
      await requireHealthyEntries();
    });

    it("a stage can be rolled back during a deployment, which then stops", async () => {
      const { progress: usual } = (await openJob(fullConfig)).job;
      let aliasesAfterRollback: Record<string, string | undefined> = {};
      const progress: Progress = {
        ...usual,
        step: async (name, act) => {
          await usual.step(name, act);
          if (name !== "cases") return;
          await rollBackAll(reducedConfig);
          aliasesAfterRollback = await readAliases();
        },
      };
      const newSettings = "settings: { isSick: true, names: [plain, fancy] }";
      const rules = `{ stamp-notes: { failurePolicy: Fail }, sort-notes: { failurePolicy: Fail, ${newSettings} } }`;
      const { outcome } = await deploy({ ...fullConfig, rules }, { progress });
      assert.match(outcome, /^this command has lost the lock of the stage, and changes nothing more/);
      assert.deepEqual(
        [await readAliases(), await readRecordedVersions()],
        [aliasesAfterRollback, aliasesAfterRollback],
      );
      for (const name of names) assert.deepEqual(await listEntryRules(name), ["plain.sort-notes", "stamp-notes"]);
      await requireHealthyEntries();
    });

    it("a deployment moves the first alias back if the second one can't be moved", async () => {
      let moves = 0;
      // Only the second move is refused.
      account.allow = ({ action }) => action !== "lambda:UpdateAlias" || ++moves !== 2;
      const message = await requireRefusal(async () => (await deploy(fullConfig)).outcome);
      account.allow = undefined;
      assert.match(message, /; the aliases that were moved are moved back$/);
      // The third move moves the first alias back.
      assert.equal(moves, 3);
    });

    it("a rollback restores the earlier versions after a deployment moved only one of two aliases", async () => {
      const before = await readAliases();
      let moves = 0;
      // After the first move, all calls are refused.
      account.allow = ({ action }) => {
        if (action === "lambda:UpdateAlias") moves += 1;
        return moves < 2;
      };
      const { outcome } = await deploy(fullConfig);
      account.allow = undefined;
      assert.match(outcome, / could not be moved back$/);
      assert.notDeepEqual(await readAliases(), before);
      await rollBackAll(fullConfig);
      assert.deepEqual([await readAliases(), await readRecordedVersions()], [before, before]);
      await requireHealthyEntries();
    });

    it("a rollback during a canary leaves the alias at the live version, without weights", async () => {
      const { functions } = (await openJob(reducedConfig)).job.stage;
      const before = await functions.readAlias("sort-notes");
      const otherVersion = (await functions.listVersions("sort-notes")).find(
        ({ version }) => version !== before.version,
      );
      await functions.moveAlias("sort-notes", before.version, before, { [String(otherVersion?.version)]: 0.1 });
      assert.equal(await rollBackOne("sort-notes"), before.version);
      const { version, weights } = await functions.readAlias("sort-notes");
      assert.deepEqual([version, weights], [before.version, {}]);
    });

    it("a later rollback doesn't return to a version from which the rule was rolled back", async () => {
      const buildSickConfig = (timeoutSeconds: number, { isSick }: { isSick: boolean }): FleetConfig => ({
        rules: `{ stamp-notes: { failurePolicy: Fail, timeoutSeconds: ${timeoutSeconds} }, sort-notes: { failurePolicy: Fail, settings: { isSick: ${isSick} } } }`,
        tree: "trees/one-phase",
      });
      const { "sort-notes": goodVersion } = await readAliases();
      assert.match((await deploy(buildSickConfig(3, { isSick: true }))).outcome, /is live/);
      const { "sort-notes": badVersion } = await readAliases();
      assert.notEqual(badVersion, goodVersion);
      assert.equal(await rollBackOne("sort-notes"), goodVersion);
      assert.match((await deploy(buildSickConfig(5, { isSick: false }))).outcome, /is live/);
      for (let count = 0; count < 2; count++) {
        await rollBackAll(reducedConfig);
        assert.notEqual((await readAliases())["sort-notes"], badVersion);
      }
      await requireHealthyEntries();
    });

    it("a deployment is refused without a cluster that has entries, unless they are deleted or forgotten", async () => {
      const buildConfigWithout = (name: Name): FleetConfig => ({
        ...reducedConfig,
        only: names.filter((other) => other !== name),
      });
      const message = await requireRefusal(async () => (await deploy(buildConfigWithout("west"))).outcome);
      assert.match(
        message,
        /^cluster west still has webhook entries of this stage, but postern.yaml doesn't name it any more: .*--forget west/,
      );
      const westEntries = await readEntries("west");
      assert.ok(westEntries.length > 0);
      assert.match(
        await destroy(reducedConfig, { onlyEntriesOfClusters: ["west"] }),
        /^west has no entries of this stage any more/,
      );
      assert.deepEqual(
        [await listEntryRules("west"), Object.keys((await readNewestRelease()).clusters)],
        [[], ["east"]],
      );
      assert.match((await deploy(buildConfigWithout("west"))).outcome, /is live in east$/);
      for (const { ok, sentence } of await probeEntries(westEntries, { tries: 1 }))
        assert.deepEqual([ok, /doesn't know this cluster's key/.test(sentence)], [false, true], sentence);
      assert.deepEqual(Object.keys((await readNewestRelease()).refused ?? {}), ["west"]);
      const jobChanges = { forgotten: ["east"], deployer: { kubeconfig } };
      const { outcome } = await deploy(buildConfigWithout("east"), jobChanges);
      assert.match(outcome, /is live in west$/);
      assert.deepEqual(Object.keys((await readNewestRelease()).clusters), ["west"]);
    });

    describe("another stage with the same clusters", () => {
      const otherStage: FleetConfig = { rules: "{ look-at-notes: }", stage: "other" };

      it("the destruction of a stage that doesn't exist is refused", async () => {
        assert.match(
          await requireRefusal(() => destroy(otherStage)),
          /^there is no stage other: neither a stack nor keys$/,
        );
      });

      it("the rollback of a stage to which nothing was deployed is refused", async () => {
        const { job } = await openJob(otherStage);
        const { rollBackAll } = await load.rollback();
        await assert.rejects(
          rollBackAll(job, undefined),
          /^Error: stage other has no bucket: nothing was deployed to it/,
        );
      });

      /** Deletes the other stage with its logs, because its next deployment would take over the log groups. */
      const destroyOther = () => destroy(otherStage, { forgotten: [...names], withData: true });

      it("only one of two simultaneous first deployments creates a stage", async () => {
        const deployOther = () => deploy(otherStage, { clusters: [] });
        const deployments = await Promise.all([deployOther(), deployOther()]);
        const [first, second] = deployments.map(({ outcome }) => outcome).sort();
        assert.equal(first, "release r1 is live");
        assert.match(String(second), /^this stage is locked by .* \(postern deploy\)/);
        assert.match(await destroyOther(), /^stage other is deleted$/m);
      });

      it("a deployment ends osls when it finds that it has lost the lock of the stage", async (test) => {
        test.mock.timers.enable({ apis: ["setInterval"] });
        const { s3 } = account;
        const { answer } = s3;
        // The upload of a zip waits until `uploadAllowed` is resolved.
        const uploading = Promise.withResolvers<string>();
        const uploadAllowed = Promise.withResolvers<void>();
        s3.answer = async (request) => {
          const [, bucket = ""] = request.path.split("/");
          if (request.method === "PUT" && request.path.endsWith(".zip")) {
            uploading.resolve(bucket);
            await uploadAllowed.promise;
          }
          return answer(request);
        };
        const earlierCalls = account.recordedCalls.length;
        const ending = deploy(otherStage, { clusters: [] });
        const Body = JSON.stringify({ owner: "other", by: "joe", what: "postern rollback --all", renewal: 0 });
        await new S3().putObject({ Bucket: await uploading.promise, Key: "lock.json", Body });
        // The next renewal of the lock finds the other owner.
        test.mock.timers.tick(20_000);
        const lost =
          /^this command has lost the lock of the stage to joe \(postern rollback --all\), and changes nothing/;
        assert.match((await ending).outcome, lost);
        uploadAllowed.resolve();
        s3.answer = answer;
        account.s3.clockOffset += lockTermMilliseconds + 2_000;
        assert.match(await destroyOther(), /^stage other is deleted$/m);
        assert.deepEqual(
          account.recordedCalls.slice(earlierCalls).filter(({ action }) => /ChangeSet$/.test(action)),
          [],
        );
      });

      it("the destruction of a stage without a bucket stops once another command deploys the stage", async () => {
        const { stage } = (await openJob(otherStage)).job;
        const { lockStage } =
          await checkout.load<typeof import("../../infra/rollout/stage/lock.ts")>("infra/rollout/stage/lock.ts");
        const { stack } = (await openJob(otherStage)).job.stage;
        await stage.parameters.write("keys", "kept");
        const act = async () => {
          await stage.parameters.write("keys", "changed");
          await stack.createBucket();
          await stage.parameters.remove("keys");
        };
        const locked = lockStage(stage, "postern destroy", act, { mayLackBucket: true });
        const begun = /^Error: another command has begun to deploy stage other; run the command again$/;
        await assert.rejects(locked, begun);
        // Also actions that start after the command has failed are refused.
        await assert.rejects(stage.parameters.remove("keys"), begun);
        assert.equal(await stage.parameters.read("keys"), "changed");
        assert.match(await destroyOther(), /^stage other is deleted$/m);
        assert.deepEqual([await stack.readStatus(), await stage.parameters.read("keys")], [undefined, undefined]);
      });

      it("deploy and destroy refuse to replace or delete the entries of another stage", async () => {
        const refusal =
          /^cluster east has its entries from aws:\d+:eu-west-1:fleet, not from aws:\d+:eu-west-1:other; /;
        const { stack } = (await openJob(otherStage)).job.stage;
        assert.match(await requireRefusal(async () => (await deploy(otherStage)).outcome), refusal);
        assert.equal(await stack.readStatus(), undefined);
        assert.equal((await deploy(otherStage, { clusters: [] })).outcome, "release r1 is live");
        assert.match(await requireRefusal(async () => (await deploy(otherStage)).outcome), refusal);
        assert.match(await requireRefusal(() => destroy(otherStage)), refusal);
        assert.match(await destroyOther(), /^stage other is deleted$/m);
      });

      it("a second deployment creates a stage if the first one created only the bucket", async () => {
        account.allow = ({ action }) => !/^cloudformation:(Update|Execute)/.test(action);
        const { outcome } = await deploy(otherStage, { clusters: [] });
        account.allow = undefined;
        assert.match(outcome, /^osls deploy fails: .*not authorized/);
        const { stack, functions } = (await openJob(otherStage)).job.stage;
        assert.ok(await stack.findBucket());
        assert.deepEqual(await functions.listRules(), []);
        assert.equal((await deploy(otherStage, { clusters: [] })).outcome, "release r1 is live");
        assert.match(await destroyOther(), /^stage other is deleted$/m);
      });
    });
  });
});
