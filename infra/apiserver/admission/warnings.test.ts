import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { limitWarnings } from "./warnings.ts";

describe("warnings", () => {
  const long = "w".repeat(300);
  const table: [string, string[], (texts: string[]) => boolean][] = [
    ["are limitWarnings once each, in their order", ["b", "a", "b"], (texts) => texts.join() === "b,a"],
    ["that are empty or have control characters are dropped", ["", "a\nb", "\ud800"], (texts) => texts.length === 0],
    ["that are long pass whole where there are few", [long], ([text]) => text === long],
    [
      "are cut once they are too many, and dropped beyond",
      Array.from({ length: 30 }, (_, index) => `${index} ${long}`),
      (texts) => texts.length === 16 && texts.every((text) => text.length === 256),
    ],
  ];
  for (const [what, given, isSo] of table)
    it(what, () => assert.ok(isSo(limitWarnings(given)), JSON.stringify(limitWarnings(given))));
});
