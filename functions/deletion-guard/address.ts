/** An address as a number of so many bits. */
interface Address {
  bits: 32 | 128;
  value: bigint;
}

/** Addresses that begin alike. */
export interface Network extends Address {
  length: number;
}

/** Reads `10.0.0.0/8`, `fd00::/8`, or an address, which is a network of one; undefined where it is neither. */
export const parseNetwork = (text: string): Network | undefined => {
  const [first = "", prefix, ...more] = text.split("/");
  const address = parseAddress(first);
  if (address === undefined || more.length > 0) return undefined;
  if (prefix !== undefined && !/^\d{1,3}$/.test(prefix)) return undefined;
  // An address of IPv4 written as one of IPv6 has 96 bits before it.
  const written = first.includes(":") ? 128 : 32;
  const length = Number(prefix ?? written) - (written - address.bits);
  if (length < 0 || length > address.bits) return undefined;
  const network = { ...address, length };
  return startOf(address.value, network) === address.value ? network : undefined;
};

/** Whether an address is in one of the networks; in a reserved one only where a part of that is listed. */
export const isAllowed = (text: string, networks: readonly Network[]): boolean => {
  const address = parseAddress(text);
  if (address === undefined) return false;
  const special = reserved.find((network) => contains(network, address));
  return networks.some(
    (network) =>
      contains(network, address) && (!special || (contains(special, network) && network.length >= special.length)),
  );
};

const startOf = (value: bigint, { bits, length }: Network) => {
  const rest = BigInt(bits - length);
  return (value >> rest) << rest;
};

const contains = (network: Network, { bits, value }: Address) =>
  bits === network.bits && startOf(value, network) === network.value;

const parseAddress = (text: string): Address | undefined => (text.includes(":") ? parseSix(text) : parseFour(text));

const parseFour = (text: string): Address | undefined => {
  const parts = text.split(".");
  if (parts.length !== 4 || !parts.every((part) => /^(0|[1-9]\d{0,2})$/.test(part) && Number(part) < 256))
    return undefined;
  return { bits: 32, value: parts.reduce((value, part) => value * 256n + BigInt(part), 0n) };
};

const parseSix = (text: string): Address | undefined => {
  const halves = text.split("::");
  if (halves.length > 2 || text.length > 45) return undefined;
  const [head, tail] = halves.map(groupsOf);
  if (head === undefined || (halves.length === 2 && tail === undefined)) return undefined;
  const missing = 8 - head.length - (tail?.length ?? 0);
  if (tail ? missing < 1 : missing !== 0) return undefined;
  const groups = [...head, ...Array<bigint>(missing).fill(0n), ...(tail ?? [])];
  const value = groups.reduce((before, group) => before * 65_536n + group, 0n);
  return value >> 32n === 0xffffn ? { bits: 32, value: value & 0xffff_ffffn } : { bits: 128, value };
};

const groupsOf = (text: string): bigint[] | undefined => {
  if (text === "") return [];
  const parts = text.split(":");
  // Its last 32 bits may be written as those of IPv4.
  const four = parseFour(parts.at(-1) ?? "");
  const plain = four ? parts.slice(0, -1) : parts;
  if (!plain.every((part) => /^[0-9a-f]{1,4}$/i.test(part))) return undefined;
  const groups = plain.map((part) => BigInt(`0x${part}`));
  return four ? [...groups, four.value >> 16n, four.value & 0xffffn] : groups;
};

/**
 * Where nobody is called unless it is listed itself: the host, what belongs to the link, whoever hands out credentials, and
 * what may come to one of these on its way to IPv4. The first that an address is in counts.
 */
const reserved = [
  ...["0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "::/128", "::1/128", "fe80::/10", "fd00:ec2::/32"],
  ...["::/96", "64:ff9b::/96", "2002::/16"],
]
  .map(parseNetwork)
  .filter((network) => network !== undefined);
