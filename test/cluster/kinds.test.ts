import assert from "node:assert/strict";
import { after, describe, it } from "node:test";
import { joinApiVersion, toApiPath } from "#lib/objects/api-version.ts";
import { buildKindIndex, inferKinds } from "../../infra/apiserver/kinds/kinds.ts";
import { chooseMinors } from "../choices.ts";
import { requireBinaries } from "../control-plane/binaries.ts";
import { bootClusters, type TestCluster } from "../control-plane/cluster.ts";
import { needsApiServer } from "../parts.ts";

interface ApiResource {
  name: string;
  kind: string;
  namespaced: boolean;
}

/** Returns the resources that an API server serves, by their group and version. */
const discover = async ({ admin }: TestCluster): Promise<Map<string, ApiResource[]>> => {
  const read = async (path: string): Promise<any> => (await admin({ method: "GET", path })).body;
  const groups: any[] = (await read("/apis")).groups;
  const versions = ["v1", ...groups.flatMap((group) => group.versions.map((version: any) => version.groupVersion))];
  return new Map(
    await Promise.all(versions.map(async (version) => [version, (await read(toApiPath(version))).resources] as const)),
  );
};

describe("the built-in kinds", async () => {
  // Of a run's two minors of Kubernetes, the suites of group 0 test one, and the suites of group 1 the other.
  for (const minor of chooseMinors({ suiteGroup: 0 }))
    it(`the built-in kinds are those that Kubernetes ${minor} serves`, await needsApiServer(minor), async () => {
      const everything = ["--runtime-config=api/all=true", "--feature-gates=AllAlpha=true,AllBeta=true"];
      const clusters = await bootClusters(await requireBinaries(minor), [{ flags: everything }, {}]);
      after(() => Promise.all(clusters.map(({ stop }) => stop())));
      // The first API server also serves the kinds that are off by default.
      const [all = new Map<never, never>(), byDefault] = await Promise.all(clusters.map(discover));
      const kinds = buildKindIndex([], minor);
      const knownVersions = new Set([...inferKinds([], minor).values()].map(({ kind }) => joinApiVersion(kind)));
      // Postern always knows the API version of kinitiras' policies, which the API server doesn't serve.
      knownVersions.delete("policy.kcloudlabs.io/v1alpha1");
      assert.deepEqual([...knownVersions].sort(), [...all.keys()].sort());
      for (const [version, resources] of all) {
        const mainResources = resources.filter(({ name }) => !name.includes("/"));
        const wanted = mainResources.map(({ name, kind, namespaced }) => ({ resource: name, kind, namespaced }));
        const compareNames = (left: any, right: any) => (left.resource < right.resource ? -1 : 1);
        assert.deepEqual(kinds.discover(version)?.toSorted(compareNames), wanted.toSorted(compareNames), version);
        for (const { name, kind } of mainResources) {
          const names = resources.flatMap((one) => (one.name.startsWith(`${name}/`) ? [one.name] : []));
          const subresources = names.map((subresource) => subresource.slice(name.length + 1)).sort();
          assert.deepEqual(kinds.of(version, kind)?.subresources, subresources, `${version} ${kind}`);
          const off = !byDefault?.get(version)?.some((resource) => resource.name === name);
          assert.equal(kinds.of(version, kind)?.isServedByDefault, !off, `${version} ${kind} is off`);
        }
      }
    });
});
