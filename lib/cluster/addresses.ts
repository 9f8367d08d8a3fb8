import type { LookupAddress } from "node:dns";
import type { LookupFunction } from "node:net";

/** An address's four or sixteen bytes; undefined for any other text, a name for instance. */
const bytesOf = (text: string): number[] | undefined => {
  const host = hostOf(text);
  if (isPlain(host)) return host.split(".").map(Number);
  if (!host.startsWith("[")) return undefined;
  const [head = [], tail = []] = host
    .slice(1, -1)
    .split("::")
    .map((part) => (part === "" ? [] : part.split(":").map((group) => Number.parseInt(group, 16))));
  const groups = [...head, ...new Array<number>(8 - head.length - tail.length).fill(0), ...tail];
  return groups.flatMap((group) => [group >> 8, group & 255]);
};

/** Addresses can be written in many ways; in URLs they have one. */
const hostOf = (text: string): string => {
  const url = `http://${text.includes(":") ? `[${text}]` : text}`;
  // Nothing else may be in that URL.
  return /^[\w.:]+$/.test(text) && URL.canParse(url) ? new URL(url).hostname : "";
};
const isPlain = (host: string) => /^\d+(\.\d+){3}$/.test(host);

/** Addresses whose first so many bits are those. */
type Range = [start: number[], bits: number];

const isIn =
  (bytes: number[]) =>
  ([start, bits]: Range): boolean =>
    bytes.length === start.length &&
    bytes.every((byte, index) => {
      const free = 8 - Math.max(0, Math.min(8, bits - 8 * index));
      return byte >> free === (start[index] ?? 0) >> free;
    });

const rangeOf = (text: string): Range | undefined => {
  const [, address = "", bits] = /^([\da-f:.]+)(?:\/(\d{1,3}))?$/i.exec(text) ?? [];
  const bytes = bytesOf(address);
  // What some take for octal, or fill up with zeros, is written so by mistake.
  if (bytes === undefined || (isPlain(hostOf(address)) && hostOf(address) !== address)) return undefined;
  const all = bytes.length * 8;
  return Number(bits ?? all) > all ? undefined : [bytes, Number(bits ?? all)];
};

/** Whether a text is an address, or a range of them such as 10.0.0.0/8. */
export const isRange = (text: string): boolean => rangeOf(text) !== undefined;

const ranges = (texts: readonly string[]): Range[] => texts.flatMap((text) => singly(rangeOf(text)));
const singly = (range: Range | undefined): Range[] => (range ? [range] : []);

/** What stands for an address of IPv4: mapped, translated, and 6to4; and from which byte on it has it. */
const disguises = [
  [ranges(["::ffff:0:0/96"]), 12],
  [ranges(["64:ff9b::/96"]), 12],
  [ranges(["2002::/16"]), 2],
] as const;

/** Of the internet, but for what is this machine's, a private network's, everybody's, reserved or an example. */
const common = ranges(["0.0.0.0/0", "2000::/3"]);
const apart = ranges([
  ...["0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "172.16.0.0/12", "192.0.0.0/24", "192.168.0.0/16"],
  ...["198.18.0.0/15", "224.0.0.0/3", "2001::/23", "2001:db8::/32"],
]);
/** Where clouds tell a machine its own secrets, and all that is link-local. */
const perilous = ranges([
  ...[
    "169.254.0.0/16",
    "fe80::/10",
    "fd00:ec2::/32",
    "fd20:ce::/32",
    "fd00:42::42",
    "fd00:c1::a9fe:a9fe",
    "192.0.0.192",
    "100.100.100.200",
    "168.63.129.16",
  ],
]);

/**
 * Says of an address whether a connection may be made to it: to any public one, to others where these ranges have it, and
 * to one that machines have secrets from only where it is given alone. What is no address is none of them.
 */
export const admitting = (texts: readonly string[]): ((address: string) => boolean) => {
  const given = ranges(texts);
  return (address) => {
    const own = bytesOf(address);
    if (own === undefined) return false;
    const [, from = 0] = disguises.find(([[range]]) => range && isIn(own)(range)) ?? [];
    const bytes = from ? own.slice(from, from + 4) : own;
    const has = isIn(bytes);
    if (perilous.some(has)) return given.some((range) => range[1] === bytes.length * 8 && has(range));
    return given.some(has) || (common.some(has) && !apart.some(has));
  };
};

/** Whether a URL's host is an address, and no name. */
export const addressIn = ({ hostname }: URL): string | undefined => {
  const text = hostname.replace(/^\[|\]$/g, "");
  return bytesOf(text) && text;
};

/** Finds addresses as Node does, of which a connection is made only to those that are admitted, whatever the name says next time. */
export const lookupOf =
  (isAdmitted: (address: string) => boolean): LookupFunction =>
  (name, options, found) => {
    const { lookup } = process.getBuiltinModule("node:dns");
    lookup(name, { ...options, all: true }, (error, addresses: LookupAddress[] = []) => {
      const admitted = addresses.filter(({ address }) => isAdmitted(address));
      const [first] = admitted;
      if (error || first === undefined) found(error ?? new Error(noneOf(addresses)), "");
      else if (options.all) found(null, admitted);
      else found(null, first.address, first.family);
    });
  };

const noneOf = (addresses: LookupAddress[]) =>
  `it has no address that may be asked, but ${addresses.map(({ address }) => address).join(", ") || "none"}`;
