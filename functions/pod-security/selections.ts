import type { LabelSelector } from "postern/objects/selection";
import { keyOf, type Labels, levels, type Mode, modes } from "./policy.ts";

// Namespaces by what their labels say of levels. A selection has a selector, and a name that says the same: by it the
// policy is known, and no namespace need be read.

export type Expression = NonNullable<LabelSelector["matchExpressions"]>[number];

/** What a namespace can say by the label of a mode: a level, nothing, or something else; and that it doesn't matter. */
const states = [...levels.toReversed(), "default", "invalid"] as const;
type State = (typeof states)[number] | "any";
export type States = Record<Mode, State>;

export interface Selection {
  said: States;
  expressions: Expression[];
}

/** In this order of modes there are the fewest selections. */
const order = ["warn", "enforce", "audit"] as const;

/** All namespaces, each in one selection; those in one have the same outcome. */
export const selectionsBy = (outcomeOf: (said: States) => string): Selection[] => {
  /** Every outcome that there can be where some of the modes are known. */
  const outcomes = (known: Partial<States>, [mode, ...left]: readonly Mode[]): string =>
    mode === undefined
      ? outcomeOf(known as States)
      : states.map((state) => outcomes({ ...known, [mode]: state }, left)).join();

  const select = (known: Partial<States>, [mode, ...left]: readonly Mode[]): Selection[] => {
    if (mode === undefined) return [{ said: known as States, expressions: [] }];
    const alike = Map.groupBy(states, (state) => outcomes({ ...known, [mode]: state }, left));
    return [...alike.values()].flatMap((members) =>
      selectorsOf(mode, members).flatMap(({ state, expressions }) =>
        select({ ...known, [mode]: state }, left).map(({ said, expressions: others }) => {
          return { said, expressions: [...expressions, ...others] };
        }),
      ),
    );
  };
  return select({}, order);
};

/** One selector where there is one that selects these, or several; in a selector there is no "or". */
const selectorsOf = (mode: Mode, members: readonly State[]): { state: State; expressions: Expression[] }[] => {
  const key = keyOf(mode);
  const [state = "any"] = members;
  if (members.length === states.length) return [{ state: "any", expressions: [] }];

  const own = levels.filter((level) => members.includes(level));
  const others = levels.filter((level) => !members.includes(level));
  const isUnset = members.includes("default");
  if (members.includes("invalid")) {
    const isSet: Expression[] = isUnset ? [] : [{ key, operator: "Exists" }];
    const isNoOther: Expression[] = others.length > 0 ? [{ key, operator: "NotIn", values: others }] : [];
    return [{ state, expressions: [...isSet, ...isNoOther] }];
  }
  const unset = { state: "default" as const, expressions: [{ key, operator: "DoesNotExist" as const }] };
  return [
    ...(own.length > 0 ? [{ state, expressions: [{ key, operator: "In" as const, values: own }] }] : []),
    ...(isUnset ? [unset] : []),
  ];
};

/** `restricted-default-default`: of enforce, audit and warn. */
export const nameOf = (said: States) => modes.map((mode) => said[mode]).join("-");

/** `pods-restricted-default-default`: the entry for these objects in namespaces that a name chooses. */
export const entryNameOf = (kind: "pods" | "workloads", name: string) => `${kind}-${name}`;

/** Labels that say what an entry's name says; undefined where it says nothing of levels. */
export const labelsOfEntry = (entryName: string): Labels | undefined => {
  const [, ...said] = entryName.split("-");
  const isOf = (state: string): state is State => state === "any" || states.some((one) => one === state);
  if (said.length !== modes.length || !said.every(isOf)) return undefined;
  return labelsOf({ enforce: said[0], audit: said[1], warn: said[2] } as States);
};

export const labelsOf = (said: States): Labels =>
  Object.fromEntries(
    modes.flatMap((mode) => (["default", "any"].includes(said[mode]) ? [] : [[keyOf(mode), said[mode]]])),
  );
