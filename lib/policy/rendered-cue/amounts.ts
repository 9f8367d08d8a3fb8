import type { ExactFraction } from "../values/decimals.ts";
import { renderCueLiteral } from "./cue-text.ts";

const decimalSuffixes = { n: -9, u: -6, m: -3, "": 0, k: 3, M: 6, G: 9, T: 12, P: 15, E: 18 };
const binarySuffixes = { Ki: 10, Mi: 20, Gi: 30, Ti: 40, Pi: 50, Ei: 60 };

/** The exponents of ten and of two, by suffix. */
const scales = Object.fromEntries([
  ...Object.entries(decimalSuffixes).map(([suffix, tens]) => [suffix, [tens, 0]]),
  ...Object.entries(binarySuffixes).map(([suffix, twos]) => [suffix, [0, twos]]),
]);

/** Writes a fraction as a decimal; undefined if its decimal is infinite, such as 0.333…. */
export const formatDecimal = ({ numerator, denominator }: ExactFraction): string | undefined => {
  const size = numerator < 0n ? -numerator : numerator;
  // A denominator of n binary digits has less than n prime factors, so a finite decimal has at most n places.
  const maxPlaces = denominator.toString(2).length;
  for (let places = 0, scale = 1n; places <= maxPlaces; places++, scale *= 10n) {
    if ((size * scale) % denominator !== 0n) continue;
    const digits = ((size * scale) / denominator).toString().padStart(places + 1, "0");
    const fraction = digits.slice(digits.length - places);
    return `${numerator < 0n ? "-" : ""}${digits.slice(0, digits.length - places)}${fraction && `.${fraction}`}`;
  }
  return undefined;
};

/** CUE calculates with this number of digits, and rounds longer results. */
const precision = 24;

/** Returns a pattern for numbers whose product with a number of `otherFactorDigits` digits is exact in CUE. */
export const buildExactCueFactorPattern = (otherFactorDigits: number): string =>
  otherFactorDigits < precision ? `^-?[0-9.]{1,${precision - otherFactorDigits}}(E.*)?$` : noNumber;

/** Returns a pattern for numbers whose sum with `text` is exact in CUE. If `text` is large, it matches none. */
export const buildExactCueSummandPattern = (text: string): string =>
  new RegExp(smallNumber).test(text) ? smallNumber : noNumber;

const smallNumber = "^-?([0-9]{1,14}([.][0-9]{1,8})?|[0-9]([.][0-9]+)?E[+](1[0-3]|[0-9]))$";
const noNumber = "^$";

/**
 * Returns a CUE definition that computes the value of a number, or of a text that is a decimal or a quantity. In CUE,
 * `a & b` is an error if a and b are different, or if a is outside of the range b; `x != _|_` is true if x is no error;
 * `[if c {x}, y][0]` is x if c is true, and otherwise y. The CUE fails if it can't calculate exactly with a value:
 * - a text whose digits, read without the point, exceed 2^63-1 (`strconv.Atoi` fails);
 * - a text whose value has over nine decimals, such as 1.5n (`>=-9 & …` fails), or exceeds 2^63-1 (`<=_largest & …`);
 * - a value that doesn't match `numberPattern` (`exact`).
 *
 * The lists have at most one element. `parts` has the groups of `_quantity`: 1 sign, 2 digits with a point, 3 suffix, 4
 * exponent. For 1.5k, `point` is ["1", "5", ""], `digits` 15, `scale` [3, 0] (1000 = 10^3 * 2^0), and `tens` 2: 3 of
 * the suffix, plus the exponent, minus 1 digit after the point. So the text is 15e2: json.Unmarshal reads it exactly.
 */
export const renderCueAmountDefinition = (
  numberPattern?: string,
): string => `// the value of a number, or of a text such as 0.5, 500m or 1.5Gi
_amount: {
	of: _
	parts: [if (of & string) != _|_ if of =~ _quantity {regexp.FindSubmatch(_quantity, of)}]
	texts: [for part in parts {
		let point = strings.Split(part[2] + ".", ".")
		let digits = strconv.Atoi("0" + point[0] + point[1])
		let scale = _scales[part[3]]
		let tens = >=-9 & scale[0]+[if part[4] != "" {strconv.Atoi(part[4])}, 0][0]-len(point[1])
		"\\(strings.TrimPrefix(part[1], "+"))\\(bits.Lsh(digits, scale[1]))e\\(tens)"
	}]
	out: [
		if (of & number) != _|_ {of},
		for text in texts {>=-_largest & <=_largest & json.Unmarshal(text)},
	]${numberPattern === undefined ? "" : `\n\t// other numbers would be rounded\n\texact: [for amount in out {"\\(amount)" & =~${renderCueLiteral(numberPattern)}}]`}
}
_quantity: #"^([+-]?)([0-9]+[.]?[0-9]*|[.][0-9]+)(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?[0-9]{1,9}))?$"#
// powers of ten and of two
_scales: ${renderCueLiteral(scales)}
_largest: 9223372036854775807`;

/** Returns a CUE expression: a list with the amount of a value, or an empty list if the value is no number. */
export const renderAmountList = (value: string): string => `(_amount & {of: ${value}}).out`;
