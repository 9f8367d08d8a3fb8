import {
  findKeyFaults,
  findLengthFaults,
  findSubdomainFaults,
  findValueFaults,
  isSubdomain,
} from "../../../objects/label.ts";
import { countTraversal, getActualSize } from "../../cost-formulas.ts";
import { declareFunction, declareMethod, type FunctionCost, type FunctionDeclaration } from "../../functions.ts";
import { listOf, optionalOf, string, struct } from "../../types.ts";
import { EvaluationError, emptyOptional, LibraryObject, Optional } from "../../values.ts";
import { countDays } from "../time.ts";
import { parseRequestUrl } from "./url.ts";

const type = struct("kubernetes.NamedFormat");

/** The value of a named format, such as `format.dns1123Label()`. */
class Format extends LibraryObject {
  readonly type = type;
  readonly findFaults: (text: string) => string[];
  /** The length of a regular expression for the format. Costs are computed from it. */
  readonly patternLength: number;
  constructor(findFaults: (text: string) => string[], patternLength: number) {
    super();
    this.findFaults = findFaults;
    this.patternLength = patternLength;
  }
  equals(other: this): boolean {
    return this === other;
  }
}

/** Returns what is wrong with a DNS label of RFC 1123, in kube-apiserver's words. */
export const findLabelFaults = (text: string): string[] => {
  const faults = findLengthFaults(text, 63, "characters");
  if (/^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/.test(text)) return faults;
  const fault = isSubdomain(text)
    ? "must not contain dots"
    : "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
  return [...faults, fault];
};

const findNameFaults = (text: string) => findSubdomainFaults(text, "characters");

export const findDns1035LabelFaults = (text: string): string[] => {
  const faults = findLengthFaults(text, 63, "characters");
  if (/^[a-z]([-a-z0-9]*[a-z0-9])?$/.test(text)) return faults;
  const fault =
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
  return [...faults, fault];
};

/**
 * Returns a check for prefixes of names, which may end with a dash. As in upstream, `a` replaces the dash and the ASCII
 * character before the dash, so neither is checked: "web-" and "we$-" become "wea". A text such as "é-" is not changed,
 * but upstream replaces the last byte of the é. Both are refused: names have no é, and no part of an é.
 */
const allowDash = (findFaults: (text: string) => string[]) => (text: string) =>
  findFaults(text.replace(/[^\x80-\uffff]-$/, "a"));

/** Returns why a text doesn't have the format uri; an empty list if it does. */
const findUriFaults = (text: string): string[] => {
  try {
    parseRequestUrl(text);
    return [];
  } catch (error) {
    if (error instanceof EvaluationError) return [error.message];
    throw error;
  }
};

/** Returns a check that has the same fault for each invalid text. */
const requireForm = (isValid: (text: string) => boolean, fault: string) => (text: string) =>
  isValid(text) ? [] : [fault];

const isUuid = (text: string) => /^[\da-f]{8}-?[\da-f]{4}-?[\da-f]{4}-?[\da-f]{4}-?[\da-f]{12}$/i.test(text);
const isBase64 = (text: string) => text.length % 4 === 0 && /^[\dA-Za-z+/]+={0,2}$/.test(text);

const isDate = (text: string) => {
  const [, year = 0, month = 0, day = 0] = /^(\d{4})-(\d\d)-(\d\d)$/.exec(text)?.map(Number) ?? [];
  return month >= 1 && month <= 12 && day >= 1 && day <= countDays(year, month);
};

/** Reports whether a text is a date and a time. As upstream, doesn't check the offset, or text after a second `t`. */
const isDateTime = (text: string) => {
  const [date = "", time = ""] = text.split(/t/i, 2);
  const [, hours = "", minutes = "", seconds = ""] =
    /^(\d\d):(\d\d):(\d\d)([^\n]\d+)?(z|[-+]\d\d:\d\d)$/iu.exec(time) ?? [];
  return isDate(date) && hours !== "" && hours <= "23" && minutes <= "59" && seconds <= "59";
};

// The numbers are upstream's estimates of patternLength. PURE tells the bundler to leave out this map if a bundle has
// none of the functions below.
const formats: ReadonlyMap<string, Format> = /* @__PURE__ */ (() =>
  new Map([
    ["dns1123Label", new Format(findLabelFaults, 30)],
    ["dns1123Subdomain", new Format(findNameFaults, 60)],
    ["dns1035Label", new Format(findDns1035LabelFaults, 30)],
    ["qualifiedName", new Format(findKeyFaults, 60)],
    ["dns1123LabelPrefix", new Format(allowDash(findLabelFaults), 30)],
    ["dns1123SubdomainPrefix", new Format(allowDash(findNameFaults), 60)],
    ["dns1035LabelPrefix", new Format(allowDash(findDns1035LabelFaults), 30)],
    ["labelValue", new Format(findValueFaults, 40)],
    ["uri", new Format(findUriFaults, 1103)],
    ["uuid", new Format(requireForm(isUuid, "does not match the UUID format"), 70)],
    ["byte", new Format(requireForm(isBase64, "invalid base64"), 84)],
    ["date", new Format(requireForm(isDate, "invalid date"), 71)],
    ["datetime", new Format(requireForm(isDateTime, "invalid datetime"), 71)],
  ]))();

const validate = ({ findFaults }: Format, text: string): Optional => {
  const faults = findFaults(text);
  return faults.length === 0 ? emptyOptional : new Optional(faults);
};

const findFormat = (name: string): Optional => {
  const format = formats.get(name);
  return format ? new Optional(format) : emptyOptional;
};

const faults = optionalOf(listOf(string));

/**
 * Returns the cost of `validate`, which upstream computes like that of a regular expression: the cost of the text (with
 * 1 added, so that the cost of an empty text isn't 0) times the number of the pattern's parts, of four characters each.
 */
const countValidation: FunctionCost = ([format, text = null]) =>
  format instanceof Format
    ? countTraversal(getActualSize(text) + 1) * countTraversal(format.patternLength, 0.25)
    : undefined;

export const formatFunctions: readonly FunctionDeclaration[] = [
  declareMethod("validate", "format-validate", [type, string], faults, validate, countValidation),
  declareFunction("format.named", "format-named", [string], optionalOf(type), findFormat),
  ...[...formats].map(([name, format]) => declareFunction(`format.${name}`, `format.${name}`, [], type, () => format)),
];
