import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { EndpointConfig } from "#lib/core/endpoint.ts";
import { toStackSettings } from "../../aws/lambda-functions.ts";
import { type FunctionState, type RecordedKeyVersions, requireRollbackTarget } from "./disarm.ts";

const setup = { keyVersions: [1], mode: "enforce" as const, settings: {} };
// Configs of the version to roll back to, by the key versions that they accept.
const anyCluster: EndpointConfig = { rule: "a", usual: setup, clusters: {} };
const onlyEast: EndpointConfig = { rule: "a", clusters: { east: setup } };
const anyButEast: EndpointConfig = { ...anyCluster, clusters: { east: { ...setup, keyVersions: [] } } };
const eastAlsoWithTwo: EndpointConfig = { ...anyCluster, clusters: { east: { ...setup, keyVersions: [1, 2] } } };
const record = (inUse: Record<string, number[]>, rollbackConfig: EndpointConfig): RecordedKeyVersions => {
  return { inUse, rollbackConfig };
};

// Variables with a hash of the accepted key versions. Versions of an older Postern have a list of them instead.
const [hash, otherHash] = [{ CLUSTERS: "x" }, { CLUSTERS: "y" }];
const [east, eastAndWest] = [{ ACCEPTS: "east.1" }, { ACCEPTS: "east.1,west.1" }];

/** The variables of the version to roll back to and of the live one, what releases record, and whether it is refused. */
const rows: [
  name: string,
  target: object,
  live: object,
  recorded?: RecordedKeyVersions | undefined,
  isRefused?: true,
][] = [
  ["has the live version's hash", hash, hash],
  ["has another hash, and no release is known", hash, otherHash, undefined, true],
  ["accepts all keys in use", hash, otherHash, record({ new: [1], east: [2] }, eastAlsoWithTwo)],
  ["refuses a cluster in use", hash, otherHash, record({ east: [1] }, anyButEast), true],
  ["refuses one of two keys in use", hash, otherHash, record({ east: [1, 2] }, anyCluster), true],
  ["lists the same keys as the live version", east, east],
  ["lists more keys than the live version", eastAndWest, east],
  ["lists fewer keys than the live version", east, eastAndWest, record({ east: [1] }, onlyEast), true],
  ["lists all keys in use, and the live version has a hash", east, hash, record({ east: [1] }, onlyEast)],
  ["doesn't list a new cluster in use", east, hash, record({ east: [1], new: [1] }, onlyEast), true],
  ["lists keys, the live version has a hash, and no release is known", east, hash, undefined, true],
  ["has a hash, and the live version a list", hash, east, record({ east: [1] }, anyCluster)],
  ["has a hash, the live version a list, and no release is known", hash, east, undefined, true],
  ["has neither variable, like the live version", {}, {}],
  ["has neither variable, unlike the live version", {}, east, undefined, true],
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

describe("a version to roll back to", () => {
  for (const [name, target, live, recorded, isRefused = false] of rows)
    it(`${isRefused ? "is refused" : "is taken"} if it ${name}`, () => {
      const [old, ruleVersion] = [buildVersion("1", target), buildVersion("2", live)];
      const state: FunctionState = {
        rule: "a",
        version: "2",
        weights: {},
        modified,
        live: { version: "2", weights: {}, revision: "r" },
        versions: [old, ruleVersion],
        latest: ruleVersion,
        ruleVersion,
      };
      const check = () => requireRollbackTarget(state, "1", { recorded });
      if (isRefused)
        assert.throws(check, /version 1 of a doesn't accept the clusters and key versions that are in use now/);
      else assert.doesNotThrow(check);
    });
});
