import type { PolicyCondition, PolicyConstant } from "../types.ts";
import { findSetField, needsComparison } from "../values/constants.ts";
import { parseDecimal, parseDecimalOrPercentage } from "../values/decimals.ts";
import { quoteValue } from "../values/texts.ts";
import { checkReference } from "./references.ts";
import {
  type CrossFieldCheck,
  checkBoolean,
  checkEachListElement,
  checkFields,
  checkInteger,
  checkOneOf,
  checkRequired,
  checkText,
  checkTextMap,
  checkTexts,
  createTextCheck,
  type ValueCheck,
} from "./shape-checks.ts";

const checkDecimal: ValueCheck = createTextCheck((value) =>
  parseDecimal(value) ? undefined : `must be a decimal number such as "1.5", not ${quoteValue(value)}`,
);

/** Checks a constant value in a policy. It has one field, for its type. */
export const checkConstant: ValueCheck = checkFields<PolicyConstant>({
  string: checkText,
  integer: checkInteger,
  float: checkDecimal,
  boolean: checkBoolean,
  stringSlice: checkTexts,
  integerSlice: checkEachListElement(checkInteger),
  floatSlice: checkEachListElement(checkDecimal),
  stringMap: checkTextMap,
});

const orderConditions = ["Gt", "Gte", "Lt", "Lte"];
const listConditions = ["In", "NotIn"];
const existenceConditions = ["Exist", "NotExist"];

/** Returns what is wrong with the operand of `valueProcess`; undefined if nothing is. */
const findOperandFault = ({
  operation,
  operationWith,
}: NonNullable<PolicyCondition["valueProcess"]>): string | undefined => {
  if (operationWith === undefined || operationWith === "") return "is missing";
  const operand = parseDecimalOrPercentage(operationWith);
  if (operand === undefined) return `must be a number or a percentage such as "50%", not ${quoteValue(operationWith)}`;
  return operation === "/" && operand.numerator === 0n ? "must not be 0 in a division" : undefined;
};

const checkTextOrInteger: ValueCheck = (value, at, faults) =>
  (typeof value === "string" ? checkText : checkInteger)(value, at, faults);

const checkValueProcess: ValueCheck = checkFields<NonNullable<PolicyCondition["valueProcess"]>>(
  { operation: checkRequired(checkOneOf("+", "-", "*", "/")), operationWith: checkTextOrInteger },
  (valueProcess, reportFault) => {
    const fault = findOperandFault(valueProcess);
    if (fault) reportFault("operationWith", fault);
  },
);

/** Checks whether the constant of a comparison fits the condition, such as a list for `In`. */
const checkComparison: CrossFieldCheck<PolicyCondition> = (condition, reportFault) => {
  const { cond, value, valueRef } = condition;
  if (!needsComparison(condition) || valueRef !== undefined) return;
  const field = findSetField(value);
  const isList = field?.endsWith("Slice");
  if (field === undefined) reportFault("value", `is missing; ${cond} needs value or valueRef`);
  else if (listConditions.includes(cond) && !isList)
    reportFault("value", `must be a list (stringSlice, integerSlice or floatSlice) for ${cond}, not ${field}`);
  else if (orderConditions.includes(cond) && (isList || field === "stringMap"))
    reportFault("value", `must be a number or a text for ${cond}, not ${field}`);
};

/** Checks a condition of a validate policy. */
export const checkCondition: ValueCheck = checkFields<PolicyCondition>(
  {
    affectMode: (value, at, faults) => (value === "" ? undefined : checkOneOf("reject", "allow")(value, at, faults)),
    cond: checkRequired(checkOneOf("Equal", "NotEqual", ...existenceConditions, ...listConditions, ...orderConditions)),
    dataRef: checkRequired(checkReference),
    valueRef: checkReference,
    value: checkConstant,
    valueProcess: checkValueProcess,
    message: checkText,
  },
  checkComparison,
);
