import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { compareWithCelGo } from "../bench/cel.ts";
import { measureMutatorChains } from "../bench/chains.ts";
import { measureCheck } from "../bench/checks.ts";
import type { PodCreateComparison, PodCreateMeasurement } from "../bench/creates.ts";
import { compareWebhookCallTimes } from "../bench/one-call.ts";
import { findCelEvaluator } from "../bench/peers/cel-go.ts";
import { findBenchControllerRuntimeWebhook } from "../bench/peers/controller-runtime.ts";
import { findBuiltKinitirasEngine } from "../bench/peers/kinitiras.ts";
import { findValidators } from "../bench/peers/validators.ts";
import { compareManyPoliciesWithOne, measureAgainstKinitirasEngine } from "../bench/policies.ts";
import { measureReviewsWithReads } from "../bench/reads.ts";
import { measureTrace } from "../bench/trace.ts";
import { compareValidators } from "../bench/validators.ts";
import { requireBinaries } from "../control-plane/binaries.ts";
import { needs } from "../parts.ts";

// Runs the sections of npm run bench with few rounds, so their times mean nothing.

describe("npm run bench, through an API server", await needs("API server", "Go webhook", "Kubernetes module"), () => {
  let folder: string;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), "postern-bench-"));
  });
  after(() => rm(folder, { recursive: true, force: true }));

  const requireNumbers = (measured: PodCreateMeasurement[], comparisons: PodCreateComparison[]) => {
    const times = measured.flatMap(({ create, added = create }) => [create.p50, create.p99, added.p50, added.p99]);
    for (const number of [...times, ...comparisons.map(({ added }) => added.median)])
      assert.ok(Number.isFinite(number));
  };

  it("the bench measures one call of each server, after it has checked that all return equal pods", async () => {
    const binaries = await requireBinaries();
    const peer = await findBenchControllerRuntimeWebhook();
    const rounds = 6;
    const { measured, comparisons } = await compareWebhookCallTimes(binaries, peer, folder, rounds);
    assert.deepEqual(
      measured.map(({ what }) => what.replace(/ [\d.]+$/, "")),
      ["no webhook", "node:https by hand", "Postern", "controller-runtime", "Postern, with its matchConditions"],
    );
    // Postern's time may be 1.15 times that of node:https, and 0.65 times that of controller-runtime.
    assert.deepEqual(
      comparisons.map(({ limit }) => limit),
      [1.15, 0.65],
    );
    requireNumbers(measured, comparisons);
    for (const { what, cpu } of measured.slice(1))
      assert.ok(cpu !== undefined && cpu >= 0, `${what} has used ${cpu} ms`);
  });

  it("the bench compares the objects that check denies with those that the API server refuses", async () => {
    const files = 300;
    const seed = Number(process.env.POSTERN_SEED);
    const validators = await findValidators();
    const { refusedByApiServer, rows } = await compareValidators(await requireBinaries(), validators, folder, {
      files,
      seed,
    });
    const [check] = rows;
    assert.ok(refusedByApiServer > files / 2 && refusedByApiServer < files, String(refusedByApiServer));
    assert.ok(
      check && check.found >= 0.99 * refusedByApiServer && check.cpu > 0 && check.memory > 0,
      JSON.stringify(check),
    );
    assert.equal(check.wrong, 0);
  });

  it("the bench measures chains of 1 to 30 mutators: called one by one, skipped, or called as a group", async () => {
    const binaries = await requireBinaries();
    const { measured, comparisons } = await measureMutatorChains(binaries, folder, 2);
    assert.deepEqual(
      measured.map(({ mutators }) => mutators),
      [undefined, 1, 1, 10, 10, 30, 30, 10, 30],
    );
    assert.deepEqual(
      comparisons.map(({ limit }) => limit),
      [1.5],
    );
    requireNumbers(measured, comparisons);
  });

  it("the bench measures a cluster's writes, and no write causes calls of rules that don't match it", async () => {
    const { ways } = await measureTrace(await requireBinaries(), await findBenchControllerRuntimeWebhook(), folder, 1);
    assert.deepEqual(
      ways.slice(0, 4).map(({ what }) => what),
      [
        "each rule alone",
        "mutators of Pods in a group",
        "and the policies in the API server",
        "and without node-restriction, whose plugin EKS has on",
      ],
    );
    assert.equal(ways.length, 5);
    for (const { what, share, added } of ways.flatMap(({ writeKinds }) => writeKinds))
      assert.ok(share > 0 && Object.values(added).flat().length >= 7, what);
    for (const [index, { writeKinds, dollars }] of ways.slice(0, 4).entries()) {
      assert.ok(dollars && dollars.url > 0 && dollars.http > dollars.url);
      const [calls, rounds] = ["calls", "rounds"].map((member) =>
        Object.fromEntries(writeKinds.map((kind) => [kind.what, Reflect.get(kind, member)])),
      );
      const isRestricted = index < 3;
      for (const what of ["leases", "status of Nodes", "status of Pods", "events", "endpoint slices"])
        assert.deepEqual(calls?.[what], {}, what);
      assert.deepEqual(calls?.["deletions by kubelets"], isRestricted ? { "node-restriction mutate": 1 } : {});
      assert.equal(rounds?.["tokens of Pods"], isRestricted ? 1 : 0);
      // The write waits for six calls, one after the other, if each rule is called alone,
      // and for two calls with a group.
      assert.equal(rounds?.["Pods that need three changes"], index === 0 ? 6 : 2);
      assert.deepEqual(
        writeKinds.filter(({ repeatedCalls }) => repeatedCalls.afterOwnChange > 0),
        [],
      );
    }
  });

  it("the bench measures reads in a review", async () => {
    const binaries = await requireBinaries();
    const { cachedOverNone, parallelOverSingle, read, first } = await measureReviewsWithReads(binaries, 2);
    for (const value of [cachedOverNone.median, parallelOverSingle.median, read, first])
      assert.ok(value > 0, String(value));
  });
});

it("the bench measures a check, and throws if the check fails", async () => {
  const folder = await mkdtemp(join(tmpdir(), "postern-bench-"));
  try {
    // One round, with 40 files.
    const { bytes, seconds, memory, ratioToCheckWithoutPlugins, ratioToYamlPackage, ratioToOwnReader } =
      await measureCheck(folder, 1, 40);
    assert.ok(bytes > 40_000 && memory > 1e7);
    const ratios = [ratioToCheckWithoutPlugins, ratioToYamlPackage, ratioToOwnReader].map(({ median }) => median);
    for (const value of [...Object.values(seconds), ...ratios]) assert.ok(value > 0);
    await assert.rejects(measureCheck(folder, 1, 0), /there is no manifest in/);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});

it(
  "the bench measures a policy beside cel-go, with the same results and costs",
  await needs("CEL evaluator"),
  async () => {
    const evaluator = await findCelEvaluator();
    // compareWithCelGo throws if the results or the costs of the two implementations differ.
    for (const { what, ratio } of await compareWithCelGo(evaluator?.program ?? "", 1))
      assert.ok(ratio.median > 0, what);
  },
);

describe("npm run bench, of policies", async () => {
  it("the bench compares reviews by many policies with reviews by one, and checks their patches", async () => {
    const growth = await compareManyPoliciesWithOne(1);
    assert.equal(growth.length, 8); // Four comparisons with templates, and four with scripts.
    for (const { what, ratio } of growth) assert.ok(ratio.median > 0, what);
  });

  const built = await findBuiltKinitirasEngine();
  it(
    "the bench measures evaluations beside kinitiras' own engine, with the same decisions",
    await needs("kinitiras"),
    async () => {
      const engines = await measureAgainstKinitirasEngine(built?.program ?? "", 1);
      assert.deepEqual(
        engines.map(({ what, limit }) => [what.replace(/, .*/, ""), limit]),
        [
          ["a template that changes", 1],
          ["plaintext", 1],
          ["origin", 1],
          ["a template that refuses", 1],
          ["a script", undefined],
        ],
      );
      for (const { what, ratio } of engines) assert.ok(ratio.median > 0, what);
    },
  );
});
