import type { LookupAddress } from "node:dns";
import type { LookupFunction } from "node:net";
import { type AddressRange, isInRange, parseIpAddress, parseRange } from "../objects/network.ts";

/** Reports whether a text is an address, or a range such as 10.0.0.0/8. */
export const isIpAddressOrRange = (text: string): boolean => parseRange(text) !== undefined;

const parseRanges = (texts: readonly string[]): AddressRange[] => texts.flatMap((text) => toList(parseRange(text)));
const toList = (range: AddressRange | undefined): AddressRange[] => (range ? [range] : []);

/** IPv6 ranges whose addresses contain an IPv4 address (mapped, NAT64, 6to4), and the index of its first byte. */
const ipv6RangesWithIpv4 = [
  { ranges: parseRanges(["::ffff:0:0/96", "64:ff9b::/96"]), ipv4Index: 12 },
  { ranges: parseRanges(["2002::/16"]), ipv4Index: 2 },
];

// The public addresses are those of `unicast` that are not in `notPublic`: local, private, reserved and such ranges.
const unicast = parseRanges(["0.0.0.0/0", "2000::/3"]);
const notPublic = parseRanges(
  (
    "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 172.16.0.0/12 192.0.0.0/24 192.168.0.0/16 " +
    "198.18.0.0/15 224.0.0.0/3 2001::/23 2001:db8::/32"
  ).split(" "),
);
/** Ranges that are dangerous to call: link-local ones, and addresses where a cloud gives a machine its credentials. */
const dangerous = parseRanges([
  "169.254.0.0/16",
  "fe80::/10",
  "fd00:ec2::/32",
  "fd20:ce::/32",
  "fd00:42::42",
  "fd00:c1::a9fe:a9fe",
  "192.0.0.192",
  "100.100.100.200",
  "168.63.129.16",
]);

/**
 * Returns a function that reports whether an address may be called. A public address may always be called, another one
 * if an allowed range contains it. A dangerous address must be listed by itself, not in a range. If an IPv6 address
 * contains an IPv4 address, the latter is checked.
 */
export const createPublicOrListedAddressCheck = (
  allowedRangeTexts: readonly string[],
): ((address: string) => boolean) => {
  const allowedRanges = parseRanges(allowedRangeTexts);
  return (address) => {
    const parsed = parseIpAddress(address);
    if (parsed === undefined) return false;
    const ipv4Index = ipv6RangesWithIpv4.find(({ ranges }) => ranges.some(isInRange(parsed)))?.ipv4Index;
    const bytes = ipv4Index ? parsed.slice(ipv4Index, ipv4Index + 4) : parsed;
    const isIn = isInRange(bytes);
    // A range of all the address's bits is a single address.
    if (dangerous.some(isIn)) return allowedRanges.some((range) => range[1] === bytes.length * 8 && isIn(range));
    return allowedRanges.some(isIn) || (unicast.some(isIn) && !notPublic.some(isIn));
  };
};

/** Returns the IP address in a URL; undefined if the URL has a host name instead. */
export const getUrlIpAddress = ({ hostname }: URL): string | undefined => {
  const text = hostname.replace(/^\[|\]$/g, "");
  return parseIpAddress(text) && text;
};

/** Returns a DNS lookup for Node's requests that returns only admitted addresses. Node connects to no other address. */
export const createFilteredDnsLookup =
  (isAdmitted: (address: string) => boolean): LookupFunction =>
  (name, options, callback) => {
    const { lookup } = process.getBuiltinModule("node:dns");
    lookup(name, { ...options, all: true }, (error, addresses: LookupAddress[] = []) => {
      const admitted = addresses.filter(({ address }) => isAdmitted(address));
      const [first] = admitted;
      if (error || first === undefined) callback(error ?? new Error(describeRefusedAddresses(addresses)), "");
      else if (options.all) callback(null, admitted);
      else callback(null, first.address, first.family);
    });
  };

const describeRefusedAddresses = (addresses: LookupAddress[]) =>
  `it has no address that may be called, but ${addresses.map(({ address }) => address).join(", ") || "none"}`;
