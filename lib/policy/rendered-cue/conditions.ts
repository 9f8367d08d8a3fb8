import type { PolicyCondition } from "../types.ts";
import { parseConstant } from "../values/constants.ts";
import {
  calculateWithExactFractions,
  type ExactFraction,
  isExactFraction,
  parseDecimalOrPercentage,
  parseDecimalOrQuantity,
} from "../values/decimals.ts";
import {
  buildExactCueFactorPattern,
  buildExactCueSummandPattern,
  formatDecimal,
  renderAmountList,
  renderCueAmountDefinition,
} from "./amounts.ts";
import { locateReferenceInCue, renderCueLiteral, renderCueScript } from "./cue-text.ts";

/**
 * Renders a condition as CUE for people who read the policy. The condition must be valid. The CUE decides as the
 * condition does, but fails if CUE can't decide exactly, because it compares one of these:
 *
 * - a text that is a number with over nine decimals or over 2^63-1, or whose digits, without the point, exceed 2^63-1;
 * - numbers for which the calculation of `valueProcess` has a result of more than 24 digits;
 * - two different lists or maps, both read by references, with a number and a text that is a number: [1] and ["1"].
 */
export const renderConditionAsCue = (condition: PolicyCondition): string => {
  const { affectMode, message, dataRef } = condition;
  if (!dataRef) throw new Error("condition.dataRef is missing");
  const data = locateReferenceInCue(dataRef, "_d");
  const { inputs, parts, hit, definitions } = condition.cond.endsWith("Exist")
    ? renderExistence(condition)
    : renderComparison(condition);
  const [valid, isDenied] = affectMode === "allow" ? ["hit", "!hit"] : ["!hit", "hit"];
  return renderCueScript(
    [data.input, ...inputs],
    [
      `// the tested value, if it exists\nfound: [if ${data.place} != _|_ {${data.place}}]`,
      ...parts,
      `hit: ${hit}`,
      `validate: {\n\tvalid: ${valid}\n\tif ${isDenied} {reason: ${renderCueLiteral(message ?? "")}}\n}`,
      ...definitions,
    ],
  );
};

/** The CUE of a condition, as the parts of a script. */
interface RenderedCondition {
  /** Declarations of the data that the condition reads, such as `object: data.object`. */
  inputs: string[];
  /** Fields with values that `hit` uses, such as the compared value. */
  parts: string[];
  /** An expression that is true if the condition is met. */
  hit: string;
  /** Definitions that `hit` uses like functions, such as `_same`. They stand at the script's end. */
  definitions: string[];
}

const renderExistence = ({ cond }: PolicyCondition): RenderedCondition => {
  return { inputs: [], parts: [], hit: `len(found) ${cond === "Exist" ? ">" : "=="} 0`, definitions: [] };
};

/**
 * Renders a condition that compares two values. In the CUE, the tested value is `one`, the only element of the list
 * `found`; the other value is `other`, the only element of `given`. A list is empty if its value doesn't exist. For a
 * constant 3: `given: [3]` and `hit: list.Contains([for one in found for other in given {test}], true)`.
 */
const renderComparison = (condition: PolicyCondition): RenderedCondition => {
  const { cond, valueRef } = condition;
  const location = valueRef && locateReferenceInCue(valueRef);
  const value = location ? undefined : parseConstant(condition.value);
  if (!location && !value) throw new Error("condition needs value or valueRef");
  const compared = location ? `[if ${location.place} != _|_ {${location.place}}]` : `[${renderConstant(value?.value)}]`;
  // As in kinitiras, In and NotIn ignore valueProcess.
  const isProcessed = condition.valueProcess && !cond.endsWith("In");
  const { test, exactNumberPattern } = isProcessed ? renderProcessedTest(condition, value) : renderTest(cond, value);
  return {
    inputs: location ? [location.input] : [],
    parts: [`// the compared value${location ? ", if it exists" : ""}\ngiven: ${compared}`],
    hit: `list.Contains([for one in found for other in given {${test}}], true)`,
    definitions: [
      ...(test.includes("_same") ? [sameDefinition] : []),
      ...(test.includes("_ordered") ? [renderOrderDefinition(signs[cond] ?? "")] : []),
      ...(/_same|_ordered|_amount/.test(test) ? [renderCueAmountDefinition(exactNumberPattern)] : []),
    ],
  };
};

/** Renders a constant as CUE. Policies write fractions as decimals, so formatDecimal never returns undefined. */
const renderConstant = (value: unknown): string => {
  if (isExactFraction(value)) return formatDecimal(value) ?? "";
  return Array.isArray(value) ? `[${value.map(renderConstant).join(", ")}]` : renderCueLiteral(value);
};

type ConstantValue = { value: unknown } | undefined;

/** The operators of CUE, by condition. */
const signs: Record<string, string> = { Gt: ">", Gte: ">=", Lt: "<", Lte: "<=" };

interface RenderedTest {
  /** A CUE expression that is true if the condition is met. */
  test: string;
  /**
   * A regular expression that matches the numbers with which CUE calculates exactly. For other numbers, the evaluation
   * of the CUE ends in an error. Undefined if the test calculates nothing.
   */
  exactNumberPattern?: string | undefined;
}

const renderTest = (cond: PolicyCondition["cond"], value: ConstantValue): RenderedTest => {
  const sign = signs[cond];
  if (sign !== undefined) return { test: renderOrder(sign, value) };
  const test = cond.endsWith("In") ? renderMembership(value) : renderEquality(value);
  return { test: cond.startsWith("Not") ? `!${test}` : test };
};

// Regular expressions for JSON: a text that is a number or a quantity, and a number.
const quotedNumber = "\\x22[-+.0-9]+([eE][-+0-9]+|[numkMGTPE]|[KMGTPE]i)?\\x22";
const numberPattern = "[:[,]-?[0-9]";

/**
 * A CUE definition that compares two values; the first element of `out` counts. `(_amount & {of: x}).out` is a list of
 * one number, the numeric value of x, or empty if x has none. Lists or maps that differ may be equal by value if
 * their JSON (`text`) contains both a number and a text that is a number. CUE can't decide this, so the line with
 * `false & (…)` fails on purpose: in CUE, `false & true` is an error, and `false & false` is false.
 */
const sameDefinition = `// whether two values are equal; a number and a text are compared by value
_same: {
	one: _
	other: _
	isNumber: (one & number) != _|_ || (other & number) != _|_
	isSame: list.Contains([one], other)
	// different values may still be equal if they contain numbers and texts that are numbers
	text: json.Marshal([one, other])
	areLists: (one & [...]) != _|_ && (other & [...]) != _|_
	areMaps: (one & {...}) != _|_ && (other & {...}) != _|_
	out: [
		if isNumber {list.Contains([for amount in (_amount & {of: one}).out for wanted in (_amount & {of: other}).out {amount == wanted}], true)},
		if !isSame if areLists || areMaps {false & (text =~ #"${quotedNumber}"# && text =~ #"${numberPattern}"#)},
		isSame,
	][0]
}`;

const renderSame = (left: string, right: string) => `(_same & {"one": ${left}, "other": ${right}}).out`;

/**
 * Returns CUE that tests whether the variables `one` and `other` are equal. If `other` is a constant list or map, each
 * of its members is compared with the member of `one` (renderSame), and both must have the same type and length. In
 * CUE, `x != _|_` is true if x exists, and `[if c {x}, false][0]` is x if c is true, else false.
 */
const renderEquality = (constantOfOther: ConstantValue): string => {
  if (constantOfOther === undefined) return renderSame("one", "other");
  const { value: constant } = constantOfOther;
  if (Array.isArray(constant))
    return renderSameTypeAndMembers("[...]", `for index, member in other {${renderSame("one[index]", "member")}}`);
  if (typeof constant === "object" && constant !== null && !isExactFraction(constant))
    return renderSameTypeAndMembers(
      "{...}",
      `for key, member in other {[if one[key] != _|_ {${renderSame("one[key]", "member")}}, false][0]}`,
    );
  // The constant's type decides the CUE. For "a", it is `list.Contains([one], other)`: true if both values are equal.
  return renderEqualityByTypes("other", [constant]);
};

/** Returns CUE that tests whether `one` has a type and the length of `other`, and all tests of members are true. */
const renderSameTypeAndMembers = (type: "[...]" | "{...}", memberTests: string) =>
  `[if (one & ${type}) != _|_ if len(one) == len(other) {!list.Contains([${memberTests}], false)}, false][0]`;

/**
 * Returns CUE that tests whether `one` equals an element (in the CUE, `member`) of the list `other`. If `other` is a
 * constant (`constantOfOther`), `one` is compared by the simplest CUE that is right for the types of the constants.
 */
const renderMembership = (constantOfOther: ConstantValue): string => {
  const constants = Array.isArray(constantOfOther?.value) ? constantOfOther.value : undefined;
  const isEqual = constants ? renderEqualityByTypes("member", constants) : renderSame("one", "member");
  return `list.Contains([for member in other & [...] {${isEqual}}], true)`;
};

/**
 * Returns CUE that tests whether the CUE variable `one` equals `variable`, whose value is among `possibleConstants`.
 * The test is as simple as the constants' types allow. If `one` has another type, the test is false: `==` would fail.
 */
const renderEqualityByTypes = (variable: string, possibleConstants: unknown[]): string => {
  // The list of amounts has only the number that `one` is. If `one` is no number, the list is empty: the test is false.
  if (possibleConstants.every((constant) => typeof constant === "number" || isExactFraction(constant)))
    return `list.Contains([for amount in ${renderAmountList("one")} {amount == ${variable}}], true)`;
  // A constant text such as "1000m" also equals the number 1: `renderSame` compares by value, not only as texts.
  return possibleConstants.some((constant) => parseDecimalOrQuantity(constant) !== undefined)
    ? renderSame("one", variable)
    : `list.Contains([one], ${variable})`;
};

/** Returns CUE for `one < other` or another `sign`. Without `constantOfOther`, only the running CUE knows `other`. */
const renderOrder = (sign: string, constantOfOther: ConstantValue): string => {
  const constant = constantOfOther?.value;
  // The list has the number that `one` is. It is empty if `one` is no number; then `[0]` fails.
  if (typeof constant === "number" || isExactFraction(constant)) return `${renderAmountList("one")}[0] ${sign} other`;
  const ofTexts = `(one & string) ${sign} (other & string)`;
  if (constantOfOther !== undefined && parseDecimalOrQuantity(constant) === undefined) return ofTexts;
  // Only the CUE can find out whether both values are numbers, or texts that are numbers. `_ordered` compares these by
  // value, and other values as texts.
  return `(_ordered & {"one": one, "other": other}).out`;
};

/**
 * Returns a CUE definition that orders two values; `sign` is for instance "<". The list `results` has the result for
 * two numbers; it is empty if one of the values is no number.
 */
const renderOrderDefinition = (
  sign: string,
) => `// numbers, and texts that are numbers, are ordered by value, other texts as texts
_ordered: {
	one: _
	other: _
	results: [for amount in ${renderAmountList("one")} for wanted in ${renderAmountList("other")} {amount ${sign} wanted}]
	out: [
		for result in results {result},
		if len(results) == 0 {(one & string) ${sign} (other & string)},
	][0]
}`;

/**
 * Renders the test of a condition with `valueProcess` as CUE, such as `(_amount & {of: one}).out[0] > 6` for "greater
 * than 3 * 2". The 6 is calculated here; with a referenced value instead of the constant 3, the rendered CUE calculates
 * it. `out` is a list with only the number of the tested value `one`. This is multiplied by `leftFactor` if the right
 * side would be a division. The CUE fails for numbers that don't match `exactNumberPattern`: it would round.
 */
const renderProcessedTest = ({ cond, valueProcess }: PolicyCondition, value: ConstantValue): RenderedTest => {
  const { operation, operationWith = "" } = valueProcess ?? {};
  const operand = parseDecimalOrPercentage(operationWith);
  if (operand === undefined) throw new Error("condition.valueProcess.operationWith must be a number or a percentage");
  const constantNumber = value && parseDecimalOrQuantity(value.value);
  const { leftFactor, rightSide, exactNumberPattern } =
    value === undefined
      ? renderReferenceSides(String(operation), operand)
      : renderConstantSides(constantNumber && calculateWithExactFractions(constantNumber, operation, operand));
  const sign = signs[cond];
  if (sign !== undefined)
    return { test: `${renderAmountList("one")}[0]${leftFactor} ${sign} ${rightSide}`, exactNumberPattern };
  const isEqual = `list.Contains([for amount in ${renderAmountList("one")} {amount${leftFactor} == ${rightSide}}], true)`;
  // If the tested value is no number, its list of amounts is empty, and `isEqual` doesn't evaluate the right side. But
  // CUE must fail even then if the right side is no number. So if it may be none (a reference, or a constant without a
  // number), `!= null` evaluates the right side.
  const test = constantNumber === undefined ? `(${rightSide} != null && ${isEqual})` : isEqual;
  return { test: cond === "NotEqual" ? `!${test}` : test, exactNumberPattern };
};

/**
 * The sides of a comparison in CUE. The left side is the tested value as a number, followed by `leftFactor`, such as
 * ` * 3`, or by nothing. CUE calculates exactly only with numbers that match the regular expression
 * `exactNumberPattern`; for others, the CUE ends in an error.
 */
interface ComparedSides {
  leftFactor: string;
  rightSide: string;
  exactNumberPattern?: string | undefined;
}

/**
 * Returns the sides for a constant. If it has no finite decimal, such as 1/3, both sides are multiplied by its
 * denominator: `x == 1/3` is rendered as `x * 3 == 1`. CUE must calculate this product exactly, so not all x are
 * allowed.
 */
const renderConstantSides = (wanted: ExactFraction | undefined): ComparedSides => {
  // The constant (`other` in the CUE) is no number: `&` fails if data is compared, as in the policy engine kinitiras.
  if (wanted === undefined) return { leftFactor: "", rightSide: "(other & number)" };
  const text = formatDecimal(wanted);
  if (text !== undefined) return { leftFactor: "", rightSide: text };
  const { numerator, denominator } = wanted;
  return {
    leftFactor: ` * ${denominator}`,
    rightSide: String(numerator),
    exactNumberPattern: buildExactCueFactorPattern(String(denominator).length),
  };
};

/**
 * Renders both sides of a comparison with a referenced value (`other`) plus, minus, times or divided by a number, the
 * `operand`. CUE rounds results of more than 24 digits, so `exactNumberPattern` allows only numbers for which the
 * result has no more: the more digits `operand` has, the fewer digits the tested and the referenced value may have.
 */
const renderReferenceSides = (operator: string, operand: ExactFraction): ComparedSides => {
  const amount = `${renderAmountList("other")}[0]`;
  const text = formatDecimal(operand) ?? "";
  if (operator === "+" || operator === "-")
    return {
      leftFactor: "",
      rightSide: `${amount} ${operator} (${text})`,
      exactNumberPattern: buildExactCueSummandPattern(text),
    };
  const exactNumberPattern = buildExactCueFactorPattern(text.replace(/[-.]/g, "").length);
  if (operator === "*") return { leftFactor: "", rightSide: `${amount} * (${text})`, exactNumberPattern };
  // `a < b / c` is rendered as `a * c < b`, because a division might be inexact in CUE. With a negative c, it is
  // `a * -c < -b`, because a factor below 0 would reverse the `<`.
  return text.startsWith("-")
    ? { leftFactor: ` * ${text.slice(1)}`, rightSide: `-(${amount})`, exactNumberPattern }
    : { leftFactor: ` * ${text}`, rightSide: amount, exactNumberPattern };
};
