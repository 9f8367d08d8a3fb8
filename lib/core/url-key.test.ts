import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { createTestSigner } from "../../test/parity/test-key.ts";
import { buildTextToSignForUrlKey, createUrlKeyVerifier } from "./url-key.ts";

const [first, second, stranger] = [createTestSigner(1), createTestSigner(2), createTestSigner(3)];
const versions: Record<string, number[]> = { "prod-eu": [1], "prod-us": [1], raised: [2, 3], none: [] };
const listKeyVersions = (cluster: string) => (Object.hasOwn(versions, cluster) ? (versions[cluster] ?? []) : []);
const verify = createUrlKeyVerifier(first.publicKey, listKeyVersions);
const getKeyId = ({ publicKey }: typeof first) => publicKey.slice(0, 8);

describe("buildTextToSignForUrlKey", () => {
  it("returns a text with the cluster and its key version", () =>
    assert.equal(buildTextToSignForUrlKey("prod-eu", 2), "postern/1 prod-eu 2"));
});

describe("createUrlKeyVerifier", () => {
  it("throws for an invalid public key", () =>
    assert.throws(
      () => createUrlKeyVerifier(`${first.publicKey},rubbish`, listKeyVersions),
      /^Error: "rubbish" is no Ed25519 public key/,
    ));
  const valid = first.segment("prod-eu");
  it("accepts a valid key, and returns its cluster", () => {
    for (let time = 0; time < 2; time++)
      assert.deepEqual(verify(valid), { cluster: "prod-eu", key: `${getKeyId(first)}.1` });
  });
  it("accepts both versions during a rotation, and returns the version", () => {
    assert.deepEqual(
      [2, 3].map((version) => verify(first.segment("raised", version))?.key),
      [`${getKeyId(first)}.2`, `${getKeyId(first)}.3`],
    );
  });
  it("accepts signatures of either of two keys, and returns the key", () => {
    const verifyEither = createUrlKeyVerifier(`${first.publicKey},${second.publicKey}`, listKeyVersions);
    assert.deepEqual(
      [first, second, stranger].map(({ segment }) => verifyEither(segment("prod-eu"))?.key),
      [`${getKeyId(first)}.1`, `${getKeyId(second)}.1`, undefined],
    );
  });

  const signature = valid.slice("prod-eu.".length);
  const flipBit = (index: number) =>
    `prod-eu.${signature.slice(0, index)}${signature[index] === "A" ? "B" : "A"}${signature.slice(index + 1)}`;
  const wrong: [name: string, segment: string][] = [
    ["nothing", ""],
    ["a dot", "."],
    ["a cluster alone", "prod-eu"],
    ["a cluster with a dot", "prod-eu."],
    ["a signature alone", signature],
    ["a signature of zeros", `prod-eu.${"A".repeat(86)}`],
    ["a signature changed at its beginning", flipBit(0)],
    ["a signature changed in its middle", flipBit(43)],
    ["a signature cut short", valid.slice(0, -1)],
    ["a signature that goes on", `${valid}A`],
    ["a signature that is padded", `${valid}==`],
    ["a signature in plain base64", `prod-eu.${"+/".repeat(43)}`],
    ["a line break behind it", `${valid}\n`],
    ["a space before it", ` ${valid}`],
    ["another cluster's key", `prod-eu.${first.segment("prod-us").slice("prod-us.".length)}`],
    ["a cluster in capitals", `PROD-EU.${signature}`],
    ["a stranger's key", stranger.segment("prod-eu")],
    ["a key of an old version", first.segment("raised", 1)],
    ["a key of a version to come", first.segment("prod-eu", 2)],
    ["a cluster without versions", first.segment("none")],
    ["a cluster that isn't here", first.segment("elsewhere")],
    ["a cluster named as a member of every object", first.segment("constructor")],
    ["a cluster whose name is too long", first.segment("a".repeat(64))],
    ["a cluster whose name holds a space", first.segment("prod eu")],
  ];
  for (const [name, segment] of wrong)
    it(`rejects ${name} at each call`, () => {
      assert.equal(verify(segment), undefined);
      assert.equal(verify(segment), undefined);
    });

  it("rejects a key whose last character has unused bits set", () => {
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

  it("rejects all keys if it has no public key", () => {
    for (const none of ["", ",", ",,"]) assert.equal(createUrlKeyVerifier(none, listKeyVersions)(valid), undefined);
  });
  it("throws if the public keys are malformed", () => {
    assert.throws(() => createUrlKeyVerifier("garbage", listKeyVersions)(valid));
  });

  it("rejects any other text", () => {
    const near = fc
      .tuple(
        fc.constantFrom("prod-eu", "raised"),
        fc.string({ unit: fc.constantFrom(..."AZaz09-_"), minLength: 86, maxLength: 86 }),
      )
      .map((parts) => parts.join("."));
    fc.assert(
      fc.property(fc.oneof(fc.string(), near), (segment) => verify(segment) === undefined),
      { numRuns: 500 },
    );
  });

  it("caches valid keys up to a limit", () => {
    let count = 0;
    const verifyCounted = createUrlKeyVerifier(first.publicKey, () => {
      count += 1;
      return [1];
    });
    const countQuestions = (segments: string[]) => {
      const before = count;
      for (const segment of segments) verifyCounted(segment);
      return count - before;
    };
    const right = Array.from({ length: 1000 }, (_, index) => first.segment(`c${index}`));
    assert.equal(countQuestions(right), 1000);
    assert.equal(countQuestions(right.slice(-256)), 0, "the last 256 are known");
    assert.equal(countQuestions(right.slice(743, 744)), 1, "and no more");
    assert.equal(countQuestions(right.slice(0, 744)), 744, "those before are forgotten");
  });

  it("caches no invalid keys", () => {
    let count = 0;
    const verifyCounted = createUrlKeyVerifier(first.publicKey, () => {
      count += 1;
      return [1];
    });
    verifyCounted(valid);
    const garbage = Array.from(
      { length: 10_000 },
      (_, index) => `prod-eu.${Buffer.from(index.toString().padStart(64, "0")).toString("base64url")}`,
    );
    for (const segment of garbage) verifyCounted(segment);
    assert.equal(count, 10_001);
    for (const segment of garbage.slice(-100)) verifyCounted(segment);
    assert.equal(count, 10_101, "each wrong one is verified again");
    verifyCounted(valid);
    assert.equal(count, 10_101, "and has displaced no right one");
  });
});
