import { createInterface } from "node:readline";
import { mostExpressionCost } from "#lib/cel/cost-formulas.ts";
import { type CompiledExpression, compileExpression, createAdmissionEnvironment } from "#lib/cel/kubernetes.ts";
import type { Program } from "#lib/cel/program/program.ts";
import { bool } from "#lib/cel/types.ts";
import type { Value } from "#lib/cel/values.ts";
import type { CelBenchQuestion, TimedPolicy } from "../cel.ts";

// Measures lib/cel with a policy. The process has the same input and output as the Go program that measures cel-go.

const environment = createAdmissionEnvironment({ hasParams: true, hasAuthorizer: true });

const getProgram = (compiled: CompiledExpression): Program => {
  if ("error" in compiled) throw new Error(compiled.error);
  return compiled.program;
};

/** The compiled expressions of the first question. */
let programs: readonly Program[] | undefined;

const measure = ({ policy, variables, repeat }: CelBenchQuestion): TimedPolicy => {
  const begun = process.hrtime.bigint();
  const compiled = policy.map((expression) => compileExpression(expression, environment, [bool]));
  const compilation = Number(process.hrtime.bigint() - begun);
  // All questions to this process have the same policy. Later questions compile it again only to measure this, and
  // evaluate the programs of the first question, as a server evaluates programs that it compiled once.
  programs ??= compiled.map(getProgram);
  const activation = { find: (name: string): Value | undefined => variables[name] };
  const outcomes = programs.map((program) => program.evaluate(activation, { left: mostExpressionCost }));
  const start = process.hrtime.bigint();
  for (let round = 0; round < repeat; round++)
    for (const program of programs) program.evaluate(activation, { left: mostExpressionCost });
  const evaluation = Number(process.hrtime.bigint() - start) / repeat;
  const results = outcomes.map((outcome) => ("error" in outcome ? outcome.error : outcome.value));
  return { compilation, evaluation, results, cost: outcomes.reduce((sum, { cost }) => sum + cost, 0) };
};

for await (const line of createInterface({ input: process.stdin }))
  process.stdout.write(`${JSON.stringify(measure(JSON.parse(line)))}\n`);
