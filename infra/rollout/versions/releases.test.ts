import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { parseConfig } from "../../project/project.ts";
import { findRefusedClusters, getAcceptedKeyVersions, type Release } from "./releases.ts";

const setup = { keyVersions: [1], mode: "enforce" as const, settings: {} };
const buildRelease = (overrides: Partial<Release> = {}): Release => {
  return { id: 1, at: "", by: "team", complete: true, rules: {}, clusters: {}, ...overrides };
};
/** A release of an older version of Postern, which lists all clusters in the config of each rule (`share`). */
const oldRelease = buildRelease({
  rules: {
    a: {
      version: "1",
      logic: "",
      phases: ["validate"],
      earlier: [],
      share: { rule: "a", clusters: { east: setup, west: { ...setup, keyVersions: [1, 2] } } },
    },
  },
});

describe("the clusters that a release's functions refuse", () => {
  const find = (newest: Release | undefined, clusters: string, acceptedKeys = "one") =>
    findRefusedClusters(newest, parseConfig(`clusters: { ${clusters} }`, []), acceptedKeys);
  const keys = { accepted: "one", signer: "one" };
  // The key pair `one` signed the URLs of east (key version 1) and west (key version 2). Either `zero` or `one` signed
  // those of south, which was removed from postern.yaml before this release.
  const newest = buildRelease({ keys, accepts: { east: [1], west: [2] }, refused: { south: "zero,one" } });

  it("no cluster is refused at first", () => assert.deepEqual(find(undefined, "east: "), {}));
  it("functions refuse clusters that postern.yaml doesn't name any more, also those of earlier releases", () => {
    assert.deepEqual(find(newest, "east: , west: , south: "), {});
    assert.deepEqual(find(newest, "east: , north: "), { west: "one", south: "zero,one" });
  });
  it("the clusters of a release of an older Postern are found in the configs of its rules", () =>
    assert.deepEqual(find(oldRelease, "east: "), { west: "one" }));
  it("a refused cluster is forgotten once no key is accepted that may have signed its URLs", () => {
    assert.deepEqual(find(newest, "east: , west: ", "one,two"), { south: "zero,one" });
    assert.deepEqual(find(newest, "east: ", "zero,two"), { south: "zero,one" });
    assert.deepEqual(find(newest, "east: ", "two"), {});
  });
});

describe("the key versions that a release's functions accept", () => {
  it("the accepted key versions are those that the release records, or those in its rules' configs", () => {
    assert.deepEqual(getAcceptedKeyVersions(buildRelease({ accepts: { east: [3] } })), { east: [3] });
    assert.deepEqual(getAcceptedKeyVersions(oldRelease), { east: [1], west: [1, 2] });
  });
});
