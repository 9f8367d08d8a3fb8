// Addresses of IPv4 and IPv6, and networks of them.

/** An address's four or sixteen bytes; undefined for any other text, a name for instance. */
export const bytesOf = (text: string): number[] | undefined => {
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
export type Range = [start: number[], bits: number];

export const isIn =
  (bytes: number[]) =>
  ([start, bits]: Range): boolean =>
    bytes.length === start.length &&
    bytes.every((byte, index) => {
      const free = 8 - Math.max(0, Math.min(8, bits - 8 * index));
      return byte >> free === (start[index] ?? 0) >> free;
    });

/** Reads an address or a range such as 10.0.0.0/8. */
export const rangeOf = (text: string): Range | undefined => {
  const [, address = "", bits] = /^([\da-f:.]+)(?:\/(\d{1,3}))?$/i.exec(text) ?? [];
  const bytes = bytesOf(address);
  // What some take for octal, or fill up with zeros, is written so by mistake.
  if (bytes === undefined || (isPlain(hostOf(address)) && hostOf(address) !== address)) return undefined;
  const all = bytes.length * 8;
  return Number(bits ?? all) > all ? undefined : [bytes, Number(bits ?? all)];
};
