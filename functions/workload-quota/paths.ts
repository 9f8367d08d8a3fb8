import { isMap, isObject, lookUp, toMap } from "postern/json";

type Step = string | number;

/** A value, and the elements of lists and maps that its path's `*` stand for. */
export interface PickedValue {
  value: unknown;
  picks: readonly Step[];
  /** The path with the elements in place of `*`, such as `spec.tasks.0.template`. */
  path: string;
}

const splitPath = (path: string): string[] => (path === "" ? [] : path.split("."));

/** Returns the values at a path, in which `*` stands for each element of a list or a map. */
export const listValues = (root: unknown, path: string): PickedValue[] => {
  let found: { value: unknown; picks: Step[]; steps: Step[] }[] = [{ value: root, picks: [], steps: [] }];
  for (const step of splitPath(path))
    found = found.flatMap(({ value, picks, steps }) => {
      if (step !== "*") {
        const inner = lookUp(value, [step]);
        return inner && inner.value != null ? [{ value: inner.value, picks, steps: [...steps, step] }] : [];
      }
      const keys = Array.isArray(value) ? [...value.keys()] : Object.keys(toMap(value));
      return keys.map((key) => {
        return { value: Reflect.get(Object(value), key), picks: [...picks, key], steps: [...steps, key] };
      });
    });
  return found.map(({ value, picks, steps }) => ({ value, picks, path: steps.join(".") }));
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
  const map = isMap(root) ? root : {};
  const inner = isObject(map[first]) ? map[first] : {};
  return { ...map, [first]: withValue(inner, rest.join("."), value) };
};
