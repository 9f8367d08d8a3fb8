import { getOwn, isDeeper, isMap } from "../../json.ts";
import { quoteValue } from "../values/texts.ts";

/** Checks JSON and adds a sentence to `faults` for each fault, beginning with the field (`at`). */
export type Check = (value: unknown, at: string, faults: string[]) => void;

/** The limit of faults: a hostile object must not cause a response of megabytes. */
const most = 50;

export const blame = (faults: string[], at: string, sentence: string): void => {
  if (faults.length < most) faults.push(`${at} ${sentence}`);
};

const isFull = (faults: string[]) => faults.length >= most;

const naming = (value: unknown): string => {
  if (value === null) return "null";
  if (Array.isArray(value)) return "a list";
  if (typeof value === "object") return "a map";
  return typeof value === "string" ? "a text" : `${value}`;
};

const typed =
  (name: string, isRight: (value: unknown) => boolean): Check =>
  (value, at, faults) => {
    if (value !== undefined && !isRight(value)) blame(faults, at, `must be ${name}, not ${naming(value)}`);
  };

export const text: Check = typed("a text", (value) => typeof value === "string");
export const truth: Check = typed("true or false", (value) => typeof value === "boolean");
export const whole: Check = typed("a whole number", Number.isInteger);
export const count: Check = typed("a whole number from 0 on", (value) => Number.isInteger(value) && Number(value) >= 0);
export const anything: Check = () => {};

export const oneOf =
  (...words: string[]): Check =>
  (value, at, faults) => {
    if (value === undefined || (typeof value === "string" && words.includes(value))) return;
    blame(faults, at, `must be ${listed(words)}, not ${typeof value === "string" ? quoteValue(value) : naming(value)}`);
  };

export const listed = (words: readonly string[]): string =>
  words.length < 2 ? words.join() : `${words.slice(0, -1).join(", ")} or ${words.at(-1)}`;

export const textThat =
  (fault: (value: string) => string | undefined): Check =>
  (value, at, faults) => {
    if (typeof value !== "string") return text(value, at, faults);
    const found = fault(value);
    if (found !== undefined) blame(faults, at, found);
  };

/** Requires a value. An empty text counts as missing, as in Go. */
export const required =
  (check: Check): Check =>
  (value, at, faults) => {
    if (value === undefined || value === "") blame(faults, at, "is missing");
    else check(value, at, faults);
  };

export const listOf =
  (check: Check): Check =>
  (value, at, faults) => {
    if (value === undefined) return;
    if (!Array.isArray(value)) return blame(faults, at, `must be a list, not ${naming(value)}`);
    for (const [index, element] of value.entries()) {
      if (isFull(faults)) return;
      // undefined would pass as a missing field; an element can't be missing.
      check(element ?? null, `${at}[${index}]`, faults);
    }
  };

export const mapOf =
  (check: Check): Check =>
  (value, at, faults) => {
    if (value === undefined) return;
    if (!isMap(value)) return blame(faults, at, `must be a map, not ${naming(value)}`);
    for (const key of Object.keys(value)) {
      if (isFull(faults)) return;
      check(getOwn(value, key) ?? null, `${at}[${quoteValue(key)}]`, faults);
    }
  };

export const texts: Check = listOf(text);
export const textMap: Check = mapOf(text);

/** Checks fields of a map against each other, once each is valid alone; `blame` takes the field at fault. */
export type Across<T> = (value: T, blame: (field: string, sentence: string) => void, at: string) => void;

const check = <T>(shape: Record<string, Check>, isOpen: boolean, across?: Across<T>): Check => {
  const known = Object.keys(shape);
  return (value, at, faults) => {
    if (value === undefined || isFull(faults)) return;
    if (!isMap(value)) return blame(faults, at, `must be a map, not ${naming(value)}`);
    const before = faults.length;
    const below = (field: string) => (at === "" ? field : `${at}.${field}`);
    for (const field of known) shape[field]?.(getOwn(value, field), below(field), faults);
    if (!isOpen)
      for (const field of Object.keys(value)) {
        if (isFull(faults)) return;
        if (!known.includes(field))
          blame(faults, `${at}${at && "."}${field.slice(0, 60)}`, `is unknown; ${at} has ${known.join(", ")}`);
      }
    // Every field of T was checked.
    if (faults.length === before) across?.(value as T, (field, sentence) => blame(faults, below(field), sentence), at);
  };
};

/** Checks a map that has these fields and no others. */
export const fields = <T>(shape: Record<string, Check>, across?: Across<T>): Check => check(shape, false, across);

/** Checks a map that may have other fields: Kubernetes' own kinds get new ones in new versions. */
export const atLeast = <T>(shape: Record<string, Check>, across?: Across<T>): Check => check(shape, true, across);

/** More levels than policies have; recursive functions can handle them. */
const deepest = 300;

export const isTooDeep = (value: unknown): boolean => isDeeper(value, deepest);
