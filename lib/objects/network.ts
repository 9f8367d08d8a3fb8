/** Returns the four or sixteen bytes of an IP address; undefined for any other text, such as a host name. */
export const parseIpAddress = (text: string): number[] | undefined => {
  const host = toUrlHost(text);
  if (isPlain(host)) return host.split(".").map(Number);
  if (!host.startsWith("[")) return undefined;
  const [head = [], tail = []] = host
    .slice(1, -1)
    .split("::")
    .map((part) => (part === "" ? [] : part.split(":").map((group) => Number.parseInt(group, 16))));
  const groups = [...head, ...new Array<number>(8 - head.length - tail.length).fill(0), ...tail];
  return groups.flatMap((group) => [group >> 8, group & 255]);
};

/**
 * Returns an IP address in the form that URLs give it, because an address can be written in many ways; empty for any
 * other text.
 */
const toUrlHost = (text: string): string => {
  const url = `http://${text.includes(":") ? `[${text}]` : text}`;
  // Only an IP address is accepted: the text can't add a path, a port or a user to the URL.
  return /^[\w.:]+$/.test(text) && URL.canParse(url) ? new URL(url).hostname : "";
};
const isPlain = (host: string) => /^\d+(\.\d+){3}$/.test(host);

/** The addresses whose first `bits` bits are those of `start`. */
export type AddressRange = [start: number[], bits: number];

/** Returns a function that reports whether a range contains this address, given as bytes. */
export const isInRange =
  (bytes: number[]) =>
  ([start, bits]: AddressRange): boolean =>
    bytes.length === start.length &&
    bytes.every((byte, index) => {
      const free = 8 - Math.max(0, Math.min(8, bits - 8 * index));
      return byte >> free === (start[index] ?? 0) >> free;
    });

export const parseRange = (text: string): AddressRange | undefined => {
  const [, address = "", bits] = /^([\da-f:.]+)(?:\/(\d{1,3}))?$/i.exec(text) ?? [];
  const bytes = parseIpAddress(address);
  // An IPv4 address with leading zeros, which some programs read as octal, or with missing parts is a mistake.
  if (bytes === undefined || (isPlain(toUrlHost(address)) && toUrlHost(address) !== address)) return undefined;
  const all = bytes.length * 8;
  return Number(bits ?? all) > all ? undefined : [bytes, Number(bits ?? all)];
};
