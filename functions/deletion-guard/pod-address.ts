import type { Pod } from "postern/kubernetes/core/v1";
import { type AddressRange, isInRange, parseRange } from "postern/objects/network";

/** The range ::ffff:0:0/96, which contains IPv4 addresses that are written as IPv6 addresses. */
const ipv4Mapped: AddressRange = [[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 0, 0, 0, 0], 96];

/**
 * Parses a network such as `10.0.0.0/8` or `fd00::/8`, or a single address; returns undefined for other texts. An IPv4
 * network in the notation of IPv6, such as `::ffff:10.0.0.0/104`, becomes an IPv4 network.
 */
export const parseNetwork = (text: string): AddressRange | undefined => {
  const range = parseRange(text);
  if (range === undefined) return undefined;
  const [start, bits] = range;
  const isStartIn = isInRange(start);
  // With fewer than 96 bits, the network has a negative number of bits, which isNetworkAddress refuses.
  const network: AddressRange = isStartIn(ipv4Mapped) ? [start.slice(12), bits - 96] : range;
  return isNetworkAddress(network) ? network : undefined;
};

/** Reports whether all bits after the prefix are 0: true for 10.0.0.0/8, false for 10.0.0.1/8. */
const isNetworkAddress = ([start, bits]: AddressRange) =>
  bits >= 0 && start.every((byte, index) => (byte & (255 >> Math.max(0, Math.min(8, bits - 8 * index)))) === 0);

/**
 * Reports whether an address is in one of the networks. For an address in a reserved range, only networks that lie
 * within this range count.
 */
const isAddressInAllowedNetworks = (text: string, networks: readonly AddressRange[]): boolean => {
  const [address] = (text.includes("/") ? undefined : parseNetwork(text)) ?? [];
  if (address === undefined) return false;
  const reservedRange = reservedRanges.find(isInRange(address));
  const isInReservedRange = ([start, bits]: AddressRange) =>
    !reservedRange || (isInRange(start)(reservedRange) && bits >= reservedRange[1]);
  return networks.some((network) => isInRange(address)(network) && isInReservedRange(network));
};

/**
 * Reserved ranges: the host itself, link-local addresses, AWS's credential services, and IPv6 ranges that map to IPv4
 * addresses. An address belongs to the first range that contains it.
 */
const reservedRanges =
  "0.0.0.0/8 127.0.0.0/8 169.254.0.0/16 ::/128 ::1/128 fe80::/10 fd00:ec2::/32 ::/96 64:ff9b::/96 2002::/16"
    .split(" ")
    .map(parseNetwork)
    .filter((network) => network !== undefined);

const placeholders = ["name", "namespace", "uid"] as const;
/** Matches the beginning of a URL up to the path, such as `http://{ip}:8080`. */
const schemeAndHost = /^https?:\/\/([^/?#]*)/;

/**
 * Returns what an invalid URL template must be, as a part of a sentence; undefined if it is valid. A template may have
 * {name}, {namespace}, {uid}, and {ip} as its host.
 */
export const findPodUrlTemplateFault = (template: string): string | undefined => {
  const [, host = ""] = schemeAndHost.exec(template) ?? [];
  const isPodAddress = /^\{ip\}(:\d{1,5})?$/.test(host);
  if (!isPodAddress && /[{}@%\s\\]/.test(host)) return "a host, or {ip} in its place, and nothing else before the path";
  const withHost = isPodAddress ? template.replace("{ip}", "ip") : template;
  const plain = placeholders.reduce((text, name) => text.replaceAll(`{${name}}`, "x"), withHost);
  if (host === "" || /[{}\s\\]/.test(plain) || !URL.canParse(plain))
    return "a URL with http:// or https://, a host, and a path that may contain {name}, {namespace} and {uid}";
};

/** Builds a template's URL for a pod. Returns undefined if {ip} is needed, but the pod has no allowed address. */
export const buildPodUrl = (
  template: string,
  { metadata = {}, status = {} }: Pod,
  allowedNetworks: string[],
): string | undefined => {
  const networks = allowedNetworks.map(parseNetwork).filter((network) => network !== undefined);
  const podIp = [...(status.podIPs ?? []).map(({ ip }) => ip), status.podIP].find(
    (ip) => ip !== undefined && isAddressInAllowedNetworks(ip, networks),
  );
  if (template.includes("{ip}") && podIp === undefined) return undefined;
  const host = podIp?.includes(":") ? `[${podIp}]` : (podIp ?? "");
  return placeholders.reduce(
    (text, name) => text.replaceAll(`{${name}}`, () => encodeURIComponent(metadata[name] ?? "")),
    template.replace("{ip}", host),
  );
};
