import {
  applyToEach,
  cloneDeep,
  deleteMember,
  getOwn,
  isMap,
  isSame,
  parsePointer,
  setMemberToCopy,
} from "../../json.ts";
import type { KubernetesObject } from "../../review.ts";
import type { PolicyPatchOperation } from "../types.ts";
import { quoteValue } from "../values/texts.ts";

/**
 * Applies a JSON patch in place, and reports whether anything changed. It works as evanphx/json-patch 4.12, the library
 * of upstream: `replace` adds an absent key, and a negative index counts from the end. `copy` and `move` are not
 * supported. If it throws, earlier operations were applied, so the object must not be used.
 */
export const applyPolicyPatch = (object: KubernetesObject, operations: readonly PolicyPatchOperation[]): boolean => {
  const { kind, apiVersion } = object;
  const changed = applyToEach(operations, (operation) => applyOperation(object, operation));
  if (kind !== undefined && !isNonEmptyText(object.kind)) throw new Error("a patch must not remove the object's kind");
  if (apiVersion !== undefined && !isNonEmptyText(object.apiVersion))
    throw new Error("a patch must not remove the object's apiVersion");
  if (!isMap(object.metadata ?? {})) throw new Error("the object's metadata must still be a map after a patch");
  return changed;
};

/** The most characters of an operation's path. It is limited, because error messages contain the path. */
const maximumPathLength = 4096;

const isNonEmptyText = (value: unknown) => typeof value === "string" && value !== "";

/** Applies one operation of a patch, and reports whether anything changed. */
const applyOperation = (object: object, operation: PolicyPatchOperation): boolean => {
  if (!isMap(operation)) throw new Error("an operation of a patch must be a map with op, path and value");
  const { op, path, value = null }: PolicyPatchOperation = operation;
  if (typeof path !== "string" || path.length > maximumPathLength)
    throw new Error(`path of an operation must be a text of at most ${maximumPathLength} characters`);
  const apply = Object.hasOwn(appliers, op) ? appliers[op] : undefined;
  if (apply === undefined)
    throw new Error(`op ${quoteValue(op)} at ${path} must be one of ${Object.keys(appliers).join(", ")}`);
  const steps = parsePatchPath(path);
  const key = steps.pop();
  if (key === undefined) return replaceObject(object, op, value);
  if (op === "add" || op === "replace") createMetadataMap(object, steps);
  const parent = steps.reduce<unknown>(getMember, object);
  if (typeof parent !== "object" || parent === null) throw createPathError(op, path, "the parent doesn't exist");
  return apply({ parent, key, value, op, path });
};

/** The member of the object to which an operation applies, and the operation's fields. */
interface OperationTarget {
  parent: object;
  key: string;
  value: unknown;
  op: string;
  path: string;
}

const createPathError = (op: string, path: string, why: string) => new Error(`${op} ${JSON.stringify(path)}: ${why}`);

const parsePatchPath = (pointer: string): string[] => {
  if (pointer !== "" && !pointer.startsWith("/"))
    throw new Error(`the path ${JSON.stringify(pointer)} must begin with a slash`);
  return parsePointer(pointer);
};

const getMember = (parent: unknown, key: string): unknown => {
  if (Array.isArray(parent)) return parent[parseIndex(key, parent.length) ?? -1];
  return isMap(parent) ? getOwn(parent, key) : undefined;
};

/** Parses an index below `length`; a negative index counts from the end. */
const parseIndex = (key: string, length: number): number | undefined => {
  if (!/^[+-]?\d{1,15}$/.test(key)) return undefined;
  const index = Number(key) < 0 ? Number(key) + length : Number(key);
  return index >= 0 && index < length ? index : undefined;
};

/**
 * Returns the list and the index that an operation changes; undefined if the parent is a map. With `extra` 1, the index
 * may be one after the last element.
 */
const findElement = ({ parent, key, op, path }: OperationTarget, extra = 0) => {
  if (!Array.isArray(parent)) return undefined;
  const index = extra > 0 && key === "-" ? parent.length : parseIndex(key, parent.length + extra);
  if (index === undefined) throw createPathError(op, path, `the list has no such index, but ${parent.length} elements`);
  return { list: parent, index };
};

/** Creates missing annotations or labels, because policies add keys to these maps without creating them. */
const createMetadataMap = (object: object, [first, second, ...rest]: string[]) => {
  if (first !== "metadata" || rest.length > 0 || (second !== "annotations" && second !== "labels")) return;
  const metadata = getOwn(object, first);
  if (isMap(metadata) && (getOwn(metadata, second) ?? null) === null) setMemberToCopy(metadata, second, {});
};

/** The functions that apply an operation and report whether anything changed, by the operation's name. */
const appliers: Record<string, (place: OperationTarget) => boolean> = {
  add(place) {
    const element = findElement(place, 1); // A new element may also come after the last one.
    if (element === undefined) return setMemberToCopy(place.parent, place.key, place.value);
    element.list.splice(element.index, 0, cloneDeep(place.value));
    return true;
  },
  remove(place) {
    const element = findElement(place);
    if (element !== undefined) return element.list.splice(element.index, 1).length > 0;
    if (!deleteMember(place.parent, place.key)) throw createPathError(place.op, place.path, "the key doesn't exist");
    return true;
  },
  replace: (place) => setMemberToCopy(place.parent, findElement(place)?.index ?? place.key, place.value),
  test(place) {
    const element = findElement(place);
    const present = element === undefined ? getOwn(place.parent, place.key) : element.list[element.index];
    if (!isSame(present ?? null, place.value))
      throw createPathError(place.op, place.path, "the value there is different");
    return false;
  },
};

/**
 * Applies the operation `replace` or `test` to the whole object. Reports whether the object changed. Throws for other
 * operations, for a `test` that fails, and for a `replace` by a value that is no map.
 */
const replaceObject = (object: object, op: string, value: unknown): boolean => {
  if (op === "test" && isSame(object, value)) return false;
  if (op !== "replace" || !isMap(value))
    throw createPathError(op, "", "this operation can't be applied to the whole object");
  const isDeleted = applyToEach(Object.keys(object), (key) => !Object.hasOwn(value, key) && deleteMember(object, key));
  return applyToEach(Object.entries(value), ([key, member]) => setMemberToCopy(object, key, member)) || isDeleted;
};
