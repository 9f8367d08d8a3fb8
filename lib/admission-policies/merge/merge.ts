import { getOwn, type JsonMap } from "../../json.ts";
import { quoteAsGo } from "../../objects/go/quoted.ts";
import { formatGo, formatGoSyntax, GoValue, isJsonMap, nameGoType } from "./go-values.ts";
import { hasMembers, type ObjectSchema, resolveType, type TypeReference, type ValueType } from "./schemas.ts";

/** The error for a patch that can't be applied, with upstream's text. */
export class ApplyConfigurationError extends Error {
  constructor(text: string) {
    super(`error applying patch: ${text}`);
  }
}

/**
 * Merges the patch of an ApplyConfiguration into an object, as a server-side apply does. The merged object may contain
 * parts of the object and of the patch, uncopied. Throws an ApplyConfigurationError if the patch doesn't match the
 * schema, or contains an atomic value.
 */
export const applyConfiguration = (schema: ObjectSchema, object: JsonMap, patch: JsonMap): JsonMap => {
  const { types, root } = schema;
  const complete: JsonMap = { ...patch, apiVersion: object.apiVersion, kind: object.kind };
  throwFaults("failed to convert patch object to typed object", findFaults(types, root, complete, /* isLive */ false));
  const atomics = findAtomics(types, root, complete, "");
  if (atomics.length > 0)
    throw new ApplyConfigurationError(
      `invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: ${atomics.join(", ")}`,
    );
  throwFaults("failed to convert original object to typed object", findFaults(types, root, object, /* isLive */ true));
  return merge(types, root, object, complete) as JsonMap;
};

type Types = ObjectSchema["types"];

interface Fault {
  path: string;
  message: string;
}

const throwFaults = (stage: string, faults: readonly Fault[]): void => {
  if (faults.length === 0) return;
  const texts = faults.map(({ path, message }) => (path === "" ? message : `${path}: ${message}`));
  throw new ApplyConfigurationError(
    `${stage}: ${texts.length === 1 ? texts[0] : ["errors:", ...texts.map((text) => `  ${text}`)].join("\n")}`,
  );
};

/** Reports whether a value is a scalar. Integers that are not safe are bigints. */
const isScalar = (value: unknown) => ["string", "number", "bigint", "boolean"].includes(typeof value);

/**
 * Returns the shape that a value must have: its own if the type allows it, and else, as in upstream, the first of map,
 * scalar and list that the type allows.
 */
const chooseShape = (type: ValueType, value: unknown): "map" | "scalar" | "list" => {
  if (isJsonMap(value) && hasMembers(type)) return "map";
  if (Array.isArray(value) && type.items !== undefined) return "list";
  if (isScalar(value) && type.scalar) return "scalar";
  if (hasMembers(type)) return "map";
  return type.scalar ? "scalar" : "list";
};

/**
 * Returns the faults of a value. In an object of the cluster (`isLive`), lists may have duplicates, and fields may be
 * unknown, because the cluster may be newer than the schema.
 */
const findFaults = (types: Types, reference: TypeReference, value: unknown, isLive: boolean): Fault[] => {
  const type = resolveType(types, reference);
  const shape = chooseShape(type, value);
  if (value === null) return [];
  if (shape === "scalar" && type.scalar) return findScalarFaults(type.scalar, value);
  if (shape === "list" && Array.isArray(value)) return findElementFaults(types, type, value, isLive);
  if (shape === "map" && isJsonMap(value)) return findMemberFaults(types, type, value, isLive);
  return [{ path: "", message: `expected ${shape}, got &{${formatGo(value)}}` }];
};

/** Returns the fault of a value that should be a scalar, with upstream's text. */
const findScalarFaults = (scalar: NonNullable<ValueType["scalar"]>, value: unknown): Fault[] => {
  const type = typeof value === "bigint" ? "number" : typeof value;
  const isValid = scalar === "any" ? isScalar(value) : type === scalar;
  if (isValid) return [];
  const messages = {
    number: () => `expected numeric (int or float), got ${nameGoType(value)}`,
    string: () => `expected string, got &value.valueUnstructured{Value:${formatGoSyntax(value)}}`,
    boolean: () => `expected boolean, got &{${formatGo(value)}}`,
    any: () => `expected any scalar, got &{${formatGo(value)}}`,
  };
  return [{ path: "", message: messages[scalar]() }];
};

/** Returns the faults of a list and its elements. */
const findElementFaults = (types: Types, type: ValueType, list: readonly unknown[], isLive: boolean): Fault[] => {
  const faults: Fault[] = [];
  const steps = new Set<string>();
  for (const [index, element] of list.entries()) {
    const { step, message } = type.keys ? identifyElement(type, element) : { step: `[${index}]` };
    // Upstream doesn't check the elements after an element that it can't identify.
    if (step === undefined) return [...faults, { path: "", message: `element ${index}: ${message}` }];
    if (type.keys && !isLive && steps.has(step))
      faults.push({ path: "", message: `duplicate entries for key ${step}` });
    steps.add(step);
    for (const fault of findFaults(types, type.items ?? "any", element, isLive)) faults.push(addStep(step, fault));
  }
  return faults;
};

/** Returns the faults of a map and its members. An object of the cluster (`isLive`) may have unknown members. */
const findMemberFaults = (types: Types, type: ValueType, map: JsonMap, isLive: boolean): Fault[] => {
  const faults: Fault[] = [];
  for (const [key, value] of Object.entries(map)) {
    const member = findMemberType(type, key);
    if (member === undefined && isLive) continue;
    // Upstream doesn't check the members after an unknown member.
    if (member === undefined) return [...faults, { path: `.${key}`, message: "field not declared in schema" }];
    for (const fault of findFaults(types, member, value, isLive)) faults.push(addStep(`.${key}`, fault));
  }
  return faults;
};

const addStep = (step: string, { path, message }: Fault): Fault => ({ path: `${step}${path}`, message });

const findMemberType = ({ fields, values }: ValueType, key: string): TypeReference | undefined =>
  (getOwn(fields, key) as TypeReference | undefined) ?? values;

/** Returns an element's step in paths, such as `[name="a"]` in a list with keys; or why the element has none. */
const identifyElement = (
  { keys = [], defaults }: ValueType,
  element: unknown,
): { step: string; message?: never } | { step?: never; message: string } => {
  if (keys.length === 0) return identifySetElement(element);
  if (element === null) return { message: "associative list with keys may not have a null element" };
  if (!isJsonMap(element)) return { message: "associative list with keys may not have non-map elements" };
  const values = keys.toSorted().flatMap((key) => {
    const value = Object.hasOwn(element, key) ? element[key] : getOwn(defaults, key);
    return value === undefined ? [] : [`${key}=${formatKey(value)}`];
  });
  if (values.length > 0) return { step: `[${values.join(",")}]` };
  const names = keys.map(quoteAsGo).join(" ");
  const message = `associative list with keys has an element that omits all key fields [${names}]`;
  return { message: `${message} (and doesn't have default values for any key fields)` };
};

const identifySetElement = (element: unknown) => {
  if (isJsonMap(element)) return { message: "associative list without keys has an element that's a map type" };
  if (Array.isArray(element)) return { message: "not supported: associative list with lists as elements" };
  if (element === null) return { message: "associative list without keys has an element that's an explicit null" };
  return { step: `[=${formatKey(element)}]` };
};

/**
 * Formats the value of a key that identifies an element of a list. Like upstream, it writes nothing between the members
 * of a map.
 */
const formatKey = (value: unknown): string => {
  if (value === null) return "null";
  // For a Go value that has no form in JSON, upstream writes this text.
  if (value instanceof GoValue) return "{{undefined}}";
  if (typeof value === "string") return quoteAsGo(value);
  if (Array.isArray(value)) return `[${value.map(formatKey).join(",")}]`;
  if (!isJsonMap(value)) return formatGo(value);
  const entries = Object.entries(value).sort(([left], [right]) => (left < right ? -1 : 1));
  return entries.map(([key, member]) => `${key}=${formatKey(member)}`).join("");
};

/** Returns the paths of atomic lists and maps. As upstream, looks only into fields, not into other values of maps. */
const findAtomics = (types: Types, reference: TypeReference, value: unknown, path: string): string[] => {
  const type = resolveType(types, reference);
  if (isJsonMap(value) && hasMembers(type))
    return [
      ...(type.isAtomic ? [path] : []),
      ...Object.entries(value).flatMap(([key, member]) => {
        const field = getOwn(type.fields, key) as TypeReference | undefined;
        return field === undefined ? [] : findAtomics(types, field, member, `${path}.${key}`);
      }),
    ];
  if (!Array.isArray(value) || type.items === undefined) return [];
  // A list without `keys` is atomic; a set has an empty list of keys. Parts of the elements can be atomic, too.
  const { items, keys } = type;
  return [
    ...(keys === undefined ? [path] : []),
    ...value.flatMap((element, index) => findAtomics(types, items, element, `${path}[${index}]`)),
  ];
};

/**
 * Merges a value of the patch into the live value. Undefined stands for an absent value. As in upstream, a null in the
 * patch keeps the live map or list, unless that is empty or atomic. For null, `chooseShape` returns the first of map,
 * scalar and list that the type allows.
 */
const merge = (types: Types, reference: TypeReference, live: unknown, patch: unknown): unknown => {
  if (patch === undefined) return live;
  const type = resolveType(types, reference);
  const shape = chooseShape(type, patch);
  if (shape === "map" && !type.isAtomic && isJsonMap(live) && Object.keys(live).length > 0)
    return isJsonMap(patch) ? mergeMembers(types, type, live, patch) : live;
  if (shape === "list" && type.keys && Array.isArray(live) && live.length > 0)
    return Array.isArray(patch) ? mergeElements(types, type, live, patch) : live;
  return patch;
};

/** Merges two maps, member by member. */
const mergeMembers = (types: Types, type: ValueType, live: JsonMap, patch: JsonMap): JsonMap =>
  // Object.fromEntries makes "__proto__" a member like any other.
  Object.fromEntries(
    [...new Set([...Object.keys(live), ...Object.keys(patch)])].map((key) => {
      const member = findMemberType(type, key) ?? "any";
      return [key, merge(types, member, getOwn(live, key), getOwn(patch, key))];
    }),
  );

/**
 * Merges two lists by the names of their elements. Elements of the patch keep their order. Elements that only the live
 * list has keep their position relative to elements that both lists have. If several live elements have the name of an
 * element of the patch, this element replaces them all.
 */
const mergeElements = (types: Types, type: ValueType, live: unknown[], patch: unknown[]): unknown[] => {
  const nameOf = (element: unknown) => identifyElement(type, element).step ?? "";
  const liveNames = live.map(nameOf);
  const patchNames = patch.map(nameOf);
  const patchElements = new Map(patchNames.map((name, index) => [name, patch[index]]));
  const liveElements = new Map<string, unknown>();
  // For a name of several live elements, the map has undefined: the patch's element is merged with none of them.
  for (const [index, name] of liveNames.entries())
    liveElements.set(name, liveElements.has(name) ? undefined : live[index]);
  const shared = patchNames.filter((name) => liveElements.has(name)).values();
  // The first name, in the order of the patch, that both lists have and that is not merged yet; undefined at the end.
  let nextShared = shared.next().value;
  const merged: unknown[] = [];
  const mergedNames = new Set<string>();
  const addMerged = (name: string) => {
    mergedNames.add(name);
    merged.push(merge(types, type.items ?? "any", liveElements.get(name), patchElements.get(name)));
    if (name === nextShared) nextShared = shared.next().value;
  };
  let [liveIndex, patchIndex] = [0, 0];
  while (liveIndex < live.length || patchIndex < patch.length) {
    const liveName = liveNames[liveIndex];
    const patchName = patchNames[patchIndex];
    if (liveName !== undefined && liveName === patchName) {
      addMerged(liveName);
      liveIndex++;
      patchIndex++;
    } else if (liveName !== undefined && !patchElements.has(liveName)) {
      merged.push(live[liveIndex]);
      liveIndex++;
    } else if (liveName !== undefined && patchName !== undefined && nextShared && liveName !== nextShared) {
      // Both lists have the live element, but `nextShared` comes first in the patch. The live element is skipped here,
      // and added when the patch reaches its name: live [a, x, b] and patch [b, a] give [x, b, a].
      liveIndex++;
    } else {
      // The patch's next element is added: the live list doesn't have it, or its live element was skipped above.
      // A live element whose name is merged already is a duplicate, and skipped. Any other live element has the name
      // `nextShared`, because the branches above take all other names. It waits until the patch reaches this name.
      if (liveName !== undefined && mergedNames.has(liveName)) liveIndex++;
      if (patchName !== undefined) addMerged(patchName);
      patchIndex++;
    }
  }
  return merged;
};
