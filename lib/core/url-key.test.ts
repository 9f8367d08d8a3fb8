import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { createTestSigner } from "../../test/parity/test-key.ts";
import { buildTextToSignForUrlKey, createUrlKeyVerifier } from "./url-key.ts";

const [first, second, unknownSigner] = [createTestSigner(1), createTestSigner(2), createTestSigner(3)];
const versions: Record<string, number[]> = { "prod-eu": [1], "prod-us": [1], rotated: [2, 3], none: [] };
const listKeyVersions = (cluster: string) => (Object.hasOwn(versions, cluster) ? (versions[cluster] ?? []) : []);
const verify = createUrlKeyVerifier(first.publicKey, listKeyVersions);
const getKeyId = ({ publicKey }: typeof first) => publicKey.slice(0, 8);

describe("buildTextToSignForUrlKey", () => {
  it("buildTextToSignForUrlKey returns a text with the cluster and its key version", () =>
    assert.equal(buildTextToSignForUrlKey("prod-eu", 2), "postern/1 prod-eu 2"));
});

describe("createUrlKeyVerifier", () => {
  it("createUrlKeyVerifier throws for an invalid public key", () =>
    assert.throws(
      () => createUrlKeyVerifier(`${first.publicKey},rubbish`, listKeyVersions),
      /^Error: "rubbish" is no Ed25519 public key/,
    ));
  const validSegment = first.segment("prod-eu");
  it("createUrlKeyVerifier accepts a valid key, and returns its cluster", () => {
    for (let time = 0; time < 2; time++)
      assert.deepEqual(verify(validSegment), { cluster: "prod-eu", key: `${getKeyId(first)}.1` });
  });
  it("createUrlKeyVerifier accepts both key versions during a rotation, and returns the version", () => {
    assert.deepEqual(
      [2, 3].map((version) => verify(first.segment("rotated", version))?.key),
      [`${getKeyId(first)}.2`, `${getKeyId(first)}.3`],
    );
  });
  it("createUrlKeyVerifier accepts signatures of either of two public keys, and returns the key's id", () => {
    const verifyEither = createUrlKeyVerifier(`${first.publicKey},${second.publicKey}`, listKeyVersions);
    assert.deepEqual(
      [first, second, unknownSigner].map(({ segment }) => verifyEither(segment("prod-eu"))?.key),
      [`${getKeyId(first)}.1`, `${getKeyId(second)}.1`, undefined],
    );
  });

  const signature = validSegment.slice("prod-eu.".length);
  const changeCharacter = (index: number) =>
    `prod-eu.${signature.slice(0, index)}${signature[index] === "A" ? "B" : "A"}${signature.slice(index + 1)}`;
  const wrongSegments: [name: string, segment: string][] = [
    ["nothing", ""],
    ["a dot", "."],
    ["a cluster alone", "prod-eu"],
    ["a cluster with a dot", "prod-eu."],
    ["a signature alone", signature],
    ["a signature of zeros", `prod-eu.${"A".repeat(86)}`],
    ["a signature changed at its beginning", changeCharacter(0)],
    ["a signature changed in its middle", changeCharacter(43)],
    ["a signature cut short", validSegment.slice(0, -1)],
    ["a signature with a further character", `${validSegment}A`],
    ["a signature that is padded", `${validSegment}==`],
    ["a signature in plain base64", `prod-eu.${"+/".repeat(43)}`],
    ["a line break behind it", `${validSegment}\n`],
    ["a space before it", ` ${validSegment}`],
    ["another cluster's key", `prod-eu.${first.segment("prod-us").slice("prod-us.".length)}`],
    ["a cluster in capitals", `PROD-EU.${signature}`],
    ["a key of an unknown signer", unknownSigner.segment("prod-eu")],
    ["a key of an old version", first.segment("rotated", 1)],
    ["a key of a later version", first.segment("prod-eu", 2)],
    ["a cluster without versions", first.segment("none")],
    ["an unknown cluster", first.segment("elsewhere")],
    ["a cluster named as a member of Object.prototype", first.segment("constructor")],
    ["a cluster whose name is too long", first.segment("a".repeat(64))],
    ["a cluster whose name contains a space", first.segment("prod eu")],
  ];
  for (const [name, segment] of wrongSegments)
    it(`rejects ${name} at each call`, () => {
      assert.equal(verify(segment), undefined);
      assert.equal(verify(segment), undefined);
    });

  it("createUrlKeyVerifier rejects a signature with unused bits set in its last character", () => {
    const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    const bytes = Buffer.from(signature, "base64url");
    const spellings = [...alphabet]
      .map((last) => `${signature.slice(0, -1)}${last}`)
      .filter((spelling) => Buffer.from(spelling, "base64url").equals(bytes));
    assert.equal(spellings.length, 16);
    assert.deepEqual(
      spellings.filter((spelling) => createUrlKeyVerifier(first.publicKey, listKeyVersions)(`prod-eu.${spelling}`)),
      [signature],
    );
  });

  it("createUrlKeyVerifier rejects all keys if it has no public key", () => {
    for (const noKeys of ["", ",", ",,"])
      assert.equal(createUrlKeyVerifier(noKeys, listKeyVersions)(validSegment), undefined);
  });
  it("createUrlKeyVerifier throws if the public keys are malformed", () => {
    assert.throws(() => createUrlKeyVerifier("garbage", listKeyVersions)(validSegment));
  });

  it("createUrlKeyVerifier rejects any text that is no valid key", () => {
    const similar = fc
      .tuple(
        fc.constantFrom("prod-eu", "rotated"),
        fc.string({ unit: fc.constantFrom(..."AZaz09-_"), minLength: 86, maxLength: 86 }),
      )
      .map((parts) => parts.join("."));
    fc.assert(
      fc.property(fc.oneof(fc.string(), similar), (segment) => verify(segment) === undefined),
      { numRuns: 500 },
    );
  });

  it("createUrlKeyVerifier caches the last 256 valid keys", () => {
    let verifications = 0;
    const verifyCounted = createUrlKeyVerifier(first.publicKey, () => {
      verifications += 1;
      return [1];
    });
    const countVerifications = (segments: string[]) => {
      const before = verifications;
      for (const segment of segments) verifyCounted(segment);
      return verifications - before;
    };
    const segments = Array.from({ length: 1000 }, (_, index) => first.segment(`c${index}`));
    assert.equal(countVerifications(segments), 1000);
    assert.equal(countVerifications(segments.slice(-256)), 0, "the last 256 are cached");
    assert.equal(countVerifications(segments.slice(743, 744)), 1, "the one before them isn't");
    assert.equal(countVerifications(segments.slice(0, 744)), 744, "no earlier one is cached");
  });
  it("createUrlKeyVerifier caches no invalid keys", () => {
    let verifications = 0;
    const verifyCounted = createUrlKeyVerifier(first.publicKey, () => {
      verifications += 1;
      return [1];
    });
    verifyCounted(validSegment);
    const garbage = Array.from(
      { length: 10_000 },
      (_, index) => `prod-eu.${Buffer.from(index.toString().padStart(64, "0")).toString("base64url")}`,
    );
    for (const segment of garbage) verifyCounted(segment);
    assert.equal(verifications, 10_001);
    for (const segment of garbage.slice(-100)) verifyCounted(segment);
    assert.equal(verifications, 10_101, "each invalid key is verified again");
    verifyCounted(validSegment);
    assert.equal(verifications, 10_101, "the valid key is still cached");
  });
});
