import { isMap, lookUp } from "../json.ts";
import type { LabelSelector } from "../objects/selection.ts";
import type { KubernetesObject } from "../review.ts";

/**
 * Whether any of a policy's selectors takes an object; without selectors it concerns every one. Of policies in a cluster
 * nobody knows who checked them: what isn't as it should be takes nothing.
 */
export const selects = (selectors: unknown, object: KubernetesObject, namespace: string | undefined): boolean => {
  if (!isGiven(selectors)) return true;
  if (!Array.isArray(selectors)) return false;
  return selectors.length === 0 || selectors.some((selector) => takes(selector, object, namespace));
};

/** Whether a selector takes an object in that namespace. */
export const takes = (selector: unknown, object: KubernetesObject, namespace: string | undefined): boolean => {
  if (!isMap(selector)) return false;
  const { apiVersion, kind, name, labelSelector, fieldSelector } = selector;
  if (apiVersion !== object.apiVersion || kind !== object.kind) return false;
  if (isSet(selector.namespace) && selector.namespace !== namespace) return false;
  if (isSet(name)) return name === object.metadata?.name;
  return (
    (!isGiven(labelSelector) || labelsMatch(labelSelector, object.metadata?.labels)) &&
    (!isGiven(fieldSelector) || fieldsMatch(fieldSelector, object))
  );
};

const isGiven = (value: unknown) => value !== undefined && value !== null;
const isSet = (value: unknown) => isGiven(value) && value !== "";

/** Whether a rule of a policy is about an operation; without any it is about all. */
export const targets = (operations: unknown, operation: string): boolean => {
  if (!isGiven(operations)) return true;
  if (!Array.isArray(operations)) throw new Error("targetOperations must be a list of operations");
  return operations.length === 0 || operations.includes(operation) || operations.includes("*");
};

/** Whether labels are as a selector wants them; an invalid selector takes none, an empty one any. */
export const labelsMatch = (selector: unknown, labels: unknown): boolean => {
  const wants = requirements(selector);
  const present = isMap(labels) ? labels : {};
  return wants?.every((want) => holds(want, Object.hasOwn(present, want.key), present[want.key])) ?? false;
};

/** Whether Kubernetes takes this for a label selector. */
export const isLabelSelector = (selector: unknown): selector is LabelSelector => requirements(selector) !== undefined;

interface Requirement {
  key: string;
  operator: string;
  values: readonly unknown[];
}

const requirements = (selector: unknown): Requirement[] | undefined => {
  const listed = listedIn(selector, "matchLabels", "key", "values");
  return listed?.every(
    ({ key, operator, values }) =>
      isLabelKey(key) &&
      values.every(isLabelValue) &&
      (operator === "In" || operator === "NotIn"
        ? values.length > 0
        : isAboutPresence(operator) && values.length === 0),
  )
    ? listed
    : undefined;
};

/** What a selector wants of labels or fields, each pair of its map as an `In` of one value; undefined where it can't be read. */
const listedIn = (selector: unknown, map: string, subject: string, ...lists: string[]): Requirement[] | undefined => {
  if (!isMap(selector)) return undefined;
  const { [map]: pairs, matchExpressions: expressions } = selector;
  if (!isMap(pairs ?? {}) || !Array.isArray(expressions ?? [])) return undefined;
  const wanted = Object.entries(pairs ?? {}).map(([key, value]) => ({
    key,
    operator: "In",
    values: [value] as unknown[],
  }));
  for (const expression of (expressions ?? []) as unknown[]) {
    if (!isMap(expression)) return undefined;
    const { [subject]: key, operator } = expression;
    const values = lists.map((list) => expression[list]).find(isGiven) ?? [];
    if (typeof key !== "string" || typeof operator !== "string" || !Array.isArray(values)) return undefined;
    wanted.push({ key, operator, values });
  }
  return wanted;
};

const isAboutPresence = (operator: string) => operator === "Exists" || operator === "DoesNotExist";

const holds = ({ operator, values }: Requirement, exists: boolean, value: unknown): boolean => {
  if (operator === "In") return exists && values.includes(value);
  if (operator === "NotIn") return !exists || !values.includes(value);
  return isAboutPresence(operator) && (operator === "Exists") === exists;
};

// As objects/label.ts has them, whose sentences would make every bundle larger.
const namePart = /^[A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?$/;
const prefixPart = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/;

const isLabelKey = (key: string): boolean => {
  const [name = "", prefix, ...more] = key.split("/", 3).reverse();
  if (more.length > 0 || !namePart.test(name)) return false;
  return prefix === undefined || (prefix.length <= 253 && prefix.split(".").every((part) => prefixPart.test(part)));
};

const isLabelValue = (value: unknown): boolean => typeof value === "string" && (value === "" || namePart.test(value));

/** The file loader's `values` is what the cluster calls `value`. */
const fieldsMatch = (selector: unknown, object: KubernetesObject): boolean =>
  listedIn(selector, "matchFields", "field", "value", "values")?.every((want) => {
    const found = fieldOf(object, want.key);
    return found !== "unreadable" && holds(want, found !== undefined, found?.value);
  }) ?? false;

const annotations = ".annotations.";

/** The text of a field; what isn't one, or leads through what has no members, can't be read. */
const fieldOf = (object: KubernetesObject, field: string): { value: string } | undefined | "unreadable" => {
  // An annotation's key may have dots in it, and everything behind is one.
  const end = field.indexOf(annotations);
  const path = end < 0 ? field.split(".") : field.slice(0, end + annotations.length - 1).split(".");
  if (end >= 0) path.push(field.slice(end + annotations.length));
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
