import assert from "node:assert/strict";
import { suite, test } from "node:test";
import fc from "fast-check";
import { tables } from "../../../infra/bench/example-policies.ts";
import { parsePath } from "./paths.ts";

suite("a path", () => {
  for (const { id, path, segments } of tables.paths)
    test(`is read as measured: ${id}`, () => assert.deepEqual(parsePath(path), segments));

  const read: [name: string, path: string, steps: (string | number)[]][] = [
    ["may have slashes in quoted keys", 'metadata.labels."x.y/z"', ["metadata", "labels", "x.y/z"]],
    ["may have slashes in keys in brackets", 'metadata.labels["x.y/z"].a', ["metadata", "labels", "x.y/z", "a"]],
    ["is one of slashes wherever one is outside of quotes", "data/a.b", ["data", "a.b"]],
    ["may have slashes at both ends", "//spec/a//", ["spec", "a"]],
    ["takes ~01 for ~1", "/a~01b", ["a~1b"]],
    ["has indexes in brackets", "spec.containers[10].image", ["spec", "containers", 10, "image"]],
    ["may begin with brackets", '["a b"][0]', ["a b", 0]],
    ["may have a hyphen in a key", "metadata.annotations.no-delete", ["metadata", "annotations", "no-delete"]],
    ["unescapes quoted keys", String.raw`a["\"\\\u0041"]`, ["a", '"\\A']],
    ["takes prototype keys for keys", "__proto__.constructor", ["__proto__", "constructor"]],
  ];
  for (const [name, path, steps] of read) test(name, () => assert.deepEqual(parsePath(path), steps));

  const refused: [name: string, path: unknown, sentence: RegExp][] = [
    ["must not be empty", "", /^path must be a path such as/],
    ["must be a text", { toString: 1 }, /^path must be a path such as/],
    ["must not be a slash alone", "//", /has an empty step$/],
    ["must not have an empty step", "/a//b", /has an empty step$/],
    ["must not end with a point", "a.", /can't be read at "\."$/],
    ["must not have two points", "a..b", /can't be read at "\.\.b"$/],
    ["must not have an open bracket", "a[0", /can't be read at "\[0"$/],
    ["must not have a negative index", "a[-1]", /can't be read at "\[-1\]"$/],
    ["must not have an index behind a point", "a.0", /index without brackets; write \[0\]$/],
    ["must not have a key that is no JSON", 'a["\\x"]', /has a key that is no JSON string/],
    ["must not have spaces", "spec. a", /can't be read at "\. a"$/],
    ["must not be endless", "a".repeat(5000), /^path must not be longer than 4096 characters$/],
  ];
  for (const [name, path, sentence] of refused)
    test(name, () => assert.throws(() => parsePath(path), { name: "Error", message: sentence }));

  test("is found again whatever its keys are, written either way", () => {
    const key = fc.string({ minLength: 1 }).filter((text) => !/^\d+$/.test(text));
    const steps = fc.array(fc.oneof(key, fc.nat()), { minLength: 1, maxLength: 5 });
    fc.assert(
      fc.property(steps, (path) => {
        const escaped = path.map((step) => String(step).replaceAll("~", "~0").replaceAll("/", "~1"));
        assert.deepEqual(parsePath(`/${escaped.join("/")}`), path);
        assert.deepEqual(parsePath(path.map((step) => `[${JSON.stringify(step)}]`).join("")), path);
      }),
    );
  });

  test("is read or refused in a sentence, whatever it is", () => {
    fc.assert(
      fc.property(fc.oneof(fc.string(), fc.string({ unit: fc.constantFrom(...'./[]"\\~0a') })), (text) => {
        try {
          assert.ok(parsePath(text).length > 0);
        } catch (error) {
          assert.match(String(error), /^Error: path /);
        }
      }),
    );
  });
});
