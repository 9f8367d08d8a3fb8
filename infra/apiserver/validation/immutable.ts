import { getOwn, isMap, isSame } from "#lib/json.ts";
import type { KubernetesObject } from "#lib/review.ts";
import type { FieldFault } from "./fields.ts";
import immutable from "./immutable.json" with { type: "json" };

/** The fields that can't be changed, by kinds and paths: the field that an API server names, and what it says. */
export type ImmutableFields = Record<string, Record<string, readonly [field: string, detail: string]>>;

// JSON has lists where the type has pairs.
const fields = immutable as unknown as ImmutableFields;

/** Returns the faults of an update of a built-in kind: fields that can't be changed. Fields that it leaves out stay. */
export const findImmutableFaults = (object: KubernetesObject, old: KubernetesObject): FieldFault[] => {
  const kind = `${object.apiVersion} ${object.kind}`;
  const faults = Object.entries(Object.hasOwn(fields, kind) ? (fields[kind] ?? {}) : {}).flatMap(
    ([place, [field, message]]) => {
      const [before, after] = [getAt(old, place), getAt(object, place)];
      const isKept = before === undefined || before === null || contains(before, after);
      const reason = message.startsWith("Forbidden") ? "FieldValueForbidden" : "FieldValueInvalid";
      return isKept ? [] : [{ field, reason, message }];
    },
  );
  return faults.filter(({ field }, index) => faults.findIndex((fault) => fault.field === field) === index);
};

const getAt = (object: unknown, place: string): unknown => place.split(".").reduce<unknown>(getOwn, object);

/** Reports whether a value has all that another one states. */
const contains = (value: unknown, stated: unknown): boolean => {
  if (stated === undefined || stated === null) return true;
  if (isMap(stated))
    return isMap(value) && Object.entries(stated).every(([key, member]) => contains(getOwn(value, key), member));
  if (!Array.isArray(stated)) return isSame(value, stated);
  return (
    Array.isArray(value) &&
    value.length === stated.length &&
    stated.every((item, index) => contains(value[index], item))
  );
};
