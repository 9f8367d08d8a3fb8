import type { PolicyCondition, PolicyConstant } from "../types.ts";
import { findSetField, needsComparison } from "../values/constants.ts";
import { parseDecimal, parsePercentage } from "../values/decimals.ts";
import { quoteValue } from "../values/texts.ts";
import { reference } from "./references.ts";
import {
  type Across,
  type Check,
  fields,
  listOf,
  oneOf,
  required,
  text,
  textMap,
  texts,
  textThat,
  truth,
  whole,
} from "./shape-checks.ts";

const decimal: Check = textThat((value) =>
  parseDecimal(value) ? undefined : `must be a decimal number such as "1.5", not ${quoteValue(value)}`,
);

export const constant: Check = fields<PolicyConstant>({
  string: text,
  integer: whole,
  float: decimal,
  boolean: truth,
  stringSlice: texts,
  integerSlice: listOf(whole),
  floatSlice: listOf(decimal),
  stringMap: textMap,
});

const orders = ["Gt", "Gte", "Lt", "Lte"];
const memberships = ["In", "NotIn"];
const existences = ["Exist", "NotExist"];

const operandFault = ({
  operation,
  operationWith,
}: NonNullable<PolicyCondition["valueProcess"]>): string | undefined => {
  if (operationWith === undefined || operationWith === "") return "is missing";
  const operand = parsePercentage(operationWith);
  if (operand === undefined) return `must be a number or a percentage such as "50%", not ${quoteValue(operationWith)}`;
  return operation === "/" && operand.numerator === 0n ? "must not be 0: nothing can be divided by it" : undefined;
};

const wordOrNumber: Check = (value, at, faults) => (typeof value === "string" ? text : whole)(value, at, faults);

const valueProcess: Check = fields<NonNullable<PolicyCondition["valueProcess"]>>(
  { operation: required(oneOf("+", "-", "*", "/")), operationWith: wordOrNumber },
  (given, blame) => {
    const fault = operandFault(given);
    if (fault) blame("operationWith", fault);
  },
);

const comparison: Across<PolicyCondition> = (condition, blame) => {
  const { cond, value, valueRef } = condition;
  if (!needsComparison(condition) || valueRef !== undefined) return;
  const field = findSetField(value);
  const isList = field?.endsWith("Slice");
  if (field === undefined) blame("value", `is missing; ${cond} needs value or valueRef`);
  else if (memberships.includes(cond) && !isList)
    blame("value", `must be a list (stringSlice, integerSlice or floatSlice) for ${cond}, not ${field}`);
  else if (orders.includes(cond) && (isList || field === "stringMap"))
    blame("value", `must be a number or a text for ${cond}, not ${field}`);
};

export const condition: Check = fields<PolicyCondition>(
  {
    affectMode: (value, at, faults) => (value === "" ? undefined : oneOf("reject", "allow")(value, at, faults)),
    cond: required(oneOf("Equal", "NotEqual", ...existences, ...memberships, ...orders)),
    dataRef: required(reference),
    valueRef: reference,
    value: constant,
    valueProcess,
    message: text,
  },
  comparison,
);
