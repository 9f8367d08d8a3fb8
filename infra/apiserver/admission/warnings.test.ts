import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { limitWarnings } from "./warnings.ts";

describe("warnings", () => {
  const long = "w".repeat(300);
  const table: [what: string, given: string[], isExpected: (texts: string[]) => boolean][] = [
    ["are returned once each, in their order", ["b", "a", "b"], (texts) => texts.join() === "b,a"],
    ["are dropped if they are empty or have control characters", ["", "a\nb", "\ud800"], (texts) => texts.length === 0],
    ["are not cut if the total is small", [long], ([text]) => text === long],
    [
      "are cut if there are too many, and then dropped",
      Array.from({ length: 30 }, (_, index) => `${index} ${long}`),
      (texts) => texts.length === 16 && texts.every((text) => text.length === 256),
    ],
  ];
  for (const [what, given, isExpected] of table)
    it(what, () => assert.ok(isExpected(limitWarnings(given)), JSON.stringify(limitWarnings(given))));
});
