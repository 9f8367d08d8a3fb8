import type { LabelSelector } from "postern/objects/selection";
import { keyOf, type Labels, levels, type Mode, modes } from "./policy.ts";

// A selection's name contains its levels, so its policy is known without reading the namespace.

export type Expression = NonNullable<LabelSelector["matchExpressions"]>[number];

/** "default" means no label, "invalid" another text, and "any" that the label doesn't matter. */
const states = [...levels.toReversed(), "default", "invalid"] as const;
type State = (typeof states)[number] | "any";
export type States = Record<Mode, State>;

export interface Selection {
  said: States;
  expressions: Expression[];
}

/** This order of modes gives the fewest selections. */
const order = ["warn", "enforce", "audit"] as const;

/** Divides all namespaces into selections. Namespaces of one selection have the same outcome. */
export const selectionsBy = (outcomeOf: (said: States) => string): Selection[] => {
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

/** Returns one selector if one is enough, else several: a selector has no "or". */
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

/** Returns `restricted-default-default`, in the order enforce, audit, warn. */
export const nameOf = (said: States) => modes.map((mode) => said[mode]).join("-");

export const entryNameOf = (kind: "pods" | "workloads", name: string) => `${kind}-${name}`;

/** Returns the labels that an entry's name implies; undefined if the name contains no levels. */
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
