import type { Condition, Constant } from "../types.ts";
import { compares, settled } from "../values/constants.ts";
import { parseDecimal, parsePercentage } from "../values/decimals.ts";
import { shown } from "../values/texts.ts";
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
  parseDecimal(value) ? undefined : `must be a decimal number such as "1.5", not ${shown(value)}`,
);

export const constant: Check = fields<Constant>({
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

const operandFault = ({ operation, operationWith }: NonNullable<Condition["valueProcess"]>): string | undefined => {
  if (operationWith === undefined || operationWith === "") return "is missing";
  const operand = parsePercentage(operationWith);
  if (operand === undefined) return `must be a number or a percentage such as "50%", not ${shown(operationWith)}`;
  return operation === "/" && operand.numerator === 0n ? "must not be 0: nothing can be divided by it" : undefined;
};

const wordOrNumber: Check = (value, at, faults) => (typeof value === "string" ? text : whole)(value, at, faults);

const valueProcess: Check = fields<NonNullable<Condition["valueProcess"]>>(
  { operation: required(oneOf("+", "-", "*", "/")), operationWith: wordOrNumber },
  (given, blame) => {
    const fault = operandFault(given);
    if (fault) blame("operationWith", fault);
  },
);

const comparison: Across<Condition> = (condition, blame) => {
  const { cond, value, valueRef } = condition;
  if (!compares(condition) || valueRef !== undefined) return;
  const field = settled(value);
  const isList = field?.endsWith("Slice");
  if (field === undefined) blame("value", `is missing; ${cond} needs value or valueRef`);
  else if (memberships.includes(cond) && !isList)
    blame("value", `must be a list (stringSlice, integerSlice or floatSlice) for ${cond}, not ${field}`);
  else if (orders.includes(cond) && (isList || field === "stringMap"))
    blame("value", `must be a number or a text for ${cond}, not ${field}`);
};

export const condition: Check = fields<Condition>(
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
