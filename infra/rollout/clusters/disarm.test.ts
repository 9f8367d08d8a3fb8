import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { EndpointConfig } from "#lib/core/endpoint.ts";
import { toStackSettings } from "../../aws/lambda-functions.ts";
import { type FunctionState, type RecordedKeyVersions, requireRollbackTarget } from "./disarm.ts";

const setup = { keyVersions: [1], mode: "enforce" as const, settings: {} };
// Configs of the rule's version to roll back to. For instance, `key1OfEast` accepts only key version 1 of cluster east.
const key1OfAll: EndpointConfig = { rule: "a", usual: setup, clusters: {} };
const key1OfEast: EndpointConfig = { rule: "a", clusters: { east: setup } };
const key1OfAllButEast: EndpointConfig = { ...key1OfAll, clusters: { east: { ...setup, keyVersions: [] } } };
const key1OfAllAndKey2OfEast: EndpointConfig = { ...key1OfAll, clusters: { east: { ...setup, keyVersions: [1, 2] } } };

// Variables with a hash of the accepted key versions. Versions of an older Postern have a list of them instead.
const [hash, otherHash] = [{ CLUSTERS: "x" }, { CLUSTERS: "y" }];
const [listOfEast, listOfEastAndWest] = [{ ACCEPTS: "east.1" }, { ACCEPTS: "east.1,west.1" }];

/**
 * A version's variables have a hash of the keys that it accepts, or a list if an older Postern built it. If both
 * versions have lists, the target's list must have all keys of the live version's. Otherwise, the hashes must be equal,
 * or releases must record a config of the target (`rollbackConfig`) that accepts all keys in use.
 */
const rows: [
  name: string,
  targetVariables: object,
  liveVariables: object,
  recordedKeyVersions?: RecordedKeyVersions | undefined,
  isRefused?: true,
][] = [
  ["has the live version's hash", hash, hash],
  ["has another hash, and no release is known", hash, otherHash, undefined, true],
  [
    "accepts all keys in use",
    hash,
    otherHash,
    { inUse: { new: [1], east: [2] }, rollbackConfig: key1OfAllAndKey2OfEast },
  ],
  ["refuses a cluster in use", hash, otherHash, { inUse: { east: [1] }, rollbackConfig: key1OfAllButEast }, true],
  ["refuses one of two keys in use", hash, otherHash, { inUse: { east: [1, 2] }, rollbackConfig: key1OfAll }, true],
  ["lists the same keys as the live version", listOfEast, listOfEast],
  ["lists more keys than the live version", listOfEastAndWest, listOfEast],
  [
    "lists fewer keys than the live version",
    listOfEast,
    listOfEastAndWest,
    { inUse: { east: [1] }, rollbackConfig: key1OfEast },
    true,
  ],
  [
    "lists all keys in use, and the live version has a hash",
    listOfEast,
    hash,
    { inUse: { east: [1] }, rollbackConfig: key1OfEast },
  ],
  [
    "doesn't list a new cluster in use",
    listOfEast,
    hash,
    { inUse: { east: [1], new: [1] }, rollbackConfig: key1OfEast },
    true,
  ],
  ["lists keys, the live version has a hash, and no release is known", listOfEast, hash, undefined, true],
  ["has a hash, and the live version a list", hash, listOfEast, { inUse: { east: [1] }, rollbackConfig: key1OfAll }],
  ["has a hash, the live version a list, and no release is known", hash, listOfEast, undefined, true],
  ["has neither variable, like the live version", {}, {}],
  ["has neither variable, unlike the live version", {}, listOfEast, undefined, true],
];

const modified = new Date(0);
const buildVersion = (version: string, variables: object) => {
  const environment = Object.entries(variables).map(([name, value]) => [`POSTERN_${name}`, value]);
  const content = {
    codeSha256: "",
    stackSettings: toStackSettings({}),
    memorySize: 256,
    timeout: 10,
    description: "",
    modified,
  };
  return { ...content, version, environment: { POSTERN_KEYS: "key", ...Object.fromEntries(environment) } };
};

describe("a version to roll back to, which must accept the keys that clusters use now,", () => {
  for (const [name, targetVariables, liveVariables, recordedKeyVersions, isRefused = false] of rows)
    it(`${isRefused ? "is refused" : "is taken"} if it ${name}`, () => {
      const [target, live] = [buildVersion("1", targetVariables), buildVersion("2", liveVariables)];
      const state: FunctionState = {
        rule: "a",
        version: "2",
        weights: {},
        modified,
        live: { version: "2", weights: {}, revision: "r" },
        versions: [target, live],
        latest: live,
        ruleVersion: live,
      };
      const check = () => requireRollbackTarget(state, "1", { recordedKeyVersions });
      if (isRefused)
        assert.throws(check, /version 1 of a doesn't accept the clusters and key versions that are in use now/);
      else assert.doesNotThrow(check);
    });
});
