import { quoteAsGo } from "../../../objects/go/quoted.ts";
import { countReading, countReadingTwice } from "../../cost-formulas.ts";
import { declareFunction, declareMethod, type FunctionCost, type FunctionDeclaration } from "../../functions.ts";
import { bool, int, opaque, string } from "../../types.ts";
import { EvaluationError, LibraryObject } from "../../values.ts";
import { reportParsing, rewordErrors } from "../errors.ts";

export const ipType = opaque("net.IP");

/** An IP address: IPv4 with 32 bits, or IPv6 with 128 bits. */
export class Ip extends LibraryObject {
  readonly type = ipType;
  readonly number: bigint;
  readonly bits: number;
  constructor(number: bigint, bits: number) {
    super();
    this.number = number;
    this.bits = bits;
  }
  override get size(): number {
    return this.bits / 8;
  }
  override toString(): string {
    return formatIp(this);
  }
  equals(other: this): boolean {
    return this.bits === other.bits && this.number === other.number;
  }
}

/** Parses an IP address as Go's net/netip does, with its error messages. */
export const parseAddress = (text: string): { address: Ip; zone: string } => {
  const [first] = /[.:%]/.exec(text) ?? [];
  if (first === ":") return parseIpv6(text);
  if (first !== ".") throw createParseError(text, first ? "missing IPv6 address" : "unable to parse IP");
  return { address: new Ip(joinParts(parseIpv4(text), 8), 32), zone: "" };
};

const createParseError = (text: string, message: string, rest = "") =>
  new EvaluationError(`ParseAddr(${quoteAsGo(text)}): ${message}${rest && ` (at ${quoteAsGo(rest)})`}`);

const joinParts = (parts: readonly number[], bits: number): bigint =>
  parts.reduce((number, part) => (number << BigInt(bits)) | BigInt(part), 0n);

/** Parses an IPv4 address to four bytes. Errors quote `text`: the whole address, if this is the end of an IPv6 one. */
const parseIpv4 = (address: string, text = address): number[] => {
  const bytes: number[] = [];
  for (let rest = address; ; rest = rest.slice(1)) {
    const [digits = ""] = /^\d*/.exec(rest) ?? [];
    rest = rest.slice(digits.length);
    if (/^0\d/.test(digits)) throw createParseError(text, "IPv4 field has octet with leading zero");
    if (Number(digits) > 255) throw createParseError(text, "IPv4 field has value >255");
    if (/^[^.]/s.test(rest)) throw createParseError(text, "unexpected character", rest);
    if (rest === "." || (rest !== "" && digits === ""))
      throw createParseError(text, "IPv4 field must have at least one digit", rest);
    bytes.push(Number(digits));
    if (rest === "") break;
    if (bytes.length === 4) throw createParseError(text, "IPv4 address too long");
  }
  if (bytes.length < 4) throw createParseError(text, "IPv4 address too short");
  return bytes;
};

/** Parses an IPv6 address with an optional zone, as in `fe80::1%eth0`. */
const parseIpv6 = (text: string): { address: Ip; zone: string } => {
  const mark = text.indexOf("%");
  const zone = mark < 0 ? "" : text.slice(mark + 1);
  if (mark >= 0 && zone === "") throw createParseError(text, "zone must be a non-empty string");
  let rest = mark < 0 ? text : text.slice(0, mark);

  const groups: number[] = [];
  /** The index in `groups` at which `::` stands. */
  let gap: number | undefined;
  if (rest.startsWith("::")) {
    gap = 0;
    rest = rest.slice(2);
  }
  // No group needs to follow `::`, so the address may end with it.
  while (groups.length < 8 && !(rest === "" && gap === groups.length)) {
    const [digits = ""] = /^[0-9a-f]*/i.exec(rest) ?? [];
    if (digits.length > 4) throw createParseError(text, "each group must have 4 or less digits", rest);
    if (digits === "") throw createParseError(text, "each colon-separated field must have at least one digit", rest);
    if (rest[digits.length] === ".") {
      if (gap === undefined && groups.length !== 6)
        throw createParseError(text, "embedded IPv4 address must replace the final 2 fields of the address", rest);
      if (groups.length > 6)
        throw createParseError(text, "too many hex fields to fit an embedded IPv4 at the end of the address", rest);
      const [a = 0, b = 0, c = 0, d = 0] = parseIpv4(rest, text);
      groups.push((a << 8) | b, (c << 8) | d);
      rest = "";
      break;
    }
    groups.push(Number.parseInt(digits, 16));
    rest = rest.slice(digits.length);
    if (rest === "") break;
    if (!rest.startsWith(":")) throw createParseError(text, "unexpected character, want colon", rest);
    if (rest === ":") throw createParseError(text, "colon must be followed by more characters", rest);
    rest = rest.slice(1);
    if (rest.startsWith(":")) {
      if (gap !== undefined) throw createParseError(text, "multiple :: in address", rest);
      gap = groups.length;
      rest = rest.slice(1);
    }
  }
  if (rest !== "") throw createParseError(text, "trailing garbage after address", rest);
  if (groups.length < 8 && gap === undefined) throw createParseError(text, "address string too short");
  if (groups.length === 8 && gap !== undefined)
    throw createParseError(text, "the :: must expand to at least one field of zeros");
  groups.splice(gap ?? 0, 0, ...new Array<number>(8 - groups.length).fill(0));
  return { address: new Ip(joinParts(groups, 16), 128), zone };
};

const splitNumber = (number: bigint, count: number, bits: number): number[] =>
  Array.from({ length: count }, (_, index) =>
    Number(BigInt.asUintN(bits, number >> BigInt((count - 1 - index) * bits))),
  );

/** Returns an address in its canonical form. */
export const formatIp = ({ number, bits }: Ip): string => {
  if (bits === 32) return splitNumber(number, 4, 8).join(".");
  const groups = splitNumber(number, 8, 16).map((group) => group.toString(16));
  // The longest sequence of at least two zeros is replaced by `::`. Of equally long sequences, it is the first.
  const [longest = ""] = (groups.join(":").match(/\b0(:0)+\b/g) ?? []).sort((one, two) => two.length - one.length);
  // Colons before and after all groups make it possible to replace the first and the last ones. Then the colons at the
  // two ends are removed, unless they are part of `::`.
  return `:${groups.join(":")}:`.replace(`:${longest}:`, "::").replace(/^:(?!:)|(?<!:):$/g, "");
};

/** Reports whether an address is an IPv4-mapped IPv6 address, such as `::ffff:1.2.3.4`. */
export const isMapped = ({ number, bits }: Ip): boolean => bits === 128 && number >> 32n === 0xffffn;

/** Parses an IP address. Kubernetes allows neither zones nor IPv4-mapped addresses in expressions. */
export const parseIp = (text: string): Ip => {
  const { address, zone } = rewordErrors(
    () => parseAddress(text),
    (message) => `IP Address ${quoteAsGo(text)} parse error during conversion from string: ${message}`,
  );
  if (zone !== "") throw new EvaluationError(`IP address ${quoteAsGo(text)} with zone value is not allowed`);
  if (isMapped(address)) throw new EvaluationError(`IPv4-mapped IPv6 address ${quoteAsGo(text)} is not allowed`);
  return address;
};

/** Reports whether the first `bits` bits of two addresses are equal. */
export const hasPrefix = (address: Ip, prefix: Ip, bits: number): boolean =>
  address.bits === prefix.bits && (address.number ^ prefix.number) >> BigInt(prefix.bits - bits) === 0n;

const isInRange = (ip: Ip, start: bigint, bits: number) => ip.number >> BigInt(ip.bits - bits) === start;

const isIpv4 = ({ bits }: Ip) => bits === 32;
const isUnspecified = ({ number }: Ip) => number === 0n;
const isLoopback = (ip: Ip) => (isIpv4(ip) ? isInRange(ip, 127n, 8) : ip.number === 1n);
const isMulticast = (ip: Ip) => (isIpv4(ip) ? isInRange(ip, 0xen, 4) : isInRange(ip, 0xffn, 8));
const isLinkLocalMulticast = (ip: Ip) =>
  isIpv4(ip) ? isInRange(ip, 0xe00000n, 24) : ((ip.number >> 112n) & 0xff0fn) === 0xff02n;
const isLinkLocalUnicast = (ip: Ip) => (isIpv4(ip) ? isInRange(ip, 0xa9fen, 16) : isInRange(ip, 0x3fan, 10));
const isGlobalUnicast = (ip: Ip) =>
  ![isUnspecified, isLoopback, isMulticast, isLinkLocalUnicast].some((isOther) => isOther(ip)) &&
  !(isIpv4(ip) && ip.number === 0xffffffffn);

/** Returns the cost of the function `ip`, which is also a method of a CIDR. */
export const countIp: FunctionCost = (args, _, id) => (id === "cidr_ip" ? 1 : countReading(args));

const isCanonical = (text: string) => formatIp(parseIp(text)) === text;

/** The functions of Kubernetes' CEL library for IP addresses. Those without a last argument such as countIp cost 1. */
export const ipFunctions: readonly FunctionDeclaration[] = [
  declareFunction("ip", "string_to_ip", [string], ipType, parseIp, countIp),
  declareFunction("isIP", "is_ip", [string], bool, reportParsing(parseIp), countReading),
  declareFunction("ip.isCanonical", "ip_is_canonical", [string], bool, isCanonical, countReadingTwice),
  declareFunction("string", "ip_to_string", [ipType], string, formatIp),
  declareMethod("family", "ip_family", [ipType], int, (ip) => (isIpv4(ip) ? 4 : 6)),
  declareMethod("isUnspecified", "ip_is_unspecified", [ipType], bool, isUnspecified),
  declareMethod("isLoopback", "ip_is_loopback", [ipType], bool, isLoopback),
  declareMethod("isLinkLocalMulticast", "ip_is_link_local_multicast", [ipType], bool, isLinkLocalMulticast),
  declareMethod("isLinkLocalUnicast", "ip_is_link_local_unicast", [ipType], bool, isLinkLocalUnicast),
  declareMethod("isGlobalUnicast", "ip_is_global_unicast", [ipType], bool, isGlobalUnicast),
];
