import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { Version } from "@cyclonedx/cyclonedx-library/Spec";
import { JsonStrictValidator } from "@cyclonedx/cyclonedx-library/Validation";
import { packageRoot } from "../cli/roots.ts";
import { buildSbom, type SbomSource } from "./sbom.ts";

interface Sbom {
  serialNumber: string;
  components: { name: string; version: string; scope: string; properties: { name: string }[]; "bom-ref": string }[];
  dependencies: { ref: string; dependsOn: string[] }[];
}

const read = async (source: SbomSource): Promise<Sbom> => {
  const sbom = buildSbom(source);
  assert.equal(await new JsonStrictValidator(Version.v1dot6).validate(JSON.stringify(sbom)), null);
  return sbom as Sbom;
};

const integrity = `sha512-${Buffer.alloc(64, 1).toString("base64")}`;
const manifest = { name: "postern", version: "0.2.0", description: "rules", license: "Apache-2.0" };
const date = "2026-11-23";

const module: SbomSource["module"] = {
  manifest: { kubernetes: "1.37.2", go: "go1.26.8", modules: { "k8s.io/kubernetes": "v1.37.2" }, files: {} },
  version: "1.37.2-sha256-862565fa5b76",
};

const source: SbomSource = {
  manifest: {
    ...manifest,
    dependencies: { a: "1.0.0", "@scope/b": "1.0.0" },
    peerDependencies: { deployer: "^4.0.0", runner: "1.0.0" },
    peerDependenciesMeta: { deployer: { optional: true } },
  },
  locked: {
    "node_modules/a": { version: "1.0.0", license: "MIT", integrity, dependencies: { c: "^1.0.0" } },
    "node_modules/a/node_modules/c": { version: "1.5.0", license: "MIT OR Apache-2.0", integrity },
    "node_modules/@scope/b": {
      version: "1.0.0",
      license: "MIT",
      integrity,
      dependencies: { c: "^2.0.0" },
      optionalDependencies: { native: "1.0.0", absent: "1.0.0" },
    },
    "node_modules/c": { version: "2.0.0", integrity },
    "node_modules/native": { version: "1.0.0", license: "ISC", integrity, dependencies: { d: "1.0.0" } },
    "node_modules/d": { version: "1.0.0", license: "ISC", integrity, dependencies: { native: "1.0.0" } },
    "node_modules/runner": { version: "1.0.0", license: "MIT", integrity },
    "node_modules/deployer": { version: "4.0.0", license: "MIT", integrity },
    "node_modules/client": { version: "3.0.0", license: "MIT", integrity, dependencies: { c: "1", unused: "1" } },
    "node_modules/client/node_modules/c": { version: "1.5.0", license: "MIT OR Apache-2.0", integrity },
    "node_modules/unused": { version: "1.0.0", license: "MIT", integrity },
    "node_modules/tool": { version: "1.0.0", license: "MIT", integrity },
  },
  bundled: ["node_modules/client", "node_modules/client/node_modules/c"],
  module,
  date,
};

describe("a software bill of materials", () => {
  it("a bill of materials lists the bundled packages and those that npm installs, each version once", async () => {
    const { components } = await read(source);
    assert.deepEqual(
      components.map(({ "bom-ref": ref, scope, properties }) => [ref, scope, ...properties.map(({ name }) => name)]),
      [
        ["pkg:npm/%40scope/b@1.0.0", "required"],
        ["pkg:npm/a@1.0.0", "required"],
        ["pkg:npm/c@1.5.0", "required", "cdx:npm:package:bundled"],
        ["pkg:npm/c@2.0.0", "required"],
        ["pkg:npm/client@3.0.0", "required", "cdx:npm:package:bundled"],
        ["pkg:npm/d@1.0.0", "optional"],
        ["pkg:npm/native@1.0.0", "optional"],
        ["pkg:npm/runner@1.0.0", "required"],
        ["pkg:npm/postern-kubernetes@1.37.2-sha256-862565fa5b76", "required"],
        ["pkg:golang/std@1.26.8", "required"],
        ["pkg:golang/k8s.io/kubernetes@v1.37.2", "required"],
      ],
    );
  });

  it("a bill of materials states on which packages a package depends, in the installed versions", async () => {
    const { dependencies } = await read(source);
    assert.deepEqual(Object.fromEntries(dependencies.map(({ ref, dependsOn }) => [ref, dependsOn])), {
      "pkg:npm/postern@0.2.0": [
        "pkg:npm/%40scope/b@1.0.0",
        "pkg:npm/a@1.0.0",
        "pkg:npm/client@3.0.0",
        "pkg:npm/postern-kubernetes@1.37.2-sha256-862565fa5b76",
        "pkg:npm/runner@1.0.0",
      ],
      "pkg:npm/%40scope/b@1.0.0": ["pkg:npm/c@2.0.0", "pkg:npm/native@1.0.0"],
      "pkg:npm/a@1.0.0": ["pkg:npm/c@1.5.0"],
      "pkg:npm/c@1.5.0": [],
      "pkg:npm/c@2.0.0": [],
      "pkg:npm/client@3.0.0": ["pkg:npm/c@1.5.0"],
      "pkg:npm/d@1.0.0": ["pkg:npm/native@1.0.0"],
      "pkg:npm/native@1.0.0": ["pkg:npm/d@1.0.0"],
      "pkg:npm/runner@1.0.0": [],
      "pkg:npm/postern-kubernetes@1.37.2-sha256-862565fa5b76": [
        "pkg:golang/std@1.26.8",
        "pkg:golang/k8s.io/kubernetes@v1.37.2",
      ],
      "pkg:golang/std@1.26.8": [],
      "pkg:golang/k8s.io/kubernetes@v1.37.2": [],
    });
  });

  it("a software bill of materials has another serial number if its content differs", async () => {
    const serials = [source, source, { ...source, date: "2026-11-24" }].map(
      async (each) => (await read(each)).serialNumber,
    );
    const [one, same, other] = await Promise.all(serials);
    assert.equal(one, same);
    assert.notEqual(one, other);
  });

  it("a software bill of materials is valid for every package in the lockfile of this checkout", async () => {
    const { packages } = JSON.parse(await readFile(join(packageRoot, "package-lock.json"), "utf8"));
    const { "": root, ...locked } = packages;
    const names = { ...root.dependencies, ...root.devDependencies };
    const { components } = await read({
      manifest: { ...manifest, dependencies: names },
      locked,
      bundled: [],
      module,
      date,
    });
    assert.ok(components.length > 100);
    // For instance, osls is one of root.devDependencies.
    assert.deepEqual(components.filter(({ name }) => name === "osls").length, 1);
  });
});
