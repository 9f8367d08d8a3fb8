import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { sanitizeTerminalText, toOneLine, truncateText } from "./terminal.ts";

describe("text of unknown origin", () => {
  const table: [text: string, shown: string][] = [
    ["Pod shop/web", "Pod shop/web"],
    ["\u001b[31mred\u0007", "?[31mred?"],
    ["\u202egnp.exe", "?gnp.exe"],
    ["::error file=a::b", "?:error file=a::b"],
    ["  ::stop-commands::token", "  ?:stop-commands::token"],
    ["a ::1 and fd00::1", "a ::1 and fd00::1"],
    ["image ##vso[task.setvariable variable=PATH]x", "image #?vso[task.setvariable variable=PATH]x"],
    ["##[error]x", "#?[error]x"],
    ["## [a] heading", "## [a] heading"],
    ["\ud800", "\ufffd"],
  ];
  for (const [text, shown] of table)
    it(`${JSON.stringify(text)} is printed as ${JSON.stringify(shown)}`, () =>
      assert.equal(sanitizeTerminalText(text), shown));
  it("text of unknown origin is never printed as a pipeline command, and toOneLine returns one line", () => {
    const piece = fc.oneof(
      fc.constantFrom("::", ":", "##", "#", "vso[", "[", "]", "\n", "\r", "\t", " ", "\u001b", "\u2028", "error"),
      fc.string({ unit: "binary", maxLength: 3 }),
    );
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 12 }), (pieces) => {
        for (const shown of [sanitizeTerminalText(pieces.join("")), toOneLine(pieces.join(""))]) {
          assert.doesNotMatch(shown, /^\s*::|##\w*\[|\p{Cc}|\p{Bidi_Control}|\u2028/u);
          assert.equal(sanitizeTerminalText(shown), shown);
        }
      }),
    );
  });
  it("text of unknown origin is truncated if it is too long, but not within a character", () => {
    assert.equal(truncateText("abc", 3), "abc");
    assert.equal(truncateText("abcd", 3), "ab…");
    assert.ok(truncateText("a\u{1f600}bc", 3).isWellFormed());
  });
});
