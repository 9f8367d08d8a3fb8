import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { join } from "node:path";
import { describe, it } from "node:test";
import { encodeChecks } from "#lib/cel/checked-expressions.ts";
import { collectChecks } from "#lib/cel/expression-check.ts";
import { compileExpression, createAdmissionEnvironment } from "#lib/cel/kubernetes.ts";
import type { Outcome } from "#lib/cel/program/program.ts";
import { int } from "#lib/cel/types.ts";
import type { Value } from "#lib/cel/values.ts";
import { readRows } from "../../test/rows.ts";
import { packageRoot } from "../cli/roots.ts";
import { bundleCode, insertData } from "./bundle.ts";
import { createCelPlugin, expressionsMark } from "./cel.ts";

/** The source of a module that the tests bundle, to compare its function with `compile`, which is not bundled. */
const sourceToBundle = `
  import { compileExpression, createAdmissionEnvironment } from "./lib/cel/kubernetes.ts";
  import { int } from "./lib/cel/types.ts";
  const environment = createAdmissionEnvironment({ isMutation: true, variables: new Map([["one", int]]) });
  module.exports = (text) => compileExpression(text, environment, undefined);`;

const environment = createAdmissionEnvironment({ isMutation: true, variables: new Map([["one", int]]) });
const compile = (text: string) => compileExpression(text, environment, undefined);

/**
 * Bundles expressions as a build does: parses and checks them, and puts the results in place of the mark in the code.
 * Returns the size of the code without the results, and the bundled function that compiles one expression.
 */
const bundle = async (texts: readonly string[]) => {
  const checkedExpressions = encodeChecks(collectChecks(() => texts.map(compile)));
  const { code: withMark } = await bundleCode(sourceToBundle, [createCelPlugin(checkedExpressions)]);
  const code = insertData(withMark, { [expressionsMark]: checkedExpressions });
  const module = { exports: compile };
  new Function("module", "require", code)(module, createRequire(import.meta.url));
  return { bytes: withMark.length, compile: module.exports };
};

/** The object that the expressions of these tests read. */
const object: Value = {
  n: 1,
  f: 1.5,
  s: "abc",
  v: "1.2.3",
  nul: null,
  l: [1, 2],
  e: [],
  big: 9007199254740993n,
  u: "é😀",
  m: { a: "b", "x.y/z": "q", namespace: "k" },
  spec: { containers: [{ image: "registry.corp/a" }, { image: "registry.corp/b:1" }] },
};

/** Writes what an expression compiles and evaluates to, without the names of classes, which a bundle shortens. */
const show = (compiled: ReturnType<typeof compile>): string => {
  const find = (name: string) => (name === "object" ? object : undefined);
  const budget = { left: 1e6 };
  const outcome: Outcome | { error: string } =
    "error" in compiled ? compiled : compiled.program.evaluate({ find }, budget);
  return JSON.stringify(outcome, (_, value) => {
    if (typeof value === "bigint" || typeof value === "number") return `${Object.is(value, -0) ? "-" : ""}${value}`;
    return value instanceof Map ? [...value] : value;
  });
};

/** Reads the expressions in the YAML file of a test. It is a list of rows, or has several lists of rows, by name. */
const readTexts = (file: string): string[] => {
  type Rows = { expression: string }[];
  const content = readRows<Rows | Record<string, Rows>>(join(packageRoot, "lib/cel", file));
  const rows = Array.isArray(content) ? content : Object.values(content).flat();
  return rows.map(({ expression }) => expression);
};

describe("a bundle with expressions of CEL", () => {
  const literals = [
    "-0.0",
    "1e999",
    "dyn(5u)",
    "b'\\xff'",
    "9223372036854775807",
    "1.0",
    "type(1) == int",
    "'__proto__'",
  ];
  const texts = [
    ...["program/program.test.ts", "libraries/libraries.test.ts", "libraries/kubernetes/kubernetes.test.ts"].flatMap(
      readTexts,
    ),
    ...literals,
    "variables.one",
    "1 +",
    "1 + 'a'",
  ];

  it("a bundle evaluates expressions to the same values, errors and costs as the interpreter", async () => {
    const bundled = await bundle(texts);
    assert.ok(texts.length > 500, `${texts.length} expressions`);
    for (const text of texts) assert.equal(show(bundled.compile(text)), show(compile(text)), text);
  });

  it("a bundle evaluates an expression even if it has only the functions that this expression calls", async () => {
    for (const text of texts.filter((_, index) => index % 80 === 0))
      assert.equal(show((await bundle([text])).compile(text)), show(compile(text)), text);
  });

  it("a bundle with expressions of CEL evaluates no other expressions", async () => {
    const { compile } = await bundle(["'a'"]);
    assert.throws(() => compile("'b'"), {
      message: "the expression \"'b'\" isn't in the settings that this function was built with",
    });
  });

  it("a bundle with the CEL library, but without expressions, has the same bytes each time it is built", async () => {
    const plugins = [createCelPlugin(/* for no expressions */ encodeChecks([]))];
    const build = () => bundleCode('export * from "./functions/mutating-admission-policy/rule.ts"', plugins);
    const codes: string[] = [];
    for (let time = 0; time < 6; time++) codes.push((await build()).code);
    assert.equal(new Set(codes).size, 1);
  });

  it("a bundle has less than 28 KB with one CEL literal, and less than 86 KB with all functions", async () => {
    const [small, large] = [await bundle(["'a'"]), await bundle(texts)];
    assert.ok(small.bytes < 28 * 1024 && large.bytes < 86 * 1024, `${small.bytes} and ${large.bytes} bytes`);
  });
});
