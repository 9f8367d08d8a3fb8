import { generateKeyPairSync, sign } from "node:crypto";

/** Encodes DER without a library, because some of the requests are invalid. */
export const encodeDer = (identifier: number, ...contents: (Uint8Array | readonly number[])[]): Buffer => {
  const content = Buffer.concat(contents.map((one) => Buffer.from(one)));
  const { length } = content;
  const octets = length < 0x80 ? [length] : length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
  return Buffer.concat([Buffer.from([identifier, ...octets]), content]);
};

const [utf8, sequence, set] = [0x0c, 0x30, 0x31];

/** The object identifiers, in DER, of an X.509 name's attributes: country, organization, common name. */
export const x509NameAttributeOids = { C: [0x55, 4, 6], O: [0x55, 4, 10], CN: [0x55, 4, 3] } as const;

/** Encodes one attribute of an X.509 name in DER. */
export const encodeX509NameAttribute = (kind: keyof typeof x509NameAttributeOids, value: string | Buffer) =>
  encodeDer(
    sequence,
    encodeDer(0x06, x509NameAttributeOids[kind]),
    typeof value === "string" ? encodeDer(utf8, Buffer.from(value)) : value,
  );
export const encodeX509NameSet = (...parts: Buffer[]) => encodeDer(set, ...parts);

const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
const ecdsaWithSha256 = encodeDer(sequence, encodeDer(0x06, [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2]));

/** Builds a certificate request with these names, signed by a random key. */
export const buildCertificateRequest = (...names: Buffer[]) => {
  const key = publicKey.export({ type: "spki", format: "der" });
  const information = encodeDer(sequence, encodeDer(0x02, [0]), encodeDer(sequence, ...names), key, encodeDer(0xa0));
  return encodeDer(
    sequence,
    information,
    ecdsaWithSha256,
    encodeDer(0x03, [0], sign("sha256", information, privateKey)),
  );
};

export const toPem = (bytes: Uint8Array, type = "CERTIFICATE REQUEST") => {
  const lines =
    Buffer.from(bytes)
      .toString("base64")
      .match(/.{1,64}/g) ?? [];
  return [`-----BEGIN ${type}-----`, ...lines, `-----END ${type}-----`, ""].join("\n");
};

/** Encodes a text in base64, as a CertificateSigningRequest contains the PEM of its request and its certificate. */
export const encodeBase64 = (text: string) => Buffer.from(text).toString("base64");
