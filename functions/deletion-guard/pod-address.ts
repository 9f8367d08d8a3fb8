import type { Pod } from "postern/kubernetes/core/v1";
import { type AddressRange, isInRange, parseRange } from "postern/objects/network";

/** The prefix of IPv4 addresses that are written as IPv6 addresses: ::ffff:0:0/96. */
const ipv4Mapped: AddressRange = [[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 0, 0, 0, 0], 96];

/** Parses `10.0.0.0/8`, `fd00::/8` or a single address; returns undefined if the text is neither. */
export const parseNetwork = (text: string): AddressRange | undefined => {
  const range = parseRange(text);
  if (range === undefined) return undefined;
  const [start, bits] = range;
  const network: AddressRange = isInRange(start)(ipv4Mapped) ? [start.slice(12), bits - 96] : range;
  return isNetworkAddress(network) ? network : undefined;
};

/** Reports whether all bits of an address after the prefix are 0, as in the network 10.0.0.0/8. */
const isNetworkAddress = ([start, bits]: AddressRange) =>
  bits >= 0 && start.every((byte, index) => (byte & (255 >> Math.max(0, Math.min(8, bits - 8 * index)))) === 0);

/** Reports whether an address is in a network. A reserved address must be in a network within its reserved range. */
const isAddressInAllowedNetworks = (text: string, networks: readonly AddressRange[]): boolean => {
  const [address] = (text.includes("/") ? undefined : parseNetwork(text)) ?? [];
  if (address === undefined) return false;
  const reservedRange = reserved.find(isInRange(address));
  return networks.some(
    (network) =>
      isInRange(address)(network) &&
      (!reservedRange || (isInRange(network[0])(reservedRange) && network[1] >= reservedRange[1])),
  );
};

/**
 * Reserved ranges: the host itself, link-local addresses, AWS's credential services, and IPv6 ranges that map to IPv4
 * addresses. An address belongs to the first range that contains it.
 */
const reserved =
  "0.0.0.0/8 127.0.0.0/8 169.254.0.0/16 ::/128 ::1/128 fe80::/10 fd00:ec2::/32 ::/96 64:ff9b::/96 2002::/16"
    .split(" ")
    .map(parseNetwork)
    .filter((network) => network !== undefined);

const placeholders = ["name", "namespace", "uid"] as const;
const host = /^https?:\/\/([^/?#]*)/;

/** Returns what is wrong with a URL template, which may contain {name}, {namespace}, {uid}, and {ip} as its host. */
export const findPodUrlTemplateFault = (template: string): string | undefined => {
  const [, named = ""] = host.exec(template) ?? [];
  const isOfPods = /^\{ip\}(:\d{1,5})?$/.test(named);
  if (!isOfPods && /[{}@%\s\\]/.test(named)) return "a host, or {ip} in its place, and nothing else before the path";
  const located = isOfPods ? template.replace("{ip}", "ip") : template;
  const plain = placeholders.reduce((text, name) => text.replaceAll(`{${name}}`, "x"), located);
  if (named === "" || /[{}\s\\]/.test(plain) || !URL.canParse(plain))
    return "a URL with http:// or https://, a host, and a path that may contain {name}, {namespace} and {uid}";
};

/** Returns a template's URL for a pod; undefined if it needs {ip} and no address of the pod may be called. */
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
