import { isMap, lookUp, toMap } from "../json.ts";
import type { LabelSelector } from "../objects/selection.ts";
import type { KubernetesObject } from "../review.ts";

/**
 * Reports whether any of a policy's selectors matches an object. Without selectors, every object matches. Policies in a
 * cluster may be invalid: an invalid selector matches nothing.
 */
export const matchesAnySelector = (
  selectors: unknown,
  object: KubernetesObject,
  namespace: string | undefined,
): boolean => {
  if (!isPresent(selectors)) return true;
  if (!Array.isArray(selectors)) return false;
  return selectors.length === 0 || selectors.some((selector) => matchesResourceSelector(selector, object, namespace));
};

/** Reports whether an element of a policy's resourceSelectors selects an object. */
const matchesResourceSelector = (
  selector: unknown,
  object: KubernetesObject,
  namespace: string | undefined,
): boolean => {
  if (!isMap(selector)) return false;
  const { apiVersion, kind, name, labelSelector, fieldSelector } = selector;
  if (apiVersion !== object.apiVersion || kind !== object.kind) return false;
  if (isNonEmpty(selector.namespace) && selector.namespace !== namespace) return false;
  if (isNonEmpty(name)) return name === object.metadata?.name;
  return (
    (!isPresent(labelSelector) || matchesLabels(labelSelector, object.metadata?.labels)) &&
    (!isPresent(fieldSelector) || matchesFields(fieldSelector, object))
  );
};

const isPresent = (value: unknown) => value !== undefined && value !== null;
const isNonEmpty = (value: unknown) => isPresent(value) && value !== "";

/** Reports whether targetOperations include an operation. A missing or empty list includes all operations. */
export const matchesTargetOperations = (operations: unknown, operation: string): boolean => {
  if (!isPresent(operations)) return true;
  if (!Array.isArray(operations)) throw new Error("targetOperations must be a list of operations");
  return operations.length === 0 || operations.includes(operation) || operations.includes("*");
};

/** Reports whether labels match a label selector. An invalid selector matches no labels, an empty one all. */
export const matchesLabels = (selector: unknown, labels: unknown): boolean => {
  const map = toMap(labels);
  return (
    parseLabelSelector(selector)?.every((requirement) =>
      meetsRequirement(requirement, Object.hasOwn(map, requirement.key), map[requirement.key]),
    ) ?? false
  );
};

export const isLabelSelector = (selector: unknown): selector is LabelSelector =>
  parseLabelSelector(selector) !== undefined;

interface Requirement {
  key: string;
  operator: string;
  values: readonly unknown[];
}

const parseLabelSelector = (selector: unknown): Requirement[] | undefined => {
  const requirements = listRequirements(selector, "matchLabels", "key", "values");
  return requirements?.every(isValidLabelRequirement) ? requirements : undefined;
};

const isValidLabelRequirement = ({ key, operator, values }: Requirement): boolean => {
  if (!isLabelKey(key) || !values.every(isLabelValue)) return false;
  if (operator === "In" || operator === "NotIn") return values.length > 0;
  return isPresenceOperator(operator) && values.length === 0;
};

/**
 * Lists the requirements of a label or field selector. Each entry of the map in `mapField` becomes an `In` of one
 * value. In matchExpressions, `keyField` has the key, and the first of `listFields` that is set has the values. Returns
 * undefined if the selector is malformed.
 */
const listRequirements = (
  selector: unknown,
  mapField: string,
  keyField: string,
  ...listFields: string[]
): Requirement[] | undefined => {
  if (!isMap(selector)) return undefined;
  const { [mapField]: pairs, matchExpressions: expressions } = selector;
  if (!isMap(pairs ?? {}) || !Array.isArray(expressions ?? [])) return undefined;
  const requirements = Object.entries(pairs ?? {}).map(([key, value]) => ({
    key,
    operator: "In",
    values: [value] as unknown[],
  }));
  for (const expression of (expressions ?? []) as unknown[]) {
    if (!isMap(expression)) return undefined;
    const { [keyField]: key, operator } = expression;
    const values = listFields.map((field) => expression[field]).find(isPresent) ?? [];
    if (typeof key !== "string" || typeof operator !== "string" || !Array.isArray(values)) return undefined;
    requirements.push({ key, operator, values });
  }
  return requirements;
};

const isPresenceOperator = (operator: string) => operator === "Exists" || operator === "DoesNotExist";

const meetsRequirement = ({ operator, values }: Requirement, exists: boolean, value: unknown): boolean => {
  if (operator === "In") return exists && values.includes(value);
  if (operator === "NotIn") return !exists || !values.includes(value);
  return isPresenceOperator(operator) && (operator === "Exists") === exists;
};

// A copy of the patterns in objects/label.ts. To import that file would put its messages into every bundle.
const namePattern = /^[A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?$/;
const prefixPattern = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/;

const isLabelKey = (key: string): boolean => {
  const [name = "", prefix, ...more] = key.split("/", 3).reverse();
  if (more.length > 0 || !namePattern.test(name)) return false;
  return prefix === undefined || (prefix.length <= 253 && prefix.split(".").every((part) => prefixPattern.test(part)));
};

const isLabelValue = (value: unknown): boolean =>
  typeof value === "string" && (value === "" || namePattern.test(value));

/**
 * Reports whether an object meets the requirements of a policy's field selector. The list of a requirement is its field
 * `value`, as in kinitiras' CRD, or `values`, as in kinitiras' documentation, which policies in files may follow.
 */
const matchesFields = (selector: unknown, object: KubernetesObject): boolean =>
  listRequirements(selector, "matchFields", "field", "value", "values")?.every((requirement) => {
    const found = findFieldText(object, requirement.key);
    return found !== "unreadable" && meetsRequirement(requirement, found !== undefined, found?.value);
  }) ?? false;

const annotationsStep = ".annotations.";

/**
 * Returns the text of a field such as `metadata.annotations.example.com/a`; undefined if it is absent. Returns
 * "unreadable" if the field is no string, or if the path leads through a value that is no map.
 */
const findFieldText = (object: KubernetesObject, field: string): { value: string } | undefined | "unreadable" => {
  const annotationsAt = field.indexOf(annotationsStep);
  // All that follows `.annotations.` is one key, because keys of annotations may contain dots.
  const key = field.slice(annotationsAt + annotationsStep.length);
  const path = annotationsAt < 0 ? field.split(".") : [...field.slice(0, annotationsAt).split("."), "annotations", key];
  let found: { value: unknown } | undefined = { value: object };
  for (const step of path) {
    if (found.value === null) return undefined;
    if (!isMap(found.value)) return "unreadable";
    found = lookUp(found.value, [step]);
    if (found === undefined) return undefined;
  }
  const { value } = found;
  return typeof value === "string" ? { value } : "unreadable";
};
