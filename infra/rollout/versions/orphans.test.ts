import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { ClusterSetup, EndpointConfig } from "#lib/core/endpoint.ts";
import { readRows } from "../../../test/rows.ts";
import type { DeployedObject } from "../../clusters/api.ts";
import {
  type AnsweringLambdaVersion,
  findOrphanedEntries,
  type OrphanedWebhookEntry,
  removeOrphanedEntries,
} from "./orphans.ts";
import type { ReleasedCluster } from "./releases.ts";

interface WebhookEntryNames {
  mutating?: string[]; // in the MutatingWebhookConfiguration, for instance "x.b" for the name x.b.postern.dev
  validating?: string[];
}
interface VersionRow {
  phases: AnsweringLambdaVersion["phases"];
  /** How the setup of the cluster `shop` differs from the default of these tests. */
  shopSetup?: Partial<ClusterSetup>;
  variants?: EndpointConfig["variants"];
}
interface FoundRow {
  name: string;
  entries?: WebhookEntryNames;
  keyVersion?: number;
  versions: Record<string, VersionRow>;
  orphans: string[]; // the entries that the versions would not answer, and why: "x.b/validate has no variant x"
}
const { found, removed } = readRows<{
  found: FoundRow[];
  removed: { name: string; orphans: string[]; left: WebhookEntryNames }[]; // orphans: such as "x.b/validate"
}>(import.meta.filename);

const buildConfiguration = (kind: "Mutating" | "Validating", entries: string[]): DeployedObject => ({
  apiVersion: "admissionregistration.k8s.io/v1",
  kind: `${kind}WebhookConfiguration`,
  metadata: { name: "postern" },
  webhooks: entries.map((entry) => ({ name: `${entry}.postern.dev` })),
});
const buildManifests = ({ mutating, validating }: WebhookEntryNames): DeployedObject[] => [
  { apiVersion: "v1", kind: "ClusterRole", metadata: { name: "postern:a" } },
  ...(mutating ? [buildConfiguration("Mutating", mutating)] : []),
  ...(validating ? [buildConfiguration("Validating", validating)] : []),
];
const allEntries = { mutating: ["a"], validating: ["a", "x.b", "y.b"] }; // of rule a, and of variants x and y of rule b
const buildRecord = (entries: WebhookEntryNames = allEntries, keyVersion = 1): ReleasedCluster => {
  return { at: "", keyVersion, hardened: [], since: {}, manifests: buildManifests(entries) };
};
const buildVersion = ({ phases, shopSetup, variants }: VersionRow): AnsweringLambdaVersion => {
  const shop = { keyVersions: [1], mode: "enforce" as const, settings: {}, ...shopSetup };
  return { phases, config: { rule: "a", clusters: { shop }, ...(variants && { variants }) } };
};

describe("entries without a serving function", () => {
  for (const { name, entries, keyVersion, versions, orphans } of found)
    it(name, () => {
      const served = Object.entries(versions).map(([rule, version]) => [rule, buildVersion(version)] as const);
      assert.deepEqual(
        findOrphanedEntries("shop", buildRecord(entries, keyVersion), new Map(served)).map(
          ({ entry, phase, why, isKeyRefused }) => `${entry}/${phase} ${why}${isKeyRefused ? " (key)" : ""}`,
        ),
        orphans,
      );
    });

  for (const name of ["other", "constructor"])
    it(`are all entries of a cluster that the function doesn't know, such as ${name}`, () => {
      const versions = new Map([["a", buildVersion({ phases: ["mutate"] })]]);
      const expected = { entry: "a", phase: "mutate", why: `doesn't know cluster ${name}`, isKeyRefused: true };
      assert.deepEqual(findOrphanedEntries(name, buildRecord({ mutating: ["a"] }), versions), [expected]);
    });
});

describe("entries of a cluster without settings in postern.yaml", () => {
  const usual = { keyVersions: [1], mode: "enforce" as const, settings: {} };
  const refused = { ...usual, keyVersions: [], mode: "off" as const };
  // The cluster `gone` left postern.yaml, so functions accept no key of it, nor of `same`, which has the same setup.
  const config: EndpointConfig = { rule: "a", usual, clusters: { gone: refused, same: "gone" } };
  const served = new Map<string, AnsweringLambdaVersion>([["a", { phases: ["mutate"], config }]]);
  const find = (cluster: string, keyVersion = 1) =>
    findOrphanedEntries(cluster, buildRecord({ mutating: ["a"] }, keyVersion), served).map(
      ({ why, isKeyRefused }) => `${why}${isKeyRefused ? " (key)" : ""}`,
    );

  it("entries of a cluster without settings in postern.yaml are answered with the general setup", () => {
    assert.deepEqual(find("new"), []);
    assert.deepEqual(find("new", 2), ["doesn't accept its key of version 2 (key)"]);
  });
  it("entries of a cluster without settings in postern.yaml are orphans if functions refuse the cluster's keys", () => {
    for (const name of ["gone", "same"]) assert.deepEqual(find(name), [`doesn't know cluster ${name} (key)`]);
  });
});

describe("manifests without orphans", () => {
  for (const { name, orphans, left } of removed)
    it(name, () => {
      const manifests = buildManifests(allEntries);
      const entries = orphans.map((orphan): OrphanedWebhookEntry => {
        const [entry = "", phase] = orphan.split("/");
        return { entry, phase: phase === "mutate" ? "mutate" : "validate", why: "", isKeyRefused: false };
      });
      assert.deepEqual(removeOrphanedEntries(manifests, entries), buildManifests(left));
      assert.deepEqual(manifests, buildManifests(allEntries));
    });
});
