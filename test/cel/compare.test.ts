import { deepEqual } from "node:assert/strict";
import { describe, it } from "node:test";
import { celMinors } from "../bench/peers/cel-go.ts";
import { needs } from "../parts.ts";
import { compare } from "./compare.ts";
import { generateTasks } from "./generate.ts";
import { startEvaluator } from "./upstream.ts";

// More tasks (pairs of an expression and an object): node infra/node.js test/cel/compare.ts --pairs 300000 --seed 1
const taskCount = 1500;
// The seed is fixed: a rare difference must not fail an unrelated change. For other tasks, change --seed above.
const seed = 1;

describe("lib/cel", await needs("CEL evaluator"), () => {
  for (const [index, minor] of celMinors.entries())
    it(`lib/cel evaluates ${taskCount} generated expressions as kube-apiserver ${minor}'s packages do`, async () => {
      const evaluator = await startEvaluator(minor);
      try {
        const { differences } = await compare(evaluator, { taskCount, tasks: generateTasks(seed + index) });
        deepEqual(differences, []);
      } finally {
        await evaluator.stop();
      }
    });
});
