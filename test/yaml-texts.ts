import fc from "fast-check";

// Texts near the forms that YAML 1.1, YAML 1.2 or their parsers take for something other than the text.

const words =
  "y n Y N on On off OFF yes Yes no NO true True false null NULL ~ = << .inf -.INF .nan 0b11 12_3 1_000.5 1__0 0_x1f 0x1F " +
  "0o7 017 08 1:20 190:20:30.15 1e3 1E+3 e1 .5e3 5. +1 -0 _1 1_ 2026-01-01 2026-01-01T10:00:00Z 2026-1-1 0x 0b 1.2.3 100m " +
  "--- ... - ? : ! & * | > |- >2 % @ ` # , [ ] { } [] {} <<: a b.c/d a:b http://x/y x-1 -x --x=1 \" ' '' \\ \\n /";
/** Texts and parts of texts that have a meaning in YAML, or need quotes or escapes. */
const pieces = [
  ...words.split(" "),
  ..."0123456789abefoxyzEINTZ_.+-:,=~#'\"",
  " ",
  "  ",
  ": ",
  " #",
  "- ",
  "? ",
  "a: b",
  "\t",
  "\n",
  "\n\n",
  "\n ",
  "\r",
  "\r\n",
  " \n",
  "\n---\n",
  "\n...\n",
  "\n# a",
  "\u0085",
  "\u2028",
  "\u2029",
  "\ufeff",
  "\u00a0",
  "\u0000",
  "\u0007",
  "\u001b",
  "\u007f",
  "\u0080",
  "\u200e",
  "\ufffe",
  "ü",
  "日本",
  "😀",
  "\u{10ffff}",
  `${"word ".repeat(30)}end`,
  "x".repeat(200),
];

/** Generates texts that YAML may take for something else, and random texts. */
export const yamlTexts = fc.oneof(
  { weight: 6, arbitrary: fc.array(fc.constantFrom(...pieces), { maxLength: 4 }).map((some) => some.join("")) },
  { weight: 2, arbitrary: fc.string({ unit: fc.constantFrom(..."0123456789_.:-+eExobnyT"), maxLength: 8 }) },
  { weight: 1, arbitrary: fc.string({ unit: "grapheme", maxLength: 12 }) },
);

/** Generates keys; one in a thousand is longer than YAML's limit for keys without a question mark. */
const keys = fc.oneof(
  { weight: 1000, arbitrary: yamlTexts },
  { weight: 1, arbitrary: yamlTexts.map((text) => `${text}${"long key ".repeat(130)}`) },
);

const numbers = fc.oneof(
  fc.integer(),
  // Integers that a number can't hold exactly are left out, because the project reads their digits as bigints. The
  // last numbers are written with an exponent, so they stay numbers. The sum with 0 makes 0 of -0.
  fc
    .double({ noNaN: true, noDefaultInfinity: true })
    .filter((value) => Number.isSafeInteger(value) || !Number.isInteger(value))
    .map((value) => value + 0),
  fc.constantFrom(1e21, 5e-7, -2e300),
);

/** Generates lists, maps, texts, numbers and so on. */
export const { value: yamlValues } = fc.letrec((tie) => ({
  value: fc.oneof(
    { depthSize: "small" },
    { weight: 8, arbitrary: yamlTexts },
    { weight: 1, arbitrary: fc.oneof(numbers, fc.boolean(), fc.constant(null)) },
    { weight: 2, arbitrary: fc.array(tie("value"), { maxLength: 4 }) },
    { weight: 2, arbitrary: fc.dictionary(keys, tie("value"), { maxKeys: 4, noNullPrototype: true }) },
  ),
}));
