import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { readRows } from "../../../test/rows.ts";
import { check, formatIssues } from "../checker/checker.ts";
import { createAdmissionEnvironment } from "../kubernetes.ts";
import { parse } from "../parser/parser.ts";
import type { Expression } from "../parser/syntax.ts";
import { compile } from "../program/program.ts";
import { CelMap, EvaluationError, type Value } from "../values.ts";

interface Row {
  expression: string;
  value?: unknown;
  error?: string;
  cost?: number;
  /** Upstream's message if the expression doesn't compile. */
  issues?: string;
  /** Upstream's message if the expression compiles, but can't be prepared for evaluation. */
  refused?: string;
}

const environment = createAdmissionEnvironment({});

const evaluate = (text: string): Omit<Row, "expression"> => {
  const checked = check(parse(text, environment.macros) as Expression, environment);
  if (!("expression" in checked)) return { issues: formatIssues(checked, text) };
  const costBudget = { left: 1_000_000 };
  try {
    const outcome = compile(checked, environment).evaluate({ find: () => undefined }, costBudget);
    return "error" in outcome ? outcome : { value: toJson(outcome.value), cost: outcome.cost };
  } catch (error) {
    if (error instanceof EvaluationError) return { refused: error.message };
    throw error;
  }
};

const toJson = (value: Value): unknown =>
  value instanceof CelMap
    ? Object.fromEntries(Array.from(value.entries.values(), ([key, member]) => [`${key}`, toJson(member)]))
    : Array.isArray(value)
      ? value.map(toJson)
      : value;

for (const [library, rows] of Object.entries(readRows<Record<string, Row[]>>(import.meta.filename)))
  describe(library, () => {
    for (const { expression, ...expected } of rows)
      it(`evaluates ${expression}`, () => assert.deepEqual(evaluate(expression), expected));
  });
