import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { probeAll } from "../infra/clusters/probe.ts";
import type { Progress } from "../infra/progress.ts";
import type { Job } from "../infra/rollout/deploy.ts";
import type { Plan } from "../infra/rollout/plan.ts";
import type { Webhook } from "../infra/webhooks.ts";
import { type Account, accountMissing, openAccount } from "./aws/account.ts";
import { type Checkout, kubeconfigOf, openCheckout } from "./checkout.ts";
import { findBinaries } from "./cluster/binaries.ts";
import { bootCluster, type Cluster } from "./cluster/cluster.ts";
import { until } from "./cluster/postern.ts";

// One stage and two clusters, each with a real API server: who is told what, when, and in which order.
const binaries = await findBinaries();
const missing = accountMissing() ?? (binaries ? undefined : "kube-apiserver and etcd are not here: npm run cluster");
if (process.env.POSTERN_REQUIRE_ALL && missing) throw new Error(missing);

const ruleOf = (fields: string, head = "const needs = {};") => `
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
const taking = (more = "") => `
- name: takes a note
  ${more}
  validate: { metadata: { name: a } }
  admitted: true
`;
const marking = (mark: string) => `
- name: marks a note
  mutate: { metadata: { name: a }, data: { text: hello } }
  becomes: { metadata: { name: a }, data: { text: hello, ${mark}: yes } }
`;
const mark = (mark: string) => ruleOf(`mutate(note) { note.data = { ...note.data, ${mark}: "yes" }; },`);
const isProbe = 'note.metadata?.name === "postern-probe"';
const catalogue: Record<string, [rule: string, cases: string]> = {
  "look-at-notes": [
    ruleOf(`validate(note, { settings }) { if (settings.isSick && ${isProbe}) throw new Error("it is sick"); },`),
    taking(),
  ],
  "guard-notes": [
    ruleOf(`guards: true,
      validate(note) { if (note.data?.boom) throw new Error("boom"); if (note.data?.bad) return "it is bad"; },`),
    taking(),
  ],
  "mark-left": [mark("left"), marking("left")],
  "mark-right": [mark("right"), marking("right")],
  "sort-notes": [
    ruleOf("variants: ({ names }) => names.map((name) => ({ name })), validate() {},"),
    taking("variant: plain"),
  ],
  "ask-about-notes": [
    ruleOf(
      `needs, async validate(note, { namespaces }) { if (!(${isProbe})) await namespaces("default"); },`,
      'import { get } from "#lib/needs.ts"; const needs = { namespaces: get("namespaces") };',
    ),
    taking("needs: { objects: [{ apiVersion: v1, kind: Namespace, metadata: { name: default } }] }"),
  ],
};
/** As it stands in a URL. */
const key = /\.[\w-]{86}\//;
const names = ["east", "west"] as const;
type Name = (typeof names)[number];

describe("a fleet", { skip: missing ?? false }, () => {
  let account: Account;
  let clusters: Record<Name, Cluster>;
  let checkout: Checkout;
  let kubeconfig: string;

  before(async () => {
    assert.ok(binaries);
    const [opened, place, east, west] = await Promise.all([
      openAccount(),
      openCheckout(),
      bootCluster(binaries),
      bootCluster(binaries),
    ]);
    [account, checkout, clusters] = [opened, place, { east, west }];
    account.lambda.updating = 0;
    for (const [name, [rule, cases]] of Object.entries(catalogue)) await checkout.rule(name, rule, cases);
    kubeconfig = await checkout.write("kubeconfig", kubeconfigOf(clusters));
    Object.assign(process.env, account.as("deployer").env);
  });
  after(async () => {
    await Promise.all([account?.stop(), ...Object.values(clusters ?? {}).map(({ stop }) => stop())]);
    await checkout?.remove();
  });

  /** What postern.yaml says of rules, and of them in each cluster. */
  interface Said {
    rules: string;
    east?: string;
    west?: string;
    groups?: string;
  }
  const jobOf = async ({ rules, east = "{}", west = "{}", groups = "{}" }: Said, how: Partial<Job> = {}) => {
    const { openStage } = await checkout.load<typeof import("../infra/aws/stage.ts")>("infra/aws/stage.ts");
    const { readCatalogue } = await checkout.load<typeof import("../infra/registry.ts")>("infra/registry.ts");
    const { parseConfig } = await checkout.load<typeof import("../infra/config.ts")>("infra/config.ts");
    const listed = await readCatalogue(join(checkout.folder, "functions"));
    const config = parseConfig(
      `rules: ${rules}\ngroups: ${groups}\nclusters: { east: ${east}, west: ${west} }\n`,
      listed,
    );
    const steps: string[] = [];
    const progress: Progress = {
      say: (line) => void steps.push(line),
      step: async (name, act) => {
        steps.push(name);
        await act(() => {});
      },
    };
    const job: Job = {
      ...{ stage: openStage("fleet"), config, catalogue: listed, file: join(checkout.folder, "postern.yaml") },
      ...{ clusters: [...names], deployer: { kubeconfig }, ca: account.ca, harden: false, wave: 1, progress },
      ...how,
    };
    return { job, steps };
  };
  /** Answers the sentence that it ends with, whatever it is, what was done and what was planned. */
  const deploy = async (said: Said, how: Partial<Job> = {}) => {
    const { deploy } = await checkout.load<typeof import("../infra/rollout/deploy.ts")>("infra/rollout/deploy.ts");
    const { job, steps } = await jobOf(said, how);
    const plans: Plan[] = [];
    const ended = await deploy(job, async (one) => void plans.push(one)).catch((error: Error) => error.message);
    return { ended, steps, notes: plans.flatMap((one) => one.clusters.flatMap(({ notes }) => notes)) };
  };
  const rollBackAll = async (said: Said, how: Partial<Job> = {}) => {
    const { rollBackAll } =
      await checkout.load<typeof import("../infra/rollout/rollback.ts")>("infra/rollout/rollback.ts");
    const { job, steps } = await jobOf(said, how);
    await rollBackAll(job, undefined);
    return steps;
  };
  const newest = async () => {
    const { openReleases } =
      await checkout.load<typeof import("../infra/rollout/releases.ts")>("infra/rollout/releases.ts");
    const { job } = await jobOf({ rules: "{}" });
    const { all } = await openReleases(job.stage.records);
    assert.ok(all[0]);
    return all[0];
  };

  const entriesIn = async (name: Name): Promise<Webhook[]> => {
    const found = ["mutating", "validating"].map(async (kind) => {
      const path = `/apis/admissionregistration.k8s.io/v1/${kind}webhookconfigurations/postern`;
      const { code, body } = await clusters[name].admin({ method: "GET", path });
      return code === 200 ? Object(body).webhooks : [];
    });
    return (await Promise.all(found)).flat();
  };
  /** An entry by its rule, and what it says. */
  const policiesIn = async (name: Name) =>
    Object.fromEntries((await entriesIn(name)).map((one) => [one.name.replace(".postern.dev", ""), one.failurePolicy]));
  const rulesIn = async (name: Name) => Object.keys(await policiesIn(name));
  /** Whatever a cluster calls answers it. */
  const assertWell = async () => {
    const all = (await Promise.all(names.map(entriesIn))).flat();
    assert.ok(all.length > 0);
    for (const { ok, sentence } of await probeAll(all, { tries: 1 })) assert.ok(ok, sentence);
  };
  let notes = 0;
  const make = (name: Name, data: Record<string, string> = {}) => {
    notes += 1;
    const body = { metadata: { name: `note-${notes}` }, data };
    return clusters[name].admin({ method: "POST", path: "/api/v1/namespaces/default/configmaps", body });
  };
  const functions = () => [...account.lambda.functions.keys()].map((one) => one.replace("postern-fleet-", ""));

  describe("of which one is sick", () => {
    const sick: Said = {
      rules: "{ look-at-notes: }",
      east: "{ rules: { look-at-notes: { settings: { isSick: true } } } }",
    };

    it("is told no further than to that one", async () => {
      const { ended } = await deploy(sick);
      assert.match(ended, /^cluster east keeps the entries it has, .*\nlook-at-notes.postern.dev: .*it is sick/);
      assert.deepEqual([await rulesIn("east"), await rulesIn("west")], [[], []]);
      assert.equal((await newest()).complete, false);
    });

    it("is told by waves: those of one don't wait for each other", async () => {
      const { ended } = await deploy(sick, { wave: 2 });
      assert.match(ended, /^cluster east keeps the entries it has/);
      assert.deepEqual([await rulesIn("east"), await rulesIn("west")], [[], ["look-at-notes"]]);
      const { complete, clusters } = await newest();
      assert.deepEqual([complete, Object.keys(clusters)], [false, ["west"]]);
    });

    it("is told the rest once that one is well", async () => {
      const { ended } = await deploy({ rules: "{ look-at-notes: }" });
      assert.equal(ended, "release r1 is live in east, west");
      assert.deepEqual([await rulesIn("east"), await rulesIn("west")], [["look-at-notes"], ["look-at-notes"]]);
      assert.equal((await newest()).complete, true);
      await assertWell();
    });
  });

  it("has one cluster's entries renewed alone, and its functions serve both", async () => {
    const said: Said = { rules: "{ look-at-notes: { timeoutSeconds: 5 } }" };
    await deploy(said, { clusters: ["east"] });
    const timeouts = async () =>
      Promise.all(names.map(async (name) => (await entriesIn(name)).map(({ timeoutSeconds }) => timeoutSeconds)));
    assert.deepEqual(await timeouts(), [[5], [3]]);
    await assertWell();
    assert.match((await deploy(said)).ended, /is live in east, west/);
    assert.deepEqual(await timeouts(), [[5], [5]]);
    assert.match((await deploy(said)).ended, /^nothing to do/);
  });

  describe("with a guard", () => {
    const said: Said = { rules: "{ look-at-notes: , guard-notes: }" };
    const guard = async (name: Name) => (await policiesIn(name))["guard-notes"];

    it("has it fail open at first", async () => {
      const { notes } = await deploy(said, { harden: 30 });
      assert.deepEqual([await guard("east"), await guard("west")], ["Ignore", "Ignore"]);
      assert.deepEqual(notes, Array(2).fill("guard-notes fails open as yet: 0 of 30 reviews without a failure"));
      for (const name of names)
        await until(`${name} doesn't call it`, async () => (await make(name, { bad: "yes" })).code !== 201);
    });

    it("has it fail closed where so many reviews came without a failure, and nowhere else", async () => {
      for (const name of names) for (let count = 0; count < 30; count++) await make(name);
      assert.equal((await make("west", { boom: "yes" })).code, 201);
      const { notes } = await deploy(said, { harden: 30 });
      assert.deepEqual([await guard("east"), await guard("west")], ["Fail", "Ignore"]);
      assert.match(notes.join(), /^guard-notes fails open as yet/);
      await until("east lets it by", async () => (await make("east", { boom: "yes" })).code === 500);
      assert.equal((await make("west", { boom: "yes" })).code, 201);
    });

    it("leaves it so from then on, whatever number is asked for", async () => {
      await deploy({ rules: "{ look-at-notes: , guard-notes: { timeoutSeconds: 4 } }" }, { harden: 100_000 });
      assert.deepEqual([await guard("east"), await guard("west")], ["Fail", "Ignore"]);
    });

    it("does as postern.yaml says, where it says so", async () => {
      const explicit: Said = { ...said, east: "{ rules: { guard-notes: { failurePolicy: Ignore } } }" };
      await deploy(explicit, { harden: true });
      assert.deepEqual([await guard("east"), await guard("west")], ["Ignore", "Fail"]);
      await assertWell();
    });
  });

  it("is written down for whoever applies it: without a key, and no cluster is touched", async () => {
    const said: Said = { rules: "{ look-at-notes: { timeoutSeconds: 2 }, mark-left: , ask-about-notes: }" };
    const connect = "{ connect: { server: 'https://127.0.0.1:9', tokenSecret: a-token, region: eu-west-1 } }";
    const told = await Promise.all(names.map(entriesIn));
    const folder = join(checkout.folder, "written");
    const { ended } = await deploy({ ...said, east: connect, west: connect }, { write: folder, deployer: {} });
    assert.match(ended, /is live in east, west/);
    assert.deepEqual(await Promise.all(names.map(entriesIn)), told);
    for (const name of names) {
      const [roles, entries] = await Promise.all(
        ["roles", "entries"].map((what) => readFile(join(folder, `${name}.${what}.yaml`), "utf8")),
      );
      assert.match(roles ?? "", /kind: ClusterRole\n[\s\S]*name: postern:ask-about-notes/);
      assert.match(entries ?? "", new RegExp(`/${name}\\.{key}/look-at-notes/validate\n`));
      assert.doesNotMatch(`${roles}${entries}`, key);
    }
    assert.doesNotMatch(JSON.stringify(await newest()), key);
    for (const { clientConfig } of told.flat()) assert.match(clientConfig.url, key);
  });

  describe("with a rule that is turned off", () => {
    const on: Said = { rules: "{ look-at-notes: , mark-left: { failurePolicy: Fail } }" };
    const off: Said = { rules: "{ look-at-notes: }" };
    const isMarked = async (name: Name) => Object((await make(name)).body.data).left === "yes";

    it("serves it for one release more, and can go back", async () => {
      await deploy(on);
      await deploy(off);
      assert.deepEqual(await rulesIn("east"), ["look-at-notes"]);
      assert.ok(functions().includes("mark-left"));
      assert.match((await deploy(off)).ended, /^nothing to do/);
      assert.ok(functions().includes("mark-left"));
      await rollBackAll(off);
      assert.deepEqual(await rulesIn("west"), ["mark-left", "look-at-notes"]);
      for (const name of names) await until(`${name} has no marks`, () => isMarked(name));
      await assertWell();
    });

    it("serves it as long as an entry of another cluster speaks of it", async () => {
      for (const timeoutSeconds of [4, 5])
        await deploy({ rules: `{ look-at-notes: { timeoutSeconds: ${timeoutSeconds} } }` }, { clusters: ["east"] });
      assert.deepEqual(await rulesIn("east"), ["look-at-notes"]);
      await until("west has no marks", () => isMarked("west"));
      assert.equal((await make("east")).code, 201);
      await assertWell();
    });

    it("is rid of it with the release after that", async () => {
      await deploy(off);
      assert.ok(functions().includes("mark-left"));
      await deploy({ rules: "{ look-at-notes: { timeoutSeconds: 4 } }" });
      assert.deepEqual(functions(), ["look-at-notes"]);
      await assertWell();
    });
  });

  describe("with a group, and a rule of several entries", () => {
    const said = (names: string, groups: string): Said => ({
      rules: `{ mark-left: , mark-right: , sort-notes: { failurePolicy: Fail, settings: { names: ${names} } } }`,
      groups,
    });
    const [one, other] = [said("[plain]", "{}"), said("[plain, fancy]", "{ marks: [mark-left, mark-right] }")];
    const marked = async (name: Name) => {
      const { left, right } = Object((await make(name)).body.data);
      return left === "yes" && right === "yes";
    };

    it("has the group called once, in its members' place", async () => {
      await deploy(one);
      assert.deepEqual(await rulesIn("east"), ["mark-left", "mark-right", "plain.sort-notes"]);
      await deploy(other);
      for (const name of names) {
        assert.deepEqual(await rulesIn(name), ["marks", "plain.sort-notes", "fancy.sort-notes"]);
        await until(`${name} has no marks`, () => marked(name));
      }
      await assertWell();
    });

    it("goes back before one of the entries: what calls it goes first, then what knows it", async () => {
      const steps = await rollBackAll(other);
      assert.deepEqual(steps.toSorted(), ["aliases", "cluster east: entries", "cluster west: entries"]);
      assert.equal(steps.at(-1), "aliases");
      for (const name of names) {
        assert.deepEqual(await rulesIn(name), ["mark-left", "mark-right", "plain.sort-notes"]);
        await until(`${name} has no marks`, () => marked(name));
      }
      await assertWell();
    });
  });

  it("finds an EKS cluster by its name alone, and says what lacks where it doesn't know us", async () => {
    account.clusters.set("prod-west", clusters.west);
    const rules = "{ sort-notes: , ask-about-notes: }";
    const how: Partial<Job> = { clusters: ["west"], deployer: {} };
    const before = await entriesIn("west");
    const first = account.heard.length;
    const { ended } = await deploy(
      {
        rules,
        east: "{ rules: { ask-about-notes: { mode: off } } }",
        west: "{ connect: { eks: prod-west, region: eu-west-1 } }",
      },
      how,
    );
    assert.match(
      ended,
      /^cluster west: its API server doesn't know us \(401: Unauthorized\); give the AWS identity that deploys an access entry of the EKS cluster prod-west/,
    );
    const bundle = await readFile(join(checkout.folder, "dist/ask-about-notes/index.cjs"), "utf8");
    assert.ok(bundle.includes(clusters.west.server));
    const heard = account.heard.slice(first).map(({ action }) => action);
    assert.ok(heard.includes("eks:DescribeCluster"));
    assert.deepEqual(
      heard.filter((action) => /lambda:(Update|Publish)|cloudformation:Create/.test(action)),
      [],
    );
    assert.deepEqual(await entriesIn("west"), before);
  });
});
