import assert from "node:assert/strict";
import { randomInt } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import fc from "fast-check";
import type { AnsweredReviewFacts } from "#lib/core/log-line.ts";
import type { Pod } from "#lib/kubernetes/core/v1.ts";
import { rule, selectPhase } from "#lib/rule.ts";
import { type CatalogueRule, readCatalogue } from "../../infra/catalogue/registry.ts";
import { readOrCreateServerCertificate, type ServerCertificate } from "../../infra/keys/keys.ts";
import { parseConfig } from "../../infra/project/project.ts";
import { countSerialCalls, findGroupSavingMostCalls, usualWrites } from "../../infra/project/serial-calls.ts";
import { listPlugins, requireBinaries } from "../control-plane/binaries.ts";
import { getCollectionPath, type TestClusterClient } from "../control-plane/client.ts";
import { bootCluster, type TestCluster } from "../control-plane/cluster.ts";
import { formatAnswerDiff, toComparable } from "../parity/compare.ts";
import { buildSequences } from "../parity/generators/sequences.ts";
import {
  applyConfigurations,
  buildTestRule,
  deleteTestWebhookConfigurations,
  extendWebhookTimeoutsForTests,
  serveTestRules,
} from "../parity/rule-server.ts";
import { type ConfigurationUseDetector, openScriptedWebhookEndpoints } from "../parity/scripted-endpoints.ts";
import { deleteWithFinalizers, sendSequence } from "../parity/sequence-sender.ts";
import { needs } from "../parts.ts";

// On a real API server, a group of mutating rules must have the same effect as its members have one by one. Rules that
// read the cluster, rules that need an exemption, and the rule for PodGroups, which the API server doesn't serve by
// default, aren't members of the tested group.
const mutators = (await readCatalogue()).filter(
  ({ rule, phases }) =>
    phases.includes("mutate") &&
    !rule.needs &&
    !rule.exemptionRequired &&
    rule.upstreamPlugin?.plugin !== "PodGroupProtection",
);
const pods = [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE", "UPDATE"] as const }];
const getPath = (resource: string, namespace = "default") => `/api/v1/namespaces/${namespace}/${resource}`;
const createPod = (name: string, spec: object = {}, annotations: Record<string, string> = {}) => {
  const containers = [{ name: "a", image: "registry.example.com/app:1" }];
  return { apiVersion: "v1", kind: "Pod", metadata: { name, annotations }, spec: { containers, ...spec } };
};

describe("a group on a real API server", await needs("API server"), () => {
  let folder: string;
  let certificate: ServerCertificate;
  let endpoints: Awaited<ReturnType<typeof openScriptedWebhookEndpoints>>;
  let detector: ConfigurationUseDetector;
  let clusterOne: TestCluster;
  let clusterTwo: TestCluster;

  before(async () => {
    const binaries = await requireBinaries();
    folder = await mkdtemp(join(tmpdir(), "postern-groups-"));
    certificate = await readOrCreateServerCertificate(folder, "127.0.0.1");
    endpoints = await openScriptedWebhookEndpoints(certificate);
    detector = endpoints.detector;
    const reimplemented = mutators.map(({ rule: { upstreamPlugin } }) => upstreamPlugin?.plugin);
    const disable = (await listPlugins(binaries)).defaultOn.filter((plugin) => reimplemented.includes(plugin));
    const booting = [1, 2].map(() => bootCluster(binaries, { disable }));
    [clusterOne, clusterTwo] = (await Promise.all(booting)) as [TestCluster, TestCluster];
  });
  after(async () => {
    await Promise.all([clusterOne, clusterTwo, endpoints].map((server) => server?.stop()));
    await rm(folder, { recursive: true, force: true });
  });

  /** Serves rules and registers their webhooks in a cluster. `stop` also removes the webhooks. */
  const startServing = async (rules: CatalogueRule[], yaml: string, cluster: TestCluster) => {
    const postern = await serveTestRules(rules, yaml, { certificate });
    await applyConfigurations(cluster.admin, extendWebhookTimeoutsForTests(postern.manifests()), detector);
    const stop = async () => {
      await deleteTestWebhookConfigurations(cluster.admin, postern.manifests(), detector);
      await postern.stop();
    };
    return { ...postern, stop };
  };

  it("a group changes and refuses objects as its rules do if called one by one, with fewer calls", async () => {
    const seed = Number(process.env.POSTERN_SEED ?? randomInt(2 ** 31));
    const settings = "{ settings: { requests: { cpu: 100m } } }";
    const rules = mutators.map(({ name }) => `${name}: ${name === "default-requests-and-limits" ? settings : ""}`);
    const yaml = `rules: { ${rules.join(", ")} }\n`;
    const ungrouped = await startServing(mutators, yaml, clusterOne);
    const names = mutators.map(({ name }) => name);
    let grouped: Awaited<ReturnType<typeof startServing>> | undefined;
    try {
      grouped = await startServing(mutators, `${yaml}groups: { everything: [${names.join(", ")}] }`, clusterTwo);
      const matches = mutators.flatMap(({ rule }) => selectPhase(rule.match, "mutate", rule.settings ?? {}) ?? []);
      const sequences = fc.sample(buildSequences(matches), { seed, numRuns: 120 });
      for (const [index, sequence] of sequences.entries()) {
        const name = `s${index}`;
        const [wanted, actual] = await Promise.all(
          [clusterOne, clusterTwo].map(async ({ as }) => {
            const { turns, remainingObjectPaths } = await sendSequence(sequence, name, as);
            for (const path of remainingObjectPaths) await deleteWithFinalizers(path, as);
            return turns.map((turn) => toComparable(turn, name));
          }),
        );
        for (const [step, turn] of wanted?.entries() ?? [])
          assert.deepEqual(
            actual?.[step],
            turn,
            `seed ${seed}, sequence ${index}, ${JSON.stringify(sequence.steps[step])}: ${actual?.[step] && formatAnswerDiff(turn, actual[step])}`,
          );
      }
      const countMutations = (reports: AnsweredReviewFacts[]) =>
        reports.filter(({ phase }) => phase === "mutate").length;
      assert.ok(countMutations(grouped.reports) > 50, "the group was called");
      assert.ok(countMutations(grouped.reports) < countMutations(ungrouped.reports), "in place of its members");
      assert.deepEqual(
        grouped.reports.filter(({ code }) => code !== 200),
        [],
      );
    } finally {
      await ungrouped.stop();
      await grouped?.stop();
    }
  });

  it("a group reduces the number of calls for usual writes by as much as `findGroupSavingMostCalls` predicts", async () => {
    const createEverywhereRule = (name: string) =>
      buildTestRule(
        name,
        rule({
          summary: "Labels everything.",
          match: [{ apiGroups: ["*"], apiVersions: ["*"], resources: ["*"], operations: ["CREATE"] }],
          mutate({ metadata }) {
            if (metadata) metadata.labels = { ...metadata.labels, [name]: "yes" };
          },
        }),
      );
    // The API server calls the rule `everywhere` again after later rules have changed the object.
    const rules = [createEverywhereRule("everywhere"), ...mutators, createEverywhereRule("also-everywhere")];
    const configs: Record<string, object> = {
      "default-requests-and-limits": { settings: { requests: { cpu: "100m" } } },
      "default-toleration-seconds": {
        settings: { replaceDefaults: true, notReadySeconds: 60, unreachableSeconds: 60 },
      },
    };
    const configuredRules = Object.fromEntries(rules.map(({ name }) => [name, configs[name] ?? null]));
    const readCluster = (groups: object) => {
      const cluster = parseConfig(JSON.stringify({ rules: configuredRules, groups }), rules).clusters.get("local");
      assert.ok(cluster);
      return cluster;
    };
    const advice = await findGroupSavingMostCalls(rules, readCluster({}));
    assert.ok(advice && advice.writes.length > 5);
    /** The predicted calls of all usual writes: without the group, and with it. */
    const totalCalls: number[] = [];
    const groupsOfClusters = [
      [clusterOne, {}],
      [clusterTwo, { [advice.group.name]: advice.group.members }],
    ] as const;
    for (const [cluster, groups] of groupsOfClusters) {
      const predicted = await countSerialCalls(rules, readCluster(groups));
      const isRepeated = ({ calledMutatorNames: names }: (typeof predicted)[number]) =>
        new Set(names).size < names.length;
      assert.ok(predicted.some(isRepeated));
      const postern = await startServing(rules, JSON.stringify({ rules: configuredRules, groups }), cluster);
      try {
        // The namespace is the last object in the list, and all other objects need the namespace.
        for (const [index, { write, object }] of [...usualWrites.entries()].toReversed()) {
          const path = getCollectionPath(object);
          const [{ code, body }, reports] = await postern.during(() =>
            cluster.admin({ method: "POST", path, body: object }),
          );
          assert.equal(code, 201, `${write}: ${JSON.stringify(body)}`);
          // The API server itself creates an IPAddress for a Service.
          const objectReports = reports.filter(({ request }) => request?.kind.kind === object.kind);
          const mutating = objectReports.filter(({ phase }) => phase === "mutate").map((report) => report.rule);
          const validates = objectReports.some(({ phase }) => phase === "validate");
          assert.deepEqual(
            [mutating, mutating.length + Number(validates)],
            [predicted[index]?.calledMutatorNames, predicted[index]?.calls],
            write,
          );
        }
      } finally {
        await postern.stop();
      }
      totalCalls.push(predicted.reduce((sum, { calls }) => sum + calls, 0));
    }
    const saved = advice.writes.reduce((sum, { calls, grouped }) => sum + calls - grouped, 0);
    assert.equal(totalCalls[1], Number(totalCalls[0]) - saved);
  });

  describe("the rules of a group", () => {
    const createLabelRule = (name: string) =>
      buildTestRule(
        name,
        rule<Pod>({
          summary: "Labels pods.",
          match: pods,
          mutate({ metadata }) {
            if (metadata) metadata.labels = { ...metadata.labels, [name]: "yes" };
          },
        }),
      );
    const refusing = buildTestRule(
      "refuses",
      rule<Pod>({
        summary: "Refuses pods that have the annotation refuse.",
        match: pods,
        mutate: ({ metadata }) =>
          metadata?.annotations?.refuse && { refuse: { code: 422, reason: "Invalid", message: "asked for" } },
      }),
    );
    const rules = ["acts", "warns", "audits", "spares"].map(createLabelRule).concat(refusing);
    let postern: Awaited<ReturnType<typeof startServing>>;
    before(async () => {
      const exempt = { namespaces: ["spared"] };
      const configs = {
        acts: { exempt },
        warns: { mode: "warn", exempt },
        audits: { mode: "audit", exempt },
        spares: { exempt: { ...exempt, users: ["jane"] } },
        refuses: { exempt },
      };
      const groups = { together: Object.keys(configs) };
      postern = await startServing(rules, JSON.stringify({ rules: configs, groups }), clusterOne);
      const namespace = { apiVersion: "v1", kind: "Namespace", metadata: { name: "spared" } };
      await clusterOne.admin({ method: "POST", path: "/api/v1/namespaces", body: namespace });
    });
    after(() => postern?.stop());
    const create = (client: TestClusterClient, body: unknown, namespace?: string) =>
      client({ method: "POST", path: getPath("pods", namespace), body });

    it("a group applies to each of its rules the rule's mode: enforce, warn or audit", async () => {
      const [{ code, body, warnings }, reports] = await postern.during(() =>
        create(clusterOne.admin, createPod("modes")),
      );
      assert.equal(code, 201);
      assert.deepEqual(Object((body as Pod).metadata?.labels), { acts: "yes", spares: "yes" });
      assert.deepEqual(warnings, ["warns would change: /metadata/labels/warns"]);
      assert.deepEqual(
        reports.map(({ rule, members }) => [
          rule,
          members?.map((member) => `${member.rule} ${member.mode} ${member.operations}`),
        ]),
        [["together", ["acts enforce 1", "warns warn 1", "audits audit 1", "spares enforce 1"]]],
      );
    });

    it("a group applies each rule's exemptions, and isn't called if all its rules exempt the request", async () => {
      const [{ body }, reports] = await postern.during(() => create(clusterOne.as("jane"), createPod("spared-user")));
      assert.deepEqual(Object((body as Pod).metadata?.labels), { acts: "yes" });
      assert.equal(reports.length, 1);
      const [answer, noReports] = await postern.during(() => create(clusterOne.admin, createPod("spared"), "spared"));
      assert.deepEqual([answer.code, (answer.body as Pod).metadata?.labels, noReports], [201, undefined, []]);
    });

    it("a refusal by a rule of a group has the rule's name in its message", async () => {
      const [{ code, body }, reports] = await postern.during(() =>
        create(clusterOne.admin, createPod("refused", {}, { refuse: "yes" })),
      );
      assert.deepEqual(
        [code, body.reason, body.message],
        [422, "Invalid", 'admission webhook "together.postern.dev" denied the request: refuses: asked for'],
      );
      assert.deepEqual(
        reports.map(({ rule, group, refused }) => [rule, group, refused]),
        [
          ["together", undefined, true],
          ["refuses", "together", true],
        ],
      );
    });
  });
});
