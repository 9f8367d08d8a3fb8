import { quoteAsGo } from "../../../objects/go/quoted.ts";
import { countReading, countTraversal, getActualSize } from "../../cost-formulas.ts";
import { declareFunction, declareMethod, type FunctionCost, type FunctionDeclaration } from "../../functions.ts";
import { bool, int, opaque, string } from "../../types.ts";
import { EvaluationError, LibraryObject, type Value } from "../../values.ts";
import { reportParsing, rewordErrors } from "../errors.ts";
import { countIp, formatIp, hasPrefix, Ip, ipType, isMapped, parseAddress, parseIp } from "./ip.ts";

const cidrType = opaque("net.CIDR");

/** A network: an address, and the number of its first bits that are the network's prefix. The other bits may be set. */
export class Cidr extends LibraryObject {
  readonly type = cidrType;
  readonly ip: Ip;
  readonly prefixLength: number;
  constructor(ip: Ip, prefixLength: number) {
    super();
    this.ip = ip;
    this.prefixLength = prefixLength;
  }
  /** The size from which CEL costs are computed: as in upstream, the bytes of the prefix. */
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

const addErrorPrefix = (message: string) => `network address parse error during conversion from string: ${message}`;

/** Returns the value of cidr(text), for instance cidr("10.0.0.0/8"). */
const parseCidr = (text: string): Cidr =>
  rewordErrors(() => {
    const cidr = rewordErrors(
      () => parsePrefix(text),
      // Upstream's message has the prefix twice, so the outer rewordErrors adds it again.
      (message) => addErrorPrefix(`netip.ParsePrefix(${quoteAsGo(text)}): ${message}`),
    );
    if (isMapped(cidr.ip)) throw new EvaluationError(`IPv4-mapped IPv6 address ${quoteAsGo(text)} is not allowed`);
    return cidr;
  }, addErrorPrefix);

/** Parses a CIDR as Go's net/netip does. */
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

const containsIp = ({ ip, prefixLength }: Cidr, other: Ip) => hasPrefix(other, ip, prefixLength);

/** Evaluates cidr("10.0.0.0/8").containsIP("10.1.2.3"). */
const containsIpText = (cidr: Cidr, text: string) =>
  containsIp(
    cidr,
    rewordErrors(
      () => parseIp(text),
      // Upstream's message doesn't say what is wrong with the address.
      () => "no such overload",
    ),
  );

const containsCidrText = (cidr: Cidr, text: string) => containsCidr(cidr, parseCidr(text));
const containsCidr = (cidr: Cidr, other: Cidr) => cidr.prefixLength <= other.prefixLength && containsIp(cidr, other.ip);

const mask = ({ ip, prefixLength }: Cidr) => {
  const hostBits = BigInt(ip.bits - prefixLength);
  return new Cidr(new Ip((ip.number >> hostBits) << hostBits, ip.bits), prefixLength);
};

/**
 * Returns the cost of comparing the bytes of two addresses, which count as equally long. If the overload's `id` ends
 * with `_string`, the second argument is a text, and the cost of parsing it is added.
 */
const countIpTest = ([cidr = null, other = null]: readonly Value[], _: Value, id?: string): number =>
  countTraversal(2 * getActualSize(cidr)) + (id?.endsWith("_string") ? countTraversal(getActualSize(other)) : 0);
/** Adds the cost of masking the network, which reads its bytes once more, and 1 for comparing the prefixes' lengths. */
const countCidrTest: FunctionCost = (args, result, id) => countIpTest(args, result, id) + countReading(args) + 1;

/** The functions of Kubernetes' CEL library for IP ranges. */
export const cidrFunctions: readonly FunctionDeclaration[] = [
  declareFunction("cidr", "string_to_cidr", [string], cidrType, parseCidr, countReading),
  declareFunction("isCIDR", "is_cidr", [string], bool, reportParsing(parseCidr), countReading),
  declareMethod("containsIP", "cidr_contains_ip_string", [cidrType, string], bool, containsIpText, countIpTest),
  declareMethod("containsIP", "cidr_contains_ip_ip", [cidrType, ipType], bool, containsIp, countIpTest),
  declareMethod("containsCIDR", "cidr_contains_cidr_string", [cidrType, string], bool, containsCidrText, countCidrTest),
  declareMethod("containsCIDR", "cidr_contains_cidr", [cidrType, cidrType], bool, containsCidr, countCidrTest),
  declareMethod("ip", "cidr_ip", [cidrType], ipType, ({ ip }: Cidr) => ip, countIp),
  declareMethod("prefixLength", "cidr_prefix_length", [cidrType], int, ({ prefixLength }: Cidr) => prefixLength),
  declareMethod("masked", "cidr_masked", [cidrType], cidrType, mask),
  declareFunction("string", "cidr_to_string", [cidrType], string, String),
];
