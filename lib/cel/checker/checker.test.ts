import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { readRows } from "../../../test/rows.ts";
import { createAdmissionEnvironment } from "../kubernetes.ts";
import { parse } from "../parser/parser.ts";
import type { Issue } from "../parser/syntax.ts";
import { formatType } from "../types.ts";
import { type CheckedExpression, check, formatIssues } from "./checker.ts";

const environment = createAdmissionEnvironment({ hasAuthorizer: true, isMutation: true });

const checkText = (text: string): CheckedExpression | readonly Issue[] => {
  const parsed = parse(text, environment.macros);
  assert.ok("kind" in parsed, "syntax error");
  return check(parsed, environment);
};

const checkValid = (text: string): CheckedExpression => {
  const checked = checkText(text);
  if (!("expression" in checked)) assert.fail(formatIssues(checked, text));
  return checked;
};

const findReference = (text: string) => {
  const { expression, references } = checkValid(text);
  return references.get(expression);
};

const rows = readRows<{ expression: string; type?: string; error?: string | string[] }[]>(import.meta.filename);

describe("check", () => {
  for (const { expression, type, error } of rows)
    it(`finds ${type ?? [error].flat()[0]} for ${expression}`, () => {
      const checked = checkText(expression);
      if ("expression" in checked) return assert.equal(formatType(checked.type), type);
      const sorted = [...checked].sort((left, right) => left.offset - right.offset);
      const found = sorted.map(({ offset, message }) => `${offset + 1} ${message}`);
      assert.deepEqual(found, [error].flat());
    });

  it("check resolves names that contain dots, of variables and of functions", () => {
    assert.deepEqual(findReference("authorizer.requestResource"), { name: "authorizer.requestResource" });
    assert.equal(findReference(".sets.contains([1], [1])")?.name, "sets.contains");
  });

  it("check lists the overloads that accept the arguments, in upstream's order", () => {
    const listOverloads = (text: string) => findReference(text)?.overloads;
    assert.deepEqual(listOverloads("1 + 1"), ["add_int64"]);
    assert.deepEqual(listOverloads("object.?a"), ["select_optional_field"]);
    assert.deepEqual(listOverloads("object[1]"), [
      "index_list",
      "index_map",
      "optional_list_index_int",
      "optional_map_index_value",
    ]);
    assert.equal(
      listOverloads("object + object")?.join(" "),
      "add_bytes add_double add_duration_duration add_duration_timestamp add_timestamp_duration add_int64 add_list add_string add_uint64",
    );
  });

  it("check replaces type parameters that a later expression binds", () => {
    const { types, expression } = checkValid("[[], [1]]");
    assert.ok(expression.kind === "list");
    const elementTypes = expression.elements.map(({ value }) => formatType(types.get(value) ?? assert.fail()));
    assert.deepEqual(elementTypes, ["list(int)", "list(int)"]);
  });

  // Upstream panics for such expressions.
  it("check accepts optional elements of type dyn in lists and maps", () => {
    assert.equal(formatType(checkValid("[?object.a]").type), "list(dyn)");
    assert.equal(formatType(checkValid('{?"a": object.a}').type), "map(string, dyn)");
  });

  it("check refuses expressions whose types grow exponentially", () => {
    const [issue] = checkText(`[1]${".map(a, {a: a})".repeat(60)}`) as readonly Issue[];
    assert.equal(issue?.message, "the types of the expression are too large");
  });
});

describe("formatIssues", () => {
  const format = (text: string, ...offsets: number[]) =>
    formatIssues(
      offsets.map((offset) => ({ offset, message: "wrong" })),
      text,
    );

  it("formatIssues shows the line of the source, and marks the place in it", () => {
    assert.equal(format("a + b", 2), "ERROR: <input>:1:3: wrong\n | a + b\n | ..^");
    assert.equal(format("a +", 3), "ERROR: <input>:1:4: wrong\n | a +\n | ...^");
  });
  it("formatIssues counts lines, and shows tabs as spaces", () => {
    assert.equal(format("a\r\n\t+ b", 5), "ERROR: <input>:2:3: wrong\n |  + b\n | ..^");
    assert.equal(format("a\nb\n", 2), "ERROR: <input>:2:1: wrong\n | b\n | ^");
  });
  it("formatIssues shows wide dots below characters that aren't ASCII", () => {
    assert.equal(format("'é😀' + 日", 7), "ERROR: <input>:1:8: wrong\n | 'é😀' + 日\n | .．．....＾");
  });
  it("formatIssues sorts issues by their place", () => {
    assert.equal(
      format("a + b", 4, 0),
      "ERROR: <input>:1:1: wrong\n | a + b\n | ^\nERROR: <input>:1:5: wrong\n | a + b\n | ....^",
    );
  });
  it("formatIssues shows no source for an issue without a place, nor a line that is too long", () => {
    assert.equal(format("a", -1), "ERROR: <input>:-1:0: wrong");
    assert.equal(format("", 0), "ERROR: <input>:1:0: wrong");
    assert.equal(format(" ".repeat(16_385), 2), "ERROR: <input>:1:3: wrong");
  });
  it("formatIssues shows at most a hundred issues", () => {
    const lines = format("a", ...Array(103).fill(0)).split("\n");
    assert.equal(lines.length, 301);
    assert.equal(lines[300], "3 more errors were truncated");
  });
});
