import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { readRows } from "../../../test/rows.ts";
import { check } from "../checker/checker.ts";
import { createAdmissionEnvironment } from "../kubernetes.ts";
import { parse } from "../parser/parser.ts";
import { struct, type Type } from "../types.ts";
import {
  Double,
  Duration,
  EvaluationError,
  getDouble,
  getType,
  isDouble,
  isInt,
  isList,
  isMap,
  listEntries,
  Optional,
  Timestamp,
  TypeValue,
  toArray,
  Uint,
  type Value,
} from "../values.ts";
import { type Budget, compile, FieldObject, type Outcome, type Program, StructValue } from "./program.ts";

/** The fields of `variables`, which are computed when they are selected, as in Kubernetes. */
class Fields extends FieldObject {
  read = 0;
  get type(): Type {
    return struct("kubernetes.variables");
  }
  find(name: string): Value | undefined {
    this.read++;
    if (name === "failing") throw new EvaluationError("it failed");
    return name === "one" ? 1 : undefined;
  }
}

const object: Value = {
  n: 1,
  f: 1.5,
  s: "abc",
  v: "1.2.3",
  nul: null,
  l: [1, 2],
  e: [],
  d: new Double(1),
  big: 9007199254740993n,
  u: "é😀",
  long: "a".repeat(95),
  m: { a: "b", "x.y/z": "q", namespace: "k" },
  spec: { containers: [{ image: "registry.corp/a" }, { image: "registry.corp/b:1" }, { image: "registry.corp/c" }] },
};

const int = getType(1);
const environment = createAdmissionEnvironment({
  hasParams: true,
  isMutation: true,
  variables: new Map([
    ["one", int],
    ["failing", int], // Its evaluation fails.
    ["missing", int], // It is declared, but has no value.
  ]),
});

const compileText = (text: string): Program => {
  const parsed = parse(text, environment.macros);
  assert.ok("kind" in parsed, "syntax error");
  const checked = check(parsed, environment);
  if (!("expression" in checked)) assert.fail(checked.map(({ message }) => message).join());
  return compile(checked, environment);
};

const evaluate = (text: string, fields = new Fields(), budget: Budget = { left: 1_000_000 }): Outcome =>
  compileText(text).evaluate(
    { find: (name) => (name === "object" ? object : name === "variables" ? fields : undefined) },
    budget,
  );

/** Returns a value as text, so that values of different types have different texts. */
const show = (value: Value): string => {
  if (isInt(value)) return `${value}`;
  if (isDouble(value)) return `double(${Object.is(getDouble(value), -0) ? "-0" : getDouble(value)})`;
  if (value instanceof Uint) return `${value.value}u`;
  if (value instanceof Uint8Array) return `bytes(${value.join(" ")})`;
  if (value instanceof Duration) return `duration(${value.nanos})`;
  if (value instanceof Timestamp) return `timestamp(${value.nanos})`;
  if (value instanceof Optional) return `optional(${value.value === undefined ? "" : show(value.value)})`;
  if (value instanceof TypeValue) return value.of.name;
  if (value instanceof EvaluationError) return "error";
  if (isList(value)) return `[${toArray(value).map(show).join(", ")}]`;
  if (value instanceof StructValue) {
    // The expected values come from upstream, which shows the fields of a JSONPatch that were not set as empty texts.
    const unsetFields = value.type.name === "JSONPatch" ? { from: "", op: "", path: "" } : {};
    const fields = Object.entries({ ...unsetFields, ...Object.fromEntries(value.fields) }).sort(([one], [two]) =>
      one < two ? -1 : 1,
    );
    return `${value.type.name}{${fields.map(([name, field]) => `${name}: ${show(field)}`).join(", ")}}`;
  }
  if (!isMap(value)) return typeof value === "object" && value !== null ? getType(value).name : JSON.stringify(value);
  return `{${Array.from(listEntries(value), ([key, one]) => `${show(key)}: ${show(one)}`).join(", ")}}`;
};

interface Row {
  expression: string;
  value?: string;
  error?: string;
  /** The error if no program can be created. */
  creation?: string;
  cost?: number;
}

describe("compile", () => {
  for (const { expression, value, error, creation, cost } of readRows<Row[]>(import.meta.filename)) {
    const shown = expression.length > 100 ? `${expression.slice(0, 100)}…` : expression;
    it(`finds ${value ?? error ?? creation} for ${shown}`, () => {
      if (creation !== undefined) return assert.throws(() => evaluate(expression), new EvaluationError(creation));
      const outcome = evaluate(expression);
      const found = "error" in outcome ? { error: outcome.error } : { value: show(outcome.value) };
      assert.deepEqual({ ...found, cost: outcome.cost }, { ...(error === undefined ? { value } : { error }), cost });
    });
  }

  it("a program subtracts its cost from a budget, and stops when the budget is used up", () => {
    const budget = { left: 25 };
    assert.deepEqual(evaluate("object.l.all(x, x > 0)", undefined, budget), { value: true, cost: 13 });
    assert.equal(budget.left, 12);
    const error = "operation cancelled: actual cost limit exceeded";
    assert.deepEqual(evaluate("object.l.all(x, x > 0) || true", undefined, budget), { error, cost: 13 });
    assert.equal(budget.left, -1);
    assert.deepEqual(evaluate("object.spec.containers", undefined, budget), { error, cost: 1 });
    assert.deepEqual(evaluate("true", undefined, budget), { value: true, cost: 0 });
  });

  it("a program computes a field of `variables` only when the expression selects the field", () => {
    const fields = new Fields();
    assert.deepEqual(evaluate("object.n == 2 && variables.one == 1", fields), { value: false, cost: 3 });
    assert.equal(fields.read, 0);
    assert.deepEqual(evaluate("variables.one + 1", fields), { value: 2, cost: 3 });
    assert.deepEqual(evaluate("has(variables.one)", fields), { value: true, cost: 1 });
    assert.equal(fields.read, 2);
    assert.deepEqual(evaluate("variables.failing == 1"), { error: "it failed", cost: 3 });
    assert.deepEqual(evaluate("has(variables.failing)"), { error: "it failed", cost: 1 });
    assert.deepEqual(evaluate("variables.missing"), { error: "no such key: missing", cost: 2 });
  });

  it("a program reports variables without a value", () => {
    assert.deepEqual(evaluate("oldObject.a"), { error: "no such attribute(s): oldObject", cost: 1 });
  });

  it("a program shares no state between its evaluations", () => {
    const program = compileText("object.map(x, object.map(y, x + y))");
    const run = (list: Value) => program.evaluate({ find: () => list });
    const outcome = run([1, 2]);
    run([5]);
    assert.deepEqual(outcome, {
      value: [
        [2, 3],
        [3, 4],
      ],
      cost: 90,
    });
    assert.deepEqual(run([1, 2]), outcome);
  });

  it("a program stops if lists double without any cost", () => {
    let text = "z20.size()";
    for (let depth = 20; depth > 0; depth--)
      text = `optional.of(z${depth - 1} + z${depth - 1}).optMap(z${depth}, ${text})`;
    text = `optional.of(object.l).optMap(z0, ${text})`;
    assert.equal((evaluate(text) as { error: string }).error, "list has too many elements");
  });
});
