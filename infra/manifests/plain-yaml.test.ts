import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { isMap, isNode, isScalar, isSeq, stringify } from "yaml";
import { readRows } from "../../test/rows.ts";
import type { YamlDocumentWithOffsets } from "./plain-yaml.ts";
import { createPositionFinder, type PositionFinder, parseJsonOrPlainYaml, parseYamlDocuments } from "./yaml.ts";

/** Returns the contents and lines of the documents, read by the full parser. An empty document has no line. */
const parseFully = (text: string) =>
  [...parseYamlDocuments(text)].map(({ document, getPosition }) => {
    if (document.errors[0]) throw document.errors[0];
    const value: unknown = document.toJS();
    return { value, line: value === null ? undefined : getPosition(document.contents?.range[0] ?? 0).line };
  });

const readPlain = (text: string) => parseJsonOrPlainYaml({ text })?.pieces;

/**
 * Fails if the plain reader reads other values or lines than the full parser. Returns false if the text isn't plain: then
 * the plain reader leaves it to the full parser.
 */
const assertReadAlikeIfPlain = (text: string): boolean => {
  const pieces = readPlain(text);
  if (pieces === undefined) return false;
  assert.deepEqual(
    // The full parser gives no line for an empty document.
    pieces.map(({ value, line }) => ({ value, line: value === null ? undefined : line })),
    parseFully(text),
    text,
  );
  for (const [index, { document, getPosition }] of [...parseYamlDocuments(text)].entries()) {
    const piece: YamlDocumentWithOffsets | undefined = pieces[index];
    const places: PositionFinder | undefined = piece && createPositionFinder(text, piece);
    for (const { path, offset } of listMembers(document.contents))
      if (places !== undefined) assert.deepEqual(places(path), getPosition(offset), `${text}\n${path.join(".")}`);
  }
  return true;
};

/** Returns the paths and offsets of all keys and items. */
const listMembers = (
  node: unknown,
  path: (string | number)[] = [],
): { path: (string | number)[]; offset: number }[] => {
  if (isMap(node))
    return node.items.flatMap(({ key, value }) => {
      const inner = [...path, String(isScalar(key) ? key.value : "")];
      return [
        ...(isScalar(key) && key.range ? [{ path: inner, offset: key.range[0] }] : []),
        ...listMembers(value, inner),
      ];
    });
  if (!isSeq(node)) return [];
  return node.items.flatMap((item, index) => {
    const inner = [...path, index];
    return [
      ...(isNode(item) && item.range ? [{ path: inner, offset: item.range[0] }] : []),
      ...listMembers(item, inner),
    ];
  });
};

/** Generates one of the words of a text, which are separated by §. */
const drawWords = (text: string) => fc.constantFrom(...text.split("§"));
const words = drawWords(
  `a§nginx:1.2§yes§No§on§null§~§0644§0o17§1_000§1e3§e1§.5§-1§+1§12:30§0x1f§0b1§1.2.3§100m§1Gi§2026-01-01§true§False§.inf§-.INF` +
    `§.NaN§y§N§...§---§http://a/b§a b  c§a#b§a #b§a: b§a:§: a§- a§-a§--x=1§?a§? a§!a§&a§*a§@a§%a§\`a\`§[a, b]§[]§{}§{ }§{a: b}` +
    `§["a", 1, b/c]§[ "a" ]§[a,]§]§,a§"a"§"a\\n"§"a§'a'§'it''s'§'a§"a" # b§"a"#b§'a' b§|§|-§|+§>§|2§| # a§<<§=§\\a§$(A)§ü§日本§😀` +
    `§a\tb§\ta§a §§ §# a§(a)§^a$§0§00§1.0§-§9007199254740993§1 2`,
);
const keyTexts = drawWords(`a§b§a.b/c§on§null§"q k"§'s'§1§<<§__proto__§constructor§? a§a b§§x-y§ü`);
const line = fc
  .tuple(
    fc.constantFrom(0, 0, 2, 2, 4, 4, 6, 1, 3),
    fc.constantFrom("", "", "", "- ", "- - ", "-  ", "-"),
    keyTexts,
    words,
  )
  .chain(([indent, dash, key, word]) =>
    fc.constantFrom(
      ...[`: ${word}`, `: ${word}`, ":", ": # c", `:${word}`, `:   ${word}`].map(
        (rest) => " ".repeat(indent) + dash + key + rest,
      ),
      " ".repeat(indent) + dash + word,
      "",
      "   ",
      "# c",
      "    # c",
      "---",
      "--- # c",
      "--- a",
      "...",
      "---a",
      "%YAML 1.1",
      "\t",
      "  \t# c",
    ),
  );
const texts = fc.array(line, { maxLength: 9 }).map((lines) => `${lines.join("\n")}\n`);

const object = fc.object({
  maxDepth: 5,
  key: fc.oneof(fc.string({ maxLength: 8 }), fc.stringMatching(/^[A-Za-z][\w./-]{0,8}$/)),
  values: [
    fc.string(),
    fc.stringMatching(/^[ -~\n]*$/),
    fc.boolean(),
    fc.integer(),
    fc.double({ noNaN: true }),
    fc.constant(null),
  ],
});

const { usual, unread } = readRows<{ usual: string; unread: { name: string; text: string }[] }>(import.meta.filename);
const levels = Array.from({ length: 2000 }, (_, depth) => `${" ".repeat(depth)}a:\n`).join("");

describe("plain YAML", () => {
  it("plain YAML is read as by the full parser, for any lines", () => {
    let plainTexts = 0;
    fc.assert(
      fc.property(texts, (text) => {
        if (assertReadAlikeIfPlain(text)) plainTexts++;
      }),
      { numRuns: 3000 },
    );
    assert.ok(plainTexts > 100, `of 3000 texts, the plain reader read ${plainTexts}`);
  });

  it("plain YAML is read as by the full parser, for any object and style", () => {
    const forms = fc.record({ indentSeq: fc.boolean(), singleQuote: fc.option(fc.boolean(), { nil: null }) });
    const several = fc.array(object, { minLength: 1, maxLength: 3 });
    fc.assert(
      fc.property(several, forms, (objects, form) => {
        assertReadAlikeIfPlain(
          objects.map((object) => stringify(object, { version: "1.1", lineWidth: 0, ...form })).join("---\n"),
        );
      }),
      { numRuns: 500 },
    );
  });

  it("plain YAML may be JSON with any indentation", () => {
    const spaces = fc.constantFrom(0, 1, 2, 4);
    fc.assert(
      fc.property(object, spaces, (object, indent) => {
        assert.ok(assertReadAlikeIfPlain(`\n${JSON.stringify(object, null, indent)}`));
      }),
    );
  });

  it("plain YAML has the usual forms of manifests", () => assert.ok(assertReadAlikeIfPlain(usual)));
  for (const { name, text } of [...unread, { name: "maps 2000 levels deep", text: levels }])
    it(`is left to the full parser if it has ${name}`, () => {
      assert.equal(readPlain(text), undefined);
    });
});
