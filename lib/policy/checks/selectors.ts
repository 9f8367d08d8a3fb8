import { keyFaults, valueFaults } from "../../objects/label.ts";
import type { LabelSelector } from "../../objects/selection.ts";
import { quoteValue } from "../values/texts.ts";
import {
  atLeast,
  type Check,
  fields,
  listOf,
  mapOf,
  required,
  text,
  textMap,
  texts,
  textThat,
} from "./shape-checks.ts";

export const operators = ["In", "NotIn", "Exists", "DoesNotExist"];

interface Expression {
  operator: string;
  values?: string[];
}

const valuesFault = ({ operator }: Expression, values: string[] = []): string | undefined => {
  if (!operators.includes(operator)) return undefined;
  const takes = operator.endsWith("In");
  if (takes && values.length === 0) return `is empty; ${operator} needs at least one`;
  return !takes && values.length > 0 ? `must be left out beside ${operator}` : undefined;
};

const operator: Check = required(
  textThat((value) =>
    operators.includes(value) ? undefined : `must be one of ${operators.join(", ")}, not ${quoteValue(value)}`,
  ),
);

const key: Check = textThat((value) => labelKeyFault(value));

export const labelKeyFault = (key: string): string | undefined =>
  // A valid key has at most 317 bytes: a prefix of 253, a slash and a name of 63.
  key.length > 400 ? "is too long for a key" : phrased(key, keyFaults(key));

export const labelValueFault = (value: string): string | undefined =>
  value.length > 63 ? "must be no more than 63 bytes" : phrased(value, valueFaults(value));

const phrased = (value: string, faults: string[]) =>
  faults.length > 0 ? `is ${quoteValue(value)}, but ${faults.join("; ")}` : undefined;

const labelValue: Check = textThat(labelValueFault);

/** A value with placeholders can be checked only after they are filled. */
const filledValue: Check = (value, at, faults) =>
  (typeof value === "string" && value.includes("{{") ? text : labelValue)(value, at, faults);

const labels = (value: Check): Check =>
  atLeast<LabelSelector>({
    matchLabels: (given, at, faults) => {
      mapOf(value)(given, at, faults);
      // mapOf has already reported a value that is no map.
      for (const name of Object.keys(Object(given)).slice(0, 1000)) key(name, `${at}: the key`, faults);
    },
    matchExpressions: listOf(
      atLeast<Expression>({ key: required(key), operator, values: listOf(value) }, (expression, blame) => {
        const fault = valuesFault(expression, expression.values);
        if (fault) blame("values", fault);
      }),
    ),
  });

export const labelSelector: Check = labels(labelValue);

/** Accepts any operator: an unknown one matches nothing, and `warningsOf` reports it. */
const fieldSelector: Check = fields({
  matchFields: textMap,
  matchExpressions: listOf(fields({ field: required(text), operator: required(text), value: texts, values: texts })),
});

export const selector: Check = fields({
  apiVersion: required(text),
  kind: required(text),
  namespace: text,
  name: text,
  labelSelector,
  fieldSelector,
});

export const referred: Check = fields<{ name?: string; labelSelector?: unknown }>(
  {
    apiVersion: required(text),
    kind: required(text),
    namespace: text,
    name: text,
    labelSelector: labels(filledValue),
    fieldSelector,
  },
  ({ name, labelSelector }, blame) => {
    if (!name && labelSelector === undefined)
      blame("name", "is missing, and so is labelSelector; one of them says which object is meant");
  },
);
