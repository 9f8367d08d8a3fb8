import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { compilePattern, regexFunctions } from "./regex.ts";

// The expressions in libraries.test.yaml test what patterns find; this file tests the other behaviour of patterns.

const long = "a".repeat(200_000);

/** Patterns that need at least quadratic time in engines that try one way to match after the other. */
const slowElsewhere = ["(a*)*b", "(a|aa)+$", "^(a+)+$", "(.*)(.*)(.*)(.*)[^a]", "(?:a?){50}a{50}b", "a[ab]{200}c"];

// The matches that FindAllString of Go's package regexp finds.
const matchesInGo: readonly (readonly [pattern: string, text: string, ...parts: string[]])[] = [
  ["a|ab", "ab", "a"],
  ["a+?", "aa", "a", "a"],
  ["(?U)a+", "aa", "a", "a"],
  ["(|a)+", "aa", "", "", ""],
  ["(|a)*", "aa", "", "", ""],
  ["x{2,3}", "xxxxx", "xxx", "xx"],
  ["x{,2}", "x{,2}", "x{,2}"],
  ["^b$", "a\nb\nc"],
  ["(?m)^b$", "a\nb\nc", "b"],
  [".", "\n😀", "😀"],
  ["(?s:.)", "\n😀", "\n", "😀"],
  ["(?i)k", "kKK", "k", "K", "K"],
  ["(?i)[^k]", "KKs", "s"],
  ["(?i)\\W", "sſK-", "-"],
  ["(?i)\\p{Lu}", "aB1", "a", "B"],
  ["\\p{greek}\\pL\\P{^lowercase letter}", "σaβ", "σaβ"],
  ["[[:^alpha:]\\d]", "a1 ", "1", " "],
  ["[]a-]", "]a-b", "]", "a", "-"],
  ["\\Qa.b\\E+", "a.bb", "a.bb"],
  ["\\101\\x42\\x{1F600}", "AB😀", "AB😀"],
  ["\\bé", "é aé", "é"],
];

describe("a pattern", () => {
  for (const [pattern, text, ...parts] of matchesInGo)
    it(`finds what Go finds: ${pattern}`, () => {
      const compiled = compilePattern(pattern);
      const results = [compiled.test(text), compiled.find(text), compiled.findAll(text)];
      assert.deepEqual(results, [parts.length > 0, parts[0] ?? "", parts]);
    });

  for (const source of slowElsewhere)
    it(`takes linear time: ${source}`, () => {
      const pattern = compilePattern(source);
      // If the time were more than linear, the test would not end.
      assert.equal(pattern.test(`${long}!`), pattern.find(`${long}!`) !== "");
    });

  it("a pattern has the same result if it has more states than the cache keeps", () => {
    const pattern = compilePattern("a[ab]{16}c");
    let text = "";
    // This text never repeats itself regularly, so that nearly each position has a different state.
    for (let seed = 1; text.length < 20_000; seed = (seed * 48_271) % 2_147_483_647) text += seed & 1 ? "a" : "b";
    assert.equal(pattern.test(text), false);
    assert.equal(pattern.test(`${text}a${"b".repeat(16)}c`), true);
    assert.equal(pattern.test(text), false);
  });

  it("a pattern is cached until a hundred other patterns have been used", () => {
    const pattern = compilePattern("kept");
    for (let index = 0; index < 99; index++) compilePattern(`${index}`);
    assert.equal(compilePattern("kept"), pattern);
    for (let index = 0; index < 100; index++) compilePattern(`${index}`);
    assert.notEqual(compilePattern("kept"), pattern);
  });

  it("a constant pattern of a call is compiled only once, however many other patterns are used", () => {
    const functions = regexFunctions.flatMap(({ precompile }) => precompile?.("[a-c]") ?? []);
    const patterns = Array.from({ length: 100 }, (_, index) => compilePattern(`${index}`));
    const results = functions.map((apply) => apply("abc", "[a-c]"));
    assert.deepEqual(results, ["a", ["a", "b", "c"]]);
    // If a call had compiled its pattern again, it would have replaced the oldest one.
    assert.equal(compilePattern("0"), patterns[0]);
  });

  for (const [source, error] of [
    ["a{1001}", "invalid repeat count: `{1001}`"],
    ["(?:a{100}){11}", "invalid repeat count: `{11}`"],
    ["a**", "invalid nested repetition operator: `**`"],
    ["(?=a)", "invalid or unsupported Perl syntax: `(?=`"],
    ["\\p{Nope}", "invalid character class range: `\\p{Nope}`"],
    ["[b-a]", "invalid character class range: `b-a`"],
    ["a)", "unexpected ): `a)`"],
    ["\\", "trailing backslash at end of expression: ``"],
    ["(|*)", "missing argument to repetition operator: `*`"],
    ["x{2,1}", "invalid repeat count: `{2,1}`"],
    ["(a{30}){40}", "invalid repeat count: `{40}`"],
    ["(a", "missing closing ): `(a`"],
    ["[a", "missing closing ]: `[a`"],
    ["[z-a]", "invalid character class range: `z-a`"],
    ["[[:word]:]]", "invalid character class range: `[:word]:]`"],
    ["\\p{Grek}", "invalid character class range: `\\p{Grek}`"],
    ["\\p{Old_Italic}", "invalid character class range: `\\p{Old_Italic}`"],
    ["a\\1b", "invalid escape sequence: `\\1`"],
    ["\\x😀1", "invalid escape sequence: `\\x😀1`"],
    ["\\x{110000}", "invalid escape sequence: `\\x{110000`"],
    ["(?P<a-b>c)", "invalid named capture: `(?P<a-b>`"],
    [`(${"a".repeat(300)}){1000}`, "expression too large"],
    ["[[:".repeat(100_000), "missing closing ]"],
    ["(".repeat(1001) + ")".repeat(1001), "expression nests too deeply"],
  ] as const)
    it(`refuses ${source.slice(0, 20)}`, () =>
      assert.throws(
        () => compilePattern(source),
        ({ message }: Error) => message.startsWith(`error parsing regexp: ${error}`),
      ));
});
