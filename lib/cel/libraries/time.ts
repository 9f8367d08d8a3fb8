import { declareFunction, type FunctionDeclaration, member } from "../functions.ts";
import { duration, int, string, type Type, timestamp } from "../types.ts";
import { Duration, EvaluationError, Timestamp, toInt, type Value } from "../values.ts";

const nanosPerSecond = 1_000_000_000n;
/** The units of durations, in nanoseconds. */
const units: Readonly<Record<string, bigint>> = {
  ns: 1n,
  us: 1000n,
  // The micro sign, and the Greek letter
  "\u00b5s": 1000n,
  "\u03bcs": 1000n,
  ms: 1_000_000n,
  s: nanosPerSecond,
  m: 60n * nanosPerSecond,
  h: 3600n * nanosPerSecond,
};
/** The first second of the year 1 and the last second of the year 9999, since 1970. */
const [firstSecond, lastSecond] = [-62_135_596_800n, 253_402_300_799n];
/** The absolute value of the smallest number of 64 bits. */
const int64Limit = 2n ** 63n;

export const identify = (value: Value): Value => value;

export const createConversionError = (from: Type, to: Type) =>
  new EvaluationError(`type conversion error from '${from.name}' to '${to.name}'`);

const requireInt64 = (value: bigint): bigint => {
  if (BigInt.asIntN(64, value) !== value) throw new EvaluationError("integer overflow");
  return value;
};

/** Parses a duration such as `1h30m` or `-1.5s`, as Go's `time.ParseDuration` does. */
const parseDuration = (text: string): Duration => {
  const isNegative = text.startsWith("-");
  const rest = isNegative || text.startsWith("+") ? text.slice(1) : text;
  if (rest === "0") return new Duration(0n);
  let [nanos, position] = [0n, 0];
  for (const [part, whole = "", fraction = "", name = ""] of rest.matchAll(/(\d*)(?:\.(\d*))?([^\d.]+)/gy)) {
    const unit = Object.hasOwn(units, name) ? units[name] : undefined;
    const digits = whole.replace(/^0+/, "");
    if (unit === undefined || whole + fraction === "" || digits.length > 19) break;
    nanos += BigInt(digits) * unit + countFraction(fraction, Number(unit));
    position += part.length;
  }
  if (rest === "" || position < rest.length || nanos > int64Limit - (isNegative ? 0n : 1n))
    throw createConversionError(string, duration);
  return new Duration(isNegative ? -nanos : nanos);
};

/**
 * Returns the nanoseconds of the digits after the point, for a unit of `unitNanos` nanoseconds. Digits that don't fit
 * into 64 bits are ignored.
 */
const countFraction = (digits: string, unitNanos: number): bigint => {
  const significant = digits.replace(/^0+/, "");
  const leadingZeros = digits.length - significant.length;
  const first = significant.slice(0, 19);
  const counted = BigInt(first) > int64Limit ? first.slice(0, 18) : first;
  const decimalPlaces = leadingZeros + counted.length;
  return BigInt(Math.trunc(Number(counted) * (unitNanos / 10 ** decimalPlaces)));
};

const form = /^(\d{4})-(\d\d)-(\d\d)T(\d\d?):(\d\d):(\d\d)(?:[.,](\d+))?(?:Z|([+-])(\d\d):(\d\d))$/;

/** Parses a timestamp of RFC 3339 as Go's `time.Parse` does, which also accepts an hour of one digit, and a comma. */
const parseTimestamp = (text: string): Timestamp => {
  const match = form.exec(text) ?? [];
  const [year = 0, month = 0, day = 0, hour = 0, minute = 0, seconds = 0] = match.slice(1, 7).map(Number);
  const [fraction = "", sign, zoneHours = "0", zoneMinutes = "0"] = match.slice(7);
  const isPossible = month <= 12 && day <= countDays(year, month) && hour < 24 && minute < 60 && seconds < 60;
  // Month and day are 0 if the text doesn't match. Go accepts an offset of up to 24 hours and 60 minutes.
  const isMatchWithZone = month > 0 && day > 0 && Number(zoneHours) <= 24 && Number(zoneMinutes) <= 60;
  if (!isPossible || !isMatchWithZone) throw createConversionError(string, timestamp);
  const offset = (Number(zoneHours) * 60 + Number(zoneMinutes)) * (sign === "-" ? -1 : 1);
  const local = countSeconds(year, month, day) + hour * 3600 + minute * 60 + seconds;
  return createTimestamp(BigInt(local - offset * 60), BigInt(fraction.slice(0, 9).padEnd(9, "0")), offset);
};

/** Returns the seconds from 1970 to the start of a day in UTC. */
const countSeconds = (year: number, month: number, day: number): number =>
  new Date(0).setUTCFullYear(year, month - 1, day) / 1000;

export const countDays = (year: number, month: number): number =>
  (countSeconds(year, month + 1, 1) - countSeconds(year, month, 1)) / 86_400;

const createTimestamp = (seconds: bigint, nanos: bigint, offset = 0): Timestamp => {
  if (seconds < firstSecond || seconds > lastSecond) throw new EvaluationError("timestamp overflow");
  return new Timestamp(seconds * nanosPerSecond + nanos, offset);
};

/** Splits a time into seconds, rounded down, and nanoseconds. */
const splitSeconds = (nanos: bigint): readonly [seconds: bigint, nanos: bigint] => {
  const rest = ((nanos % nanosPerSecond) + nanosPerSecond) % nanosPerSecond;
  return [(nanos - rest) / nanosPerSecond, rest];
};

/** Formats a time in RFC 3339, such as `2030-01-31T12:00:00.5+01:00`. */
export const formatTimestamp = ({ nanos, offset }: Timestamp): string => {
  const [seconds, rest] = splitSeconds(nanos);
  const date = new Date((Number(seconds) + offset * 60) * 1000);
  const fraction = rest === 0n ? "" : `.${`${rest}`.padStart(9, "0").replace(/0+$/, "")}`;
  const [hours, minutes] = [Math.trunc(Math.abs(offset) / 60), Math.abs(offset) % 60].map(padTwo);
  const zone = offset === 0 ? "Z" : `${offset < 0 ? "-" : "+"}${hours}:${minutes}`;
  // toISOString has more digits for years after 9999.
  const year = `${date.getUTCFullYear()}`.padStart(4, "0");
  return `${year}-${date.toISOString().slice(-19, -5)}${fraction}${zone}`;
};

const padTwo = (value: number) => `${value}`.padStart(2, "0");

export const getUnixSeconds = ({ nanos }: Timestamp): bigint => splitSeconds(nanos)[0];

/** Adds nanoseconds to a time. Throws if they have more than 64 bits, or if the result isn't in the years 1 to 9999. */
export const addToTimestamp = (time: Timestamp, nanos: bigint): Timestamp => {
  const [seconds, rest] = splitSeconds(time.nanos + requireInt64(nanos));
  return createTimestamp(seconds, rest, time.offset);
};

export const subtractTimestamps = (left: Timestamp, right: Timestamp): Duration => {
  const [leftSeconds, leftNanos] = splitSeconds(left.nanos);
  const [rightSeconds, rightNanos] = splitSeconds(right.nanos);
  // As in cel-go, the seconds must fit into 64 bits as nanoseconds, even before the other nanoseconds are added.
  return createDuration(requireInt64((leftSeconds - rightSeconds) * nanosPerSecond) + leftNanos - rightNanos);
};

/** Returns a duration. Throws if its nanoseconds have more than 64 bits. */
export const createDuration = (nanos: bigint): Duration => new Duration(requireInt64(nanos));

/** Returns a date whose UTC hour, day and so on are the hour, day and so on of a time in a time zone. */
const findLocalDate = ({ nanos }: Timestamp, zone: string): Date => {
  const milliseconds = Number(splitSeconds(nanos)[0]) * 1000;
  if (zone === "" || zone === "UTC" || zone === "Local") return new Date(milliseconds);
  const colon = zone.indexOf(":");
  if (colon < 0) return findZonedDate(milliseconds, zone);
  const [hours, minutes] = [parseNumber(zone.slice(0, colon)), parseNumber(zone.slice(colon + 1))];
  return new Date(milliseconds + (hours * 60 + (zone.startsWith("-") ? -minutes : minutes)) * 60_000);
};

/** Parses a number as Go's `strconv.Atoi` does. */
const parseNumber = (text: string): number => {
  const createError = (reason: string) =>
    new EvaluationError(`strconv.Atoi: parsing ${JSON.stringify(text)}: ${reason}`);
  if (!/^[+-]?\d+$/.test(text)) throw createError("invalid syntax");
  const number = Number(text);
  if (number >= 2 ** 63 || number < -(2 ** 63)) throw createError("value out of range");
  return number;
};

const formatters = new Map<string, Intl.DateTimeFormat>();
/** More than the number of time zones. */
const maxFormatters = 1000;

/** In milliseconds. */
const hour = 3_600_000;
// The times at which daylight saving time began and ended, alternately, in standard time. These are all such times
// before 1967 for EST5EDT and other zones of the United States in `oldZones`, and before 1947 for CET and MET.
const summersOfUnitedStates = "1918-03-31T02 1918-10-27T01 1919-03-30T02 1919-10-26T01 1942-02-09T02 1945-09-30T01";
const summersOfEurope =
  "1916-04-30T23 1916-10-01T00 1917-04-16T02 1917-09-17T02 1918-04-15T02 1918-09-16T02 1940-04-01T02 1942-11-02T02 1943-03-29T02 1943-10-04T02 1944-04-03T02 1944-10-02T02 1945-04-02T02 1945-09-16T02";

/** The history of a time zone until `end`. The times are in milliseconds since 1970, by the zone's standard time. */
interface OldZone {
  /** The hours of the standard time ahead of UTC. */
  hours: number;
  /** When daylight saving time began and ended, alternately. */
  summers: number[];
  end: number;
  /** The zone that decides the time after `end`; if empty, the zone of Node.js with the same name. */
  successor: string;
  /** The hours that this zone is ahead of the successor's time. */
  hoursAhead: number;
}

/**
 * Creates the history of a time zone before `year`. `summers` are the starts and ends of daylight saving time,
 * alternately. From `year` on, Node.js knows the zone's time or, if not, that of another zone, `successor`: the zone is
 * `hoursAhead` hours ahead of it, as EET is ahead of CET.
 * The comment lets esbuild leave out `oldZones` where no expression reads a time zone.
 */
/* @__NO_SIDE_EFFECTS__ */ const createOldZone = (
  hours: number,
  year: number,
  summers = "",
  successor = "",
  hoursAhead = 0,
): OldZone => ({
  hours,
  end: Date.UTC(year, 0),
  successor,
  hoursAhead,
  summers: summers
    .split(" ")
    .filter(Boolean)
    .map((time) => Date.parse(`${time}:00Z`)),
});

/**
 * Time zones that are not named after a place. For their early years, Node.js has the history of a place, which
 * differs from the history in Go's files of time zones. EST, for example, is five hours behind UTC until 1970, and has
 * the time of Node.js from then on. EET has the time of CET plus one hour from 1977 on.
 */
const oldZones: Readonly<Record<string, OldZone>> = {
  EST: createOldZone(-5, 1970),
  MST: createOldZone(-7, 1970),
  HST: createOldZone(-10, 1970),
  EST5EDT: createOldZone(-5, 1967, summersOfUnitedStates),
  CST6CDT: createOldZone(-6, 1967, summersOfUnitedStates),
  MST7MDT: createOldZone(-7, 1967, summersOfUnitedStates),
  PST8PDT: createOldZone(-8, 1967, summersOfUnitedStates),
  CET: createOldZone(1, 1947, summersOfEurope),
  MET: createOldZone(1, 1947, summersOfEurope),
  WET: createOldZone(0, 1977, /* summers */ "", /* successor */ "CET", /* hoursAhead */ -1),
  EET: createOldZone(2, 1977, /* summers */ "", /* successor */ "CET", /* hoursAhead */ 1),
};

/** Returns a date whose UTC hour, day and so on are those of a time in a time zone, which `oldZones` may describe. */
const findZonedDate = (milliseconds: number, zone: string): Date => {
  const oldZone = Object.hasOwn(oldZones, zone) ? oldZones[zone] : undefined;
  if (!oldZone) return findDateInNodeZone(milliseconds, zone);
  const standardTime = milliseconds + oldZone.hours * hour;
  // From `oldZone.end` on, Node.js knows the zone's time or that of a `successor`: the zone is `hoursAhead` of it.
  if (standardTime >= oldZone.end)
    return new Date(findDateInNodeZone(milliseconds, oldZone.successor || zone).getTime() + oldZone.hoursAhead * hour);
  // `summers` has the starts and ends of daylight saving time, alternately: after a start, an odd number has passed.
  const isSummer = oldZone.summers.filter((change) => change <= standardTime).length % 2 === 1;
  return new Date(standardTime + (isSummer ? hour : 0));
};

/** Returns a date whose UTC hour, day and so on are those of a time in a zone that Node.js knows, like `Asia/Tokyo`. */
const findDateInNodeZone = (milliseconds: number, zone: string): Date => {
  if (/^[/\\]|(^|[/\\])\.\.($|[/\\])/.test(zone)) throw new EvaluationError("time: invalid location name");
  let formatter = formatters.get(zone);
  if (!formatter) {
    formatter = createFormatter(zone);
    if (formatters.size < maxFormatters) formatters.set(zone, formatter);
  }
  const parts = Object.fromEntries(formatter.formatToParts(milliseconds).map(({ type, value }) => [type, value]));
  const date = new Date(0);
  const year = parts.era === "BC" ? 1 - Number(parts.year) : Number(parts.year);
  date.setUTCFullYear(year, Number(parts.month) - 1, Number(parts.day));
  date.setUTCHours(Number(parts.hour), Number(parts.minute), Number(parts.second));
  return date;
};

const shortNames = "CET EET EST GMT HST MET MST PRC ROC ROK UCT WET";

/** Returns a formatter for times in a zone such as Europe/Paris. A zone that Go doesn't know is an error. */
const createFormatter = (zone: string): Intl.DateTimeFormat => {
  try {
    // Unlike Go, JavaScript accepts names in any case, offsets such as +01, PST, SystemV/PST8 and US/Pacific-New.
    const isNamed = /^[A-Z][^/]*(\/[A-Z][^/]*)*$/.test(zone) && !/^[A-Z]{3}$|^SystemV|-New$/.test(zone);
    if (!isNamed && !shortNames.split(" ").includes(zone)) throw new RangeError();
    const number = "numeric";
    const parts = { year: number, month: number, day: number, hour: number, minute: number, second: number } as const;
    return new Intl.DateTimeFormat("en-US", { ...parts, era: "short", timeZone: zone, hourCycle: "h23" });
  } catch (error) {
    if (error instanceof RangeError) throw new EvaluationError(`unknown time zone ${zone}`);
    throw error;
  }
};

const countDayOfYear = (date: Date): number =>
  Math.floor(date.getTime() / 86_400_000) - countSeconds(date.getUTCFullYear(), 1, 1) / 86_400;

/** Declares a method for a part of a time, such as its hours. With `measure`, it is also a method of durations. */
const declarePart = (
  name: string,
  id: string,
  read: (date: Date, nanos: bigint) => number,
  measure?: (nanos: bigint) => Value,
): FunctionDeclaration => {
  const evaluate = (time: Timestamp, zone = "UTC") => read(findLocalDate(time, zone), splitSeconds(time.nanos)[1]);
  const zoned = `timestamp_to_${id}${id === "seconds" ? "_tz" : "_with_tz"}`;
  const overloads = [
    member(`timestamp_to_${id}`, [timestamp], int, evaluate),
    member(zoned, [timestamp, string], int, evaluate),
  ];
  if (measure) overloads.push(member(`duration_to_${id}`, [duration], int, (value: Duration) => measure(value.nanos)));
  return { name, overloads };
};

/** Returns how often a unit fits into a duration. Go uses doubles, so a value just below an integer may round up. */
const countUnits = (unit: bigint) => (nanos: bigint) =>
  Math.trunc(Number(nanos / unit) + Number(nanos % unit) / Number(unit));

const toTimestamp = (seconds: number | bigint) => createTimestamp(BigInt(seconds), 0n);

/** The functions of CEL for timestamps and durations. */
export const timeFunctions: readonly FunctionDeclaration[] = [
  declareFunction("duration", "duration_to_duration", [duration], duration, identify),
  declareFunction("duration", "string_to_duration", [string], duration, parseDuration),
  declareFunction("timestamp", "timestamp_to_timestamp", [timestamp], timestamp, identify),
  declareFunction("timestamp", "int64_to_timestamp", [int], timestamp, toTimestamp),
  declareFunction("timestamp", "string_to_timestamp", [string], timestamp, parseTimestamp),
  declarePart("getFullYear", "year", (date) => date.getUTCFullYear()),
  declarePart("getMonth", "month", (date) => date.getUTCMonth()),
  declarePart("getDayOfYear", "day_of_year", countDayOfYear),
  declarePart("getDayOfMonth", "day_of_month", (date) => date.getUTCDate() - 1),
  declarePart("getDate", "day_of_month_1_based", (date) => date.getUTCDate()),
  declarePart("getDayOfWeek", "day_of_week", (date) => date.getUTCDay()),
  declarePart("getHours", "hours", (date) => date.getUTCHours(), countUnits(3600n * nanosPerSecond)),
  declarePart("getMinutes", "minutes", (date) => date.getUTCMinutes(), countUnits(60n * nanosPerSecond)),
  declarePart("getSeconds", "seconds", (date) => date.getUTCSeconds(), countUnits(nanosPerSecond)),
  declarePart(
    "getMilliseconds",
    "milliseconds",
    (_, nanos) => Number(nanos / 1_000_000n),
    (nanos) => toInt(nanos / 1_000_000n),
  ),
];
