import { isMap } from "#lib/json.ts";
import type { Case } from "#lib/recording/recording.ts";
import { getCasePhase } from "../catalogue/cases.ts";
import { createRandom } from "./random.ts";

type Path = (string | number)[];

/** One change of a case. */
interface CaseChange {
  /** Chooses the member to change. */
  which: number;
  /** Chooses the value that replaces it, among those that cases have there. */
  other: number;
  /** Deletes the member, if cases exist without it. */
  drop: boolean;
  /** Changes the old object, if there is one. */
  old: boolean;
}

/**
 * Returns a function that changes one of these cases: values are replaced by values of the same field in other cases,
 * and fields are removed that some other case doesn't have. The API server would accept such objects, too.
 */
export const createCasePerturber = (
  cases: readonly Case[],
): ((entry: Case, changes: readonly CaseChange[]) => Case) => {
  const seen = new Map<string, unknown[]>();
  const parents = new Map<string, Set<string>[]>();
  for (const entry of cases)
    for (const object of [entry[getCasePhase(entry)], entry.oldObject])
      walk(object, [], (path, value) => {
        const place = toPlaceKey(path);
        seen.set(place, [...(seen.get(place) ?? []), value]);
        if (isMap(value)) parents.set(place, [...(parents.get(place) ?? []), new Set(Object.keys(value))]);
      });
  const isOptional = (path: Path) => {
    const key = String(path.at(-1));
    return (
      typeof path.at(-1) === "number" ||
      (parents.get(toPlaceKey(path.slice(0, -1))) ?? []).some((keys) => !keys.has(key))
    );
  };

  return (entry, changes) => {
    const copy = structuredClone(entry);
    for (const { which, other, drop, old } of changes) {
      const root: unknown = old && copy.oldObject ? copy.oldObject : copy[getCasePhase(copy)];
      const paths: Path[] = [];
      walk(root, [], (path) => path.length > 0 && !namesType(path) && paths.push(path));
      const path = paths[which % paths.length];
      if (path === undefined) continue;
      const parent = path
        .slice(0, -1)
        .reduce<unknown>((value, key) => Reflect.get(value as object, key), root) as object;
      const key = path.at(-1) ?? "";
      const others = seen.get(toPlaceKey(path)) ?? [];
      if (drop && isOptional(path))
        Array.isArray(parent) ? parent.splice(Number(key), 1) : Reflect.deleteProperty(parent, key);
      else if (others.length > 0) Reflect.set(parent, key, structuredClone(others[other % others.length]));
    }
    return copy;
  };
};

/** Generates `count` changed cases, the same for the same seed. */
export function* generateCases(cases: readonly Case[], count: number, seed: number): Generator<Case> {
  const perturb = createCasePerturber(cases);
  const { drawBelow, decide, pick } = createRandom(seed);
  for (let index = 0; index < count; index++) {
    const changes = Array.from({ length: 1 + drawBelow(5) }, (): CaseChange => {
      return { which: drawBelow(2 ** 31), other: drawBelow(2 ** 31), drop: decide(0.5), old: decide(0.5) };
    });
    yield perturb(pick(cases), changes);
  }
}

/**
 * Generates cases with shapes that Go never sends: each member removed and empty, and each list with an
 * empty element. The case's name contains the field.
 */
export function* buildOddCases(entry: Case): Generator<Case> {
  for (const part of [getCasePhase(entry), "oldObject"] as const) {
    const places: [Path, unknown][] = [];
    walk(entry[part], [], (path, value) => path.length > 0 && !namesType(path) && places.push([path, value]));
    for (const [path, value] of places)
      for (const odd of [undefined, ...listEmptyValues(value)])
        yield {
          ...entry,
          name: `${entry.name}, where ${part}.${path.join(".")} is ${JSON.stringify(odd) ?? "missing"}`,
          [part]: replaceAt(entry[part], path, odd),
        };
  }
}

const listEmptyValues = (value: unknown): unknown[] => {
  if (Array.isArray(value)) return [[], ...(value.every(isMap) ? [[{}]] : [])];
  return isMap(value) ? [{}] : [];
};

/** Returns a copy with another value at a path; undefined removes the value. */
const replaceAt = (value: unknown, [key, ...rest]: Path, other: unknown): unknown => {
  if (key === undefined) return other;
  const now = replaceAt(Reflect.get(value as object, key), rest, other);
  if (Array.isArray(value)) return value.toSpliced(Number(key), 1, ...(now === undefined ? [] : [now]));
  const others = Object.entries(value as object).filter(([name]) => name !== key);
  return Object.fromEntries([...others, ...(now === undefined ? [] : [[key, now]])]);
};

const toPlaceKey = (path: Path) => path.map((key) => (typeof key === "number" ? "*" : key)).join("\u0000");
/** Reports whether a path is apiVersion or kind, which the API server knows from the request's URL. */
const namesType = (path: Path) => path.length === 1 && (path[0] === "apiVersion" || path[0] === "kind");

const walk = (value: unknown, path: Path, visit: (path: Path, value: unknown) => void) => {
  visit(path, value);
  if (typeof value !== "object" || value === null) return;
  for (const [key, inner] of Array.isArray(value) ? value.entries() : Object.entries(value))
    walk(inner, [...path, key], visit);
};
