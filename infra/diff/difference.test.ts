import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { parse } from "yaml";
import { yamlValues } from "../../test/yaml-texts.ts";
import { findOldIndexesOfLines } from "./alignment.ts";
import { computeHunks } from "./difference.ts";
import { formatYamlFlow, formatYamlLines } from "./yaml-lines.ts";

const texts = fc.array(fc.constantFrom("a", "b", "c"), { maxLength: 12 });

/** Returns the number of lines that two texts can have in common, by a slow algorithm. */
const countCommonLines = ([first, ...others]: string[], [other, ...rest]: string[]): number => {
  if (first === undefined || other === undefined) return 0;
  if (first === other) return 1 + countCommonLines(others, rest);
  return Math.max(countCommonLines([first, ...others], rest), countCommonLines(others, [other, ...rest]));
};

describe("a difference", () => {
  it("a difference of long texts without common lines is computed", () => {
    const list = (letter: string) => ({ of: Array.from({ length: 200_000 }, (_, index) => `${letter}${index}`) });
    const [hunk, ...more] = computeHunks(list("a"), [{ rule: "r", after: list("b") }]);
    assert.deepEqual(more, []);
    assert.equal(hunk?.lines.filter(({ sign }) => sign === "+").length, 200_000);
  });
  it("a difference keeps the largest number of common lines, in their order", () => {
    const short = fc.array(fc.constantFrom("a", "b", "c"), { maxLength: 8 });
    fc.assert(
      fc.property(short, short, (old, now) => {
        const lines = findOldIndexesOfLines(old, now);
        assert.equal(lines.length, now.length);
        const kept = lines.filter((line) => line >= 0);
        assert.deepEqual(
          kept.map((line) => old[line]),
          now.filter((_, index) => (lines[index] ?? -1) >= 0),
        );
        for (const [index, line] of kept.entries()) assert.ok(line > (kept[index - 1] ?? -1));
        assert.equal(kept.length, countCommonLines(old, now));
      }),
    );
  });

  it("a difference changes the first version into the last one, with any versions between them", () => {
    fc.assert(
      fc.property(texts, fc.array(texts, { minLength: 1, maxLength: 4 }), (before, stages) => {
        const hunks = computeHunks(
          before,
          stages.map((after, index) => ({ rule: `r${index}`, after })),
        );
        const last = stages.at(-1) ?? [];
        let [old, now] = [formatYamlLines(before), formatYamlLines(last)];
        for (const hunk of hunks.toReversed()) {
          const listTexts = (sign: string) => hunk.lines.filter((line) => line.sign !== sign).map(({ text }) => text);
          assert.deepEqual(old.slice(hunk.old - 1, hunk.old - 1 + listTexts("+").length), listTexts("+"));
          assert.deepEqual(now.slice(hunk.now - 1, hunk.now - 1 + listTexts("-").length), listTexts("-"));
          for (const { sign, rule } of hunk.lines) assert.equal(sign === " ", rule === undefined);
          [old, now] = [old.slice(0, hunk.old - 1), now.slice(0, hunk.now - 1)];
        }
      }),
    );
  });

  it("a difference names the rule that changed a line last, and the rule that removed a line", () => {
    const [hunk] = computeHunks({ a: 1, b: 2 }, [
      { rule: "first", after: { a: 2, b: 2 } },
      { rule: "second", after: { a: 3 } },
    ]);
    assert.deepEqual(hunk?.lines, [
      { sign: "-", text: "a: 1", rule: "first" },
      { sign: "-", text: "b: 2", rule: "second" },
      { sign: "+", text: "a: 3", rule: "second" },
    ]);
  });

  for (const version of ["1.1", "1.2"] as const)
    it(`is printed in YAML that has the same values in YAML ${version}`, () => {
      const examples: [unknown][] = [[{ "e-0": 0 }], [{ [`${"a".repeat(1100)}`]: { b: [1e21] } }]];
      fc.assert(
        fc.property(yamlValues, (value) => {
          assert.deepEqual(parse(formatYamlLines(value).join("\n"), { version }), value);
          assert.deepEqual(parse(formatYamlFlow(value), { version }), value);
        }),
        { numRuns: 1000, examples },
      );
    });

  it("a difference of a Secret shows only that it changed", () => {
    const buildSecret = (value: string) => ({ kind: "Secret", data: { key: value, same: "c2FtZQ==" } });
    const text = JSON.stringify(computeHunks(buildSecret("b2xk"), [{ rule: "r", after: buildSecret("bmV3") }]));
    assert.match(text, /\*\*\* \(other\)/);
    assert.doesNotMatch(text, /b2xk|bmV3|c2FtZQ/);
  });
});
