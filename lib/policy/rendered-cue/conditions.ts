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
  renderAmountExpression,
  renderCueAmountDefinition,
} from "./amounts.ts";
import { locateReferenceInCue, renderCueLiteral, renderCueScript } from "./cue-text.ts";

/**
 * Renders a condition as CUE for people who read the policy. The condition must be valid. The CUE decides as the
 * condition does, but fails if CUE can't calculate exactly: with a text of 19 digits or more, with more than nine
 * decimals or larger than 2^63-1; with results of more than 24 digits; and with two referenced lists or maps that
 * differ, if they contain both numbers and texts that are numbers.
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

/** A condition in CUE. `hit` is an expression that is true if the condition is met. It uses the other members. */
interface RenderedCondition {
  inputs: string[];
  parts: string[];
  hit: string;
  definitions: string[];
}

const renderExistence = ({ cond }: PolicyCondition): RenderedCondition => {
  return { inputs: [], parts: [], hit: `len(found) ${cond === "Exist" ? ">" : "=="} 0`, definitions: [] };
};

/** Renders a condition that compares the tested value (`one`) with another value (`other`). */
const renderComparison = (condition: PolicyCondition): RenderedCondition => {
  const { cond, valueRef } = condition;
  const location = valueRef && locateReferenceInCue(valueRef);
  const value = location ? undefined : parseConstant(condition.value);
  if (!location && !value) throw new Error("condition needs value or valueRef");
  const compared = location ? `[if ${location.place} != _|_ {${location.place}}]` : `[${renderConstant(value?.value)}]`;
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

const renderConstant = (value: unknown): string => {
  if (isExactFraction(value)) return formatDecimal(value) ?? "";
  return Array.isArray(value) ? `[${value.map(renderConstant).join(", ")}]` : renderCueLiteral(value);
};

type ConstantValue = { value: unknown } | undefined;

/** The operators of CUE, by condition. */
const signs: Record<string, string> = { Gt: ">", Gte: ">=", Lt: "<", Lte: "<=" };

interface RenderedTest {
  test: string;
  /**
   * Matches the numbers with which CUE calculates exactly; with other numbers, the test fails. Undefined if the test
   * only compares.
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

/** A CUE definition that compares two values. If it can't decide, it fails: in CUE, `false & true` is an error. */
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

/** Returns CUE that tests whether `one` equals `other`. The test is simpler if `other` is a constant (`value`). */
const renderEquality = (value: ConstantValue): string => {
  if (value === undefined) return renderSame("one", "other");
  const { value: constant } = value;
  if (Array.isArray(constant))
    return renderAllMembers("[...]", `for index, member in other {${renderSame("one[index]", "member")}}`);
  if (typeof constant === "object" && constant !== null && !isExactFraction(constant))
    return renderAllMembers(
      "{...}",
      `for key, member in other {[if one[key] != _|_ {${renderSame("one[key]", "member")}}, false][0]}`,
    );
  return renderConstantEquality("other", [constant]);
};

const renderAllMembers = (shape: string, members: string) =>
  `[if (one & ${shape}) != _|_ if len(one) == len(other) {!list.Contains([${members}], false)}, false][0]`;

/** Returns CUE that tests whether `one` equals an element of `other`; `value` is `other` if it is a constant. */
const renderMembership = (value: ConstantValue): string => {
  const members = Array.isArray(value?.value) ? value.value : undefined;
  return `list.Contains([for member in other & [...] {${members ? renderConstantEquality("member", members) : renderSame("one", "member")}}], true)`;
};

/**
 * Returns CUE that tests whether `one` equals the CUE variable `variable`, which has one of these constants. The test
 * is as simple as the types of the constants allow.
 */
const renderConstantEquality = (variable: string, constants: unknown[]): string => {
  if (constants.every((constant) => typeof constant === "number" || isExactFraction(constant)))
    return `list.Contains([for amount in ${renderAmountExpression("one")} {amount == ${variable}}], true)`;
  return constants.some((constant) => parseDecimalOrQuantity(constant) !== undefined)
    ? renderSame("one", variable)
    : `list.Contains([one], ${variable})`;
};

/** Returns CUE that compares `one` with `other` by an operator such as `<`. */
const renderOrder = (sign: string, value: ConstantValue): string => {
  const constant = value?.value;
  if (typeof constant === "number" || isExactFraction(constant))
    return `${renderAmountExpression("one")}[0] ${sign} other`;
  const ofTexts = `(one & string) ${sign} (other & string)`;
  if (value !== undefined && parseDecimalOrQuantity(constant) === undefined) return ofTexts;
  // Only the CUE itself can find out whether both values are numbers.
  return `(_ordered & {"one": one, "other": other}).out`;
};

/** Returns a CUE definition that orders two values; `sign` is for instance "<". */
const renderOrderDefinition = (
  sign: string,
) => `// numbers, and texts that are numbers, are ordered by value, other texts as texts
_ordered: {
	one: _
	other: _
	amounts: [for amount in ${renderAmountExpression("one")} for wanted in ${renderAmountExpression("other")} {amount ${sign} wanted}]
	out: [
		for isSo in amounts {isSo},
		if len(amounts) == 0 {(one & string) ${sign} (other & string)},
	][0]
}`;

/**
 * Renders the test of a condition with `valueProcess` as CUE. With a constant value, the result is calculated here;
 * with a referenced value, the rendered CUE calculates it.
 */
const renderProcessedTest = ({ cond, valueProcess }: PolicyCondition, value: ConstantValue): RenderedTest => {
  const { operation, operationWith = "" } = valueProcess ?? {};
  const operand = parseDecimalOrPercentage(operationWith);
  if (operand === undefined) throw new Error("condition.valueProcess.operationWith must be a number or a percentage");
  const number = value && parseDecimalOrQuantity(value.value);
  const { calculation, rightSide, exactNumberPattern } =
    value === undefined
      ? renderReferenceSides(String(operation), operand)
      : renderConstantSides(number && calculateWithExactFractions(number, operation, operand));
  const sign = signs[cond];
  if (sign !== undefined)
    return { test: `${renderAmountExpression("one")}[0]${calculation} ${sign} ${rightSide}`, exactNumberPattern };
  const isEqual = `list.Contains([for amount in ${renderAmountExpression("one")} {amount${calculation} == ${rightSide}}], true)`;
  // The test evaluates the right side first, so that CUE fails if it is no number, even without data.
  const test = number === undefined ? `(${rightSide} != null && ${isEqual})` : isEqual;
  return { test: cond === "NotEqual" ? `!${test}` : test, exactNumberPattern };
};

/**
 * The sides of a comparison in CUE. The left side is the tested value's amount and `calculation`, such as ` * 3`.
 * `exactNumberPattern` is as in RenderedTest.
 */
interface ComparedSides {
  calculation: string;
  rightSide: string;
  exactNumberPattern?: string | undefined;
}

/** Returns the sides for a constant. If the constant has no finite decimal, both sides are multiplied. */
const renderConstantSides = (wanted: ExactFraction | undefined): ComparedSides => {
  // If the constant is no number, the rendered CUE fails once there is data to compare, as kinitiras does.
  if (wanted === undefined) return { calculation: "", rightSide: "(other & number)" };
  const text = formatDecimal(wanted);
  if (text !== undefined) return { calculation: "", rightSide: text };
  const { numerator, denominator } = wanted;
  return {
    calculation: ` * ${denominator}`,
    rightSide: String(numerator),
    exactNumberPattern: buildExactCueFactorPattern(String(denominator).length),
  };
};

/** Returns both sides of the comparison with a referenced value, to which CUE adds, for instance, a number. */
const renderReferenceSides = (sign: string, operand: ExactFraction): ComparedSides => {
  const amount = `${renderAmountExpression("other")}[0]`;
  const text = formatDecimal(operand) ?? "";
  if (sign === "+" || sign === "-")
    return {
      calculation: "",
      rightSide: `${amount} ${sign} (${text})`,
      exactNumberPattern: buildExactCueSummandPattern(text),
    };
  const exactNumberPattern = buildExactCueFactorPattern(text.replace(/[-.]/g, "").length);
  if (sign === "*") return { calculation: "", rightSide: `${amount} * (${text})`, exactNumberPattern };
  // `a == b / c` is rendered as `a * c == b`, because a division might be inexact in CUE.
  return text.startsWith("-")
    ? { calculation: ` * ${text.slice(1)}`, rightSide: `-(${amount})`, exactNumberPattern }
    : { calculation: ` * ${text}`, rightSide: amount, exactNumberPattern };
};
