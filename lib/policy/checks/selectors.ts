import { toMap } from "../../json.ts";
import { findKeyFaults, findValueFaults } from "../../objects/label.ts";
import type { LabelSelector } from "../../objects/selection.ts";
import { quoteValue } from "../values/texts.ts";
import {
  checkEachListElement,
  checkEachMapValue,
  checkFields,
  checkFieldsAllowingUnknown,
  checkRequired,
  checkText,
  checkTextMap,
  checkTexts,
  createTextCheck,
  type ValueCheck,
} from "./shape-checks.ts";

export const labelOperators = ["In", "NotIn", "Exists", "DoesNotExist"];

interface Expression {
  operator: string;
  values?: string[];
}

/** Returns what is wrong with the values of an expression: only In and NotIn have values. */
const findValuesFault = ({ operator }: Expression, values: string[] = []): string | undefined => {
  if (!labelOperators.includes(operator)) return undefined;
  const needsValues = operator.endsWith("In");
  if (needsValues && values.length === 0) return `is empty; ${operator} needs at least one`;
  return !needsValues && values.length > 0 ? `must be left out with ${operator}` : undefined;
};

const checkOperator: ValueCheck = checkRequired(
  createTextCheck((value) =>
    labelOperators.includes(value)
      ? undefined
      : `must be one of ${labelOperators.join(", ")}, not ${quoteValue(value)}`,
  ),
);

const checkLabelKey: ValueCheck = createTextCheck((value) => findLabelKeyFault(value));

export const findLabelKeyFault = (key: string): string | undefined =>
  // A valid key has at most 317 bytes: a prefix of 253, a slash and a name of 63.
  key.length > 400 ? "is too long for a key" : joinFaults(key, findKeyFaults(key));

export const findLabelValueFault = (value: string): string | undefined =>
  value.length > 63 ? "must be no more than 63 bytes" : joinFaults(value, findValueFaults(value));

const joinFaults = (value: string, faults: string[]) =>
  faults.length > 0 ? `is ${quoteValue(value)}, but ${faults.join("; ")}` : undefined;

const checkLabelValue: ValueCheck = createTextCheck(findLabelValueFault);

/** Checks a label's value that may have placeholders, such as `{{metadata.name}}`. If it has any, any text is valid. */
const checkLabelValueOrPlaceholders: ValueCheck = (value, at, faults) =>
  (typeof value === "string" && value.includes("{{") ? checkText : checkLabelValue)(value, at, faults);

/** Returns a check for label selectors. Each label's value must pass `checkValue`. */
const createLabelSelectorCheck = (checkValue: ValueCheck): ValueCheck =>
  checkFieldsAllowingUnknown<LabelSelector>({
    matchLabels: (labels, at, faults) => {
      checkEachMapValue(checkValue)(labels, at, faults);
      // `checkEachMapValue` has already reported labels that are no map. To limit the time, only 1000 keys are checked.
      for (const name of Object.keys(toMap(labels)).slice(0, 1000)) checkLabelKey(name, `${at}: the key`, faults);
    },
    matchExpressions: checkEachListElement(
      checkFieldsAllowingUnknown<Expression>(
        { key: checkRequired(checkLabelKey), operator: checkOperator, values: checkEachListElement(checkValue) },
        (expression, reportFault) => {
          const fault = findValuesFault(expression, expression.values);
          if (fault) reportFault("values", fault);
        },
      ),
    ),
  });

export const checkLabelSelector: ValueCheck = createLabelSelectorCheck(checkLabelValue);

/**
 * Checks a field selector of a policy. An unknown operator is no fault: it selects nothing, and findPolicyWarnings
 * warns of it.
 */
const checkFieldSelector: ValueCheck = checkFields({
  matchFields: checkTextMap,
  matchExpressions: checkEachListElement(
    checkFields({
      field: checkRequired(checkText),
      operator: checkRequired(checkText),
      value: checkTexts,
      values: checkTexts,
    }),
  ),
});

/** Checks an element of a policy's resourceSelectors. */
export const checkResourceSelector: ValueCheck = checkFields({
  apiVersion: checkRequired(checkText),
  kind: checkRequired(checkText),
  namespace: checkText,
  name: checkText,
  labelSelector: checkLabelSelector,
  fieldSelector: checkFieldSelector,
});

/** Checks the selector of the object that a reference reads. */
export const checkObjectSelector: ValueCheck = checkFields<{ name?: string; labelSelector?: unknown }>(
  {
    apiVersion: checkRequired(checkText),
    kind: checkRequired(checkText),
    namespace: checkText,
    name: checkText,
    labelSelector: createLabelSelectorCheck(checkLabelValueOrPlaceholders),
    fieldSelector: checkFieldSelector,
  },
  ({ name, labelSelector }, reportFault) => {
    if (!name && labelSelector === undefined)
      reportFault("name", "is missing, and so is labelSelector; one of them must identify the object");
  },
);
