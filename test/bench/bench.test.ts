import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, it } from "node:test";
import { createUnconnectedCapabilities } from "#lib/core/capabilities.ts";
import { decodeReview } from "#lib/review.ts";
import { buildReview, evaluateCase } from "../../infra/catalogue/cases.ts";
import { readRule } from "../../infra/catalogue/registry.ts";
import { getFunctionsFolder } from "../../infra/catalogue/sources.ts";
import { readOrCreateUrlSigner } from "../../infra/keys/keys.ts";
import { runProgram } from "../checkout.ts";
import { createTestFolder } from "../folders.ts";
import { needs } from "../parts.ts";
import { measureCelColdStarts } from "./cel.ts";
import { compareColdStartsWithEmptyHandler, compareCueColdStartsWithCueWasm } from "./cold-starts.ts";
import { findClusterAskingCase } from "./inputs/recorded-clusters.ts";
import { buildPodReview } from "./inputs/reviews.ts";
import { measureRatiosInTurn, summarizeRatios } from "./ratios.ts";

describe("bench", () => {
  it("`npm run bench` refuses an unknown measurement", async () => {
    const words = [join(import.meta.dirname, "run.ts"), "--only", "cel", "chek"];
    const { code, stderr } = await runProgram(words, { env: process.env });
    assert.match(stderr, /^--only takes handler, .*, not "chek"\n$/);
    assert.equal(code, 2);
  });

  it("the bench computes the median and the 10th and 90th percentiles of ratios", () => {
    assert.deepEqual(summarizeRatios([11, 3, 2, 10, 1, 9, 4, 8, 5, 7, 6]), { median: 6, p10: 2, p90: 10 });
    assert.deepEqual(summarizeRatios([1.5]), { median: 1.5, p10: 1.5, p90: 1.5 });
  });

  it("the bench measures two functions in turn, and returns the ratios of the second to the first one", async () => {
    const calls: number[] = [];
    const createMeasurement = (time: number) => async () => {
      calls.push(time);
      return time;
    };
    assert.deepEqual(await measureRatiosInTurn(3, createMeasurement(2), createMeasurement(6)), [3, 3, 3]);
    // Each pair is a round, in alternating order. The first pair warms up and gives no ratio.
    assert.deepEqual(calls, [6, 2, 2, 6, 6, 2, 2, 6]);
  });

  for (const bytes of [5_000, 50_000, 1_000_000])
    it(`the bench builds valid reviews with the wanted size of ${bytes} bytes, within a tenth`, () => {
      const body = buildPodReview(bytes);
      assert.equal(decodeReview(body).request.operation, "CREATE");
      assert.ok(Math.abs(body.length / bytes - 1) < 0.1, `${body.length} bytes`);
    });

  const findFirstCaseWithRead = async (name: string) => {
    const listed = await readRule(join(getFunctionsFolder(), name), name);
    const { entry } = (await findClusterAskingCase(listed)) ?? {};
    assert.ok(entry);
    return { listed, entry };
  };

  it("the bench measures the cold start of a rule with a case for which it reads the cluster", async () => {
    const { listed, entry } = await findFirstCaseWithRead("owner-references-permission-enforcement");
    await assert.rejects(
      evaluateCase(listed, entry, buildReview(listed, entry), createUnconnectedCapabilities("bench")),
      /no connection/,
    );
  });

  it("the bench chooses no case that only evaluates a CUE script, which is no read of the cluster", async () => {
    const { entry } = await findFirstCaseWithRead("policy-admission");
    assert.doesNotMatch(JSON.stringify(entry), /"cue":/);
  });
});

describe("the bench under Lambda's runtime client", await needs("runtime client"), () => {
  it("the bench measures cold starts of rules and of a single read, and checks that each gets an answer", async () => {
    const folder = await createTestFolder();
    const names = ["always-admit", "namespace-exists"];
    const rules = names.map((name) => readRule(join(getFunctionsFolder(), name), name));
    const starts = await compareColdStartsWithEmptyHandler(
      await Promise.all(rules),
      await readOrCreateUrlSigner(folder),
      folder,
      1,
    );
    assert.deepEqual(
      starts.map(({ name, readsCluster, times }) => [name, readsCluster, times.length]),
      [
        // The single read of the cluster is no rule, so it has no name.
        [undefined, true, 1],
        ["always-admit", false, 1],
        ["namespace-exists", true, 1],
      ],
    );
  });

  it("the bench measures cold starts of a policy in CEL and of its rule, each with an answer", async () => {
    const folder = await createTestFolder();
    const [policy, rule, ...more] = await measureCelColdStarts(await readOrCreateUrlSigner(folder), folder, 1);
    assert.ok(policy && rule && policy.ratio.median > 0 && rule.ratio.median > 0 && more.length === 0);
  });

  it("the bench measures cold starts of a rule with a script and of cue-wasm alone, each with an answer", async () => {
    const folder = await createTestFolder();
    const [ratio = 0, ...more] = await compareCueColdStartsWithCueWasm(await readOrCreateUrlSigner(folder), folder, 1);
    assert.ok(ratio > 0 && more.length === 0);
  });
});
