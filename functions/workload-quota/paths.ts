import { isObject, lookUp, toMap } from "postern/json";

type Step = string | number;

const splitPath = (path: string): string[] => (path === "" ? [] : path.split("."));

/** Returns, for each value at a path, the elements of lists and maps that the `*` of the path stand for. */
export const listPicks = (root: unknown, path: string): Step[][] => {
  let found: { value: unknown; picks: Step[] }[] = [{ value: root, picks: [] }];
  for (const step of splitPath(path))
    found = found.flatMap(({ value, picks }) => {
      if (step !== "*") {
        const inner = lookUp(value, [step]);
        return inner && inner.value != null ? [{ value: inner.value, picks }] : [];
      }
      const keys = Array.isArray(value) ? [...value.keys()] : Object.keys(toMap(value));
      return keys.map((key) => ({ value: lookUp(value, [key])?.value, picks: [...picks, key] }));
    });
  return found.map(({ picks }) => picks);
};

/** Returns a path with these elements in place of its `*`, one after the other. */
export const fillPath = (path: string, picks: readonly Step[]): Step[] => {
  const rest = [...picks];
  return splitPath(path).map((step) => (step === "*" ? (rest.shift() ?? step) : step));
};

/** Returns the value at a path without `*`; undefined if it is absent or null. */
export const getValue = (root: unknown, path: string): unknown => lookUp(root, splitPath(path))?.value ?? undefined;

/** Returns a copy of an object with another value at a path without `*`. Maps that are absent are added. */
export const withValue = (root: unknown, path: string, value: unknown): unknown => {
  const [first, ...rest] = splitPath(path);
  if (first === undefined) return value;
  const map = toMap(root);
  const inner = isObject(map[first]) ? map[first] : {};
  return { ...map, [first]: withValue(inner, rest.join("."), value) };
};
