import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { describe, it } from "node:test";
import { splitApiVersion } from "#lib/objects/api-version.ts";
import kinds from "../apiserver/kinds/kinds.json" with { type: "json" };
import { bundleCode } from "./bundle.ts";
import { createSchemaPlugin } from "./schemas.ts";

const entry = `
  import { findSchema, resolveType } from "./lib/admission-policies/merge/schemas.ts";
  import builtIn from "./lib/admission-policies/merge/built-in-schemas.json" with { type: "json" };
  module.exports = { findSchema, resolveType, typeCount: Object.keys(builtIn.types).length };`;

/** The exports of the bundled `entry`. `typeCount` is the number of schemas that the bundle contains. */
interface Exports {
  findSchema(kind: object, customKinds: object[]): { root: unknown; types: Record<string, object> } | undefined;
  typeCount: number;
}

const buildPolicy = (patchType: string, apiGroups: string[], resources: string[], apiVersions = ["*"]) => ({
  kind: "MutatingAdmissionPolicy",
  spec: { mutations: [{ patchType }], matchConstraints: { resourceRules: [{ apiGroups, apiVersions, resources }] } },
});

/** Returns which schemas a bundle has. */
const bundle = async (...policies: object[]) => {
  const settings = { clusters: { a: { settings: { policies } } } };
  const { code } = await bundleCode(entry, [createSchemaPlugin(settings)]);
  const module: { exports?: Exports } = {};
  new Function("module", "require", code)(module, createRequire(import.meta.url));
  const { findSchema, typeCount } = module.exports as Exports;
  const has = (group: string, version: string, kind: string) => findSchema({ group, version, kind }, []) !== undefined;
  return { has, typeCount, types: findSchema({ group: "apps", version: "v1", kind: "Deployment" }, [])?.types };
};

describe("a bundle with policies", () => {
  it("a bundle has no schemas if no policy has an ApplyConfiguration", async () => {
    assert.equal((await bundle(buildPolicy("JSONPatch", ["apps"], ["deployments"]))).typeCount, 0);
  });

  it("a bundle has the schemas of the kinds that ApplyConfigurations change, with those of their parts", async () => {
    const { has, types } = await bundle(buildPolicy("ApplyConfiguration", ["apps"], ["deployments"], ["v1"]));
    const roots = Object.keys(types ?? {}).filter((name) => name.includes("/"));
    assert.deepEqual(roots, ["apps/v1/Deployment"]);
    assert.ok(has("apps", "v1", "Deployment"));
    for (const name of ["core.v1.PodSpec", "core.v1.Container", "meta.v1.ObjectMeta"]) assert.ok(types?.[name], name);
  });

  it("a bundle has the schemas of the kinds of subresources", async () => {
    const { has } = await bundle(buildPolicy("ApplyConfiguration", [""], ["pods/binding", "pods/resize"]));
    assert.ok(has("", "v1", "Binding") && has("", "v1", "Pod") && !has("", "v1", "Service"));
  });

  it("a bundle has all schemas if a policy may be about any kind", async () => {
    for (const resources of [["*"], ["*/*"], ["pods", "*/status"]]) {
      const { has } = await bundle(buildPolicy("ApplyConfiguration", ["*"], resources));
      assert.ok(has("batch", "v1", "Job") && has("", "v1", "Pod"), String(resources));
    }
  });

  it("a bundle has the schema of each resource that a policy names", async () => {
    const rows = Object.entries(kinds).flatMap(([apiVersion, resources]) => {
      const { group, version } = splitApiVersion(apiVersion);
      return Object.entries(resources).map(([kind, { resource }]) => ({ group, version, kind, resource }));
    });
    const { has } = await bundle(
      ...rows.map(({ group, version, resource }) => buildPolicy("ApplyConfiguration", [group], [resource], [version])),
    );
    assert.deepEqual(
      rows.filter(({ group, version, kind }) => !has(group, version, kind)),
      [],
    );
  });
});
