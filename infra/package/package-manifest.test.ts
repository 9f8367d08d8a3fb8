import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { packageRoot } from "../cli/roots.ts";
import { buildCreatePackageManifest, buildModulePackageManifest, buildPackageManifest } from "./package-manifest.ts";

const checkout = JSON.parse(await readFile(join(packageRoot, "package.json"), "utf8"));

describe("the package.json of", () => {
  for (const [name, build] of [
    ["postern", buildPackageManifest],
    ["postern-kubernetes", (manifest: typeof checkout) => buildModulePackageManifest(manifest, manifest.version)],
    [
      "create-postern",
      (manifest: typeof checkout) => buildCreatePackageManifest(manifest, { postern: manifest.version }),
    ],
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

  it("postern depends on one version of postern-kubernetes, or has it as an optional peer dependency", () => {
    const [released, packed] = [
      buildPackageManifest(checkout, "1.37.2-sha256-862565fa5b76"),
      buildPackageManifest(checkout),
    ];
    const { dependencies, peerDependencies, peerDependenciesMeta } = checkout;
    assert.deepEqual(released.dependencies, { ...dependencies, "postern-kubernetes": "1.37.2-sha256-862565fa5b76" });
    assert.deepEqual(
      [released.peerDependencies, released.peerDependenciesMeta, packed.dependencies],
      [peerDependencies, peerDependenciesMeta, dependencies],
    );
    assert.deepEqual(packed.peerDependencies, { ...peerDependencies, "postern-kubernetes": "*" });
    assert.deepEqual(packed.peerDependenciesMeta, {
      ...peerDependenciesMeta,
      "postern-kubernetes": { optional: true },
    });
  });

  it("the package.json of create-postern has no dependencies, so that it starts at once", () => {
    const { dependencies }: Record<string, unknown> = buildCreatePackageManifest(checkout, {
      postern: checkout.version,
    });
    assert.equal(dependencies, undefined);
  });
});
