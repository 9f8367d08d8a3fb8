import { areDerElementsValid, type DerElement, derStringDecoders, readElement, readFields } from "./der.ts";

export interface CertificateSubject {
  commonName: string;
  organizations: string[];
}

/**
 * Reads the subject in `spec.request` of a CertificateSigningRequest, as Go does. If there is none, returns a sentence
 * that says why. Other parts, such as the key, are not read: API validation checks them.
 */
export const parseCertificateSubject = (request: unknown): { subject: CertificateSubject } | { fault: string } => {
  const block =
    typeof request === "string" ? findFirstBlock(Buffer.from(request, "base64").toString("latin1")) : undefined;
  if (block?.type !== "CERTIFICATE REQUEST") return { fault: "PEM block type must be CERTIFICATE REQUEST" };
  const subject = readSubject(block.bytes);
  return subject ? { subject } : { fault: "the PEM block holds no PKCS #10 certificate request in DER" };
};

const [begin, lineFeedAndEnd, dashes] = ["-----BEGIN ", "\n-----END ", "-----"];

/** Finds the first valid PEM block as Go does. Text around it, blocks without an end, and headers are skipped. */
const findFirstBlock = (text: string): { type: string; bytes: Uint8Array } | undefined => {
  let from = 0;
  for (;;) {
    const bodyEnd = text.indexOf(lineFeedAndEnd, from);
    if (bodyEnd < 0) return undefined;
    /** The index after `-----END `, where the type is repeated. */
    const endTypeIndex = bodyEnd + lineFeedAndEnd.length;
    const beginIndex = text.slice(from, bodyEnd).lastIndexOf(begin) + from;
    // After a skipped block, `from` is inside its END line. Like Go, this counts it as the start of a line.
    const startsLine = beginIndex === from || text[beginIndex - 1] === "\n";
    const opening = beginIndex >= from && startsLine ? readLine(text, beginIndex + begin.length) : undefined;
    from = endTypeIndex;
    if (!opening?.line.endsWith(dashes)) continue;
    let bodyStart = opening.next;
    for (let header = readLine(text, bodyStart); header.line.includes(":"); header = readLine(text, bodyStart))
      bodyStart = header.next;
    // Go stops if no text follows the headers, or if the loop has read the END line as a header, as it has a colon.
    const isEndLineHeader = bodyStart > endTypeIndex;
    if (bodyStart === text.length || isEndLineHeader) return undefined;
    // If the END line follows at once, it begins at `bodyStart`, and the line feed at `bodyEnd` is that before it. Go
    // accepts such an empty body after the BEGIN line. After headers, it skips this block, and tries the next one.
    const [hasHeaders, isEmpty] = [bodyStart > opening.next, bodyStart > bodyEnd];
    if (hasHeaders && isEmpty) continue;
    const type = opening.line.slice(0, -dashes.length);
    const isClosed = text.startsWith(type + dashes, endTypeIndex);
    if (!isClosed || readLine(text, endTypeIndex + type.length + dashes.length).line !== "") continue;
    const bytes = decodeBase64(text.slice(bodyStart, Math.max(bodyStart, bodyEnd)));
    if (bytes) return { type, bytes };
  }
};

/** Returns the line at an index without its line end and spaces before it, and the index of the next line. */
const readLine = (text: string, start: number) => {
  const lineFeed = text.indexOf("\n", start);
  const [stop, next] = lineFeed < 0 ? [text.length, text.length] : [lineFeed, lineFeed + 1];
  const hasCarriageReturn = lineFeed >= 0 && text[stop - 1] === "\r" && stop > start;
  let end = hasCarriageReturn ? stop - 1 : stop;
  while (end > start && (text[end - 1] === " " || text[end - 1] === "\t")) end -= 1;
  return { line: text.slice(start, end), next };
};

const decodeBase64 = (text: string): Uint8Array | undefined => {
  const base64 = text.replace(/[ \t\r\n]+/g, "");
  if (base64.length % 4 !== 0 || !/^[A-Za-z0-9+/]*={0,2}$/.test(base64)) return undefined;
  return Buffer.from(base64, "base64");
};

// The first octets of DER elements, by their types.
const [integer, bitString, objectIdentifier, sequence, set, attributes] = [0x02, 0x03, 0x06, 0x30, 0x31, 0xa0] as const;

/** Reads the subject in a CertificationRequest (the format of PKCS #10): the Name in its CertificationRequestInfo. */
const readSubject = (bytes: Uint8Array): CertificateSubject | undefined => {
  const certificateRequest = readElement(bytes, 0, bytes.length);
  if (certificateRequest?.identifier !== sequence || certificateRequest.end !== bytes.length) return undefined;
  const [information] = readFields(bytes, certificateRequest, sequence, sequence, bitString) ?? [];
  const [, name] = (information && readFields(bytes, information, integer, sequence, sequence, attributes)) ?? [];
  return name && toSubject(bytes, name);
};

/** Reads a certificate request's subject. The last common name counts; a value that isn't a string is ignored. */
const toSubject = (bytes: Uint8Array, name: DerElement): CertificateSubject | undefined => {
  const subject: CertificateSubject = { commonName: "", organizations: [] };
  /** Adds an attribute to the subject. Returns false if the attribute is malformed. */
  const addAttribute = (attribute: DerElement): boolean => {
    const [type] = readFields(bytes, attribute, objectIdentifier) ?? [];
    const value = type && readElement(bytes, type.end, attribute.end);
    if (!value || !isObjectIdentifier(bytes, type)) return false;
    const decode = derStringDecoders.get(value.identifier);
    if (!decode) return true;
    const text = decode(bytes.subarray(value.start, value.end));
    if (text === undefined) return false;
    const kind = Buffer.from(bytes.subarray(type.start, type.end)).toString("hex");
    if (kind === commonName) subject.commonName = text;
    if (kind === organization) subject.organizations.push(text);
    return true;
  };
  // A name is a list of sets, and each set is a list of attributes.
  const isValid = areDerElementsValid(bytes, name, set, (attributeSet) =>
    areDerElementsValid(bytes, attributeSet, sequence, addAttribute),
  );
  return isValid ? subject : undefined;
};

/** The object identifiers 2.5.4.3 and 2.5.4.10 in hexadecimal DER. */
const [commonName, organization] = ["550403", "55040a"];

/**
 * Reports whether bytes are a valid object identifier: each number has as few octets as possible, and its last octet is
 * less than 0x80.
 */
const isObjectIdentifier = (bytes: Uint8Array, { start, end }: DerElement): boolean => {
  for (let index = start; index < end; index++)
    if (bytes[index] === 0x80 && (index === start || Number(bytes[index - 1]) < 0x80)) return false;
  return end > start && Number(bytes[end - 1]) < 0x80;
};
