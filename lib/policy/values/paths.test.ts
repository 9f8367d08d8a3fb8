import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { suite, test } from "node:test";
import fc from "fast-check";
import { parse } from "yaml";
import { kinitirasCaseTables } from "../../../test/bench/inputs/example-policies.ts";
import { parseReferencePath } from "./paths.ts";

interface Cases {
  paths: { name: string; path: string; steps: (string | number)[] }[];
  invalidPaths: { name: string; path: unknown; message: string }[];
}
const cases: Cases = parse(readFileSync(new URL("cases.yaml", import.meta.url), "utf8"));

suite("a path", () => {
  for (const { id, path, segments } of kinitirasCaseTables.paths)
    test(`is read as kinitiras reads it: ${id}`, () => assert.deepEqual(parseReferencePath(path), segments));

  for (const { name, path, steps } of cases.paths) test(name, () => assert.deepEqual(parseReferencePath(path), steps));
  for (const { name, path, message } of cases.invalidPaths)
    test(`can't be ${name}`, () =>
      assert.throws(() => parseReferencePath(path), { name: "Error", message: new RegExp(message) }));
  test("a reference path can't be longer than 4096 characters", () =>
    assert.throws(() => parseReferencePath("a".repeat(5000)), {
      message: "path must not be longer than 4096 characters",
    }));

  test("a reference path is parsed for any keys in both notations", () => {
    const key = fc.string({ minLength: 1 }).filter((text) => !/^\d+$/.test(text));
    const steps = fc.array(fc.oneof(key, fc.nat()), { minLength: 1, maxLength: 5 });
    fc.assert(
      fc.property(steps, (path) => {
        const escaped = path.map((step) => String(step).replaceAll("~", "~0").replaceAll("/", "~1"));
        assert.deepEqual(parseReferencePath(`/${escaped.join("/")}`), path);
        assert.deepEqual(parseReferencePath(path.map((step) => `[${JSON.stringify(step)}]`).join("")), path);
      }),
    );
  });

  test("a reference path is parsed or refused in a sentence for any text", () => {
    fc.assert(
      fc.property(fc.oneof(fc.string(), fc.string({ unit: fc.constantFrom(...'./[]"\\~0a') })), (text) => {
        try {
          assert.ok(parseReferencePath(text).length > 0);
        } catch (error) {
          assert.match(String(error), /^Error: path /);
        }
      }),
    );
  });
});
