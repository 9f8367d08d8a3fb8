import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { readRows } from "../../../test/rows.ts";
import { Double, Uint, type Value } from "../values.ts";
import { optionalMacros, sortByMacro, standardMacros, twoVariableMacros } from "./macros.ts";
import { parse } from "./parser.ts";
import type { Expression, Issue } from "./syntax.ts";

interface LiteralRow {
  text: string;
  value?: Value; // the expected value, here or below by its type
  int?: string;
  uint?: string;
  double?: number;
  bytes?: string;
}

const rows = readRows<{
  trees: { text: string; tree: string }[];
  macros: { text: string; tree: string }[];
  literals: LiteralRow[];
  offsets: { text: string; offsets: number[] }[];
  issues: { text: string; issues: string[] }[];
  // `maxRepeats`: how often prefix and suffix may be repeated around the text before `parse` returns the error
  limits: { prefix: string; text: string; suffix: string; maxRepeats: number; error: string }[];
}>(import.meta.filename);

const macros = [...standardMacros, ...optionalMacros, ...twoVariableMacros, ...sortByMacro];
const isIssues = (result: Expression | readonly Issue[]): result is readonly Issue[] => Array.isArray(result);

const parseExpression = (text: string): Expression => {
  const result = parse(text, macros);
  if (isIssues(result)) assert.fail(JSON.stringify(result));
  return result;
};

const formatAll = (expressions: readonly Expression[]): string => expressions.map(format).join(", ");

const format = (expression: Expression): string => {
  switch (expression.kind) {
    case "literal":
      return JSON.stringify(expression.value);
    case "identifier":
      return expression.name;
    case "select": {
      const selected = `${format(expression.operand)}.${expression.field}`;
      return expression.isTest ? `test(${selected})` : selected;
    }
    case "call": {
      const call = `${expression.function}(${formatAll(expression.arguments)})`;
      return expression.target ? `(${format(expression.target)}).${call}` : call;
    }
    case "list":
      return `[${expression.elements.map(({ value, isOptional }) => (isOptional ? "?" : "") + format(value)).join(", ")}]`;
    case "map":
      return `{${expression.entries.map(({ key, value, isOptional }) => `${isOptional ? "?" : ""}${format(key)}: ${format(value)}`).join(", ")}}`;
    case "struct":
      return `${expression.name}{${expression.fields.map(({ name, value, isOptional }) => `${isOptional ? "?" : ""}${name}: ${format(value)}`).join(", ")}}`;
    case "comprehension": {
      const { variable, secondVariable, range, accumulator, initial, condition, step, result } = expression;
      const variables = secondVariable === undefined ? variable : `${variable}, ${secondVariable}`;
      const parts = [condition, step, result].map(format).join("; ");
      return `loop(${variables} in ${format(range)}, ${accumulator} = ${format(initial)}; ${parts})`;
    }
  }
};

/** Lists the expression and its parts that have an offset. */
const listPlaces = (node: unknown): { offset: number }[] => {
  if (typeof node !== "object" || node === null) return [];
  const parts = Object.values(node).flatMap(listPlaces);
  return "offset" in node ? [node as { offset: number }, ...parts] : parts;
};

const formatIssue = (text: string, { offset, message }: Issue): string => {
  if (offset < 0) return message;
  const lines = [...text].slice(0, offset).join("").split("\n");
  return `${lines.length}:${[...(lines.at(-1) as string)].length + 1} ${message}`;
};

const listIssues = (text: string): string[] => {
  const result = parse(text, macros);
  return isIssues(result) ? result.map((issue) => formatIssue(text, issue)) : [];
};

describe("parse", () => {
  for (const { text, tree } of [...rows.trees, ...rows.macros])
    it(`parses ${text}`, () => assert.equal(format(parseExpression(text)), tree));

  for (const { text, int, uint, double, bytes, value } of rows.literals)
    it(`reads ${text}`, () => {
      const expression = parseExpression(text);
      assert.equal(expression.kind, "literal");
      let expected = value;
      if (int !== undefined) expected = BigInt(int);
      if (uint !== undefined) expected = new Uint(BigInt(uint));
      if (double !== undefined) expected = new Double(double);
      if (bytes !== undefined) expected = Uint8Array.from(Buffer.from(bytes, "hex"));
      assert.deepEqual(expression.kind === "literal" && expression.value, expected);
    });

  for (const { text, offsets } of rows.offsets)
    it(`gives the parts of ${text} their offsets`, () => {
      const found = listPlaces(parseExpression(text)).map(({ offset }) => offset);
      assert.deepEqual(found, offsets);
    });

  for (const { text, issues } of rows.issues)
    it(`refuses ${JSON.stringify(text)}`, () => assert.deepEqual(listIssues(text), issues));

  for (const { prefix, text, suffix, maxRepeats, error } of rows.limits)
    it(`parses ${prefix}${text}${suffix} with ${maxRepeats} levels and no more`, () => {
      const repeat = (count: number) => prefix.repeat(count) + text + suffix.repeat(count);
      assert.deepEqual(listIssues(repeat(maxRepeats)), []);
      assert.deepEqual(listIssues(repeat(maxRepeats + 1)), [error]);
    });

  it("parse accepts 100,000 code points and no more", () => {
    assert.deepEqual(listIssues(`'${"😀".repeat(99_998)}'`), []);
    const error = "expression code point size exceeds limit: size: 100001, limit 100000";
    assert.deepEqual(listIssues(`'${"😀".repeat(99_999)}'`), [error]);
  });

  it("parse refuses an expression that becomes too large when macros are expanded", () => {
    const error = "expression is too large with its macros replaced";
    assert.deepEqual(listIssues(`a${".optMap(x, x)".repeat(40)}`), [error]);
  });

  it("parse returns the first 100 errors of the lexer, and one more that says that there are others", () => {
    assert.equal(listIssues("#".repeat(150)).length, 101);
  });

  it("parse returns an expression with offsets, or errors with offsets, for any text", () => {
    const words =
      "a for has ( ) [ ] { } , . ? : + - ! && || == in true 1 0x 1u .5 'a' b'é' ''' \\n ` # 😀 \n // .all( .optMap(x,";
    const texts = fc.array(fc.oneof(fc.constantFrom(...words.split(" "), " "), fc.string({ unit: "binary" })));
    fc.assert(
      fc.property(texts, (parts) => {
        const text = parts.join("");
        const result = parse(text, macros);
        const size = [...text].length;
        const found = isIssues(result) ? result : listPlaces(result);
        assert.ok(found.length > 0);
        // An error about the whole text, such as too many nested parts, has the offset -1.
        assert.ok(found.every(({ offset }) => offset >= -1 && offset <= size));
      }),
      { numRuns: 300 },
    );
  });
});
