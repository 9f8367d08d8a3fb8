import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { readRows } from "../../test/rows.ts";
import { readLines, readRecordings } from "./recordings.ts";

async function* generateChunks(...chunks: (string | Uint8Array)[]) {
  for (const chunk of chunks) yield Buffer.from(chunk);
}
const collect = <T>(items: AsyncIterable<T>): Promise<T[]> => Array.fromAsync(items);
/** Reads standard input, and returns each line with the name of its case or its fault. */
const readInput = async (...chunks: (string | Uint8Array)[]) =>
  (await collect(readRecordings(["-"], generateChunks(...chunks)))).map((one) => [
    one.line,
    "entry" in one ? one.entry.name : one.sentence,
  ]);

const { files, invalidCases } = readRows<{
  /** Files with a text. For each case in it, `found` has the number of its line, and the case's name or its fault. */
  files: { name: string; text: string; found: string[] }[];
  /** Members that make a valid case invalid when they are added to it, and its fault. */
  invalidCases: { addedMembers: object; fault: string }[];
}>(import.meta.filename);

describe("the lines of a file", () => {
  it("the lines of a file are the same for any division into chunks", () =>
    fc.assert(
      fc.asyncProperty(fc.array(fc.array(fc.constantFrom("a", "ß", "\n", "\r\n", "🐙"))), async (pieces) => {
        const text = pieces.flat().join("");
        const bytes = Buffer.from(text);
        const expectedLines = text.split(/\r?\n/);
        if (expectedLines.at(-1) === "") expectedLines.pop();
        const singleBytes = Array.from(bytes, (byte) => Uint8Array.of(byte));
        for (const chunks of [[bytes], singleBytes, pieces.map((piece) => piece.join(""))]) {
          const lines = await collect(readLines(generateChunks(...chunks)));
          assert.deepEqual(
            lines,
            expectedLines.map((text, index) => ({ number: index + 1, text })),
          );
        }
      }),
    ));

  it("the lines of a file are left out if they are too long or not UTF-8; later lines are read", async () => {
    const lines = await collect(readLines(generateChunks("1234", "56\n12345\n", Uint8Array.of(0xff, 10), "end"), 5));
    assert.deepEqual(lines, [
      { number: 1, fault: "is longer than 5 bytes" },
      { number: 2, text: "12345" },
      { number: 3, fault: "is not UTF-8" },
      { number: 4, text: "end" },
    ]);
  });
});

describe("a file of recordings", () => {
  const printRecording = (name: string, fields: object = {}) => JSON.stringify({ name, validate: {}, ...fields });
  const caseLine = `- ${printRecording("is a recording")}\n`;
  for (const { name, text, found: expected } of files)
    it(`may have ${name}`, async () => {
      const found = (await readInput(text)).map((result) => result.join(" "));
      // The fault "is no YAML" ends with a message of the YAML parser, which isn't compared.
      const comparable = found.map((result, index) => {
        const expectedResult = expected[index];
        return expectedResult?.includes("is no YAML") ? result.slice(0, expectedResult.length) : result;
      });
      assert.deepEqual(comparable, expected);
    });

  for (const { addedMembers, fault } of invalidCases)
    it(`may have a line with ${JSON.stringify(addedMembers)}, which is not a case`, async () =>
      assert.deepEqual(await readInput(`- ${printRecording("a", addedMembers)}`), [[1, `is no case: ${fault}`]]));

  it("a file of recordings may have objects that are nested too deeply, which are not cases", async () => {
    const nestObject = (depth: number) => `- {"name":"a","validate":${'{"a":'.repeat(depth)}1${"}".repeat(depth)}}\n`;
    const lines = await readInput(nestObject(900), nestObject(1100), nestObject(500_000));
    const wrong = "is no case: it is nested more than 1000 deep";
    assert.deepEqual(lines, [
      [1, "a"],
      [2, wrong],
      [3, wrong],
    ]);
  });

  it("a file of recordings has the rule and the cluster of each recording", async () => {
    const recorded = { rule: "limit-ranger", cluster: "prod", version: "7", at: "2026-11-20T10:00:00Z" };
    const [one] = await collect(readRecordings(["-"], generateChunks(`- ${printRecording("a", { recorded })}`)));
    assert.deepEqual(one, {
      file: "-",
      line: 1,
      entry: { name: "a", validate: {}, recorded },
      rule: "limit-ranger",
      cluster: "prod",
    });
  });

  it("a file of recordings may have keys named __proto__", async () => {
    const text =
      '- {"name":"a","validate":{"__proto__":{"a":1}},"__proto__":{"rule":"a"},"recorded":{"__proto__":{"rule":"a"}}}';
    const [one] = await collect(readRecordings(["-"], generateChunks(text)));
    assert.ok(one && "entry" in one);
    assert.equal(one.rule, undefined);
    assert.equal(JSON.stringify(one.entry.validate), '{"__proto__":{"a":1}}');
  });

  it("a file of recordings is refused if its aliases become too large", async () => {
    const levels = Array.from({ length: 30 }, (_, level) => `- &a${level + 1} [*a${level}, *a${level}]\n`).join("");
    const lines = await readInput(`- &a0 [a]\n${levels}`);
    assert.match(String(lines[0]?.[1]), /^is no YAML: its aliases stand for too many values/);
  });

  it("a file of recordings is read only up to a limit if it has cases written by hand", async () => {
    const lines = await readInput("- name: a\n", ...Array.from({ length: 20 }, () => `# ${"a".repeat(1024 * 1024)}\n`));
    assert.deepEqual(lines, [[17, "makes this longer than 16777216 characters"]]);
  });

  it("a file of recordings may have recordings after a line that is too long", async () => {
    const lines = await readInput(caseLine, `- {"name":"${"a".repeat(5 * 1024 * 1024)}"}\n`, caseLine);
    assert.deepEqual(lines, [
      [1, "is a recording"],
      [2, "is longer than 4194304 bytes"],
      [3, "is a recording"],
    ]);
  });
});
