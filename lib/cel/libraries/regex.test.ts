import { deepEqual, equal, throws } from "node:assert/strict";
import { describe, it } from "node:test";
import { compilePattern } from "./regex.ts";

// What Go's regexp finds with FindAllString.
const found: readonly (readonly [pattern: string, text: string, ...parts: string[]])[] = [
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

// What Go's regexp refuses, after `error parsing regexp: `.
const refused: readonly (readonly [pattern: string, error: string])[] = [
  ["a**", "invalid nested repetition operator: `**`"],
  ["(|*)", "missing argument to repetition operator: `*`"],
  ["x{2,1}", "invalid repeat count: `{2,1}`"],
  ["(a{30}){40}", "invalid repeat count: `{40}`"],
  ["a)", "unexpected ): `a)`"],
  ["(a", "missing closing ): `(a`"],
  ["[a", "missing closing ]: `[a`"],
  ["[z-a]", "invalid character class range: `z-a`"],
  ["[[:word]:]]", "invalid character class range: `[:word]:]`"],
  ["\\p{Grek}", "invalid character class range: `\\p{Grek}`"],
  ["\\p{Old_Italic}", "invalid character class range: `\\p{Old_Italic}`"],
  ["a\\1b", "invalid escape sequence: `\\1`"],
  ["\\x{110000}", "invalid escape sequence: `\\x{110000`"],
  ["\\", "trailing backslash at end of expression: ``"],
  ["(?=a)", "invalid or unsupported Perl syntax: `(?=`"],
  ["(?P<a-b>c)", "invalid named capture: `(?P<a-b>`"],
];

describe("a pattern", () => {
  for (const [pattern, text, ...parts] of found)
    it(`finds what Go finds: ${pattern}`, () => {
      const { test, find, findAll } = compilePattern(pattern);
      deepEqual([test(text), find(text), findAll(text)], [parts.length > 0, parts[0] ?? "", parts]);
    });

  for (const [pattern, error] of refused)
    it(`is refused as Go refuses it: ${pattern}`, () => {
      throws(() => compilePattern(pattern), { message: `error parsing regexp: ${error}` });
    });

  it("has limited levels and instructions", () => {
    const nest = (levels: number) => `${"(".repeat(levels)}a${")".repeat(levels)}`;
    equal(compilePattern(nest(999)).test("a"), true);
    throws(() => compilePattern(nest(1000)), /expression nests too deeply/);
    throws(() => compilePattern(`(${"a".repeat(300)}){1000}`), /expression too large/);
  });

  it("takes time in proportion to its length and that of the text", () => {
    equal(compilePattern("(a*)*b").test("a".repeat(20_000)), false);
    throws(() => compilePattern("[[:".repeat(100_000)), /missing closing \]/);
  });
});
