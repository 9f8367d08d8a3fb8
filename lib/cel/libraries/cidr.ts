import { quoteAsGo } from "../../objects/go-quoted.ts";
import { countTraversal, getActualSize } from "../cost.ts";
import { type FunctionDeclaration, member, overload } from "../functions.ts";
import * as types from "../types.ts";
import { createNoSuchOverloadError, EvaluationError, LibraryObject, type Value } from "../values.ts";
import { countIp, formatIp, hasPrefix, Ip, ipType, isMapped, parseAddress, parseIp } from "./ip.ts";
import { countReading, reportParsing, rewordErrors } from "./parsing.ts";

export const cidrType = types.opaque("net.CIDR");

/** An address, and how many of its first bits a network has. The other bits may be set. */
export class Cidr extends LibraryObject {
  readonly ip: Ip;
  readonly prefixLength: number;
  constructor(ip: Ip, prefixLength: number) {
    super();
    this.ip = ip;
    this.prefixLength = prefixLength;
  }
  get type(): types.Type {
    return cidrType;
  }
  override get size(): number {
    return Math.ceil(this.prefixLength / 8);
  }
  override toString(): string {
    return `${formatIp(this.ip)}/${this.prefixLength}`;
  }
  equals(other: this): boolean {
    return this.ip.equals(other.ip) && this.prefixLength === other.prefixLength;
  }
}

const describeError = (message: string) => `network address parse error during conversion from string: ${message}`;

const parseCidr = (text: string): Cidr =>
  rewordErrors(() => {
    const cidr = rewordErrors(
      () => parsePrefix(text),
      // Upstream has this text twice.
      (message) => describeError(`netip.ParsePrefix(${quoteAsGo(text)}): ${message}`),
    );
    if (isMapped(cidr.ip)) throw new EvaluationError(`IPv4-mapped IPv6 address ${quoteAsGo(text)} is not allowed`);
    return cidr;
  }, describeError);

/** Parses a prefix as Go's net/netip does. */
const parsePrefix = (text: string): Cidr => {
  const slash = text.lastIndexOf("/");
  if (slash < 0) throw new EvaluationError("no '/'");
  const { address, zone } = parseAddress(text.slice(0, slash));
  if (zone !== "") throw new EvaluationError("IPv6 zones cannot be present in a prefix");
  const bits = text.slice(slash + 1);
  if (!/^(0|[1-9]\d{0,18})$/.test(bits) || BigInt.asIntN(64, BigInt(bits)) !== BigInt(bits))
    throw new EvaluationError(`bad bits after slash: ${quoteAsGo(bits)}`);
  if (Number(bits) > address.bits) throw new EvaluationError("prefix length out of range");
  return new Cidr(address, Number(bits));
};

/** The characters of an IPv6 address that ends with an IPv4 address, and of its prefix. */
const longestCidr = 45 + 4;
const isCidr = reportParsing(parseCidr);

const containsIp = ({ ip, prefixLength }: Cidr, other: Ip) => hasPrefix(other, ip, prefixLength);

const containsIpText = (cidr: Cidr, text: string) => {
  let ip: Ip;
  try {
    ip = parseIp(text);
  } catch (error) {
    // Upstream doesn't pass on what is wrong with the address.
    throw error instanceof EvaluationError ? createNoSuchOverloadError() : error;
  }
  return containsIp(cidr, ip);
};

const containsCidr = (cidr: Cidr, other: Cidr) => cidr.prefixLength <= other.prefixLength && containsIp(cidr, other.ip);

const mask = ({ ip, prefixLength }: Cidr) => {
  const free = BigInt(ip.bits - prefixLength);
  return new Cidr(new Ip((ip.number >> free) << free, ip.bits), prefixLength);
};

/** Returns the cost of comparing all bytes of a network with those of another value, which may have to be parsed. */
const countComparison = ([cidr = null, other = null]: readonly Value[], isText: boolean): number =>
  countTraversal(2 * getActualSize(cidr)) + (isText ? countTraversal(getActualSize(other)) : 0);

export const cidrFunctions: readonly FunctionDeclaration[] = [
  {
    name: "cidr",
    overloads: [overload("string_to_cidr", [types.string], cidrType, parseCidr)],
    cost: countReading,
  },
  {
    name: "isCIDR",
    overloads: [
      overload("is_cidr", [types.string], types.bool, (text: string) => text.length <= longestCidr && isCidr(text)),
    ],
    cost: countReading,
  },
  {
    name: "containsIP",
    overloads: [
      member("cidr_contains_ip_string", [cidrType, types.string], types.bool, containsIpText),
      member("cidr_contains_ip_ip", [cidrType, ipType], types.bool, containsIp),
    ],
    cost: (args, _, id) => countComparison(args, id === "cidr_contains_ip_string"),
  },
  {
    name: "containsCIDR",
    overloads: [
      member("cidr_contains_cidr_string", [cidrType, types.string], types.bool, (cidr: Cidr, text: string) =>
        containsCidr(cidr, parseCidr(text)),
      ),
      member("cidr_contains_cidr", [cidrType, cidrType], types.bool, containsCidr),
    ],
    cost: (args, _, id) =>
      countComparison(args, id === "cidr_contains_cidr_string") + countTraversal(getActualSize(args[0] ?? null)) + 1,
  },
  { name: "ip", overloads: [member("cidr_ip", [cidrType], ipType, ({ ip }: Cidr) => ip)], cost: countIp },
  {
    name: "prefixLength",
    overloads: [member("cidr_prefix_length", [cidrType], types.int, ({ prefixLength }: Cidr) => prefixLength)],
  },
  { name: "masked", overloads: [member("cidr_masked", [cidrType], cidrType, mask)] },
  {
    name: "string",
    overloads: [
      overload(
        "cidr_to_string",
        [cidrType],
        types.string,
        ({ ip, prefixLength }: Cidr) => `${formatIp(ip)}/${prefixLength}`,
      ),
    ],
  },
];
