import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { quoteAsGo } from "./quoted.ts";

describe("a quoted text", () => {
  // Texts, and the results of Go's strconv.Quote for them.
  const texts = {
    "": '""',
    'a "b" \\c': '"a \\"b\\" \\\\c"',
    "\u0007\b\f\n\r\t\v\0\x1f\x7f": '"\\a\\b\\f\\n\\r\\t\\v\\x00\\x1f\\x7f"',
    "ä\u00a0\u200b\u2028\ufffd": '"ä\\u00a0\\u200b\\u2028\ufffd"',
    "😀\u{e0001}": '"😀\\U000e0001"',
  };
  for (const [text, shown] of Object.entries(texts))
    it(`quotes ${JSON.stringify(text)} as Go does`, () => assert.equal(quoteAsGo(text), shown));
});
