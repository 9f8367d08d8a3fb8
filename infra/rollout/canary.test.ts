import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { readRows } from "../../test/rows.ts";
import type { LiveAlias, StageFunctions } from "../aws/lambda-functions.ts";
import type { MetricQuery, StageMetrics } from "../aws/metrics.ts";
import { Complaint } from "../cli/complaint.ts";
import {
  type CanaryOptions,
  type CanaryTrial,
  findVersionFault,
  minimumReviews,
  runCanary,
  type VersionCounts,
} from "./canary.ts";

const quiet: VersionCounts = { calls: 0, reviews: 0, denials: 0, errors: 0, p99: 0 };
const seen = (reviews: number, more: Partial<VersionCounts> = {}) => observed({ reviews, ...more });

interface Row {
  name: string;
  old: Partial<VersionCounts>;
  fresh: Partial<VersionCounts>;
  fault?: string;
}
const rows = readRows<Row[]>(import.meta.filename);
const observed = (given: Partial<VersionCounts>): VersionCounts => ({ ...quiet, calls: given.reviews ?? 0, ...given });

describe("the fault of a fresh version", () => {
  for (const { name, old, fresh, fault } of rows)
    it(`is ${name}`, () => assert.equal(findVersionFault(observed(old), observed(fresh)), fault));

  const counts = fc
    .record({
      reviews: fc.nat(1000),
      crashes: fc.nat(1000),
      denied: fc.nat(1000),
      failed: fc.nat(1000),
      p99: fc.nat(30_000),
    })
    .map(({ reviews, crashes, denied, failed, p99 }): VersionCounts => {
      return {
        ...{ calls: reviews + crashes, reviews, p99 },
        ...{ denials: Math.min(denied, reviews), errors: crashes + Math.min(failed, reviews) },
      };
    });
  const times = (one: VersionCounts, factor: number): VersionCounts => ({
    ...{ calls: one.calls * factor, reviews: one.reviews * factor, p99: one.p99 },
    ...{ denials: one.denials * factor, errors: one.errors * factor },
  });
  const factor = fc.integer({ min: 1, max: 50 });

  it("is nothing where the shares are the same, however many reviews each had", () => {
    const check = (one: VersionCounts, old: number, fresh: number) =>
      assert.equal(findVersionFault(times(one, old), times(one, fresh)), undefined);
    fc.assert(fc.property(counts, factor, factor, check));
  });

  it("is nothing where it only fails less and answers sooner", () => {
    const check = (one: VersionCounts, fewer: number) => {
      const better = { ...one, errors: Math.floor(one.errors * fewer), p99: one.p99 * fewer };
      assert.equal(findVersionFault(one, better), undefined);
    };
    fc.assert(fc.property(counts, fc.double({ min: 0, max: 1, noNaN: true }), check));
  });

  // One canary in thirty begins so, for a share of 1% and a rule that denies one review in three hundred.
  it("is not one denial", () =>
    assert.equal(findVersionFault(seen(1000, { denials: 3 }), seen(10, { denials: 1 })), undefined));

  it("is never what fewer than ten reviews were denied or fewer than three failed", () => {
    const few = fc.tuple(fc.nat(9), fc.nat(9), fc.nat(2), fc.nat(30_000));
    const check = (old: VersionCounts, [reviews, denied, errors, p99]: [number, number, number, number]) =>
      assert.equal(
        findVersionFault(old, seen(reviews, { denials: Math.min(denied, reviews), errors, p99 })),
        undefined,
      );
    fc.assert(fc.property(counts, few, check));
  });
});

const [a, b]: [CanaryTrial, CanaryTrial] = [
  { rule: "a", old: "1", fresh: "2" },
  { rule: "a-b", old: "4", fresh: "7" },
];
const nameOf = (rule: string) => `postern-test-${rule}`;

/** Functions that have only aliases. */
const aliasesOf = (trials: CanaryTrial[]) => {
  const aliases = new Map<string, LiveAlias>(
    trials.map(({ rule, old }) => [rule, { version: old, weights: {}, revision: "0" }]),
  );
  const moves: string[] = [];
  const at = (rule: string): LiveAlias => {
    const found = aliases.get(rule);
    assert.ok(found, rule);
    return found;
  };
  const no = () => assert.fail("a trial does nothing but look and move");
  const functions: StageFunctions = {
    ...{
      getFunctionName: nameOf,
      listRules: no,
      listVersions: no,
      invoke: no,
      publishVersion: no,
      deleteVersion: no,
      readLatestEnvironment: no,
      restore: no,
    },
    republish: no,
    readAlias: async (rule) => at(rule),
    moveAlias: async (rule, version, before, weights = {}) => {
      const { revision } = at(rule);
      if (revision !== before.revision) throw new Complaint(`another command has just moved the alias of ${rule}`, 1);
      moves.push(
        [`${rule} ${version}`, ...Object.entries(weights).map(([one, share]) => `${one} at ${share}`)].join(", "),
      );
      aliases.set(rule, { version, weights, revision: String(Number(revision) + 1) });
    },
  };
  /** Moves an alias as another command would. */
  const elsewhere = (rule: string, version: string, weights: Record<string, number> = {}) =>
    aliases.set(rule, { version, weights, revision: "elsewhere" });
  const where = () =>
    trials.map(({ rule }) => {
      const { version, weights } = at(rule);
      return [version, ...Object.keys(weights)].join("+");
    });
  return { functions, moves, elsewhere, where };
};

/** Metrics that CloudWatch would return for versions such as `a:2`. */
const metricsOf = (
  known: Record<string, Partial<VersionCounts> & { crashes?: number }>,
  before: () => void = () => {},
): StageMetrics => {
  const answer = ({ namespace, metric, dimensions, stat }: MetricQuery): number => {
    const { Function: ours, Version, FunctionName, Resource, ExecutedVersion } = dimensions;
    if (namespace === "AWS/Lambda") assert.equal(Resource, `${FunctionName}:live`);
    const [name = "", version] = namespace === "Postern" ? [ours, Version] : [FunctionName, ExecutedVersion];
    const found = known[`${name.slice(nameOf("").length)}:${version}`] ?? {};
    const { reviews = 0, denials = 0, errors = 0, crashes = 0, p99 = 0 } = found;
    const told: Record<string, number> = {
      ...{ "Postern Reviews Sum": reviews, "Postern Denials Sum": denials, "Postern Errors Sum": errors },
      ...{ "AWS/Lambda Errors Sum": crashes, "Postern Latency p99": p99 },
    };
    const number = told[`${namespace} ${metric} ${stat}`];
    assert.ok(number !== undefined, `${namespace} ${metric} ${stat}`);
    return number;
  };
  return {
    ask: async <K extends string>(questions: Record<K, MetricQuery>) => {
      before();
      const answers = Object.entries<MetricQuery>(questions).map(([name, question]) => [name, answer(question)]);
      return Object.fromEntries(answers);
    },
  };
};

const brief: CanaryOptions = { share: 0.1, milliseconds: 20, every: 5 };
const busy = { "a:1": { reviews: 1000 }, "a-b:4": { reviews: 1000 } };
const well = { ...busy, "a:2": { reviews: 100 }, "a-b:7": { reviews: 100 } };

describe("a canary", () => {
  it("gives fresh versions their share, and all of it at the end", async () => {
    const { functions, moves, where } = aliasesOf([a, b]);
    const told: [number, number][] = [];
    const outcomes = await runCanary(functions, metricsOf(well), [a, b], brief, (...far) => told.push(far));
    assert.deepEqual(outcomes, [
      { trial: a, is: "promoted" },
      { trial: b, is: "promoted" },
    ]);
    assert.deepEqual(moves, ["a 1, 2 at 0.1", "a-b 4, 7 at 0.1", "a 2", "a-b 7"]);
    assert.deepEqual(where(), ["2", "7"]);
    assert.ok(told.length > 0 && told.every(([done, total]) => done <= total && total === 0.02));
  });

  const faults: [string, object, string][] = [
    ["crashes", { "a:2": { crashes: 5 } }, "it fails 100% of its reviews, and the version before 0%"],
    ["fails", { "a:2": { reviews: 100, errors: 5 } }, "it fails 5.0% of its reviews, and the version before 0%"],
    [
      "denies what was let by",
      { "a:2": { reviews: 100, denials: 90 } },
      "it denies 90% of its reviews, and the version before 0%",
    ],
    [
      "is late",
      { "a:2": { reviews: 100, p99: 2900 } },
      "one review in a hundred takes it 2900 ms, and the version before 0 ms",
    ],
  ];
  for (const [name, found, why] of faults)
    it(`rolls back one that ${name} at once, and all the others with it`, async () => {
      const { functions, moves, where } = aliasesOf([a, b]);
      const patient = { share: 0.1, milliseconds: 3_600_000, every: 1 };
      const outcomes = await runCanary(functions, metricsOf({ ...well, ...found }), [a, b], patient);
      assert.deepEqual(outcomes, [
        { trial: a, is: "rolled back", why },
        { trial: b, is: "rolled back", why: "it can only be promoted together with a" },
      ]);
      assert.deepEqual(
        [moves.slice(2), where()],
        [
          ["a 1", "a-b 4"],
          ["1", "4"],
        ],
      );
    });

  it("rolls back without a result what had too few reviews in twice the time, and promotes the others", async () => {
    const { functions, moves, where } = aliasesOf([a, b]);
    const few = { ...well, "a:2": { reviews: minimumReviews - 1 } };
    const outcomes = await runCanary(functions, metricsOf(few), [a, b], brief);
    assert.deepEqual(outcomes, [
      { trial: b, is: "promoted" },
      { trial: a, is: "undecided", why: "it had 49 reviews, but needs 50" },
    ]);
    assert.deepEqual(
      [moves.slice(2), where()],
      [
        ["a-b 7", "a 1"],
        ["1", "7"],
      ],
    );
  });

  it("promotes what gets its reviews in the second half", async () => {
    const { functions, where } = aliasesOf([a]);
    const start = Date.now();
    const known: Record<string, Partial<VersionCounts>> = { ...busy, "a:2": { reviews: 1 } };
    const metrics = metricsOf(known, () => {
      if (Date.now() >= start + brief.milliseconds + brief.milliseconds / 2) known["a:2"] = { reviews: minimumReviews };
    });
    assert.deepEqual(await runCanary(functions, metrics, [a], brief), [{ trial: a, is: "promoted" }]);
    assert.deepEqual(where(), ["2"]);
  });

  it("does not begin if an alias is not at the expected version", async () => {
    const { functions, elsewhere, where } = aliasesOf([a, b]);
    elsewhere("a-b", "9");
    const outcomes = await runCanary(functions, metricsOf(well), [a, b], brief);
    const why =
      "the canary could not continue: another command has just moved the alias of a-b; check it with postern status";
    assert.deepEqual(outcomes, [
      { trial: a, is: "rolled back", why },
      { trial: b, is: "lost", why: "another command has moved it to version 9" },
    ]);
    assert.deepEqual(where(), ["1", "9"]);
  });

  it("does not move an alias that another command moves meanwhile, whatever the outcome", async () => {
    for (const found of [well, { ...well, "a-b:7": { crashes: 5 } }, busy]) {
      const { functions, elsewhere, where } = aliasesOf([a, b]);
      await runCanary(
        functions,
        metricsOf(found, () => elsewhere("a", "9")),
        [a, b],
        brief,
      );
      assert.equal(where()[0], "9");
      assert.doesNotMatch(String(where()[1]), /\+/);
    }
  });

  it("does not end a canary that another command has begun meanwhile", async () => {
    const { functions, elsewhere, where } = aliasesOf([a]);
    await runCanary(
      functions,
      metricsOf(well, () => void elsewhere("a", "1", { 9: 0.5 })),
      [a],
      brief,
    );
    assert.deepEqual(where(), ["1+9"]);
  });

  // The release would say that it is live, while another version is.
  it("does not report as promoted what another command has moved", async () => {
    const { functions, elsewhere, where } = aliasesOf([a]);
    const outcomes = await runCanary(
      functions,
      metricsOf(well, () => elsewhere("a", "9")),
      [a],
      brief,
    );
    assert.deepEqual(where(), ["9"]);
    assert.notEqual(outcomes[0]?.is, "promoted");
  });

  // A failure to move one alias must not leave the other aliases at two versions.
  it("rolls back all others if one can't be moved", async () => {
    const { functions, where } = aliasesOf([a, b]);
    const move: StageFunctions["moveAlias"] = async (rule, version, before, weights = {}) => {
      if (rule === "a" && Object.keys(weights).length === 0) throw new Error("Rate exceeded");
      await functions.moveAlias(rule, version, before, weights);
    };
    const crashing = metricsOf({ ...well, "a-b:7": { crashes: 5 } });
    await runCanary({ ...functions, moveAlias: move }, crashing, [a, b], brief).catch(() => {});
    assert.equal(where()[1], "4");
  });

  it("rolls all back if CloudWatch doesn't answer", async () => {
    const { functions, where } = aliasesOf([a, b]);
    const metrics = metricsOf(well, () => {
      throw new Error("Rate exceeded");
    });
    const why = "the canary could not continue: Rate exceeded";
    assert.deepEqual(await runCanary(functions, metrics, [a, b], brief), [
      { trial: a, is: "rolled back", why },
      { trial: b, is: "rolled back", why },
    ]);
    assert.deepEqual(where(), ["1", "4"]);
  });

  it("rolls all back if it is interrupted, before it begins or at any time", async () => {
    for (const asked of [0, 1, 3]) {
      const { functions, where } = aliasesOf([a, b]);
      const stop = new AbortController();
      let times = 0;
      const metrics = metricsOf(well, () => {
        if (++times === asked) stop.abort();
      });
      if (asked === 0) stop.abort();
      const patient = { share: 0.1, milliseconds: 3_600_000, every: 1, signal: stop.signal };
      const outcomes = await runCanary(functions, metrics, [a, b], patient);
      const why = "it was interrupted";
      assert.deepEqual(outcomes, [
        { trial: a, is: "rolled back", why },
        { trial: b, is: "rolled back", why },
      ]);
      assert.deepEqual([times, where()], [asked, ["1", "4"]]);
    }
  });

  it("reads no metrics if there is nothing to try", async () => {
    const { functions } = aliasesOf([]);
    assert.deepEqual(await runCanary(functions, metricsOf({}, assert.fail), [], brief), []);
  });

  it("leaves every alias at one version alone, whatever happens", async () => {
    const version = fc.record({ reviews: fc.nat(200), denials: fc.nat(5), crashes: fc.constantFrom(0, 0, 0, 9) });
    const event = fc.constantFrom("nothing", "nothing", "CloudWatch fails", "an interrupt", "another command moves it");
    const check = async (one: object, other: object, events: string[]) => {
      const { functions, elsewhere, where } = aliasesOf([a, b]);
      const stop = new AbortController();
      const left = [...events];
      const moved: boolean[] = [];
      const metrics = metricsOf({ ...busy, "a:2": one, "a-b:7": other }, () => {
        const next = left.shift();
        if (next === "CloudWatch fails") throw new Error("no");
        if (next === "an interrupt") stop.abort();
        if (next === "another command moves it") moved.push(Boolean(elsewhere("a", "9")));
      });
      const watch = { share: 0.5, milliseconds: 3, every: 1, signal: stop.signal };
      const outcomes = await runCanary(functions, metrics, [a, b], watch);
      assert.deepEqual(outcomes.map(({ trial }) => trial.rule).sort(), ["a", "a-b"]);
      for (const [index, trial] of [a, b].entries()) {
        const is = outcomes.find((outcome) => outcome.trial === trial)?.is;
        const isMoved = trial === a && moved.length > 0;
        assert.equal(where()[index], isMoved ? where()[index] : is === "promoted" ? trial.fresh : trial.old);
        assert.match(String(where()[index]), isMoved ? /^(9|2)$/ : /^[1247]$/);
      }
    };
    await fc.assert(fc.asyncProperty(version, version, fc.array(event, { maxLength: 4 }), check), { numRuns: 60 });
  });
});
