import assert from "node:assert/strict";
import { once } from "node:events";
import { describe, it } from "node:test";
import { Worker } from "node:worker_threads";
import { readRows } from "../../test/rows.ts";

interface Row {
  expression: string;
  /** True if the evaluation ends with an error here although upstream, with the memory of a server, returns a value. */
  isInterrupted?: boolean;
}

// The code of a worker, which evaluates expressions that use many large lists at the same time.
const code = `
const { parentPort, workerData } = require("node:worker_threads");
const run = async ({ moduleUrl, expressions }) => {
  const { compileExpression, createAdmissionEnvironment } = await import(moduleUrl);
  const environment = createAdmissionEnvironment({ isMutation: true });
  const texts = Array.from({ length: 8000 }, (_, index) => "text-" + index);
  const object = {
    l: texts,
    s: "a".repeat(100_000),
    m: Object.fromEntries(texts.map((text) => [text, "x"])),
  };
  for (const expression of expressions) {
    const compiled = compileExpression(expression, environment);
    if ("error" in compiled) throw new Error(compiled.error);
    const outcome = compiled.program.evaluate({ find: (name) => (name === "object" ? object : undefined) }, { left: 1_000_000 });
    parentPort.postMessage("error" in outcome ? outcome.error : String(outcome.value));
  }
};
run(workerData);`;

/**
 * Evaluates expressions one after another with limited memory. If an expression needs more, this and later ones don't
 * finish.
 */
const evaluateWithin = async (megabytes: number, expressions: readonly string[]): Promise<string[]> => {
  const outcomes: string[] = [];
  const worker = new Worker(code, {
    eval: true,
    workerData: { moduleUrl: new URL("kubernetes.ts", import.meta.url).href, expressions },
    resourceLimits: { maxOldGenerationSizeMb: megabytes },
  });
  worker.on("message", (outcome) => outcomes.push(outcome));
  worker.on("error", (error) => outcomes.push(error.message));
  await once(worker, "exit");
  return outcomes;
};

describe("an evaluation with the cost limit of an expression", async () => {
  const rows = readRows<Row[]>(import.meta.filename);
  const expressions = rows.map(({ expression }) => expression);
  const outcomes = await evaluateWithin(100, expressions); // 100 MB
  for (const [index, { expression, isInterrupted = false }] of rows.entries())
    it(`needs little memory for ${expression}`, () => {
      const outcome = outcomes[index] ?? "no outcome";
      const endings = ["operation cancelled: actual cost limit exceeded", "true"];
      const isExpected = isInterrupted ? outcome === "operation interrupted" : endings.includes(outcome);
      assert.ok(isExpected, outcome);
    });
});
