import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createUnconnectedCapabilities } from "#lib/core/capabilities.ts";
import { createEndpoint } from "#lib/core/endpoint.ts";
import { buildCaseReview, readCases } from "../infra/catalogue/cases.ts";
import { readCatalogue } from "../infra/catalogue/registry.ts";
import { createRandom } from "../infra/testing/random.ts";
import { type LargestObject, listLargestObjects } from "./largest-objects.ts";

// The seed chooses which objects are tested. POSTERN_RUNS=100000 tests all of them, which takes some minutes.

/** A rule may take this many times as long as JSON.parse of the same review. */
const usualLimit = 60;
/** The limits of rules that may take longer, with the reasons. */
const exceptions: Record<string, number> = {
  // The defaults that it adds to 50,000 containers of 30 bytes make its answer 20 times as large as the review.
  "limit-ranger": 120,
  // CUE's time grows with the square of the number of keys in a map: it takes 25 s for 50,000 labels.
  "policy-validate": 1000,
  // It compiles the scripts of a policy, and the largest policy has as many rules as etcd can store.
  "policy-admission": 2000,
};
const getLimit = (rule: string) => exceptions[rule] ?? usualLimit;
const seed = Number(process.env.POSTERN_SEED || 1);
const runs = Number(process.env.POSTERN_RUNS || 6);

interface LargeReview extends LargestObject {
  rule: string;
  name: string;
  /** Returns the milliseconds of CPU time that the evaluation of the review takes, and the parsing of its JSON. */
  measure(): Promise<{ evaluation: number; parsing: number }>;
}

/** Returns the CPU time of a call in milliseconds, which depends little on what else the machine does. */
const measureCpu = async (act: () => unknown): Promise<number> => {
  const start = process.cpuUsage();
  await act();
  const { user, system } = process.cpuUsage(start);
  return (user + system) / 1000;
};

/** Lists reviews for all rules. Each has the object of a case, with one list or map filled until etcd's limit. */
const listLargeReviews = async (): Promise<LargeReview[]> => {
  const found = new Map<string, LargeReview>();
  for (const listed of await readCatalogue()) {
    const { evaluateReview } = createEndpoint(
      listed.rule,
      { rule: listed.name, clusters: {} },
      { publicKeys: "", openCapabilities: createUnconnectedCapabilities, writeLogLine: () => {} },
    );
    for (const entry of await readCases(listed)) {
      const event = buildCaseReview(listed, entry);
      const { request } = event.review;
      for (const part of ["object", "oldObject"] as const) {
        const object = request[part];
        if (!object) continue;
        for (const large of listLargestObjects(object)) {
          const place = large.path.filter((step) => typeof step === "string").join(".");
          const key = [
            listed.name,
            event.phase,
            event.variant,
            request.operation,
            part,
            place,
            large.differingPart,
          ].join(" ");
          const measure = async () => {
            const review = { ...event.review, request: { ...request, [part]: large.build() } };
            const text = JSON.stringify(review);
            let [evaluation, parsing] = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY];
            // The shortest of four attempts counts, because garbage of other tests is collected during some.
            for (let attempt = 0; attempt < 4; attempt++) {
              let parsed: unknown;
              parsing = Math.min(parsing, await measureCpu(() => (parsed = JSON.parse(text))));
              const evaluate = () => evaluateReview({ ...event, review: parsed });
              evaluation = Math.min(evaluation, await measureCpu(evaluate));
              const isFarBelowLimit = evaluation <= (getLimit(listed.name) / 2) * parsing;
              if (isFarBelowLimit) break;
            }
            return { evaluation, parsing };
          };
          found.set(key, {
            ...large,
            rule: listed.name,
            name: `${key}, if its elements differ in ${large.differingPart}`,
            measure,
          });
        }
      }
    }
  }
  return [...found.values()];
};

describe("the largest object that etcd stores", async () => {
  const all = await listLargeReviews();
  const { pick } = createRandom(seed);
  // Always tested: with tolerations that all differ, these two rules compare each toleration with all others.
  const tolerationReviews = ["pod-toleration-restriction", "runtime-class"].flatMap((name) =>
    all
      .filter(
        ({ rule, path, differingPart }) => rule === name && path.at(-1) === "tolerations" && differingPart === "key",
      )
      .slice(0, 1),
  );
  const chosen = runs < all.length ? [...tolerationReviews, ...Array.from({ length: runs }, () => pick(all))] : all;
  it("the tests include many tolerations for both rules that compare each toleration with all others", () =>
    assert.equal(tolerationReviews.length, 2));
  for (const { rule, name, measure } of chosen)
    it(`a rule's review takes at most ${getLimit(rule)} times as long as parsing, for ${name}`, async (test) => {
      const { evaluation, parsing } = await measure();
      test.diagnostic(`${rule}: ${(evaluation / parsing).toFixed(1)} times ${parsing.toFixed(1)} ms`);
      assert.ok(
        evaluation <= getLimit(rule) * parsing,
        `${evaluation} ms, and ${parsing} ms to parse; POSTERN_SEED=${seed}`,
      );
    });
});
