/** Returns the four or sixteen bytes of an IP address; undefined for any other text, such as a host name. */
export const parseIpAddress = (text: string): number[] | undefined => {
  const host = toUrlHost(text);
  if (isIpv4(host)) return host.split(".").map(Number);
  if (!host.startsWith("[")) return undefined;
  // The groups before and after `::`, which stands for groups of zeros. toUrlHost has made each group hexadecimal, also
  // those of an IPv4 address at the end, as in `::ffff:1.2.3.4`.
  const [head = [], tail = []] = host
    .slice(1, -1)
    .split("::")
    .map((part) => (part === "" ? [] : part.split(":").map((group) => Number.parseInt(group, 16))));
  const groups = [...head, ...new Array<number>(8 - head.length - tail.length).fill(0), ...tail];
  return groups.flatMap((group) => [group >> 8, group & 255]);
};

/**
 * Returns the host of a URL that is made with a text. An IP address, which can be written in many ways, gets one form:
 * `127.1` becomes `127.0.0.1`, `::0001` becomes `[::1]`. A host name stays a name. Any other text becomes "".
 */
const toUrlHost = (text: string): string => {
  const url = `http://${text.includes(":") ? `[${text}]` : text}`;
  // Other characters are refused, so that the text can't add a path, a port or a user to the URL.
  return /^[\w.:]+$/.test(text) && URL.canParse(url) ? new URL(url).hostname : "";
};
const isIpv4 = (host: string) => /^\d+(\.\d+){3}$/.test(host);

/** A range of addresses. Their first `bits` bits are equal to the first bits of `start`. */
export type AddressRange = [start: number[], bits: number];

/** Returns a function that reports whether a range contains this address, given as bytes. */
export const isInRange =
  (bytes: number[]) =>
  ([start, bits]: AddressRange): boolean =>
    bytes.length === start.length &&
    bytes.every((byte, index) => {
      // The number of this byte's low bits that may differ.
      const freeBits = 8 - Math.max(0, Math.min(8, bits - 8 * index));
      return byte >> freeBits === (start[index] ?? 0) >> freeBits;
    });

/** Parses a range such as 10.0.0.0/8, or a single address; undefined for any other text. */
export const parseRange = (text: string): AddressRange | undefined => {
  const [, address = "", bits] = /^([\da-f:.]+)(?:\/(\d{1,3}))?$/i.exec(text) ?? [];
  const bytes = parseIpAddress(address);
  // IPv4 addresses with missing parts or with leading zeros (octal for some programs) are rejected as mistakes.
  if (bytes === undefined || (isIpv4(toUrlHost(address)) && toUrlHost(address) !== address)) return undefined;
  const maxBits = bytes.length * 8;
  return Number(bits ?? maxBits) > maxBits ? undefined : [bytes, Number(bits ?? maxBits)];
};
