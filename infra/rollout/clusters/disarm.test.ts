import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { EndpointConfig } from "#lib/core/endpoint.ts";
import { toStackSettings } from "../../aws/lambda-functions.ts";
import { type FunctionState, type RecordedKeyVersions, requireRollbackTarget } from "./disarm.ts";

const setup = { keyVersions: [1], mode: "enforce" as const, settings: {} };
const usual: EndpointConfig = { rule: "a", usual: setup, clusters: {} };
const listing: EndpointConfig = { rule: "a", clusters: { east: setup } };
const withGone: EndpointConfig = { ...usual, clusters: { east: { ...setup, keyVersions: [] } } };
const withNext: EndpointConfig = { ...usual, clusters: { east: { ...setup, keyVersions: [1, 2] } } };
const record = (inUse: Record<string, number[]>, target: EndpointConfig): RecordedKeyVersions => ({ inUse, target });

/** The variables of the version to roll back to and of the live one, what releases record, and whether it is refused. */
const rows: [
  name: string,
  target: object,
  live: object,
  recorded: RecordedKeyVersions | undefined,
  isRefused: boolean,
][] = [
  ["accepts the same clusters", { CLUSTERS: "x" }, { CLUSTERS: "x" }, undefined, false],
  ["accepts unknown ones", { CLUSTERS: "x" }, { CLUSTERS: "y" }, undefined, true],
  [
    "accepts them by the releases",
    { CLUSTERS: "x" },
    { CLUSTERS: "y" },
    record({ new: [1], east: [2] }, withNext),
    false,
  ],
  ["refuses one that is in use", { CLUSTERS: "x" }, { CLUSTERS: "y" }, record({ east: [1] }, withGone), true],
  ["refuses one of two key versions", { CLUSTERS: "x" }, { CLUSTERS: "y" }, record({ east: [1, 2] }, usual), true],
  ["lists all, as older ones do", { ACCEPTS: "east.1" }, { ACCEPTS: "east.1" }, undefined, false],
  ["lists more", { ACCEPTS: "east.1,west.1" }, { ACCEPTS: "east.1" }, undefined, false],
  ["lists fewer", { ACCEPTS: "east.1" }, { ACCEPTS: "east.1,west.1" }, record({ east: [1] }, listing), true],
  ["lists those in use", { ACCEPTS: "east.1" }, { CLUSTERS: "x" }, record({ east: [1] }, listing), false],
  ["doesn't list a new one", { ACCEPTS: "east.1" }, { CLUSTERS: "x" }, record({ east: [1], new: [1] }, listing), true],
  ["lists some, if no release is known", { ACCEPTS: "east.1" }, { CLUSTERS: "x" }, undefined, true],
  ["is newer than the live one", { CLUSTERS: "x" }, { ACCEPTS: "east.1" }, record({ east: [1] }, usual), false],
  ["is newer, and no release is known", { CLUSTERS: "x" }, { ACCEPTS: "east.1" }, undefined, true],
  ["has neither variable, like the live one", {}, {}, undefined, false],
  ["has neither variable", {}, { ACCEPTS: "east.1" }, undefined, true],
];

const modified = new Date(0);
const buildVersion = (version: string, variables: object) => {
  const named = Object.entries(variables).map(([name, value]) => [`POSTERN_${name}`, value]);
  const content = {
    codeSha256: "",
    stackSettings: toStackSettings({}),
    memorySize: 256,
    timeout: 10,
    description: "",
    modified,
  };
  return { ...content, version, environment: { POSTERN_KEYS: "key", ...Object.fromEntries(named) } };
};

describe("a version to roll back to", () => {
  for (const [name, target, live, recorded, isRefused] of rows)
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
