import type { Request } from "../review.ts";

/** The members that API servers write as null in nearly every review. */
const unusual = /(?<!"(?:creationTimestamp|object|oldObject|options)":)null/;

/** Reports whether the text of a review may hold a null that concerns a rule. */
export const hasUnusualNull = (body: string): boolean => unusual.test(body);

/** The value that the API server gives a key whose value is null, by the map's name; other objects do without the key. */
const inMaps: Record<string, unknown> = {
  __proto__: null,
  annotations: "",
  data: "",
  labels: "",
  matchLabels: "",
  nodeSelector: "",
  allocatable: "0",
  allocatedResources: "0",
  capacity: "0",
  limits: "0",
  overhead: "0",
  requests: "0",
};

/** The element that the API server puts where one is null, by the list's name; other lists hold objects. */
const inLists: Record<string, unknown> = {
  __proto__: null,
  accessModes: "",
  add: "",
  args: "",
  audiences: "",
  command: "",
  drop: "",
  externalIPs: "",
  finalizers: "",
  monitors: "",
  supplementalGroups: 0,
  usages: "",
  values: "",
};

/** No built-in kind nests deeper; below it nothing is read. */
const deepest = 64;

/**
 * Returns the request with its objects as an API server would have sent them. It decodes null as the zero value of the
 * field and then leaves the field out, while an element of a list stays. What holds no null is returned as it is.
 */
export const resolveNulls = (request: Request): Request => {
  const [object, oldObject] = [readValue(request.object), readValue(request.oldObject)];
  return object === request.object && oldObject === request.oldObject ? request : { ...request, object, oldObject };
};

const readValue = (value: unknown, name = "", depth = 0): unknown => {
  if (typeof value !== "object" || value === null || depth > deepest) return value;
  const isList = Array.isArray(value);
  const zero = isList ? (inLists[name] ?? {}) : inMaps[name];
  const entries = Object.entries(value).map(
    ([key, inner]) => [key, inner === null ? zero : readValue(inner, isList ? name : key, depth + 1)] as const,
  );
  if (entries.every(([key, inner]) => inner === Reflect.get(value, key))) return value;
  return isList
    ? entries.map(([, inner]) => inner)
    : Object.fromEntries(entries.filter(([, inner]) => inner !== undefined));
};
