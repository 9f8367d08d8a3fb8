import { exactJson } from "#lib/exact-json.ts";
import { isMap, type JsonMap } from "#lib/json.ts";
import { selectMinor } from "../minors.ts";
import { selectConversions, selectDefaulters } from "./defaulters.ts";
import olderTables from "./older-types.json" with { type: "json" };
import type { Defaulters } from "./pods.ts";
import fixedDefaults from "./presets.json" with { type: "json" };
import {
  normalizeBase64,
  normalizeMicroTime,
  normalizeQuantity,
  normalizeResourceAmount,
  normalizeTime,
} from "./scalars.ts";
import table from "./types.json" with { type: "json" };

/** What was found while an object is decoded; `trail` is the path of the value being read. */
export interface DecodingReport {
  readonly trail: (string | number)[];
  /** Paths of unknown fields: the API server drops them or, with strict field validation, refuses the object. */
  readonly strays: string[];
  /** Sentences about values of a wrong type: the API server refuses such an object. */
  readonly misfits: string[];
}

/** Reads a value as Go decodes it and returns what Go encodes: for an absent (undefined) value, Go's zero value. */
interface TypeDecoder {
  read(value: unknown, reading: DecodingReport): unknown;
  isEmpty(value: unknown): boolean;
}

/**
 * What the API server does with an object that it reads: a request's object gets defaults, and is converted to the
 * internal version and back; an object that a webhook patched gets only defaults.
 */
export type ReadingStep = "request" | "patch";

/** Decoders of the built-in kinds, as a minor of Kubernetes has them. */
interface KubernetesTypes {
  /** The name of each kind's type, by API version and kind. */
  kinds: Record<string, Record<string, string>>;
  /** The type of each member, as a word of types.json, by type and member. */
  types: Record<string, Record<string, string>>;
  /** The functions that complete a struct after its members were read. */
  finishers: readonly Defaulters[];
  /** The decoders so far, by the words of types.json. */
  decoders: Map<string, TypeDecoder>;
}

/** A copy of the fixed defaults in defaults.go and zz_generated.defaults.go of Kubernetes' pkg/apis. */
const presets: Record<string, Record<string, unknown>> = fixedDefaults;

const typesByMinorAndStep = new Map<string, KubernetesTypes>();

const selectTypes = (kubernetes: string | undefined, step: ReadingStep): KubernetesTypes => {
  const key = `${kubernetes} ${step}`;
  let found = typesByMinorAndStep.get(key);
  if (found === undefined) {
    const { kinds, types }: Pick<KubernetesTypes, "kinds" | "types"> = selectMinor(table, olderTables, kubernetes);
    const defaulters = selectDefaulters(kubernetes);
    const finishers = step === "request" ? [defaulters, selectConversions(kubernetes)] : [defaulters];
    found = { kinds, types, finishers, decoders: new Map() };
    typesByMinorAndStep.set(key, found);
  }
  return found;
};

/** Returns the decoder with which a minor of Kubernetes, or the newest one, reads a kind in a step. */
export const findKubernetesTypeDecoder = (
  apiVersion: string,
  kind: string,
  kubernetes: string | undefined,
  step: ReadingStep,
): TypeDecoder | undefined => {
  const types = selectTypes(kubernetes, step);
  const name = getOwnMember(getOwnMember(types.kinds, apiVersion) ?? {}, kind);
  return name === undefined ? undefined : getDecoder(name, types);
};

/** Returns the fields of the value at a path in an object; none if the kind isn't built in or the path is unknown. */
export const listKnownFields = (
  apiVersion: string,
  kind: string,
  kubernetes: string | undefined,
  path: readonly (string | number)[],
): string[] => {
  const { kinds, types } = selectTypes(kubernetes, "request");
  let word = getOwnMember(getOwnMember(kinds, apiVersion) ?? {}, kind);
  for (const step of path) {
    const type = dropOptionalMarks(word);
    // In a list ("[") and a map ("{"), the step is an index or a key.
    word = /^[[{]/.test(type) ? type.slice(1) : getOwnMember(types[type] ?? {}, String(step));
  }
  return Object.keys(types[dropOptionalMarks(word)] ?? {});
};

/** Returns a word of types.json without the marks of members that may be absent. */
const dropOptionalMarks = (word = ""): string => word.replace(/^[?*]+/, "");

const getOwnMember = <T>(fields: Record<string, T>, key: string): T | undefined =>
  Object.hasOwn(fields, key) ? fields[key] : undefined;

/** Returns the decoder of a type in types.json, such as "PodSpec", "[Container" (a list) or "{quantity" (a map). */
const getDecoder = (word: string, types: KubernetesTypes): TypeDecoder => {
  let found = types.decoders.get(word);
  if (found === undefined) {
    found = createDecoder(word, types);
    types.decoders.set(word, found);
  }
  return found;
};

/** Creates the decoder of a type: "*" before a word means that it may be absent, "[" a list, and "{" a map. */
const createDecoder = (word: string, types: KubernetesTypes): TypeDecoder => {
  const [first, rest] = [word[0], word.slice(1)];
  if (first === "*") return createPointerDecoder(rest, types);
  if (first === "[") return createListDecoder(getDecoder(rest, types));
  if (first === "{") return createMapDecoder(getDecoder(rest, types));
  return scalarDecoders.get(word) ?? createStructDecoder(word, types);
};

const isAbsent = (value: unknown): value is null | undefined => value === null || value === undefined;

/** Decodes a value that may be absent or null. */
const createPointerDecoder = (word: string, types: KubernetesTypes): TypeDecoder => {
  let decoder: TypeDecoder | undefined;
  // Types may contain themselves, so the decoder is found on first use.
  const read = (value: unknown, reading: DecodingReport) => {
    decoder ??= getDecoder(word, types);
    return decoder.read(value, reading);
  };
  return {
    read: (value, reading) => (isAbsent(value) ? null : read(value, reading)),
    isEmpty: (value) => value === null,
  };
};

/** Decodes a list whose elements all have one type. */
const createListDecoder = (element: TypeDecoder): TypeDecoder => ({
  read: (value, reading) => {
    if (isAbsent(value)) return null;
    if (!Array.isArray(value)) return addMisfit(value, "a list", reading);
    return value.map((item, index) => decodeChild(index, item, element, reading));
  },
  isEmpty: (value) => value === null || (Array.isArray(value) && value.length === 0),
});

/** Decodes a map with any keys, whose values all have one type. */
const createMapDecoder = (element: TypeDecoder): TypeDecoder => ({
  read: (value, reading) => {
    if (isAbsent(value)) return null;
    if (!isMap(value)) return addMisfit(value, "a map", reading);
    // The copy already has all keys as its own. So an assignment to `__proto__` doesn't change the prototype.
    const result: JsonMap = { ...value };
    for (const key of Object.keys(result)) result[key] = decodeChild(key, result[key], element, reading);
    return result;
  },
  isEmpty: (value) => value === null || (isMap(value) && Object.keys(value).length === 0),
});

/** The Kubernetes types whose resource quantities the API server doesn't round to thousandths when it decodes them. */
const typesWithExactResources = ["Overhead", "NodeAllocatableResourceClaimStatus"];

/** Decodes an object with known members, such as a PodSpec, and sets its defaults. */
const createStructDecoder = (name: string, kubernetes: KubernetesTypes): TypeDecoder => {
  const words = kubernetes.types[name] ?? {};
  const members = Object.entries(words);
  const shapes = new Map<string, { shape: TypeDecoder; isOptional: boolean }>();
  // Types may contain themselves, so members are resolved on first use.
  const resolveMember = (member: string) => {
    const found = shapes.get(member);
    const word = found ? undefined : getOwnMember(words, member);
    if (word === undefined) return found;
    // Quantities in maps are amounts of resources ("resource"): the API server rounds them, except in some types.
    const isExact = typesWithExactResources.includes(name);
    const full = word.replace("?", "");
    const resolved = {
      shape: getDecoder(isExact ? full : full.replace("{quantity", "{resource"), kubernetes),
      isOptional: word.startsWith("?"),
    };
    shapes.set(member, resolved);
    return resolved;
  };
  const requiredMembers = members.filter(([, word]) => !word.startsWith("?")).map(([member]) => member);
  const preset = Object.entries(presets[name] ?? {});
  const finishers = kubernetes.finishers.flatMap((byType) => byType[name] ?? []);
  return {
    read: (value, reading) => {
      if (!isAbsent(value) && !isMap(value)) return addMisfit(value, "an object", reading);
      const result: JsonMap = {};
      const input: JsonMap = value ?? {};
      for (const member of Object.keys(input)) {
        const found = resolveMember(member);
        if (found === undefined) {
          reading.strays.push(formatPath([...reading.trail, member]));
          continue;
        }
        const read = decodeChild(member, input[member], found.shape, reading);
        if (!found.isOptional || !found.shape.isEmpty(read)) result[member] = read;
      }
      for (const member of requiredMembers)
        if (!Object.hasOwn(result, member)) result[member] = resolveMember(member)?.shape.read(undefined, reading);
      if (reading.misfits.length > 0) return result;
      for (const [member, presetValue] of preset)
        if (result[member] == null) result[member] = typeof presetValue === "object" ? { ...presetValue } : presetValue;
      for (const finish of finishers) finish(result, input);
      return result;
    },
    isEmpty: () => false,
  };
};

const decodeChild = (step: string | number, value: unknown, shape: TypeDecoder, reading: DecodingReport): unknown => {
  reading.trail.push(step);
  const read = shape.read(value, reading);
  reading.trail.pop();
  return read;
};

const addMisfit = (value: unknown, expected: string, { trail, misfits }: DecodingReport): unknown => {
  misfits.push(`${formatPath(trail)} must be ${expected}, not ${describeValue(value)}`);
  return value;
};

/** Returns a decoder of scalars. `read` returns undefined for a wrong type; an absent value gives `none`. */
const createScalarDecoder = (expected: string, none: unknown, read: (value: unknown) => unknown): TypeDecoder => ({
  read: (value, reading) => (isAbsent(value) ? none : (read(value) ?? addMisfit(value, expected, reading))),
  isEmpty: (value) => value === none || value === "",
});

const applyToText = (read: (text: string) => unknown) => (value: unknown) =>
  typeof value === "string" ? read(value) : undefined;
const applyToAmount = (read: (amount: string | number) => unknown) => (value: unknown) =>
  typeof value === "string" || typeof value === "number"
    ? read(value)
    : typeof value === "bigint"
      ? read(String(value))
      : undefined;
const toWholeNumber = (value: unknown) => (Number.isInteger(value) || typeof value === "bigint" ? value : undefined);

const scalarDecoders = new Map<string, TypeDecoder>([
  ["text", createScalarDecoder("a text", "", applyToText(String))],
  ["flag", createScalarDecoder("true or false", false, (value) => (typeof value === "boolean" ? value : undefined))],
  ["number", createScalarDecoder("a whole number", 0, toWholeNumber)],
  ["quantity", createScalarDecoder("a quantity", "0", applyToAmount(normalizeQuantity))],
  ["resource", createScalarDecoder("a quantity", "0", applyToAmount(normalizeResourceAmount))],
  [
    "either",
    createScalarDecoder("a whole number or a text", 0, (value) => applyToText(String)(value) ?? toWholeNumber(value)),
  ],
  ["bytes", createScalarDecoder("a text in base64", null, normalizeBase64)],
  ["time", createScalarDecoder("a time such as 2026-01-02T15:04:05Z", null, applyToText(normalizeTime))],
  [
    "microtime",
    createScalarDecoder("a time such as 2026-01-02T15:04:05.000000Z", null, applyToText(normalizeMicroTime)),
  ],
  ["any", createScalarDecoder("anything", null, (value) => value)],
]);

const describeValue = (value: unknown): string => {
  if (Array.isArray(value)) return "a list";
  if (typeof value === "object") return "an object";
  const text = exactJson.stringify(value);
  return text.length > 60 ? `${text.slice(0, 60)}…` : text;
};

/** Returns a path such as `spec.containers[0].image`. */
const formatPath = (trail: readonly (string | number)[]): string =>
  trail.map((step, index) => (typeof step === "number" ? `[${step}]` : `${index > 0 ? "." : ""}${step}`)).join("") ||
  "the object";
