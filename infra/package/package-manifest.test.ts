import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { packageRoot } from "../cli/roots.ts";
import { buildCreatePackageManifest, buildPackageManifest } from "./package-manifest.ts";

const checkout = JSON.parse(await readFile(join(packageRoot, "package.json"), "utf8"));

describe("the package.json of", () => {
  for (const [name, build] of [
    ["postern", buildPackageManifest],
    ["create-postern", (manifest: typeof checkout) => buildCreatePackageManifest(manifest, manifest.version)],
  ] as const)
    describe(name, () => {
      // npm publishes no private package, and refuses provenance of another repository than the stated one.
      it("can be published by the workflow of a release", () => {
        const repository = { type: "git", url: "git+https://github.com/acme/postern.git" };
        const { private: isPrivate, ...manifest }: Record<string, unknown> = build({ ...checkout, repository });
        assert.deepEqual([manifest.name, manifest.repository, isPrivate], [name, repository, undefined]);
      });

      it("has the version of the checkout, and no scripts", () => {
        const manifest: Record<string, unknown> = build(checkout);
        assert.deepEqual([manifest.version, manifest.scripts], [checkout.version, undefined]);
      });
    });

  it("create-postern has no dependencies, so that it starts at once", () => {
    const { dependencies }: Record<string, unknown> = buildCreatePackageManifest(checkout, checkout.version);
    assert.equal(dependencies, undefined);
  });
});
