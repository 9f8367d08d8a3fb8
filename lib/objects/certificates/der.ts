/** A DER element: its first octet, which is its type, and the indexes between which its contents are. */
export interface DerElement {
  identifier: number;
  start: number;
  end: number;
}

/** Reads the element at an index; undefined if it isn't DER, or ends after the index `limit`. */
export const readElement = (bytes: Uint8Array, index: number, limit: number): DerElement | undefined => {
  const readByte = (position: number): number => (position < limit ? (bytes[position] ?? Number.NaN) : Number.NaN);
  const identifier = readByte(index);
  let next = index + 1;
  // A tag above 30 takes up to five more octets, all but the last with the highest bit set. No caller looks for one.
  if ((identifier & 0x1f) === 0x1f)
    for (let count = 1; readByte(next++) & 0x80; count++) if (count === 5) return undefined;
  let length = readByte(next++);
  if (length >= 0x80) {
    const octets = length & 0x7f;
    // DER forbids zero octets, which mean an indefinite length. No input is so long that its length needs five octets.
    if (octets === 0 || octets > 4 || readByte(next) === 0) return undefined;
    length = 0;
    for (let count = 0; count < octets; count++) length = length * 256 + readByte(next++);
    if (length < 0x80) return undefined;
  }
  const end = next + length;
  // If the length is truncated, `length` and `end` are NaN, and the comparison is false.
  return end <= limit ? { identifier, start: next, end } : undefined;
};

/**
 * Returns the first DER elements inside an element, one for each given identifier; undefined if one has another
 * identifier. Further elements are ignored, because later versions of a format may add some.
 */
export const readFields = <Identifiers extends readonly number[]>(
  bytes: Uint8Array,
  { start, end }: DerElement,
  ...identifiers: Identifiers
): { [Place in keyof Identifiers]: DerElement } | undefined => {
  const fields: DerElement[] = [];
  let index = start;
  for (const identifier of identifiers) {
    const field = readElement(bytes, index, end);
    if (field?.identifier !== identifier) return undefined;
    fields.push(field);
    index = field.end;
  }
  return fields as { [Place in keyof Identifiers]: DerElement };
};

/** Reports whether an element contains only elements with the given identifier for which `isValid` returns true. */
export const areDerElementsValid = (
  bytes: Uint8Array,
  { start, end }: DerElement,
  identifier: number,
  isValid: (element: DerElement) => boolean,
): boolean => {
  for (let index = start; index < end; ) {
    const element = readElement(bytes, index, end);
    if (element?.identifier !== identifier || !isValid(element)) return false;
    index = element.end;
  }
  return true;
};

const decodeAscii = (allowed: RegExp) => (bytes: Uint8Array) => {
  const text = decodeLatin1(bytes);
  return allowed.test(text) ? text : undefined;
};
const decodeLatin1 = (bytes: Uint8Array) => Buffer.from(bytes).toString("latin1");

const decodeUtf8 = (bytes: Uint8Array) => {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return undefined;
  }
};

/** Decodes a DER BMPString (UCS-2); undefined if it has surrogates or noncharacters. A zero at the end is dropped. */
const decodeBmp = (bytes: Uint8Array) => {
  if (bytes.length % 2 !== 0) return undefined;
  const text = Buffer.from(bytes).swap16().toString("utf16le").replace(/\0$/, "");
  return /[\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]/.test(text) ? undefined : text;
};

/**
 * The decoders of ASN.1 strings by their DER tag. As in Go, a TeletexString (0x14) is Latin-1, and a PrintableString
 * (0x13) may have `*` and `&`.
 */
export const derStringDecoders: ReadonlyMap<number, (bytes: Uint8Array) => string | undefined> = new Map([
  [0x0c, decodeUtf8],
  [0x12, decodeAscii(/^[0-9 ]*$/)],
  [0x13, decodeAscii(/^[A-Za-z0-9 '()+,\-./:=?*&]*$/)],
  [0x14, decodeLatin1],
  [0x16, decodeAscii(/^[^\x80-\xff]*$/)],
  [0x1e, decodeBmp],
]);
