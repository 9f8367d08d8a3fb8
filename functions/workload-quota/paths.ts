import { isObject, lookUp, toMap } from "postern/json";

type Step = string | number;

const splitPath = (path: string): string[] => (path === "" ? [] : path.split("."));

/**
 * Finds all values at a path with `*`. Returns for each value the indices or keys that replace the `*` of the path: for
 * `spec.tasks.*.template` in an object with two tasks, `[[0], [1]]`.
 */
export const listWildcardKeys = (root: unknown, path: string): Step[][] => {
  let found: { value: unknown; keys: Step[] }[] = [{ value: root, keys: [] }];
  for (const step of splitPath(path))
    found = found.flatMap(({ value, keys }) => {
      if (step !== "*") {
        const inner = lookUp(value, [step]);
        return inner && inner.value != null ? [{ value: inner.value, keys }] : [];
      }
      const innerKeys = Array.isArray(value) ? [...value.keys()] : Object.keys(toMap(value));
      return innerKeys.map((key) => ({ value: lookUp(value, [key])?.value, keys: [...keys, key] }));
    });
  return found.map(({ keys }) => keys);
};

/** Replaces each `*` of a path by the next key: `spec.tasks.*.template` and [1] give spec, tasks, 1, template. */
export const fillPath = (path: string, keys: readonly Step[]): Step[] => {
  const rest = [...keys];
  return splitPath(path).map((step) => (step === "*" ? (rest.shift() ?? step) : step));
};

/** Returns the value at a path without `*`; undefined if it is absent or null. */
export const getValue = (root: unknown, path: string): unknown => lookUp(root, splitPath(path))?.value ?? undefined;

/** Returns a copy of an object with another value at a path without `*`. Adds missing maps on the path. */
export const withValue = (root: unknown, path: string, value: unknown): unknown => {
  const [first, ...rest] = splitPath(path);
  if (first === undefined) return value;
  const map = toMap(root);
  const inner = isObject(map[first]) ? map[first] : {};
  return { ...map, [first]: withValue(inner, rest.join("."), value) };
};
