import { isMap, type JsonMap } from "#lib/json.ts";
import { finishers } from "./finishers.ts";
import fixedDefaults from "./presets.json" with { type: "json" };
import { amountAsRead, bytesAsRead, microTimeAsRead, resourceAsRead, timeAsRead } from "./scalars.ts";
import table from "./types.json" with { type: "json" };

export interface Reading {
  readonly trail: (string | number)[];
  /** Paths of unknown fields: the API server drops them or, with strict field validation, refuses the object. */
  readonly strays: string[];
  /** Sentences about values of a wrong type: the API server refuses such an object. */
  readonly misfits: string[];
}

/** Reads a value as Go decodes it and returns what Go encodes: for an absent (undefined) value, Go's zero value. */
interface Shape {
  read(value: unknown, reading: Reading): unknown;
  isEmpty(value: unknown): boolean;
}

const types: Record<string, Record<string, string>> = table.types;
const kinds: Record<string, Record<string, string>> = table.kinds;
/** A copy of the fixed defaults in defaults.go and zz_generated.defaults.go of Kubernetes' pkg/apis. */
const presets: Record<string, Record<string, unknown>> = fixedDefaults;

export const shapeOf = (apiVersion: string, kind: string): Shape | undefined => {
  const name = own(own(kinds, apiVersion) ?? {}, kind);
  return name === undefined ? undefined : shape(name);
};

const own = <T>(fields: Record<string, T>, key: string): T | undefined =>
  Object.hasOwn(fields, key) ? fields[key] : undefined;

const known = new Map<string, Shape>();

const shape = (word: string): Shape => {
  let found = known.get(word);
  if (found === undefined) {
    found = made(word);
    known.set(word, found);
  }
  return found;
};

const made = (word: string): Shape => {
  const [first, rest] = [word[0], word.slice(1)];
  if (first === "*") return pointer(rest);
  if (first === "[") return list(shape(rest));
  if (first === "{") return map(shape(rest));
  return simple.get(word) ?? struct(word);
};

const isNone = (value: unknown): value is null | undefined => value === null || value === undefined;

const pointer = (word: string): Shape => {
  return {
    read: (value, reading) => (isNone(value) ? null : shape(word).read(value, reading)),
    isEmpty: (value) => value === null,
  };
};

const list = (element: Shape): Shape => {
  return {
    read: (value, reading) => {
      if (isNone(value)) return null;
      if (!Array.isArray(value)) return misfit(value, "a list", reading);
      return value.map((one, index) => below(index, one, element, reading));
    },
    isEmpty: (value) => value === null || (Array.isArray(value) && value.length === 0),
  };
};

const map = (element: Shape): Shape => {
  return {
    read: (value, reading) => {
      if (isNone(value)) return null;
      if (!isMap(value)) return misfit(value, "a map", reading);
      return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, below(key, one, element, reading)]));
    },
    isEmpty: (value) => value === null || (isMap(value) && Object.keys(value).length === 0),
  };
};

/** Types whose amounts of resources aren't rounded to thousandths. */
const exact = ["Overhead", "NodeAllocatableResourceClaimStatus"];

const struct = (name: string): Shape => {
  const members = Object.entries(types[name] ?? {});
  const shapes = new Map<string, [Shape, boolean]>();
  // Types may contain themselves, so members are resolved on first use.
  const shapeOf = (member: string): [Shape, boolean] | undefined => {
    const found = shapes.get(member);
    const word = found ? undefined : own(types[name] ?? {}, member);
    if (word === undefined) return found;
    const isExact = exact.includes(name);
    const full = word.replace("?", "");
    const made: [Shape, boolean] = [
      shape(isExact ? full : full.replace("{quantity", "{resource")),
      word.startsWith("?"),
    ];
    shapes.set(member, made);
    return made;
  };
  const always = members.filter(([, word]) => !word.startsWith("?")).map(([member]) => member);
  const preset = Object.entries(presets[name] ?? {});
  const finish = finishers[name];
  return {
    read: (value, reading) => {
      if (!isNone(value) && !isMap(value)) return misfit(value, "an object", reading);
      const result: JsonMap = {};
      for (const [member, given] of Object.entries(value ?? {})) {
        const [shape, isOptional] = shapeOf(member) ?? [];
        if (shape === undefined) {
          reading.strays.push(pathOf([...reading.trail, member]));
          continue;
        }
        const read = below(member, given, shape, reading);
        if (!isOptional || !shape.isEmpty(read)) result[member] = read;
      }
      for (const member of always)
        if (!Object.hasOwn(result, member)) result[member] = shapeOf(member)?.[0].read(undefined, reading);
      if (reading.misfits.length > 0) return result;
      for (const [member, given] of preset)
        if (result[member] == null) result[member] = typeof given === "object" ? { ...given } : given;
      finish?.(result, value ?? {});
      return result;
    },
    isEmpty: () => false,
  };
};

const below = (step: string | number, value: unknown, shape: Shape, reading: Reading): unknown => {
  reading.trail.push(step);
  const read = shape.read(value, reading);
  reading.trail.pop();
  return read;
};

const misfit = (value: unknown, expected: string, { trail, misfits }: Reading): unknown => {
  misfits.push(`${pathOf(trail)} must be ${expected}, not ${sortOf(value)}`);
  return value;
};

/** `read` returns undefined for a value that doesn't fit. */
const scalar = (expected: string, none: unknown, read: (value: unknown) => unknown): Shape => {
  return {
    read: (value, reading) => (isNone(value) ? none : (read(value) ?? misfit(value, expected, reading))),
    isEmpty: (value) => value === none || value === "",
  };
};

const ifText = (read: (text: string) => unknown) => (value: unknown) =>
  typeof value === "string" ? read(value) : undefined;
const ifAmount = (read: (amount: string | number) => unknown) => (value: unknown) =>
  typeof value === "string" || typeof value === "number" ? read(value) : undefined;
const ifWhole = (value: unknown) => (Number.isInteger(value) ? value : undefined);

const simple = new Map<string, Shape>([
  ["text", scalar("a text", "", ifText(String))],
  ["flag", scalar("true or false", false, (value) => (typeof value === "boolean" ? value : undefined))],
  ["number", scalar("a whole number", 0, ifWhole)],
  ["quantity", scalar("a quantity", "0", ifAmount(amountAsRead))],
  ["resource", scalar("a quantity", "0", ifAmount(resourceAsRead))],
  ["either", scalar("a whole number or a text", 0, (value) => ifText(String)(value) ?? ifWhole(value))],
  ["bytes", scalar("a text in base64", null, bytesAsRead)],
  ["time", scalar("a time such as 2026-01-02T15:04:05Z", null, ifText(timeAsRead))],
  ["microtime", scalar("a time such as 2026-01-02T15:04:05.000000Z", null, ifText(microTimeAsRead))],
  ["any", scalar("anything", null, (value) => value)],
]);

const sortOf = (value: unknown): string => {
  if (Array.isArray(value)) return "a list";
  if (typeof value === "object") return "an object";
  const text = JSON.stringify(value);
  return text.length > 60 ? `${text.slice(0, 60)}…` : text;
};

/** For instance `spec.containers[0].image`. */
const pathOf = (trail: readonly (string | number)[]): string =>
  trail.map((step, index) => (typeof step === "number" ? `[${step}]` : `${index > 0 ? "." : ""}${step}`)).join("") ||
  "the object";
