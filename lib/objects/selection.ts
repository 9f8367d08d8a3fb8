import type { JsonMap } from "../json.ts";

export interface LabelSelector {
  matchLabels?: Record<string, string>;
  matchExpressions?: { key: string; operator: "In" | "NotIn" | "Exists" | "DoesNotExist"; values?: string[] }[];
}

type Requirement = NonNullable<LabelSelector["matchExpressions"]>[number];

/** The characters of a label's key or value. No object has a label with other characters. */
const labelForm = /^[-A-Za-z0-9_./]{0,317}$/;

const listRequirements = ({ matchLabels = {}, matchExpressions = [] }: LabelSelector): Requirement[] => [
  ...Object.entries(matchLabels).map(([key, value]): Requirement => ({ key, operator: "In", values: [value] })),
  ...matchExpressions,
];

/** Returns a label selector as a query parameter; undefined if no object can have such labels. */
export const formatLabelSelector = (selector: LabelSelector): string | undefined => {
  const terms = listRequirements(selector).map(({ key, operator, values = [] }) => {
    if (!labelForm.test(key)) return operator === "DoesNotExist" || operator === "NotIn" ? "" : undefined;
    if (operator === "Exists") return key;
    if (operator === "DoesNotExist") return `!${key}`;
    const possible = values.filter((value) => labelForm.test(value));
    if (operator === "NotIn") return possible.length > 0 ? `${key} notin (${possible.join()})` : "";
    return operator === "In" && possible.length > 0 ? `${key} in (${possible.join()})` : undefined;
  });
  return terms.includes(undefined) ? undefined : terms.filter(Boolean).join();
};

/** Reports whether a label selector selects an object with these labels. */
export const isSelected = (selector: LabelSelector, labels: Readonly<JsonMap> = {}): boolean =>
  listRequirements(selector).every(({ key, operator, values = [] }) => {
    const value = Object.hasOwn(labels, key) ? labels[key] : undefined;
    if (operator === "Exists") return value !== undefined;
    if (operator === "DoesNotExist") return value === undefined;
    const isAmong = typeof value === "string" && values.includes(value);
    return operator === "NotIn" ? !isAmong : operator === "In" && isAmong;
  });
