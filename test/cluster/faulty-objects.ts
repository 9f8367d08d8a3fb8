import fc from "fast-check";
import { isMap } from "#lib/json.ts";
import type { KubernetesObject } from "#lib/review.ts";

export type Path = readonly (string | number)[];

/** A valid object to which one fault was added, or none. */
export interface FaultyObject {
  object: KubernetesObject;
  /** The change of the object, such as `spec.replicas = -1`; "none" without a fault. */
  fault: string;
}

/** Stands for a value that is removed from its object. */
const removed = Symbol("removed");

/** Returns values that probably make an object invalid if they replace this value. */
const listWrongValues = (value: unknown): unknown[] => {
  const common = [removed, null, 7, true, "No such value!", ["a"], { unknownField: 1 }];
  if (typeof value === "string")
    return [...common, "", "a", "-a", "A", "a.b/c", "é", "1", "a".repeat(64), "a".repeat(254), ` ${value}`];
  if (typeof value === "number") return [...common, 0, -1, 1, 1.5, 65_536, 2 ** 31, 2 ** 40, String(value)];
  if (typeof value === "boolean") return [...common, !value, String(value)];
  if (Array.isArray(value)) return [...common, [], [...value, ...value.slice(0, 1)], [null], [{}]];
  if (isMap(value)) return [...common, {}, { ...value, unknownField: 1 }];
  return common;
};

/** Lists the paths of all values within a value, such as ["spec", "replicas"]. */
const listPaths = (value: unknown, path: Path = []): Path[] => {
  const members = Array.isArray(value) ? [...value.entries()] : isMap(value) ? Object.entries(value) : [];
  return members.flatMap(([key, member]) => [[...path, key], ...listPaths(member, [...path, key])]);
};

/** Returns a copy of an object with another value at a path. The value `removed` removes the member or item. */
const setAt = (object: KubernetesObject, path: Path, value: unknown): KubernetesObject => {
  const copy = structuredClone(object);
  const last = path.at(-1) ?? "";
  const parent = getAt(copy, path.slice(0, -1));
  if (value !== removed) Reflect.set(Object(parent), last, value);
  else if (Array.isArray(parent)) parent.splice(Number(last), 1);
  else Reflect.deleteProperty(Object(parent), last);
  return copy;
};

const getAt = (object: unknown, path: Path): unknown =>
  path.reduce<unknown>((inner, step) => Reflect.get(Object(inner), step), object);

/**
 * Generates copies of objects with one fault each; about one copy in 31 has none. Only values whose path `isChanged`
 * accepts are changed. The apiVersion, the kind and the namespace stay as they are.
 */
export const generateFaultyObject = (
  objects: readonly KubernetesObject[],
  isChanged: (path: Path) => boolean = () => true,
): fc.Arbitrary<FaultyObject> =>
  fc.constantFrom(...objects).chain((object) => {
    const paths = listPaths(object).filter(
      (path) => !["apiVersion", "kind", "metadata.namespace"].includes(path.join(".")) && isChanged(path),
    );
    const valid = fc.constant<FaultyObject>({ object, fault: "none" });
    if (paths.length === 0) return valid;
    const faulty = fc.constantFrom(...paths).chain((path) =>
      fc.constantFrom(...listWrongValues(getAt(object, path))).map((value): FaultyObject => {
        const change = value === removed ? "is removed" : `= ${JSON.stringify(value)?.slice(0, 80)}`;
        return { object: setAt(object, path, value), fault: `${path.join(".")} ${change}` };
      }),
    );
    return fc.oneof({ weight: 30, arbitrary: faulty }, { weight: 1, arbitrary: valid });
  });
