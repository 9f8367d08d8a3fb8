import { isMap } from "#lib/json.ts";
import type { Case } from "#lib/recording/recording.ts";
import { getCasePhase } from "../catalogue/cases.ts";
import { createRandom } from "./random.ts";

type Path = (string | number)[];

/** A random change of one member of a case's object. */
interface CaseChange {
  /** A random number that chooses the member to change. */
  randomForMember: number;
  /** A random number that chooses the new value, among the values that cases have at this place. */
  randomForValue: number;
  /** Deletes the member, if there are cases without it. */
  deletesMember: boolean;
  /** Changes the old object instead of the object, if the case has one. */
  changesOldObject: boolean;
}

/**
 * Returns a function that changes one of these cases. It replaces values with values of the same field in other cases,
 * and removes fields that another case doesn't have. The API server would accept the changed objects, too.
 */
export const createCasePerturber = (
  cases: readonly Case[],
): ((ruleCase: Case, changes: readonly CaseChange[]) => Case) => {
  const valuesByPlace = new Map<string, unknown[]>();
  const keysByPlace = new Map<string, Set<string>[]>();
  for (const ruleCase of cases)
    for (const object of [ruleCase[getCasePhase(ruleCase)], ruleCase.oldObject])
      walk(object, [], (path, value) => {
        const place = toPlaceKey(path);
        valuesByPlace.set(place, [...(valuesByPlace.get(place) ?? []), value]);
        if (isMap(value)) keysByPlace.set(place, [...(keysByPlace.get(place) ?? []), new Set(Object.keys(value))]);
      });
  const isOptional = (path: Path) => {
    const key = String(path.at(-1));
    return (
      typeof path.at(-1) === "number" ||
      (keysByPlace.get(toPlaceKey(path.slice(0, -1))) ?? []).some((keys) => !keys.has(key))
    );
  };

  return (ruleCase, changes) => {
    const copy = structuredClone(ruleCase);
    for (const { randomForMember, randomForValue, deletesMember, changesOldObject } of changes) {
      const root: unknown = changesOldObject && copy.oldObject ? copy.oldObject : copy[getCasePhase(copy)];
      const changeablePaths: Path[] = [];
      walk(root, [], (path) => isChangeable(path) && changeablePaths.push(path));
      const path = changeablePaths[randomForMember % changeablePaths.length];
      if (path === undefined) continue;
      const parent = path
        .slice(0, -1)
        .reduce<unknown>((value, key) => Reflect.get(value as object, key), root) as object;
      const key = path.at(-1) ?? "";
      const others = valuesByPlace.get(toPlaceKey(path)) ?? [];
      if (deletesMember && isOptional(path))
        Array.isArray(parent) ? parent.splice(Number(key), 1) : Reflect.deleteProperty(parent, key);
      else if (others.length > 0) Reflect.set(parent, key, structuredClone(others[randomForValue % others.length]));
    }
    return copy;
  };
};

/** Generates `count` changed cases. The same seed gives the same cases. */
export function* generateCases(cases: readonly Case[], count: number, seed: number): Generator<Case> {
  const perturb = createCasePerturber(cases);
  const { drawBelow, decide, pick } = createRandom(seed);
  for (let index = 0; index < count; index++) {
    const changes = Array.from({ length: 1 + drawBelow(5) }, (): CaseChange => {
      return {
        randomForMember: drawBelow(2 ** 31),
        randomForValue: drawBelow(2 ** 31),
        deletesMember: decide(0.5),
        changesOldObject: decide(0.5),
      };
    });
    yield perturb(pick(cases), changes);
  }
}

/**
 * Generates cases with shapes that API servers never send, because these are written in Go: one case for each member
 * without the member, one with an empty value, and one for each list with an empty element. The name of the case
 * contains the field.
 */
export function* buildOddCases(ruleCase: Case): Generator<Case> {
  for (const part of [getCasePhase(ruleCase), "oldObject"] as const) {
    const places: [Path, unknown][] = [];
    walk(ruleCase[part], [], (path, value) => isChangeable(path) && places.push([path, value]));
    for (const [path, value] of places)
      for (const odd of [undefined, ...listEmptyValues(value)])
        yield {
          ...ruleCase,
          name: `${ruleCase.name}, where ${part}.${path.join(".")} is ${JSON.stringify(odd) ?? "missing"}`,
          [part]: replaceAt(ruleCase[part], path, odd),
        };
  }
}

/** Returns empty values of the same type: for a list, also a list with an empty map. */
const listEmptyValues = (value: unknown): unknown[] => {
  if (Array.isArray(value)) return [[], ...(value.every(isMap) ? [[{}]] : [])];
  return isMap(value) ? [{}] : [];
};

/** Returns a copy with another value at a path; undefined removes the value. */
const replaceAt = (value: unknown, [key, ...rest]: Path, other: unknown): unknown => {
  if (key === undefined) return other;
  const newMember = replaceAt(Reflect.get(value as object, key), rest, other);
  if (Array.isArray(value)) return value.toSpliced(Number(key), 1, ...(newMember === undefined ? [] : [newMember]));
  const otherEntries = Object.entries(value as object).filter(([name]) => name !== key);
  return Object.fromEntries([...otherEntries, ...(newMember === undefined ? [] : [[key, newMember]])]);
};

/** Returns a path as text. All elements of a list have the same text. */
const toPlaceKey = (path: Path) => path.map((key) => (typeof key === "number" ? "*" : key)).join("\u0000");
/** Reports whether a path is a field, but not apiVersion or kind: an API server takes these from a request's URL. */
const isChangeable = (path: Path) => path.length > 0 && !/^(apiVersion|kind)$/.test(path.join("."));

const walk = (value: unknown, path: Path, visit: (path: Path, value: unknown) => void) => {
  visit(path, value);
  if (typeof value !== "object" || value === null) return;
  for (const [key, inner] of Array.isArray(value) ? value.entries() : Object.entries(value))
    walk(inner, [...path, key], visit);
};
