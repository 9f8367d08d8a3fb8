import assert from "node:assert/strict";
import { suite, test } from "node:test";
import fc from "fast-check";
import { kinitirasCaseTables } from "../../../test/bench/inputs/example-policies.ts";
import { readRows } from "../../../test/rows.ts";
import { createDraft } from "../../core/patch.ts";
import { fillPlaceholders } from "./references.ts";

const rows = readRows<{ name: string; text: string; becomes: string | undefined }[]>(import.meta.filename);

const object = {
  metadata: { name: "web", labels: { app: "x", empty: "" } },
  spec: { replicas: 3, paused: false, list: ["a"], none: null },
};

suite("a text with placeholders", () => {
  for (const { id, template, object, expect } of kinitirasCaseTables.placeholders)
    test(`is filled as kinitiras fills it: ${id}`, () => {
      if (expect.error) assert.throws(() => fillPlaceholders(template, object), { name: "Error" });
      else assert.equal(fillPlaceholders(template, object), expect.value);
    });

  for (const { name, text, becomes } of rows) test(name, () => assert.equal(fillPlaceholders(text, object), becomes));

  test("a text with placeholders is also filled from a draft", () => {
    const { value } = createDraft<typeof object>(object);
    value.metadata.name = "new";
    assert.equal(fillPlaceholders("{{metadata.name}}-{{metadata.labels.app}}", value), "new-x");
  });

  test("a text with placeholders fails for a placeholder without a path, even if another has no value", () => {
    assert.throws(() => fillPlaceholders("{{no}}{{}}", object), /has a placeholder without a path/);
  });

  test("a text with placeholders fails if the text becomes too long", () => {
    const large = { metadata: { name: "a".repeat(10_000) } };
    assert.throws(
      () => fillPlaceholders("{{metadata.name}}".repeat(1000), large),
      /gets longer than 65536 characters$/,
    );
  });

  test("a text with placeholders is filled or refused in a sentence for any text", () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom("{", "}", "{{", "}}", "a", ".", "metadata.name")), (parts) => {
        const text = parts.join("");
        try {
          const result = fillPlaceholders(text, object);
          if (!/\{\{.*\}\}/s.test(text)) assert.equal(result, text);
        } catch (error) {
          assert.match(String(error), /without a path/);
        }
      }),
    );
  });
});
