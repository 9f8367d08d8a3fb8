import { isDeepStrictEqual } from "node:util";
import type { RuleEvaluationContext } from "#lib/core/evaluation.ts";
import { evaluateRule } from "#lib/core/evaluation.ts";
import { applyPatch } from "#lib/core/patch.ts";
import { getOwn, isMap } from "#lib/json.ts";
import type { AdmissionRequest } from "#lib/review.ts";
import type { Phase, Rule } from "#lib/rule.ts";
import { sanitizeTerminalText, truncateText } from "../../cli/terminal.ts";
import { formatYamlFlow } from "../../diff/yaml-lines.ts";
import type { FieldPath } from "../../manifests/manifests.ts";

interface Edit {
  verb: "set" | "add" | "remove";
  path: FieldPath;
  /** The value to set, to add, or to remove from a list, as text; absent if the edit removes the field itself. */
  value?: string;
}

/** The limit for one sentence of a report, in characters. */
const maxSentence = 290;
/** The limit for one path or value in a sentence, in characters. */
const maxPathOrValue = 120;
/** The most paths that a sentence names for the same edit at several paths. */
const maxPaths = 4;

/** Describes how to make one object from another: `set spec.replicas to 3`. `at` is its path in the manifest. */
export const describeEdits = (before: unknown, after: unknown, at: FieldPath = []): string => {
  const alike = Map.groupBy(listEdits(before, after, at), ({ verb, value }) => JSON.stringify([verb, value]));
  const all = [...alike.values()].map(describeEdit);
  // Each edit takes at least one character of the sentence, so more than `maxSentence` edits never fit.
  let shown = Math.min(all.length, maxSentence);
  while (shown > 1 && joinSentences(all, shown).length > maxSentence) shown--;
  return formatSuggestion(joinSentences(all, shown));
};

/** Removes control characters from a rule's suggestion and shortens it for reports; its text is untrusted. */
const formatSuggestion = (text: string): string => truncateText(sanitizeTerminalText(text), maxSentence);

const joinSentences = (all: readonly string[], shown: number) =>
  [...all.slice(0, shown), ...(shown < all.length ? [`and ${all.length - shown} more`] : [])].join("; ");

const describeEdit = (edits: readonly Edit[]): string => {
  const { verb, value } = edits[0] as Edit;
  const places = joinPlaces(formatPaths(edits.map(({ path }) => path)));
  if (verb === "remove") return value === undefined ? `remove ${places}` : `remove ${value} from ${places}`;
  return verb === "set" ? `set ${places} to ${value}` : `add ${value} to ${places}`;
};

/** Merges paths that differ only in the index of their first list: `spec.containers[0, 2].image`. */
const formatPaths = (paths: readonly FieldPath[]): string[] => {
  const alike = Map.groupBy(paths, (path) =>
    JSON.stringify(path.map((step, at) => (at === findListIndex(path) ? [] : step))),
  );
  return [...alike.values()].map((same) => {
    const indices = same.map((path) => path[findListIndex(path)] ?? "");
    const firstIndex = indices.slice(0, maxPaths).join(", ") + (indices.length > maxPaths ? ", …" : "");
    return formatPath(same[0] ?? [], { firstIndex });
  });
};

const findListIndex = (path: FieldPath) => path.findIndex((step) => typeof step === "number");

const joinPlaces = (all: readonly string[]): string => {
  const rest = all.length - maxPaths;
  const shown = rest > 0 ? [...all.slice(0, maxPaths), `${rest} more`] : all;
  return [shown.slice(0, -1).join(", "), ...shown.slice(-1)].filter((part) => part !== "").join(" and ");
};

/** Returns the edits that turn one value into another, such as { verb: "remove", path: ["spec", "x"] }. */
const listEdits = (old: unknown, now: unknown, path: FieldPath): Edit[] => {
  if (isDeepStrictEqual(old, now)) return [];
  if (now === undefined) return [{ verb: "remove", path }];
  if (isMap(now) && (isMap(old) || (old === undefined && Object.keys(now).length > 0)))
    return [...new Set([...Object.keys(old ?? {}), ...Object.keys(now)])].flatMap((key) =>
      listEdits(getOwn(old, key), getOwn(now, key), [...path, key]),
    );
  const ofList = Array.isArray(old) && Array.isArray(now) ? listEditsInList(old, now, path) : undefined;
  return ofList ?? [{ verb: "set", path, value: formatValue(now) }];
};

/**
 * Returns a list's edits if its maps were changed in place, or if items were removed or appended; undefined for any
 * other change, such as that of a string.
 */
const listEditsInList = (old: readonly unknown[], now: readonly unknown[], path: FieldPath): Edit[] | undefined => {
  if (old.length === now.length)
    return now.every(isMap) ? now.flatMap((value, index) => listEdits(old[index], value, [...path, index])) : undefined;
  if (now.length > old.length) {
    const added = now.slice(old.length).map((value): Edit => ({ verb: "add", path, value: formatValue(value) }));
    return isDeepStrictEqual(now.slice(0, old.length), old) ? added : undefined;
  }
  const removed: number[] = [];
  let kept = 0;
  for (const [index, value] of old.entries())
    if (kept < now.length && isDeepStrictEqual(value, now[kept])) kept++;
    else removed.push(index);
  if (kept < now.length) return undefined;
  return removed.map((index): Edit => {
    const value = old[index];
    // A reader finds a short value, such as a capability, more easily than an index.
    return typeof value === "string"
      ? { verb: "remove", path, value: formatValue(value) }
      : { verb: "remove", path: [...path, index] };
  });
};

/**
 * Formats a path such as `spec.containers[0].image` or `metadata.labels["example.com/team"]`; `firstIndex` replaces the
 * index of the first list.
 */
const formatPath = (path: FieldPath, { firstIndex }: { firstIndex: string }): string => {
  const steps = path.map((step, at) => {
    if (typeof step === "number") return `[${at === findListIndex(path) ? firstIndex : step}]`;
    if (!/^[A-Za-z_][\w-]*$/.test(step)) return `[${JSON.stringify(step)}]`;
    return at > 0 ? `.${step}` : step;
  });
  return truncateText(sanitizeTerminalText(steps.join("")), maxPathOrValue);
};

const formatValue = (value: unknown): string =>
  truncateText(sanitizeTerminalText(formatYamlFlow(value)), maxPathOrValue);

/** A suggestion for a refusal: the rule's own sentence, or edits with the object that they make. */
export interface FixSuggestion {
  text: string;
  object?: unknown;
  /** True if the rule would refuse the object even after the suggested change. */
  isStillRefused?: boolean;
}

/**
 * Returns a rule's suggestion for a request that it refused in this phase; undefined if it has none. Edits are
 * evaluated by the rule again. `at` is the object's path in its manifest.
 */
export const suggestFix = async (
  rule: Rule,
  phase: Phase,
  request: AdmissionRequest,
  context: Omit<RuleEvaluationContext, "mode">,
  at: FieldPath = [],
): Promise<FixSuggestion | undefined> => {
  if (rule.suggest === undefined) return undefined;
  const enforced: RuleEvaluationContext = { ...context, mode: "enforce" };
  // Runs `suggest` in the place of `mutate`: its edits come back as a patch, its sentence as the message of a refusal.
  const suggest = rule.suggest.bind(rule);
  const { outcome } = await evaluateRule({ ...rule, mutate: suggest }, "mutate", request, enforced);
  if (outcome.status) return { text: formatSuggestion(outcome.status.message) };
  if (outcome.patch === undefined) return undefined;
  const object = applyPatch(request.object, outcome.patch);
  const tried = await evaluateRule(rule, phase, { ...request, object }, enforced);
  return { text: describeEdits(request.object, object, at), object, isStillRefused: tried.refused };
};
