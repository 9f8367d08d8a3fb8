import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";

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

describe("the lines of a file", () => {
  it("are the same in whatever pieces it comes", () =>
    fc.assert(
      fc.asyncProperty(fc.array(fc.array(fc.constantFrom("a", "ß", "\n", "\r\n", "🐙"))), async (pieces) => {
        const text = pieces.flat().join("");
        const bytes = Buffer.from(text);
        const whole = text.split(/\r?\n/);
        if (whole.at(-1) === "") whole.pop();
        const single = Array.from(bytes, (byte) => Uint8Array.of(byte));
        for (const chunks of [[bytes], single, pieces.map((piece) => piece.join(""))]) {
          const lines = await collect(readLines(generateChunks(...chunks)));
          assert.deepEqual(
            lines,
            whole.map((text, index) => ({ number: index + 1, text })),
          );
        }
      }),
    ));

  it("are left out where they are too long or no text, and those after them aren't", async () => {
    const lines = await collect(readLines(generateChunks("1234", "56\n12345\n", Uint8Array.of(0xff, 10), "end"), 5));
    assert.deepEqual(lines, [
      { number: 1, wrong: "is longer than 5 bytes" },
      { number: 2, text: "12345" },
      { number: 3, wrong: "is not UTF-8" },
      { number: 4, text: "end" },
    ]);
  });
});

describe("a file of recordings", () => {
  const printRecording = (name: string, more: object = {}) => JSON.stringify({ name, validate: {}, ...more });
  const caseLine = `- ${printRecording("is one")}\n`;
  /** Each row is a title, a text, and by line the name of a case or a fault. */
  const files: [what: string, text: string, ...expected: string[]][] = [
    ["one a line", caseLine + caseLine, "1 is one", "2 is one"],
    ["comments, empty lines and a document's beginning before them", `# a\n\n---\n${caseLine}`, "4 is one"],
    ["an empty line among them", `${caseLine}\n${caseLine}`, "1 is one", "3 is one"],
    ["nothing", ""],
    ["a cut line", `${caseLine}- {"name":"is`, "1 is one", "2 is no recording: after the dash, it is not JSON"],
    [
      "a foreign line",
      `${caseLine}hello\n${caseLine}`,
      "1 is one",
      "2 is no recording: each begins with a dash",
      "3 is one",
    ],
    [
      "what is no case",
      `${caseLine}- []\n- {}\n`,
      "1 is one",
      "2 is no case: a map is expected",
      "3 is no case: it has no name",
    ],
    ["no phase", '- {"name":"is none"}', "1 is no case: it must say either mutate or validate"],
    ["an object that is none", '- {"name":"is none","mutate":[]}', "1 is no case: mutate must be a map"],
    [
      "cases as people write them",
      "- name: is one\n  validate: &a {}\n- name: is two\n  validate: *a\n",
      "1 is one",
      "3 is two",
    ],
    ["cases after a comment", "# a\n\n- name: is one\n  validate: {}\n", "3 is one"],
    ["a map", "name: is one\n", "1 is no list of cases"],
    ["no YAML", "- name: is one\n- {\n", "2 is no YAML: "],
    ["an alias to nowhere", "- name: is one\n  validate: *a\n", "1 is no YAML: Unresolved alias"],
  ];
  for (const [what, text, ...expected] of files)
    it(`may have ${what}`, async () => {
      const lines = (await readInput(text)).map((line) => line.join(" "));
      assert.deepEqual(
        lines.map((line, index) => (expected[index]?.includes("YAML") ? line.slice(0, expected[index].length) : line)),
        expected,
      );
    });

  const wrong: [more: object, sentence: string][] = [
    [{ mutate: {} }, "it must say either mutate or validate"],
    [{ user: "jane" }, "user must be a map"],
    [{ operation: "PATCH" }, "operation must be CREATE, UPDATE, DELETE or CONNECT"],
    [{ now: "soon" }, "now must be a time, for instance 2026-01-01T00:00:00Z"],
    [{ warnings: [1] }, "warnings must be a list of texts"],
    [{ needs: { objects: [{}] } }, "needs.objects must be a list of objects with names"],
    [
      { needs: { objects: [{ kind: 1, metadata: { name: "a" } }] } },
      "needs.objects must be a list of objects with names",
    ],
    [{ needs: { https: [{ url: "https://a/" }] } }, "needs.https must be a list of questions with answers"],
    [{ needs: { may: {} } }, "needs.may must be a list of questions that say whether it is allowed"],
    [{ recorded: { rule: "../lib" } }, "recorded.rule must be the name of a rule"],
  ];
  for (const [more, sentence] of wrong)
    it(`may have ${JSON.stringify(more)}, which is no case`, async () =>
      assert.deepEqual(await readInput(`- ${printRecording("a", more)}`), [[1, `is no case: ${sentence}`]]));

  it("may be nested deeper than anybody can look", async () => {
    const nestObject = (depth: number) => `- {"name":"a","validate":${'{"a":'.repeat(depth)}1${"}".repeat(depth)}}\n`;
    const lines = await readInput(nestObject(900), nestObject(1100), nestObject(500_000));
    const wrong = "is no case: it is nested more than 1000 deep";
    assert.deepEqual(lines, [
      [1, "a"],
      [2, wrong],
      [3, wrong],
    ]);
  });

  it("says whose its recordings are", async () => {
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

  it("may have keys that mean something else elsewhere", async () => {
    const text =
      '- {"name":"a","validate":{"__proto__":{"a":1}},"__proto__":{"rule":"a"},"recorded":{"__proto__":{"rule":"a"}}}';
    const [one] = await collect(readRecordings(["-"], generateChunks(text)));
    assert.ok(one && "entry" in one);
    assert.equal(one.rule, undefined);
    assert.equal(JSON.stringify(one.entry.validate), '{"__proto__":{"a":1}}');
  });

  it("isn't unfolded without end", async () => {
    const levels = Array.from({ length: 30 }, (_, level) => `- &a${level + 1} [*a${level}, *a${level}]\n`).join("");
    const lines = await readInput(`- &a0 [a]\n${levels}`);
    assert.match(String(lines[0]?.[1]), /^is no YAML: Excessive alias count/);
  });

  it("is read no further than a person would write", async () => {
    const lines = await readInput("- name: a\n", ...Array.from({ length: 20 }, () => `# ${"a".repeat(1024 * 1024)}\n`));
    assert.deepEqual(lines, [[17, "makes this longer than 16777216 characters"]]);
  });

  it("may have a line that is too long, and others after it", async () => {
    const lines = await readInput(caseLine, `- {"name":"${"a".repeat(5 * 1024 * 1024)}"}\n`, caseLine);
    assert.deepEqual(lines, [
      [1, "is one"],
      [2, "is longer than 4194304 bytes"],
      [3, "is one"],
    ]);
  });
});
