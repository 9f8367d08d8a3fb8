import type { LabelSelector } from "postern/objects/selection";
import {
  type NamespaceLabels,
  type PodSecurityMode,
  podSecurityLevels,
  podSecurityModes,
  toLabelKey,
} from "./policy.ts";

// A selection is a set of namespaces with the same Pod Security levels. It has a webhook entry whose name contains
// these levels, so the rule needn't read the namespace.

/** An expression in a label selector's `matchExpressions`. */
export type LabelExpression = NonNullable<LabelSelector["matchExpressions"]>[number];

/** States of a Pod Security label: a level; "default" if it is absent; "invalid" if it isn't a level; "any" for all. */
const stateNames = [...podSecurityLevels.toReversed(), "default", "invalid"] as const;
type LabelState = (typeof stateNames)[number] | "any";
export type PodSecurityLabelStates = Record<PodSecurityMode, LabelState>;

/** A set of namespaces, which the label expressions in `expressions` select by the Pod Security labels. */
export interface NamespaceSetByLabels {
  /** For each mode, a possible state of the label: a level, "default" (absent), "invalid" (no level), "any" (all). */
  states: PodSecurityLabelStates;
  expressions: LabelExpression[];
}

/** The modes by which the namespaces are divided, one after the other. This order gives the fewest selections. */
const modesInOrder = ["warn", "enforce", "audit"] as const;

/** Divides all namespaces into sets by their Pod Security labels: `outcomeOf` is equal for all namespaces of a set. */
export const divideNamespacesByLabels = (
  outcomeOf: (states: PodSecurityLabelStates) => string,
): NamespaceSetByLabels[] => {
  /** Joins the outcomes for all combinations of states that the modes in the list can have. */
  const joinOutcomes = (fixed: Partial<PodSecurityLabelStates>, [mode, ...rest]: readonly PodSecurityMode[]): string =>
    mode === undefined
      ? outcomeOf(fixed as PodSecurityLabelStates)
      : stateNames.map((state) => joinOutcomes({ ...fixed, [mode]: state }, rest)).join();

  const select = (
    fixed: Partial<PodSecurityLabelStates>,
    [mode, ...rest]: readonly PodSecurityMode[],
  ): NamespaceSetByLabels[] => {
    if (mode === undefined) return [{ states: fixed as PodSecurityLabelStates, expressions: [] }];
    // States of this mode form a group if their outcomes are equal for all states of the modes in `rest`. A group may
    // need several label selectors. For each, `select` goes on with one state of the group, as the outcomes are equal.
    const groups = Map.groupBy(stateNames, (state) => joinOutcomes({ ...fixed, [mode]: state }, rest));
    return [...groups.values()].flatMap((states) =>
      buildSelectors(mode, states).flatMap(({ state, expressions }) =>
        select({ ...fixed, [mode]: state }, rest).map((set) => {
          return { states: set.states, expressions: [...expressions, ...set.expressions] };
        }),
      ),
    );
  };
  return select({}, modesInOrder);
};

/**
 * Returns label selectors that together select these states of a label: levels, "default" (no label) or "invalid" (any
 * other value). There may be two, because a selector can't express "or". Each selector has one of its states, as an
 * example, in `state`: the rule treats namespaces with any of the given states alike.
 */
const buildSelectors = (
  mode: PodSecurityMode,
  states: readonly LabelState[],
): { state: LabelState; expressions: LabelExpression[] }[] => {
  const key = toLabelKey(mode);
  const [state = "any"] = states;
  if (states.length === stateNames.length) return [{ state: "any", expressions: [] }];

  const levels = podSecurityLevels.filter((level) => states.includes(level));
  const otherLevels = podSecurityLevels.filter((level) => !states.includes(level));
  const isUnset = states.includes("default");
  if (states.includes("invalid")) {
    // Invalid values can't be listed, so the selector excludes the other levels instead.
    const isSet: LabelExpression[] = isUnset ? [] : [{ key, operator: "Exists" }];
    const isNoOtherLevel: LabelExpression[] =
      otherLevels.length > 0 ? [{ key, operator: "NotIn", values: otherLevels }] : [];
    return [{ state, expressions: [...isSet, ...isNoOtherLevel] }];
  }
  const unset = { state: "default" as const, expressions: [{ key, operator: "DoesNotExist" as const }] };
  return [
    ...(levels.length > 0 ? [{ state, expressions: [{ key, operator: "In" as const, values: levels }] }] : []),
    ...(isUnset ? [unset] : []),
  ];
};

/** Returns the name of a selection: the states of enforce, audit and warn, such as `restricted-default-any`. */
export const getNamespaceSelectionName = (states: PodSecurityLabelStates) =>
  podSecurityModes.map((mode) => states[mode]).join("-");

/** Returns the name of the webhook entry for pods, or for workloads, in a selection of namespaces. */
export const getPodSecurityEntryName = (kind: "pods" | "workloads", name: string) => `${kind}-${name}`;

/**
 * Returns example labels of the namespaces that a webhook entry selects. An entry's name, such as
 * `pods-restricted-default-any`, has a state for enforce, audit and warn. Undefined for a name without three states.
 */
export const getNamespaceLabelsOfEntry = (entryName: string): NamespaceLabels | undefined => {
  const [, ...states] = entryName.split("-");
  const isState = (state: string): state is LabelState => state === "any" || stateNames.some((name) => name === state);
  if (states.length !== podSecurityModes.length || !states.every(isState)) return undefined;
  return toPodSecurityLabels({ enforce: states[0], audit: states[1], warn: states[2] } as PodSecurityLabelStates);
};

/** Returns example labels with these states: none for "default", nor for "any", for which the label doesn't matter. */
export const toPodSecurityLabels = (states: PodSecurityLabelStates): NamespaceLabels =>
  Object.fromEntries(
    podSecurityModes.flatMap((mode) =>
      ["default", "any"].includes(states[mode]) ? [] : [[toLabelKey(mode), states[mode]]],
    ),
  );
