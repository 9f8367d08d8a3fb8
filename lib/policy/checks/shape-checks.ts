import { getOwn, isDeeper, isMap } from "../../json.ts";
import { quoteValue } from "../values/texts.ts";

/** Checks a value of JSON. For each fault, adds a sentence to `faults` that begins with the value's path (`at`). */
export type ValueCheck = (value: unknown, at: string, faults: string[]) => void;

/** The most faults that are reported for a policy. Otherwise, a hostile policy could cause an answer of megabytes. */
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
  (name: string, isValid: (value: unknown) => boolean): ValueCheck =>
  (value, at, faults) => {
    if (value !== undefined && !isValid(value)) addFault(faults, at, `must be ${name}, not ${describeValue(value)}`);
  };

export const checkText: ValueCheck = createTypeCheck("a text", (value) => typeof value === "string");
export const checkBoolean: ValueCheck = createTypeCheck("true or false", (value) => typeof value === "boolean");
export const checkInteger: ValueCheck = createTypeCheck("a whole number", Number.isInteger);
export const checkNonNegativeInteger: ValueCheck = createTypeCheck(
  "a whole number from 0 on",
  (value) => Number.isInteger(value) && Number(value) >= 0,
);
export const acceptAnything: ValueCheck = () => {};

/** Returns a check that accepts only these words, or an absent value. */
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

/** Returns a check of a text. `findFault` returns what is wrong with the text, or undefined. */
export const createTextCheck =
  (findFault: (value: string) => string | undefined): ValueCheck =>
  (value, at, faults) => {
    if (typeof value !== "string") return checkText(value, at, faults);
    const found = findFault(value);
    if (found !== undefined) addFault(faults, at, found);
  };

/** Returns a check that also reports an absent value. As in Go, an empty text counts as absent. */
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
      // Checks accept undefined as an absent field. A list's element can't be absent, so undefined is checked as null.
      check(element ?? null, `${at}[${index}]`, faults);
    }
  };

/** Returns a check for maps with any keys. Each value must pass `check`. */
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
 * Checks whether the valid fields of a map fit together. Such a check calls `reportFault` to report a fault of a field.
 */
export type CrossFieldCheck<T> = (value: T, reportFault: (field: string, sentence: string) => void, at: string) => void;

const createFieldCheck = <T>(
  shape: Record<string, ValueCheck>,
  allowsUnknown: boolean,
  checkTogether?: CrossFieldCheck<T>,
): ValueCheck => {
  const knownFields = Object.keys(shape);
  return (value, at, faults) => {
    if (value === undefined || isFull(faults)) return;
    if (!isMap(value)) return addFault(faults, at, `must be a map, not ${describeValue(value)}`);
    const faultsBefore = faults.length;
    const joinField = (field: string) => (at === "" ? field : `${at}.${field}`);
    for (const field of knownFields) shape[field]?.(getOwn(value, field), joinField(field), faults);
    if (!allowsUnknown)
      for (const field of Object.keys(value)) {
        if (isFull(faults)) return;
        if (!knownFields.includes(field))
          addFault(faults, joinField(field.slice(0, 60)), `is unknown; ${at} has ${knownFields.join(", ")}`);
      }
    // The fields are checked together only if each of them is valid. Then the cast to T is safe.
    if (faults.length === faultsBefore)
      checkTogether?.(value as T, (field, sentence) => addFault(faults, joinField(field), sentence), at);
  };
};

/** Returns a check of a map that may have only these fields. `shape` has the check of each field. */
export const checkFields = <T>(shape: Record<string, ValueCheck>, checkTogether?: CrossFieldCheck<T>): ValueCheck =>
  createFieldCheck(shape, /* allowsUnknown */ false, checkTogether);

/** Returns a check of a map that may have further fields, because new versions of Kubernetes add fields. */
export const checkFieldsAllowingUnknown = <T>(
  shape: Record<string, ValueCheck>,
  checkTogether?: CrossFieldCheck<T>,
): ValueCheck => createFieldCheck(shape, /* allowsUnknown */ true, checkTogether);

/** The greatest depth of a policy: real policies are less deep, and recursive functions can process it. */
const maximumDepth = 300;

export const isTooDeep = (value: unknown): boolean => isDeeper(value, maximumDepth);
