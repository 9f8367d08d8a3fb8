import { deepEqual, ok } from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { newestMinor } from "../../infra/parity/control-plane/binaries.ts";
import { needs } from "../parts.ts";
import { compareMerges } from "./merge.ts";
import { startEvaluator, type UpstreamEvaluator } from "./upstream.ts";

// The same with more pairs: node infra/node.js test/cel/merge.ts --pairs 20000 --seed 1
const pairs = 600;
const seed = Number(process.env.POSTERN_SEED || 1);

describe("lib/admission-policies", await needs("CEL evaluator", "API server"), () => {
  let evaluator: UpstreamEvaluator;
  before(async () => {
    evaluator = await startEvaluator(newestMinor);
  });
  after(() => evaluator?.stop());

  it(`merges ${pairs} generated patches as kube-apiserver's packages do`, async () => {
    const { values, errors, known, differences } = await compareMerges(evaluator, { pairs, seed });
    deepEqual(differences, []);
    ok(values > pairs / 3 && errors > pairs / 6 && known < pairs / 50, `${values} values, ${errors} errors`);
  });
});
