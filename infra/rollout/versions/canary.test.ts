import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { readRows } from "../../../test/rows.ts";
import type { LiveAlias, StageFunctions } from "../../aws/lambda-functions.ts";
import type { CloudWatchMetricQuery } from "../../aws/metrics.ts";
import { Complaint } from "../../cli/complaint.ts";
import {
  type CanaryRun,
  type CanaryStage,
  type CanaryVersionCounts,
  type CanaryVersionPair,
  findCanaryFault,
  minimumCanaryReviews,
  runCanary,
} from "./canary.ts";

const noCounts: CanaryVersionCounts = { calls: 0, reviews: 0, denials: 0, errors: 0, p99: 0 };
const buildCounts = (reviews: number, counts: Partial<CanaryVersionCounts> = {}) =>
  completeCounts({ reviews, ...counts });

interface Row {
  name: string;
  old: Partial<CanaryVersionCounts>;
  fresh: Partial<CanaryVersionCounts>;
  fault?: string;
}
const rows = readRows<Row[]>(import.meta.filename);
const completeCounts = (given: Partial<CanaryVersionCounts>): CanaryVersionCounts => ({
  ...noCounts,
  calls: given.reviews ?? 0,
  ...given,
});

describe("the fault of a new version", () => {
  for (const { name, old, fresh, fault } of rows)
    it(`is ${name}`, () => assert.equal(findCanaryFault(completeCounts(old), completeCounts(fresh)), fault));

  const counts = fc
    .record({
      reviews: fc.nat(1000),
      crashes: fc.nat(1000),
      denied: fc.nat(1000),
      failed: fc.nat(1000),
      p99: fc.nat(30_000),
    })
    .map(({ reviews, crashes, denied, failed, p99 }): CanaryVersionCounts => {
      return {
        calls: reviews + crashes,
        reviews,
        p99,
        denials: Math.min(denied, reviews),
        errors: crashes + Math.min(failed, reviews),
      };
    });
  const multiply = (one: CanaryVersionCounts, factor: number): CanaryVersionCounts => ({
    calls: one.calls * factor,
    reviews: one.reviews * factor,
    p99: one.p99,
    denials: one.denials * factor,
    errors: one.errors * factor,
  });
  const factor = fc.integer({ min: 1, max: 50 });

  it("findCanaryFault finds no fault if both versions have the same shares of errors and denials", () => {
    const check = (one: CanaryVersionCounts, old: number, fresh: number) =>
      assert.equal(findCanaryFault(multiply(one, old), multiply(one, fresh)), undefined);
    fc.assert(fc.property(counts, factor, factor, check));
  });

  it("findCanaryFault finds no fault if the new version fails less often and answers sooner", () => {
    const check = (one: CanaryVersionCounts, fewer: number) => {
      const better = { ...one, errors: Math.floor(one.errors * fewer), p99: one.p99 * fewer };
      assert.equal(findCanaryFault(one, better), undefined);
    };
    fc.assert(fc.property(counts, fc.double({ min: 0, max: 1, noNaN: true }), check));
  });

  // Both versions deny one review in 300, and the old one gets 99% of reviews. Then every 30th canary (10/300) denies
  // one of its first ten reviews by chance.
  it("findCanaryFault finds no fault for a single denial", () =>
    assert.equal(findCanaryFault(buildCounts(1000, { denials: 3 }), buildCounts(10, { denials: 1 })), undefined));

  it("findCanaryFault finds no fault for fewer than ten reviews with fewer than three errors", () => {
    const fewCounts = fc.tuple(fc.nat(9), fc.nat(9), fc.nat(2), fc.nat(30_000));
    const check = (old: CanaryVersionCounts, [reviews, denied, errors, p99]: [number, number, number, number]) =>
      assert.equal(
        findCanaryFault(old, buildCounts(reviews, { denials: Math.min(denied, reviews), errors, p99 })),
        undefined,
      );
    fc.assert(fc.property(counts, fewCounts, check));
  });
});

const [a, b]: [CanaryVersionPair, CanaryVersionPair] = [
  { rule: "a", old: "1", fresh: "2" },
  { rule: "a-b", old: "4", fresh: "7" },
];
const getFunctionName = (rule: string) => `postern-test-${rule}`;

/** Creates a stand-in for a stage's functions that can only read and move their aliases. */
const createAliases = (trials: CanaryVersionPair[]) => {
  const aliases = new Map<string, LiveAlias>(
    trials.map(({ rule, old }) => [rule, { version: old, weights: {}, revision: "0" }]),
  );
  const moves: string[] = [];
  const getAlias = (rule: string): LiveAlias => {
    const found = aliases.get(rule);
    assert.ok(found, rule);
    return found;
  };
  const functions: CanaryStage["functions"] = {
    getFunctionName,
    readAlias: async (rule) => getAlias(rule),
    moveAlias: async (rule, version, before, weights = {}) => {
      const { revision } = getAlias(rule);
      if (revision !== before.revision) throw new Complaint(`another command has just moved the alias of ${rule}`, 1);
      moves.push(
        [`${rule} ${version}`, ...Object.entries(weights).map(([fresh, share]) => `${fresh} at ${share}`)].join(", "),
      );
      aliases.set(rule, { version, weights, revision: String(Number(revision) + 1) });
    },
  };
  /** Moves an alias as another command would. */
  const moveElsewhere = (rule: string, version: string, weights: Record<string, number> = {}) =>
    aliases.set(rule, { version, weights, revision: "elsewhere" });
  const describeAliases = () =>
    trials.map(({ rule }) => {
      const { version, weights } = getAlias(rule);
      return [version, ...Object.keys(weights)].join("+");
    });
  return { functions, moves, moveElsewhere, describeAliases };
};

/**
 * Creates a stand-in for CloudWatch, with the counts of each version, such as `a:2`: the crashes are in a metric, and the
 * rest is in the log. The canary asks for the metric each time it reads counts; this calls `beforeRead`.
 */
const createMonitoring = (
  countsOf: Record<string, Partial<CanaryVersionCounts> & { crashes?: number }>,
  beforeRead: () => void = () => {},
): Omit<CanaryStage, "functions"> => ({
  name: "test",
  metrics: {
    ask: async <K extends string>(questions: Record<K, CloudWatchMetricQuery>) => {
      beforeRead();
      const answers = Object.entries<CloudWatchMetricQuery>(questions).map(([name, { metric, dimensions }]) => {
        const { FunctionName = "", Resource, ExecutedVersion } = dimensions;
        assert.deepEqual([metric, Resource], ["Errors", `${FunctionName}:live`]);
        const rule = FunctionName.slice(getFunctionName("").length);
        return [name, countsOf[`${rule}:${ExecutedVersion}`]?.crashes ?? 0];
      });
      return Object.fromEntries(answers);
    },
  },
  logs: {
    query: async (logGroup) => {
      assert.equal(logGroup, "/aws/lambda/postern-test");
      return Object.entries(countsOf).flatMap(([key, { reviews = 0, denials = 0, errors = 0, p99 = 0 }]) => {
        const [rule = "", Version = ""] = key.split(":");
        const counts = { reviews: `${reviews}`, denials: `${denials}`, failures: `${errors}`, p99: `${p99}` };
        return reviews === 0 ? [] : [{ Function: getFunctionName(rule), Version, ...counts }];
      });
    },
  },
});

const runCases: CanaryRun["runCases"] = async () => ({ cases: 41, faults: [] });
const quick: CanaryRun = { share: 0.1, milliseconds: 20, every: 5, metricDelay: 0, runCases };
// Counts by rule and version: the old versions are a:1 and a-b:4, the fresh ones a:2 and a-b:7.
const reviewsOfOldVersions = { "a:1": { reviews: 1000 }, "a-b:4": { reviews: 1000 } };
const reviewsOfAllVersions = { ...reviewsOfOldVersions, "a:2": { reviews: 100 }, "a-b:7": { reviews: 100 } };

describe("a canary", () => {
  it("a canary gives new versions their share of reviews, and all reviews at the end", async () => {
    const { functions, moves, describeAliases } = createAliases([a, b]);
    const progress: [number, number][] = [];
    const outcomes = await runCanary(
      { functions, ...createMonitoring(reviewsOfAllVersions) },
      [a, b],
      quick,
      (...far) => progress.push(far),
    );
    assert.deepEqual(outcomes, [
      { trial: a, is: "promoted", evidence: "100 reviews, 0 faults" },
      { trial: b, is: "promoted", evidence: "100 reviews, 0 faults" },
    ]);
    assert.deepEqual(moves, ["a 1, 2 at 0.1", "a-b 4, 7 at 0.1", "a 2", "a-b 7"]); // rules and versions
    assert.deepEqual(describeAliases(), ["2", "7"]);
    assert.ok(progress.length > 0 && progress.every(([done, total]) => done <= total && total === 0.02));
  });

  const faults: [name: string, found: object, why: string][] = [
    ["crashes", { "a:2": { crashes: 5 } }, "it fails 100% of its reviews, and the version before 0%"],
    ["fails", { "a:2": { reviews: 100, errors: 5 } }, "it fails 5.0% of its reviews, and the version before 0%"],
    [
      "denies admitted reviews",
      { "a:2": { reviews: 100, denials: 90 } },
      "it denies 90% of its reviews, and the version before 0%",
    ],
    [
      "is slow",
      { "a:2": { reviews: 100, p99: 2900 } },
      "one review in a hundred takes it 2900 ms, and the version before 0 ms",
    ],
  ];
  for (const [name, found, why] of faults)
    it(`rolls back a version that ${name} at once, and all other versions with it`, async () => {
      const { functions, moves, describeAliases } = createAliases([a, b]);
      const slow = { share: 0.1, milliseconds: 3_600_000, every: 1, runCases };
      const outcomes = await runCanary(
        { functions, ...createMonitoring({ ...reviewsOfAllVersions, ...found }) },
        [a, b],
        slow,
      );
      assert.deepEqual(outcomes, [
        { trial: a, is: "rolled back", why },
        { trial: b, is: "rolled back", why: "it can only be promoted together with a" },
      ]);
      assert.deepEqual(
        [moves.slice(2), describeAliases()],
        [
          ["a 1", "a-b 4"],
          ["1", "4"],
        ],
      );
    });

  /** How the canary of a version with few reviews ends, by its counts and by its cases. */
  const rowsWithFewReviews: [
    what: string,
    counts: Partial<CanaryVersionCounts> & { crashes?: number },
    cases: Awaited<ReturnType<typeof runCases>>,
    outcome: object,
  ][] = [
    [
      "promotes it if no review failed and all cases pass",
      { reviews: 12 },
      { cases: 41, faults: [] },
      { is: "promoted", evidence: "12 reviews, 41 cases, 0 faults" },
    ],
    [
      "promotes it without reviews if all cases pass",
      {},
      { cases: 1, faults: [] },
      { is: "promoted", evidence: "0 reviews, 1 case, 0 faults" },
    ],
    [
      "promotes it without cases if no review failed",
      { reviews: minimumCanaryReviews - 1 },
      { cases: 0, faults: [] },
      { is: "promoted", evidence: "49 reviews, 0 cases, 0 faults" },
    ],
    [
      "rolls it back if one review failed",
      { reviews: 12, errors: 1 },
      { cases: 41, faults: [] },
      { is: "rolled back", why: "it failed 1 of its 12 reviews" },
    ],
    [
      "rolls it back if its only review crashed",
      { crashes: 1 },
      { cases: 41, faults: [] },
      { is: "rolled back", why: "it failed 1 of its 1 review" },
    ],
    [
      "rolls it back if a case fails",
      { reviews: 12 },
      { cases: 41, faults: ['a, "says no": it fails'] },
      { is: "rolled back", why: 'its cases fail: a, "says no": it fails' },
    ],
    [
      "rolls it back without a result if it had neither reviews nor cases",
      {},
      { cases: 0, faults: [] },
      {
        is: "undecided",
        why: "it had no reviews, and Lambda can run none of its cases; deploy once without --canary",
      },
    ],
  ];
  for (const [what, counts, cases, outcome] of rowsWithFewReviews)
    it(`ends for a version with few reviews after twice its time: ${what}`, async () => {
      const { functions, describeAliases } = createAliases([a]);
      const versionsWithCases: string[] = [];
      const run: CanaryRun = {
        ...quick,
        runCases: async (rule, version) => {
          versionsWithCases.push(`${rule}:${version}`);
          return cases;
        },
      };
      const outcomes = await runCanary(
        { functions, ...createMonitoring({ ...reviewsOfOldVersions, "a:2": counts }) },
        [a],
        run,
      );
      assert.deepEqual(outcomes, [{ trial: a, ...outcome }]);
      assert.deepEqual(describeAliases(), [outcomes[0]?.is === "promoted" ? "2" : "1"]);
      assert.deepEqual(versionsWithCases, ["a:2"]);
    });

  it("a canary rolls back all versions with few reviews if the cases of one version fail", async () => {
    const { functions, describeAliases } = createAliases([a, b]);
    const run: CanaryRun = { ...quick, runCases: async (rule) => ({ cases: 1, faults: rule === "a" ? ["no"] : [] }) };
    const outcomes = await runCanary({ functions, ...createMonitoring(reviewsOfOldVersions) }, [a, b], run);
    assert.deepEqual(outcomes, [
      { trial: a, is: "rolled back", why: "its cases fail: no" },
      { trial: b, is: "rolled back", why: "it can only be promoted together with a" },
    ]);
    assert.deepEqual(describeAliases(), ["1", "4"]);
  });

  it("a canary rolls back a version whose crashes CloudWatch shows only after the time of the canary", async () => {
    const { functions, moves } = createAliases([a]);
    const known: Record<string, Partial<CanaryVersionCounts> & { crashes?: number }> = { ...reviewsOfAllVersions };
    const end = Date.now() + quick.milliseconds;
    const counts = createMonitoring(known, () => {
      if (Date.now() > end) known["a:2"] = { reviews: 100, crashes: 50 };
    });
    const [outcome] = await runCanary({ functions, ...counts }, [a], { ...quick, metricDelay: 60 });
    assert.deepEqual([outcome?.is, moves.at(-1)], ["rolled back", "a 1"]);
  });

  it("a canary rolls back a version whose crashes CloudWatch shows only after the extra time", async () => {
    const { functions, moves } = createAliases([a]);
    const known: Record<string, Partial<CanaryVersionCounts> & { crashes?: number }> = { ...reviewsOfOldVersions };
    // The first decision is due after 260 milliseconds: the 200 of the canary and the 60 that metrics are late.
    const extraTime = Date.now() + 265;
    const counts = createMonitoring(known, () => {
      if (Date.now() > extraTime + 2) known["a:2"] = { reviews: 100, crashes: Date.now() > extraTime + 30 ? 50 : 0 };
    });
    const [outcome] = await runCanary({ functions, ...counts }, [a], { ...quick, milliseconds: 200, metricDelay: 60 });
    assert.deepEqual([outcome?.is, moves.at(-1)], ["rolled back", "a 1"]);
  });

  // Versions of an older Postern log elsewhere, and Postern then knows nothing of their reviews.
  it("a canary does not promote a version if nothing is known of the version before it", async () => {
    const { functions, describeAliases } = createAliases([a]);
    const counts = createMonitoring({ "a:2": { reviews: 1000 } });
    const why =
      "version 1 logged no reviews in /aws/lambda/postern-test to compare it with; deploy once without --canary";
    assert.deepEqual(await runCanary({ functions, ...counts }, [a], quick), [{ trial: a, is: "undecided", why }]);
    assert.deepEqual(describeAliases(), ["1"]);
  });

  it("a canary promotes a version that gets enough reviews only in the extra time", async () => {
    const { functions, describeAliases } = createAliases([a]);
    const start = Date.now();
    const known: Record<string, Partial<CanaryVersionCounts>> = { ...reviewsOfOldVersions, "a:2": { reviews: 1 } };
    const counts = createMonitoring(known, () => {
      if (Date.now() >= start + quick.milliseconds + quick.milliseconds / 2)
        known["a:2"] = { reviews: minimumCanaryReviews };
    });
    const evidence = `${minimumCanaryReviews} reviews, 0 faults`;
    assert.deepEqual(await runCanary({ functions, ...counts }, [a], quick), [{ trial: a, is: "promoted", evidence }]);
    assert.deepEqual(describeAliases(), ["2"]);
  });

  it("a canary ends if an alias is not at the expected version, and rolls the other aliases back", async () => {
    const { functions, moveElsewhere, describeAliases } = createAliases([a, b]);
    moveElsewhere("a-b", "9");
    const outcomes = await runCanary({ functions, ...createMonitoring(reviewsOfAllVersions) }, [a, b], quick);
    const why =
      "the canary could not continue: another command has just moved the alias of a-b; check it with postern status";
    assert.deepEqual(outcomes, [
      { trial: a, is: "rolled back", why },
      { trial: b, is: "lost", why: "another command has moved it to version 9" },
    ]);
    assert.deepEqual(describeAliases(), ["1", "9"]);
  });

  it("a canary moves no alias that another command has moved meanwhile", async () => {
    const crashing = { ...reviewsOfAllVersions, "a-b:7": { crashes: 5 } };
    for (const found of [reviewsOfAllVersions, crashing, reviewsOfOldVersions]) {
      const { functions, moveElsewhere, describeAliases } = createAliases([a, b]);
      await runCanary({ functions, ...createMonitoring(found, () => moveElsewhere("a", "9")) }, [a, b], quick);
      assert.equal(describeAliases()[0], "9");
      assert.doesNotMatch(String(describeAliases()[1]), /\+/, "the other alias has one version");
    }
  });

  it("a canary does not end a canary that another command has begun meanwhile", async () => {
    const { functions, moveElsewhere, describeAliases } = createAliases([a]);
    await runCanary(
      { functions, ...createMonitoring(reviewsOfAllVersions, () => void moveElsewhere("a", "1", { 9: 0.5 })) },
      [a],
      quick,
    );
    assert.deepEqual(describeAliases(), ["1+9"]);
  });

  // Otherwise the release would have the version as live, although another version is live.
  it("a canary does not report a version as promoted if another command has moved its alias", async () => {
    const { functions, moveElsewhere, describeAliases } = createAliases([a]);
    const outcomes = await runCanary(
      { functions, ...createMonitoring(reviewsOfAllVersions, () => moveElsewhere("a", "9")) },
      [a],
      quick,
    );
    assert.deepEqual(describeAliases(), ["9"]);
    assert.notEqual(outcomes[0]?.is, "promoted");
  });

  // A failure to move one alias must not leave the other aliases at two versions.
  it("a canary rolls back all other versions if one alias can't be moved", async () => {
    const { functions, describeAliases } = createAliases([a, b]);
    const move: StageFunctions["moveAlias"] = async (rule, version, before, weights = {}) => {
      if (rule === "a" && Object.keys(weights).length === 0) throw new Error("Rate exceeded");
      await functions.moveAlias(rule, version, before, weights);
    };
    const crashing = createMonitoring({ ...reviewsOfAllVersions, "a-b:7": { crashes: 5 } });
    await runCanary({ functions: { ...functions, moveAlias: move }, ...crashing }, [a, b], quick).catch(() => {});
    assert.equal(describeAliases()[1], "4");
  });

  it("a canary rolls all versions back if CloudWatch doesn't answer", async () => {
    const { functions, describeAliases } = createAliases([a, b]);
    const counts = createMonitoring(reviewsOfAllVersions, () => {
      throw new Error("Rate exceeded");
    });
    const why = "the canary could not continue: Rate exceeded";
    assert.deepEqual(await runCanary({ functions, ...counts }, [a, b], quick), [
      { trial: a, is: "rolled back", why },
      { trial: b, is: "rolled back", why },
    ]);
    assert.deepEqual(describeAliases(), ["1", "4"]);
  });

  it("a canary rolls all versions back if it is interrupted before its beginning or at any later time", async () => {
    for (const readsBefore of [0, 1, 3]) {
      const { functions, describeAliases } = createAliases([a, b]);
      const stop = new AbortController();
      let times = 0;
      const counts = createMonitoring(reviewsOfAllVersions, () => {
        if (++times === readsBefore) stop.abort();
      });
      if (readsBefore === 0) stop.abort();
      const slow = { share: 0.1, milliseconds: 3_600_000, every: 1, runCases, signal: stop.signal };
      const outcomes = await runCanary({ functions, ...counts }, [a, b], slow);
      const why = "it was interrupted";
      assert.deepEqual(outcomes, [
        { trial: a, is: "rolled back", why },
        { trial: b, is: "rolled back", why },
      ]);
      assert.deepEqual([times, describeAliases()], [readsBefore, ["1", "4"]]);
    }
  });

  it("a canary reads no metrics if there is nothing to try", async () => {
    const { functions } = createAliases([]);
    assert.deepEqual(await runCanary({ functions, ...createMonitoring({}, assert.fail) }, [], quick), []);
  });

  it("a canary leaves every alias at a single version, also after faults and interrupts", async () => {
    const version = fc.record({ reviews: fc.nat(200), denials: fc.nat(5), crashes: fc.constantFrom(0, 0, 0, 9) });
    const event = fc.constantFrom("nothing", "nothing", "CloudWatch fails", "an interrupt", "another command moves it");
    const check = async (one: object, other: object, events: string[]) => {
      const { functions, moveElsewhere, describeAliases } = createAliases([a, b]);
      const stop = new AbortController();
      const left = [...events];
      let isFirstMoved = false;
      const counts = createMonitoring({ ...reviewsOfOldVersions, "a:2": one, "a-b:7": other }, () => {
        const next = left.shift();
        if (next === "CloudWatch fails") throw new Error("no");
        if (next === "an interrupt") stop.abort();
        if (next !== "another command moves it") return;
        moveElsewhere("a", "9");
        isFirstMoved = true;
      });
      const watch = { share: 0.5, milliseconds: 3, every: 1, metricDelay: 0, runCases, signal: stop.signal };
      const outcomes = await runCanary({ functions, ...counts }, [a, b], watch);
      assert.deepEqual(outcomes.map(({ trial }) => trial.rule).sort(), ["a", "a-b"]);
      for (const [index, trial] of [a, b].entries()) {
        const is = outcomes.find((outcome) => outcome.trial === trial)?.is;
        const live = describeAliases()[index];
        if (trial === a && isFirstMoved) assert.equal(live, "9");
        else assert.equal(live, is === "promoted" ? trial.fresh : trial.old);
      }
    };
    await fc.assert(fc.asyncProperty(version, version, fc.array(event, { maxLength: 4 }), check), { numRuns: 60 });
  });
});
