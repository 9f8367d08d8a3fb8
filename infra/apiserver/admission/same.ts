import { isMap, isSame } from "#lib/json.ts";
import { isOwn } from "./decoding.ts";

/**
 * Whether two objects are the same to an API server that has read them. What it has no types for is as it is written; in
 * its own kinds, what is null or empty is as if it weren't there.
 */
export const isSameToServer = (one: unknown, other: unknown): boolean =>
  isMap(one) && !isOwn(one) ? isSame(one, other) : isSameObject(one, other);

/** Members that are maps in Kubernetes' types, where an empty one is as good as none. */
const maps = new Set(
  "labels annotations data binaryData stringData matchLabels nodeSelector limits requests capacity selector".split(" "),
);

/** As far as an object of a kind of Kubernetes' own goes: what is null, or a list or labels and the like without any member, isn't there. */
export const isSameObject = (one: unknown, other: unknown, key = ""): boolean => {
  if (one === other) return true;
  if (isNothing(one, key) || isNothing(other, key)) return isNothing(one, key) && isNothing(other, key);
  if (Array.isArray(one) || Array.isArray(other))
    return (
      Array.isArray(one) &&
      Array.isArray(other) &&
      one.length === other.length &&
      one.every((element, index) => isSameObject(element, other[index]))
    );
  if (!isMap(one) || !isMap(other)) return false;
  return (
    Object.keys(one).every((name) => isSameObject(one[name], memberOf(other, name), name)) &&
    Object.keys(other).every((name) => Object.hasOwn(one, name) || isNothing(other[name], name))
  );
};

const memberOf = (map: Record<string, unknown>, name: string) => (Object.hasOwn(map, name) ? map[name] : undefined);

const isNothing = (value: unknown, key: string): boolean =>
  value === undefined ||
  value === null ||
  (Array.isArray(value) && value.length === 0) ||
  (maps.has(key) && isMap(value) && Object.keys(value).length === 0);
