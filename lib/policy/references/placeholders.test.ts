import assert from "node:assert/strict";
import { suite, test } from "node:test";
import fc from "fast-check";
import { tables } from "../../../infra/bench/example-policies.ts";
import { createDraft } from "../../patch.ts";
import { fillPlaceholders } from "./references.ts";

const object = {
  metadata: { name: "web", labels: { app: "x", empty: "" } },
  spec: { replicas: 3, paused: false, list: ["a"], none: null },
};

suite("a text with placeholders", () => {
  for (const { id, template, object, expect } of tables.placeholders)
    test(`is filled as measured: ${id}`, () => {
      if (expect.error) assert.throws(() => fillPlaceholders(template, object), { name: "Error" });
      else assert.equal(fillPlaceholders(template, object), expect.value);
    });

  const filled: [name: string, text: string, becomes: string | undefined][] = [
    ["takes numbers and booleans for text", "{{spec.replicas}}{{spec.paused}}", "3false"],
    ["takes an empty text for a text", "<{{metadata.labels.empty}}>", "<>"],
    ["is nothing where null is", "{{spec.none}}", undefined],
    ["is nothing where a list or a map is", "{{spec.list}}", undefined],
    ["has no indexes", "{{spec.list.0}}", undefined],
    ["reads no properties that the object doesn't have", "{{spec.list.length}}", undefined],
    ["reads no prototype", "{{constructor.name}}", undefined],
    ["leaves alone what is never closed", "{{metadata.name", "{{metadata.name"],
    ["leaves alone what is never opened", "metadata.name}}", "metadata.name}}"],
    ["keeps what stands around them", "a {{metadata.name}} b {{metadata.name}} c", "a web b web c"],
    ["is nothing as soon as one of them is", "{{metadata.name}}{{no}}", undefined],
    ["doesn't fill what was filled in", "{{metadata.name}}}}", "web}}"],
  ];
  for (const [name, text, becomes] of filled) test(name, () => assert.equal(fillPlaceholders(text, object), becomes));

  test("is filled from a draft as well", () => {
    const { value } = createDraft<typeof object>(object);
    value.metadata.name = "new";
    assert.equal(fillPlaceholders("{{metadata.name}}-{{metadata.labels.app}}", value), "new-x");
  });

  test("must not have an empty one even where another stands for nothing", () => {
    assert.throws(() => fillPlaceholders("{{no}}{{}}", object), /has a placeholder without a path/);
  });

  test("must not grow without end", () => {
    const large = { metadata: { name: "a".repeat(10_000) } };
    assert.throws(
      () => fillPlaceholders("{{metadata.name}}".repeat(1000), large),
      /gets longer than 65536 characters$/,
    );
  });

  test("is filled whatever stands in it", () => {
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
