import { isIn, type Range, rangeOf } from "postern/objects/network";

/** What addresses of IPv4 begin with where they are written as those of IPv6. */
const mapped: Range = [[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 0, 0, 0, 0], 96];

/** Reads `10.0.0.0/8`, `fd00::/8`, or an address, which is a network of one; undefined where it is neither. */
export const parseNetwork = (text: string): Range | undefined => {
  const range = rangeOf(text);
  if (range === undefined) return undefined;
  const [start, bits] = range;
  const network: Range = isIn(start)(mapped) ? [start.slice(12), bits - 96] : range;
  return isBegin(network) ? network : undefined;
};

/** Whether no bit is set but those that all addresses of the network have. */
const isBegin = ([start, bits]: Range) =>
  bits >= 0 && start.every((byte, index) => (byte & (255 >> Math.max(0, Math.min(8, bits - 8 * index)))) === 0);

/** Whether an address is in one of the networks; in a reserved one only where a part of that is listed. */
export const isAllowed = (text: string, networks: readonly Range[]): boolean => {
  const [address] = (text.includes("/") ? undefined : parseNetwork(text)) ?? [];
  if (address === undefined) return false;
  const special = reserved.find(isIn(address));
  return networks.some(
    (network) => isIn(address)(network) && (!special || (isIn(network[0])(special) && network[1] >= special[1])),
  );
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
