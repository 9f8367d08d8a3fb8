import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { rule } from "#lib/rule.ts";
import { toCatalogueRule } from "../../test/catalogue-rules.ts";
import { parseConfig } from "../project/project.ts";
import { describeEndingExceptions } from "./exceptions.ts";

const catalogue = [toCatalogueRule("plain", rule({ summary: "Does little.", match: [], validate() {} }))];
const describeAt = (text: string, now: string) =>
  describeEndingExceptions(parseConfig(text, catalogue).clusters.values(), new Date(now));
const buildConfig = (until: string, extraYaml = "") => `rules:
  plain:
    ${extraYaml}
    exempt:
      exceptions:
        - { users: [ci], until: 2999-12-31, owner: ops, reason: none }
        - { namespaces: [legacy], until: ${until}, owner: ops, reason: OPS-231 }
clusters: { one: , two: }
`;
const place = "postern.yaml:7 the exception from plain until 2027-01-31 (ops): OPS-231";

describe("exceptions that end", () => {
  const rows: [name: string, until: string, now: string, expected: string[]][] = [
    ["are not named more than two weeks before", "2027-01-31", "2027-01-17T23:59:59Z", []],
    [
      "are named in the last two weeks, once for all clusters",
      "2027-01-31",
      "2027-01-18T00:00:00Z",
      [`${place} ends at 2027-02-01T00:00:00.000Z`],
    ],
    [
      "are named until they end",
      "2027-01-31",
      "2027-01-31T23:59:59.999Z",
      [`${place} ends at 2027-02-01T00:00:00.000Z`],
    ],
    ["can be deleted afterwards", "2027-01-31", "2027-02-01T00:00:00Z", [`${place} has ended; it can be deleted`]],
    [
      "can end at a second, in quotes or not",
      '"2027-01-31T18:00:00+02:00"',
      "2027-01-31T15:59:59Z",
      [`${place.replace("2027-01-31", "2027-01-31T18:00:00+02:00")} ends at 2027-01-31T16:00:00.000Z`],
    ],
  ];
  for (const [name, until, now, expected] of rows)
    it(name, () => assert.deepEqual(describeAt(buildConfig(until), now), expected));
  it("exceptions of a rule that is off are not reported", () =>
    assert.deepEqual(describeAt(buildConfig("2027-01-31", "mode: off"), "2028-01-01T00:00:00Z"), []));
  it("exceptions are read as texts, with their places in postern.yaml", () => {
    const { rules } = parseConfig(buildConfig("2027-01-31"), catalogue);
    assert.deepEqual(rules.get("plain")?.exempt?.exceptions?.[1], {
      namespaces: ["legacy"],
      until: "2027-01-31",
      owner: "ops",
      reason: "OPS-231",
      place: "postern.yaml:7",
    });
  });
});
