import assert from "node:assert/strict";
import { after, describe, it } from "node:test";
import { toApiPath } from "#lib/objects/api-version.ts";
import { buildKindIndex } from "../../infra/apiserver/kinds/kinds.ts";
import { requireBinaries } from "../../infra/parity/control-plane/binaries.ts";
import { bootCluster } from "../../infra/parity/control-plane/cluster.ts";
import { needs } from "../parts.ts";

describe("the built-in kinds", await needs("API server"), () => {
  it("are those that a real API server serves", async () => {
    const cluster = await bootCluster(await requireBinaries(), {
      flags: ["--runtime-config=api/all=true", "--feature-gates=AllAlpha=true,AllBeta=true"],
    });
    after(() => cluster.stop());
    const ask = async (path: string): Promise<any> => (await cluster.admin({ method: "GET", path })).body;
    const groups: any[] = (await ask("/apis")).groups;
    const versions = ["v1", ...groups.flatMap((group) => group.versions.map((version: any) => version.groupVersion))];
    const kinds = buildKindIndex([]);
    for (const version of versions) {
      const { resources } = await ask(toApiPath(version));
      const own = resources.filter(({ name }: any) => !name.includes("/"));
      const wanted = own.map(({ name, kind, namespaced }: any) => ({ resource: name, kind, namespaced }));
      const compareNames = (left: any, right: any) => (left.resource < right.resource ? -1 : 1);
      assert.deepEqual(kinds.discover(version)?.toSorted(compareNames), wanted.toSorted(compareNames), version);
      for (const { name, kind } of own) {
        const below = resources.filter((resource: any) => resource.name.startsWith(`${name}/`));
        const subresources = below.map((resource: any) => resource.name.slice(name.length + 1)).sort();
        assert.deepEqual(kinds.of(version, kind)?.subresources, subresources, `${version} ${kind}`);
      }
    }
  });
});
