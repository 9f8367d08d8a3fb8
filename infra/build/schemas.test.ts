import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { describe, it } from "node:test";
import { bundleCode } from "./bundle.ts";
import { createSchemaPlugin } from "./schemas.ts";

const entry = `
  import { findSchema, resolveType } from "./lib/admission-policies/schemas.ts";
  import builtIn from "./lib/admission-policies/built-in-schemas.json" with { type: "json" };
  module.exports = { findSchema, resolveType, size: Object.keys(builtIn.types).length };`;

interface Exports {
  findSchema(kind: object, customKinds: object[]): { root: unknown; types: Record<string, object> } | undefined;
  size: number;
}

const buildPolicy = (patchType: string, apiGroups: string[], resources: string[]) => ({
  kind: "MutatingAdmissionPolicy",
  spec: { mutations: [{ patchType }], matchConstraints: { resourceRules: [{ apiGroups, resources }] } },
});

/** Returns which schemas a bundle has. */
const bundle = async (...policies: object[]) => {
  const settings = { clusters: { a: { settings: { policies } } } };
  const { code } = await bundleCode(entry, [createSchemaPlugin(settings)]);
  const module: { exports?: Exports } = {};
  new Function("module", "require", code)(module, createRequire(import.meta.url));
  const { findSchema, size } = module.exports as Exports;
  const has = (group: string, version: string, kind: string) => findSchema({ group, version, kind }, []) !== undefined;
  return { has, size, types: findSchema({ group: "apps", version: "v1", kind: "Deployment" }, [])?.types };
};

describe("a bundle with policies", () => {
  it("has no schemas if no policy merges a configuration", async () => {
    assert.equal((await bundle(buildPolicy("JSONPatch", ["apps"], ["deployments"]))).size, 0);
  });

  it("has the schemas of the groups that are merged into, with all that they refer to", async () => {
    const { has, types } = await bundle(buildPolicy("ApplyConfiguration", ["apps"], ["deployments"]));
    assert.ok(has("apps", "v1", "Deployment") && !has("", "v1", "Pod") && !has("batch", "v1", "Job"));
    for (const name of ["core.v1.PodSpec", "core.v1.Container", "meta.v1.ObjectMeta"]) assert.ok(types?.[name], name);
  });

  it("has all schemas for a policy that may be about any kind", async () => {
    const cases = [
      [["*"], ["pods"]],
      [[""], ["pods/eviction"]],
      [["apps"], ["*"]],
    ] as const;
    for (const [groups, resources] of cases) {
      const { has } = await bundle(buildPolicy("ApplyConfiguration", [...groups], [...resources]));
      assert.ok(has("batch", "v1", "Job") && has("", "v1", "Pod"), String(resources));
    }
  });
});
