import { quoteAsGo } from "../../../objects/go/quoted.ts";
import { countReading } from "../../cost-formulas.ts";
import { declareFunction, declareMethod, type FunctionDeclaration } from "../../functions.ts";
import { bool, int, string, struct } from "../../types.ts";
import { EvaluationError, LibraryObject, toInt } from "../../values.ts";
import { reportParsing } from "../errors.ts";
import { declareComparisons } from "./comparisons.ts";

const type = struct("kubernetes.Semver");

/** A semantic version. Its build is left out, because it doesn't count in comparisons. */
export class Semver extends LibraryObject {
  readonly type = type;
  /** The major, minor and patch numbers. */
  readonly numbers: readonly bigint[];
  readonly prerelease: readonly (bigint | string)[];
  constructor(numbers: readonly bigint[], prerelease: readonly (bigint | string)[]) {
    super();
    this.numbers = numbers;
    this.prerelease = prerelease;
  }
  override toString(): string {
    return `${this.numbers.join(".")}${this.prerelease.length > 0 ? "-" : ""}${this.prerelease.join(".")}`;
  }
  equals(other: this): boolean {
    return compareVersions(this, other) === 0;
  }
}

/** Compares two versions as Semantic Versioning does. A version with a prerelease is smaller than the same without. */
const compareVersions = (left: Semver, right: Semver): number => {
  for (const [index, number] of left.numbers.entries()) {
    const order = comparePart(number, right.numbers[index] ?? 0n);
    if (order !== 0) return order;
  }
  if (left.prerelease.length === 0 || right.prerelease.length === 0)
    return Math.sign(right.prerelease.length - left.prerelease.length);
  for (const [index, part] of left.prerelease.entries()) {
    const other = right.prerelease[index];
    const order = other === undefined ? 1 : comparePart(part, other);
    if (order !== 0) return order;
  }
  return Math.sign(left.prerelease.length - right.prerelease.length);
};

/** Compares two parts of a version. Numbers are smaller than texts. */
const comparePart = (left: bigint | string, right: bigint | string): number => {
  if (typeof left !== typeof right) return typeof left === "bigint" ? -1 : 1;
  return Number(left > right) - Number(left < right);
};

/** Parses a version as github.com/blang/semver/v4 does, with its error messages. */
const parseSemver = (text: string, normalizes = false): Semver => {
  const source = normalizes ? normalize(text) : text;
  if (source === "") throw new EvaluationError("Version string empty");
  const [major = "", minor, end] = splitParts(source);
  if (minor === undefined || end === undefined) throw new EvaluationError("No Major.Minor.Patch elements found");
  const numbers = [parseNumber(major, "major", "Major"), parseNumber(minor, "minor", "Minor")];
  const [, patch = "", prerelease, build] = /^([^+-]*)(?:-([^+]*))?(?:\+(.*))?$/s.exec(end) ?? [];
  numbers.push(parseNumber(patch, "patch", "Patch"));
  const parts = prerelease?.split(".").map(parsePrerelease) ?? [];
  for (const part of build?.split(".") ?? []) {
    if (part === "") throw new EvaluationError("Build meta data is empty");
    if (!isIdentifier(part))
      throw new EvaluationError(`Invalid character(s) found in build meta data ${quoteAsGo(part)}`);
  }
  return new Semver(numbers, parts);
};

/** Splits a text at its first two dots. */
const splitParts = (text: string): string[] => {
  const [first = "", second, ...others] = text.split(".");
  return [first, ...(second === undefined ? [] : [second]), ...(others.length > 0 ? [others.join(".")] : [])];
};

/** Converts a text such as `v01.2` to `1.2.0`. */
const normalize = (text: string): string => {
  const parts = splitParts(text.replace(/^v/, "")).map((part) =>
    // As upstream, keeps each part of one byte. From longer parts, removes leading zeros; if the rest doesn't begin
    // with a digit, puts a 0 before it: `00` becomes `0`, and `0-rc` stays.
    part.length > 1 || part > "\x7f" ? part.replace(/^0+/, "").replace(/^(?!\d)/, "0") : part,
  );
  if (parts.length < 3 && /[+-]/.test(parts.at(-1) ?? ""))
    throw new EvaluationError("short version cannot contain PreRelease/Build meta data");
  return [...parts, "0", "0"].slice(0, 3).join(".");
};

const isIdentifier = (text: string) => /^[-0-9A-Za-z]*$/.test(text);

const parseNumber = (text: string, name: string, title: string): bigint => {
  if (!/^\d*$/.test(text)) throw new EvaluationError(`Invalid character(s) found in ${name} number ${quoteAsGo(text)}`);
  if (/^0./.test(text)) throw new EvaluationError(`${title} number must not contain leading zeroes ${quoteAsGo(text)}`);
  return parseUint(text);
};

const parseUint = (text: string): bigint => {
  const isTooLarge = text.length > 20 || BigInt(text) >> 64n > 0n;
  const fault = text === "" ? "invalid syntax" : isTooLarge ? "value out of range" : undefined;
  if (fault) throw new EvaluationError(`strconv.ParseUint: parsing ${quoteAsGo(text)}: ${fault}`);
  return BigInt(text);
};

/** Parses a part of a prerelease, such as `rc` or `1`. A part of digits is a number. */
const parsePrerelease = (text: string): bigint | string => {
  if (text === "") throw new EvaluationError("Prerelease is empty");
  if (!isIdentifier(text)) throw new EvaluationError(`Invalid character(s) found in prerelease ${quoteAsGo(text)}`);
  if (!/^\d+$/.test(text)) return text;
  if (/^0./.test(text))
    throw new EvaluationError(`Numeric PreRelease version must not contain leading zeroes ${quoteAsGo(text)}`);
  return parseUint(text);
};

/** Returns a function that returns one of the numbers. As upstream, it reads the 64 bits as a signed number. */
const getNumber =
  (index: number) =>
  ({ numbers }: Semver) =>
    toInt(BigInt.asIntN(64, numbers[index] ?? 0n));

/** The functions of Kubernetes' CEL library for versions such as 1.2.3. `countReading` computes the cost of a call. */
export const semverFunctions: readonly FunctionDeclaration[] = [
  declareFunction("semver", "string_to_semver", [string], type, parseSemver, countReading),
  declareFunction("semver", "string_bool_to_semver", [string, bool], type, parseSemver, countReading),
  declareFunction("isSemver", "is_semver_string", [string], bool, reportParsing(parseSemver), countReading),
  declareFunction("isSemver", "is_semver_string_bool", [string, bool], bool, reportParsing(parseSemver), countReading),
  declareMethod("major", "semver_major", [type], int, getNumber(0)),
  declareMethod("minor", "semver_minor", [type], int, getNumber(1)),
  declareMethod("patch", "semver_patch", [type], int, getNumber(2)),
  ...declareComparisons("semver", type, compareVersions),
];
