import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { rule } from "#lib/rule.ts";
import { parseCases } from "./cases.ts";

const labelRule = rule({ summary: "Requires a label.", match: [], settings: { label: "owner" }, validate() {} });
const parse = (text: string) => parseCases(text, "cases.yaml", ["validate"], { rule: labelRule });

describe("cases", () => {
  const rows: [what: string, text: string, sentence: string][] = [
    [
      "a misspelt setting",
      "- { name: a, validate: {}, admitted: true,\n    settings: { lable: team } }",
      'cases.yaml:2 "a" settings.lable is unknown; one of label is expected',
    ],
    [
      "a setting of a wrong type",
      "- { name: a, validate: {}, admitted: true, settings: { label: 1 } }",
      'cases.yaml:1 "a" settings.label must be a text, not 1',
    ],
    [
      "an unknown minor version",
      '- { name: a, validate: {}, admitted: true, kubernetes: "1.99" }',
      'cases.yaml:1 "a" must have a minor version in quotes: "1.33", "1.34", "1.35", "1.36", "1.37" as kubernetes, not "1.99"',
    ],
    [
      "a name that another case has",
      "- { name: a, validate: {}, admitted: true }\n- { name: a, validate: {}, refused: b }",
      'cases.yaml:2 "a" needs another name: the case in line 1 has the same',
    ],
  ];
  for (const [what, text, sentence] of rows)
    it(`must not have ${what}`, () => assert.throws(() => parse(text), { message: sentence }));

  it("may have the same name if they are recorded", () =>
    assert.equal(parse("- &a { name: a, validate: {}, admitted: true, recorded: {} }\n- *a").length, 2));
});
