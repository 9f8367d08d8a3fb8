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
  readonly unknownFields: string[];
  /** Sentences about values of a wrong type: the API server refuses such an object. */
  readonly decodingErrors: string[];
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
  /**
   * The type code of each member, by type and member. In a code, "?" means that Go leaves out an empty member, "*" a
   * pointer, "[" a list, and "{" a map. For example, "?[Container" is a list of containers.
   */
  types: Record<string, Record<string, string>>;
  /** The functions that set defaults in a struct after its members were read, and those that convert it. */
  defaulters: readonly Defaulters[];
  /** The decoders so far, by type code. */
  decoders: Map<string, TypeDecoder>;
}

/** A copy of the fixed defaults in defaults.go and zz_generated.defaults.go of Kubernetes' pkg/apis. */
const presets: Record<string, Record<string, unknown>> = fixedDefaults;

const typesByMinor = {
  request: new Map<string | undefined, KubernetesTypes>(),
  patch: new Map<string | undefined, KubernetesTypes>(),
};

/**
 * Returns the types of a minor, with the functions that set defaults. For a request's object, but not for an object
 * that a webhook patched, these include the conversion to the API server's internal version and back.
 */
const selectTypes = (kubernetes: string | undefined, step: ReadingStep): KubernetesTypes => {
  let found = typesByMinor[step].get(kubernetes);
  if (found === undefined) {
    const { kinds, types }: Pick<KubernetesTypes, "kinds" | "types"> = selectMinor(table, olderTables, kubernetes);
    const defaulters = [selectDefaulters(kubernetes)];
    if (step === "request") defaulters.push(selectConversions(kubernetes));
    found = { kinds, types, defaulters, decoders: new Map() };
    typesByMinor[step].set(kubernetes, found);
  }
  return found;
};

/**
 * Returns the decoder of a kind in a minor of Kubernetes, by default the newest; undefined if the kind is unknown. The
 * step says which defaults it sets: those of a request's object, or those of an object that a webhook patched.
 */
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

/** Returns why an API server can't decode the metadata of an object, which all kinds have. */
export const listMetadataErrors = (metadata: unknown, kubernetes: string | undefined): readonly string[] => {
  const reading: DecodingReport = { trail: ["metadata"], unknownFields: [], decodingErrors: [] };
  getDecoder("ObjectMeta", selectTypes(kubernetes, "request")).read(metadata, reading);
  return reading.decodingErrors;
};

/** Returns the fields of the value at a path in an object; none if the kind isn't built in or the path is unknown. */
export const listKnownFields = (
  apiVersion: string,
  kind: string,
  kubernetes: string | undefined,
  path: readonly (string | number)[],
): string[] => {
  // In the step "patch", which reads an object that a webhook patched, the types have the same fields.
  const { kinds, types } = selectTypes(kubernetes, "request");
  let typeCode = getOwnMember(getOwnMember(kinds, apiVersion) ?? {}, kind);
  for (const key of path) {
    const type = dropOptionalMarks(typeCode);
    // In a list ("[") and a map ("{"), the elements have the type that follows.
    typeCode = /^[[{]/.test(type) ? type.slice(1) : getOwnMember(types[type] ?? {}, String(key));
  }
  return Object.keys(types[dropOptionalMarks(typeCode)] ?? {});
};

/** Returns a type code such as "?*PodSpec" without the marks of members that may be absent. */
const dropOptionalMarks = (typeCode = ""): string => typeCode.replace(/^[?*]+/, "");

const getOwnMember = <T>(fields: Record<string, T>, key: string): T | undefined =>
  Object.hasOwn(fields, key) ? fields[key] : undefined;

/** Returns the decoder of a type code, such as "PodSpec", "[Container" (a list) or "{quantity" (a map). */
const getDecoder = (typeCode: string, types: KubernetesTypes): TypeDecoder => {
  let found = types.decoders.get(typeCode);
  if (found === undefined) {
    found = createDecoder(typeCode, types);
    types.decoders.set(typeCode, found);
  }
  return found;
};

/** Creates the decoder of a type code, in which "*" means a pointer, "[" a list, and "{" a map. */
const createDecoder = (typeCode: string, types: KubernetesTypes): TypeDecoder => {
  const [first, rest] = [typeCode[0], typeCode.slice(1)];
  if (first === "*") return createPointerDecoder(rest, types);
  if (first === "[") return createListDecoder(getDecoder(rest, types));
  if (first === "{") return createMapDecoder(getDecoder(rest, types));
  return scalarDecoders.get(typeCode) ?? createStructDecoder(typeCode, types);
};

const isAbsent = (value: unknown): value is null | undefined => value === null || value === undefined;

/** Decodes a pointer of Go to a type, such as "PodSpec": a value that may be absent or null. */
const createPointerDecoder = (typeCode: string, types: KubernetesTypes): TypeDecoder => {
  let decoder: TypeDecoder | undefined;
  // Types may contain themselves, so the decoder is found on first use.
  const read = (value: unknown, reading: DecodingReport) => {
    decoder ??= getDecoder(typeCode, types);
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
    if (!Array.isArray(value)) return addDecodingError(value, "a list", reading);
    return value.map((item, index) => decodeChild(index, item, element, reading));
  },
  isEmpty: (value) => value === null || (Array.isArray(value) && value.length === 0),
});

/** Decodes a map with any keys, whose values all have one type. */
const createMapDecoder = (element: TypeDecoder): TypeDecoder => ({
  read: (value, reading) => {
    if (isAbsent(value)) return null;
    if (!isMap(value)) return addDecodingError(value, "a map", reading);
    // The copy already has all keys as its own. So an assignment to `__proto__` doesn't change the prototype.
    const result: JsonMap = { ...value };
    for (const key of Object.keys(result)) result[key] = decodeChild(key, result[key], element, reading);
    return result;
  },
  isEmpty: (value) => value === null || (isMap(value) && Object.keys(value).length === 0),
});

/** The Kubernetes types whose resource quantities the API server doesn't round to thousandths when it decodes them. */
const typesWithExactResources = ["Overhead", "NodeAllocatableResourceClaimStatus"];

/** The mark in a type code of a member that Go leaves out if it is empty; other members are always written. */
const omittedIfEmpty = "?";

/** Decodes an object with known members, such as a PodSpec; sets its fixed defaults, and then the computed ones. */
const createStructDecoder = (name: string, kubernetes: KubernetesTypes): TypeDecoder => {
  const typeCodes = kubernetes.types[name] ?? {};
  const resolvedMembers = new Map<string, { decoder: TypeDecoder; isOmittedIfEmpty: boolean }>();
  // Types may contain themselves, so members are resolved on first use.
  const resolveMember = (member: string) => {
    const found = resolvedMembers.get(member);
    if (found) return found;
    const typeCode = getOwnMember(typeCodes, member);
    if (typeCode === undefined) return undefined;
    // In most types, the API server rounds the quantities in a map: then the type code `{quantity` becomes `{resource`.
    const isExact = typesWithExactResources.includes(name);
    const typeOfValue = typeCode.replace(omittedIfEmpty, "");
    const resolved = {
      decoder: getDecoder(isExact ? typeOfValue : typeOfValue.replace("{quantity", "{resource"), kubernetes),
      isOmittedIfEmpty: typeCode.startsWith(omittedIfEmpty),
    };
    resolvedMembers.set(member, resolved);
    return resolved;
  };
  const writtenMembers = Object.keys(typeCodes).filter((member) => !typeCodes[member]?.startsWith(omittedIfEmpty));
  const fixed = Object.entries(presets[name] ?? {});
  const defaulters = kubernetes.defaulters.flatMap((byType) => byType[name] ?? []);
  return {
    read: (value, reading) => {
      if (!isAbsent(value) && !isMap(value)) return addDecodingError(value, "an object", reading);
      const result: JsonMap = {};
      const input: JsonMap = value ?? {};
      for (const member of Object.keys(input)) {
        const found = resolveMember(member);
        if (found === undefined) {
          reading.unknownFields.push(formatPath([...reading.trail, member]));
          continue;
        }
        const read = decodeChild(member, input[member], found.decoder, reading);
        if (!found.isOmittedIfEmpty || !found.decoder.isEmpty(read)) result[member] = read;
      }
      for (const member of writtenMembers)
        if (!Object.hasOwn(result, member)) result[member] = resolveMember(member)?.decoder.read(undefined, reading);
      if (reading.decodingErrors.length > 0) return result;
      for (const [member, value] of fixed)
        if (result[member] == null) result[member] = typeof value === "object" ? { ...value } : value;
      for (const setDefaults of defaulters) setDefaults(result, input);
      return result;
    },
    isEmpty: () => false,
  };
};

const decodeChild = (key: string | number, value: unknown, decoder: TypeDecoder, reading: DecodingReport): unknown => {
  reading.trail.push(key);
  const read = decoder.read(value, reading);
  reading.trail.pop();
  return read;
};

const addDecodingError = (value: unknown, expected: string, { trail, decodingErrors }: DecodingReport): unknown => {
  // A key with dots gets brackets, so that it doesn't look like several steps of the path.
  const path = trail.map((step) => (typeof step === "string" && step.includes(".") ? `[${step}]` : step));
  decodingErrors.push(`${formatPath(path).replaceAll(".[", "[")} must be ${expected}, not ${describeValue(value)}`);
  return value;
};

/** How a scalar is read. */
interface ScalarType {
  /** How an error message describes a valid value. */
  expected: string;
  /** Go's zero value, for an absent value. */
  zero: unknown;
  /** Returns the value as Go encodes it again; undefined for a wrong type. */
  read(value: unknown): unknown;
}

/** Creates the decoder of a scalar. Empty values are those that Go's omitempty leaves out, also empty bytes (`""`). */
const createScalarDecoder = ({ expected, zero, read }: ScalarType): TypeDecoder => ({
  read: (value, reading) => (isAbsent(value) ? zero : (read(value) ?? addDecodingError(value, expected, reading))),
  isEmpty: (value) => value === zero || value === "",
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

const scalarTypes: Record<string, ScalarType> = {
  text: { expected: "a text", zero: "", read: applyToText(String) },
  flag: {
    expected: "true or false",
    zero: false,
    read: (value) => (typeof value === "boolean" ? value : undefined),
  },
  number: { expected: "a whole number", zero: 0, read: toWholeNumber },
  quantity: { expected: "a quantity", zero: "0", read: applyToAmount(normalizeQuantity) },
  // A quantity that the API server rounds up to thousandths.
  resource: { expected: "a quantity", zero: "0", read: applyToAmount(normalizeResourceAmount) },
  either: {
    expected: "a whole number or a text",
    zero: 0,
    read: (value) => applyToText(String)(value) ?? toWholeNumber(value),
  },
  bytes: { expected: "a text in base64", zero: null, read: normalizeBase64 },
  time: { expected: "a time such as 2026-01-02T15:04:05Z", zero: null, read: applyToText(normalizeTime) },
  microtime: {
    expected: "a time such as 2026-01-02T15:04:05.000000Z",
    zero: null,
    read: applyToText(normalizeMicroTime),
  },
  any: { expected: "anything", zero: null, read: (value) => value },
};

/** The decoders of scalars, by type code. */
const scalarDecoders = new Map(
  Object.entries(scalarTypes).map(([typeCode, type]) => [typeCode, createScalarDecoder(type)]),
);

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
