import assert from "node:assert/strict";
import { webcrypto } from "node:crypto";
import { describe, it } from "node:test";
import "reflect-metadata";
import * as x509 from "@peculiar/x509";
import fc from "fast-check";
import {
  buildCertificateRequest,
  encodeBase64,
  encodeDer,
  encodeX509NameAttribute,
  encodeX509NameSet,
  toPem,
} from "../../../test/parity/generators/certificate-requests.ts";
import { parseCertificateSubject } from "./certificate-request.ts";

x509.cryptoProvider.set(webcrypto);
const keys = await webcrypto.subtle.generateKey({ name: "ECDSA", namedCurve: "P-256" }, false, ["sign", "verify"]);
const createLibraryRequest = (json: x509.JsonNameParams) =>
  x509.Pkcs10CertificateRequestGenerator.create({
    name: new x509.Name(json),
    keys,
    signingAlgorithm: { name: "ECDSA", hash: "SHA-256" },
  });

/** The answers for a text without a PEM block of a request, and for a block that is malformed. */
const noBlock = { fault: "PEM block type must be CERTIFICATE REQUEST" };
const noRequest = { fault: "the PEM block holds no PKCS #10 certificate request in DER" };

const readSubject = (...names: Buffer[]) =>
  parseCertificateSubject(encodeBase64(toPem(buildCertificateRequest(...names))));
const readCommonName = (derType: number, ...octets: number[]) =>
  readSubject(encodeX509NameSet(encodeX509NameAttribute("CN", encodeDer(derType, octets))));
const assertMalformed = (answer: object) => assert.deepEqual(answer, noRequest);

describe("a certificate request", () => {
  const texts = {
    utf8String: fc.string({ unit: "binary", minLength: 1, maxLength: 200 }),
    printableString: fc.stringMatching(/^[A-Za-z0-9 '()+,\-./:=?]{1,200}$/),
    ia5String: fc.stringMatching(/^[ -~]{1,40}$/),
    bmpString: fc.stringMatching(/^[ -~\u00e0-\u0fff]{1,40}$/),
  };
  const value = fc.oneof(
    ...Object.entries(texts).map(([kind, text]) => text.map((text) => ({ text, json: { [kind]: text } }))),
  );
  const attribute = fc.tuple(fc.constantFrom("CN", "O", "OU", "C", "L", "1.2.3.4.5"), value);

  it("a certificate request has the subject that @peculiar/x509 encoded", async () => {
    const names = fc.array(fc.array(attribute, { minLength: 1, maxLength: 4 }), { maxLength: 12 });
    await fc.assert(
      fc.asyncProperty(names, async (names) => {
        const json = names.map((parts) => {
          const attributes = Map.groupBy(parts, ([type]) => type);
          return Object.fromEntries([...attributes].map(([type, list]) => [type, list.map(([, { json }]) => json)]));
        });
        const request = await createLibraryRequest(json);
        // The library sorts the elements of a set.
        const subject = new x509.Pkcs10CertificateRequest(request.rawData).subjectName;
        assert.deepEqual(parseCertificateSubject(encodeBase64(request.toString("pem"))), {
          subject: { commonName: subject.getField("CN").at(-1) ?? "", organizations: subject.getField("O") },
        });
        const wanted = names.flat().flatMap(([type, { text }]) => (type === "O" ? [text] : []));
        assert.deepEqual(subject.getField("O").toSorted(), wanted.toSorted());
      }),
      { numRuns: 150 },
    );
  });

  it("a certificate request has its last common name and all its organizations, even if one set has several", () => {
    assert.deepEqual(
      readSubject(
        encodeX509NameSet(encodeX509NameAttribute("CN", "a"), encodeX509NameAttribute("O", "system:masters")),
        encodeX509NameSet(
          encodeX509NameAttribute("O", "b"),
          encodeX509NameAttribute("C", "c"),
          encodeX509NameAttribute("CN", "d"),
        ),
        encodeX509NameSet(),
      ),
      { subject: { commonName: "d", organizations: ["system:masters", "b"] } },
    );
  });

  it("a certificate request may have an empty subject", () => {
    assert.deepEqual(readSubject(), { subject: { commonName: "", organizations: [] } });
  });

  // The first number is the DER type: 0x0c UTF8String, 0x12 NumericString, 0x13 PrintableString, 0x14 TeletexString,
  // 0x16 IA5String, 0x1e BMPString.
  it("a certificate request reads strings of each type that Go reads", () => {
    const buildResult = (commonName: string) => ({ subject: { commonName, organizations: [] } });
    const [a, b] = [0x61, 0x62];
    assert.deepEqual(readCommonName(0x0c, 0xef, 0xbb, 0xbf, a), buildResult("\ufeffa"));
    assert.deepEqual(readCommonName(0x12, 0x31, 0x20), buildResult("1 "));
    assert.deepEqual(readCommonName(0x13, 0x2a, 0x26), buildResult("*&"));
    assert.deepEqual(readCommonName(0x14, a, 0xe9), buildResult("aé"));
    assert.deepEqual(readCommonName(0x16, a, 0x40), buildResult("a@"));
    assert.deepEqual(readCommonName(0x1e, 0, a, 0, b), buildResult("ab"));
    assert.deepEqual(readCommonName(0x1e, 0, a, 0, 0), buildResult("a"));
    assert.deepEqual(readCommonName(0x0c), buildResult(""));
  });

  it("a certificate request ignores values of types that Go doesn't read as strings", () => {
    for (const derType of [0x04, 0x05, 0x1b, 0x1c, 0x30, 0x2c, 0x8c])
      assert.deepEqual(readCommonName(derType, 0, 0, 0, 0x61), { subject: { commonName: "", organizations: [] } });
  });

  it("a certificate request fails for malformed strings", () => {
    assertMalformed(readCommonName(0x0c, 0xff)); // UTF8String: no UTF-8
    assertMalformed(readCommonName(0x0c, 0xed, 0xa0, 0x80)); // UTF8String: a surrogate
    assertMalformed(readCommonName(0x12, 0x61)); // NumericString: a
    assertMalformed(readCommonName(0x13, 0x40)); // PrintableString: @
    assertMalformed(readCommonName(0x16, 0x80)); // IA5String: not ASCII
    assertMalformed(readCommonName(0x1e, 0)); // BMPString: half a character
    assertMalformed(readCommonName(0x1e, 0xd8, 0)); // BMPString: a surrogate
    assertMalformed(readCommonName(0x1e, 0xff, 0xff)); // BMPString: no character
  });
});

describe("the PEM of a certificate request", () => {
  const bytes = buildCertificateRequest(encodeX509NameSet(encodeX509NameAttribute("CN", "a")));
  const validPem = toPem(bytes);
  const parse = (text: string) => parseCertificateSubject(encodeBase64(text));
  const expectedSubject = { subject: { commonName: "a", organizations: [] } };
  const otherPem = toPem(buildCertificateRequest(encodeX509NameSet(encodeX509NameAttribute("CN", "b"))));

  it("the PEM of a certificate request may have surrounding text, headers and CRLF line ends", () => {
    assert.deepEqual(parse(`hello\n-----BEGIN X-----\n${validPem}more`), expectedSubject);
    assert.deepEqual(parse(validPem.replaceAll("\n", " \t\r\n")), expectedSubject);
    assert.deepEqual(parse(validPem.replace("T-----\n", "T-----\nA: b\nC:\n\n")), expectedSubject);
    assert.deepEqual(parse(validPem.trimEnd()), expectedSubject);
    assert.deepEqual(parse(validPem.replace("\n", "\n\n \n")), expectedSubject);
  });

  it("a PEM is parsed only if its first block is a certificate request; later blocks are ignored", () => {
    assert.deepEqual(parse(validPem + otherPem), expectedSubject);
    assert.deepEqual(parse(toPem(bytes, "CERTIFICATE") + validPem), noBlock);
    assert.deepEqual(parse(toPem(bytes, "NEW CERTIFICATE REQUEST") + validPem), noBlock);
  });

  it("a PEM may have text that is no complete block before the block of the certificate request", () => {
    assert.deepEqual(parse(otherPem.replace("-----END C", "-----END X") + validPem), expectedSubject);
    assert.deepEqual(parse(otherPem.replace(/\nM/, "\n!") + validPem), expectedSubject);
    assert.deepEqual(parse(`x${otherPem}${validPem}`), expectedSubject);
    assert.deepEqual(parse(otherPem.replace("T-----\n", "T---\n") + validPem), expectedSubject);
  });

  it("a PEM without the block of a certificate request, or with a malformed one, is refused", () => {
    for (const text of ["", "hello", bytes.toString("base64"), validPem.slice(0, -20), `${validPem.slice(0, -1)}x`])
      assert.deepEqual(parse(text), noBlock);
    for (const value of [undefined, null, 5, {}, [validPem], { length: 1e9 }])
      assert.deepEqual(parseCertificateSubject(value), noBlock);
    assertMalformed(parse("-----BEGIN CERTIFICATE REQUEST-----\n-----END CERTIFICATE REQUEST-----\n"));
    assertMalformed(parse(toPem(Buffer.from("hello"))));
  });

  it("the PEM of a certificate request is read in linear time, even with many begin and end lines", () => {
    for (const piece of [
      "-----BEGIN X-----\n",
      "\n-----END X-----",
      "-----BEGIN A-----\na:\n-----END A-----\n",
      "a:\n",
    ])
      assert.deepEqual(parse(piece.repeat(200_000)), noBlock);
  });
});

describe("the DER of a certificate request", () => {
  const validBytes = buildCertificateRequest(
    encodeX509NameSet(encodeX509NameAttribute("CN", "system:node:n1")),
    encodeX509NameSet(encodeX509NameAttribute("O", encodeDer(0x13, Buffer.from("system:nodes")))),
  );
  const parse = (bytes: Uint8Array) => parseCertificateSubject(encodeBase64(toPem(bytes)));

  it("the DER of a certificate request is refused if it is cut short at any byte", () => {
    for (let length = 0; length < validBytes.length; length++) assertMalformed(parse(validBytes.subarray(0, length)));
  });

  it("a DER with bytes at its end is refused", () =>
    assertMalformed(parse(Buffer.concat([validBytes, Buffer.from([0])]))));

  it("the DER of a certificate request is refused if lengths are too long, too large or indefinite", () => {
    const content = validBytes.subarray(2 + (Number(validBytes[1]) & 0x80 ? Number(validBytes[1]) & 0x7f : 0));
    for (const length of [
      [0x80], // indefinite
      [0x83, 0, 0, content.length], // with leading zeros
      [0x84, 0x7f, 0xff, 0xff, 0xff], // 2 GB
      [0x88, ...content], // a length of eight bytes
      [0xff], // reserved
    ])
      assertMalformed(parse(Buffer.from([0x30, ...length, ...content, 0, 0])));
  });

  it("the DER of a certificate request must not nest deeply, but may have 10,000 empty sets", () => {
    assertMalformed(parse(Buffer.alloc(1_000_000, 0x30))); // 0x30 begins a sequence
    assertMalformed(parse(Buffer.alloc(1_000_000, Buffer.from([0x30, 0x80]))));
    assert.deepEqual(readSubject(...Array(10_000).fill(encodeX509NameSet())), {
      subject: { commonName: "", organizations: [] },
    });
  });

  it("the DER of a certificate request throws no error for any bytes", () => {
    const flips = fc.array(fc.tuple(fc.nat(validBytes.length - 1), fc.integer({ min: 1, max: 255 })), { maxLength: 4 });
    fc.assert(
      fc.property(flips, (flips) => {
        const bytes = Buffer.from(validBytes);
        for (const [index, bits] of flips) bytes[index] = Number(bytes[index]) ^ bits;
        const answer = parse(bytes);
        assert.ok("subject" in answer || answer.fault === noRequest.fault);
      }),
      { numRuns: 1000 },
    );
    fc.assert(fc.property(fc.uint8Array({ maxLength: 300 }), (bytes) => assert.ok(parse(bytes))));
    fc.assert(fc.property(fc.string(), (text) => assert.ok("fault" in parseCertificateSubject(text))));
  });
});
