import { deepEqual } from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { findCelEvaluator } from "../../infra/bench/cel-go.ts";
import { needs } from "../parts.ts";
import { compare } from "./compare.ts";
import { generateTasks } from "./generate.ts";
import { startEvaluator, type UpstreamEvaluator } from "./upstream.ts";

// The same with more pairs: node infra/node.js test/cel/compare.ts --pairs 300000 --seed 1
const pairs = 3000;
const seed = Number(process.env.POSTERN_SEED || 1);

describe("lib/cel", await needs("CEL evaluator"), () => {
  let evaluator: UpstreamEvaluator;
  before(async () => {
    const found = await findCelEvaluator();
    if (found) evaluator = startEvaluator(found.program);
  });
  after(() => evaluator?.stop());

  it(`finds what kube-apiserver's packages find for ${pairs} generated expressions and objects`, async () => {
    const { differences } = await compare(evaluator, { pairs, tasks: generateTasks(seed) });
    deepEqual(differences, []);
  });
});
