import { getOwn, isDeeper, isMap } from "../../json.ts";
import { quoteValue } from "../values/texts.ts";

/** Checks JSON and adds a sentence to `faults` for each fault, beginning with the field (`at`). */
export type ValueCheck = (value: unknown, at: string, faults: string[]) => void;

/** The most faults of one policy: a hostile policy must not cause a response of megabytes. */
const maximumFaults = 50;

export const addFault = (faults: string[], at: string, sentence: string): void => {
  if (faults.length < maximumFaults) faults.push(`${at} ${sentence}`);
};

const isFull = (faults: string[]) => faults.length >= maximumFaults;

const describeValue = (value: unknown): string => {
  if (value === null) return "null";
  if (Array.isArray(value)) return "a list";
  if (typeof value === "object") return "a map";
  return typeof value === "string" ? "a text" : `${value}`;
};

const createTypeCheck =
  (name: string, isRight: (value: unknown) => boolean): ValueCheck =>
  (value, at, faults) => {
    if (value !== undefined && !isRight(value)) addFault(faults, at, `must be ${name}, not ${describeValue(value)}`);
  };

export const checkText: ValueCheck = createTypeCheck("a text", (value) => typeof value === "string");
export const checkBoolean: ValueCheck = createTypeCheck("true or false", (value) => typeof value === "boolean");
export const checkInteger: ValueCheck = createTypeCheck("a whole number", Number.isInteger);
export const checkNonNegativeInteger: ValueCheck = createTypeCheck(
  "a whole number from 0 on",
  (value) => Number.isInteger(value) && Number(value) >= 0,
);
export const acceptAnything: ValueCheck = () => {};

/** Returns a check that accepts only these words; an absent value passes. */
export const checkOneOf =
  (...words: string[]): ValueCheck =>
  (value, at, faults) => {
    if (value === undefined || (typeof value === "string" && words.includes(value))) return;
    addFault(
      faults,
      at,
      `must be ${joinAlternatives(words)}, not ${typeof value === "string" ? quoteValue(value) : describeValue(value)}`,
    );
  };

const joinAlternatives = (words: readonly string[]): string =>
  words.length < 2 ? words.join() : `${words.slice(0, -1).join(", ")} or ${words.at(-1)}`;

/** Returns a check of a field that must be a text; `findFault` returns what is wrong with a text, or undefined. */
export const createTextCheck =
  (findFault: (value: string) => string | undefined): ValueCheck =>
  (value, at, faults) => {
    if (typeof value !== "string") return checkText(value, at, faults);
    const found = findFault(value);
    if (found !== undefined) addFault(faults, at, found);
  };

/** Returns a check that also requires the value to be present. An empty text counts as missing, as in Go. */
export const checkRequired =
  (check: ValueCheck): ValueCheck =>
  (value, at, faults) => {
    if (value === undefined || value === "") addFault(faults, at, "is missing");
    else check(value, at, faults);
  };

/** Returns a check of a list that applies `check` to each element. */
export const checkEachListElement =
  (check: ValueCheck): ValueCheck =>
  (value, at, faults) => {
    if (value === undefined) return;
    if (!Array.isArray(value)) return addFault(faults, at, `must be a list, not ${describeValue(value)}`);
    for (const [index, element] of value.entries()) {
      if (isFull(faults)) return;
      // An undefined value would pass as a missing field, but no list element can be missing: it is checked as null.
      check(element ?? null, `${at}[${index}]`, faults);
    }
  };

export const checkEachMapValue =
  (check: ValueCheck): ValueCheck =>
  (value, at, faults) => {
    if (value === undefined) return;
    if (!isMap(value)) return addFault(faults, at, `must be a map, not ${describeValue(value)}`);
    for (const key of Object.keys(value)) {
      if (isFull(faults)) return;
      check(getOwn(value, key) ?? null, `${at}[${quoteValue(key)}]`, faults);
    }
  };

export const checkTexts: ValueCheck = checkEachListElement(checkText);
export const checkTextMap: ValueCheck = checkEachMapValue(checkText);

/**
 * A function that checks fields of a map against each other, once each is valid alone; it reports a fault of a field
 * to `blame`.
 */
export type CrossFieldCheck<T> = (value: T, blame: (field: string, sentence: string) => void, at: string) => void;

const createFieldCheck = <T>(
  shape: Record<string, ValueCheck>,
  isOpen: boolean,
  across?: CrossFieldCheck<T>,
): ValueCheck => {
  const known = Object.keys(shape);
  return (value, at, faults) => {
    if (value === undefined || isFull(faults)) return;
    if (!isMap(value)) return addFault(faults, at, `must be a map, not ${describeValue(value)}`);
    const before = faults.length;
    const joinField = (field: string) => (at === "" ? field : `${at}.${field}`);
    for (const field of known) shape[field]?.(getOwn(value, field), joinField(field), faults);
    if (!isOpen)
      for (const field of Object.keys(value)) {
        if (isFull(faults)) return;
        if (!known.includes(field))
          addFault(faults, `${at}${at && "."}${field.slice(0, 60)}`, `is unknown; ${at} has ${known.join(", ")}`);
      }
    // The cast is safe: every field of T was checked and has no fault.
    if (faults.length === before)
      across?.(value as T, (field, sentence) => addFault(faults, joinField(field), sentence), at);
  };
};

/** Returns a check of a map that may have only these fields; applies to each field its own check. */
export const checkFields = <T>(shape: Record<string, ValueCheck>, across?: CrossFieldCheck<T>): ValueCheck =>
  createFieldCheck(shape, false, across);

/** Checks a map that may have other fields: Kubernetes' own kinds get new ones in new versions. */
export const checkFieldsAllowingUnknown = <T>(
  shape: Record<string, ValueCheck>,
  across?: CrossFieldCheck<T>,
): ValueCheck => createFieldCheck(shape, true, across);

/** The maximum nesting of a policy: more levels than real policies have, and few enough for recursive functions. */
const maximumDepth = 300;

export const isTooDeep = (value: unknown): boolean => isDeeper(value, maximumDepth);
