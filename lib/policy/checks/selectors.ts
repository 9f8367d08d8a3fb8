import { keyFaults, valueFaults } from "../../objects/label.ts";
import type { LabelSelector } from "../../objects/selection.ts";
import {
  atLeast,
  type Check,
  fields,
  listOf,
  mapOf,
  required,
  shown,
  text,
  textMap,
  texts,
  textThat,
} from "./shape.ts";

/** Of label and field selectors. */
export const operators = ["In", "NotIn", "Exists", "DoesNotExist"];

interface Expression {
  operator: string;
  values?: string[];
}

/** What an expression must have beside its operator. */
const valuesFault = ({ operator }: Expression, values: string[] = []): string | undefined => {
  if (!operators.includes(operator)) return undefined;
  const takes = operator.endsWith("In");
  if (takes && values.length === 0) return `is empty; ${operator} needs at least one`;
  return !takes && values.length > 0 ? `must be left out beside ${operator}` : undefined;
};

const operator: Check = required(
  textThat((value) =>
    operators.includes(value) ? undefined : `must be one of ${operators.join(", ")}, not ${shown(value)}`,
  ),
);

const key: Check = textThat((value) => labelKeyFault(value));

/** What is wrong with the key of a label or annotation. */
export const labelKeyFault = (key: string): string | undefined =>
  // A name has at most 63 bytes, its prefix 253: what is longer need not be looked at.
  key.length > 400 ? "is too long for a key" : phrased(key, keyFaults(key));

/** What is wrong with the value of a label. */
export const labelValueFault = (value: string): string | undefined =>
  value.length > 63 ? "must be no more than 63 bytes" : phrased(value, valueFaults(value));

const phrased = (value: string, faults: string[]) =>
  faults.length > 0 ? `is ${shown(value)}, but ${faults.join("; ")}` : undefined;

const labelValue: Check = textThat(labelValueFault);

/** Of a value that may be filled in, what stands there before says little. */
const filledValue: Check = (value, at, faults) =>
  (typeof value === "string" && value.includes("{{") ? text : labelValue)(value, at, faults);

const labels = (value: Check): Check =>
  atLeast<LabelSelector>({
    matchLabels: (given, at, faults) => {
      mapOf(value)(given, at, faults);
      // Only keys matter here; that the rest is a map was said above.
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

/** Whatever its expressions say: where they say nothing, they take nothing. */
const fieldSelector: Check = fields({
  matchFields: textMap,
  matchExpressions: listOf(fields({ field: required(text), operator: required(text), value: texts, values: texts })),
});

/** An entry of resourceSelectors. */
export const selector: Check = fields({
  apiVersion: required(text),
  kind: required(text),
  namespace: text,
  name: text,
  labelSelector,
  fieldSelector,
});

/** The object that a reference means. */
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
