import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { describe, it } from "node:test";

interface Locked {
  integrity?: string;
  optionalDependencies?: Record<string, string>;
}

for (const file of ["package-lock.json", "test/runtime/package-lock.json", "test/registry/package-lock.json"])
  describe(`the lockfile ${file}`, async () => {
    const text = await readFile(new URL(`../${file}`, import.meta.url), "utf8");
    const { packages }: { packages: Record<string, Locked> } = JSON.parse(text);

    // npm omits packages from the lockfile if it could not fetch them; `npm ci` then fails on other machines.
    it("the lockfile locks every optional package of every platform", () => {
      const missing = Object.values(packages)
        .flatMap(({ optionalDependencies = {} }) => Object.keys(optionalDependencies))
        .filter((name) => !Object.keys(packages).some((path) => path.endsWith(`node_modules/${name}`)));
      assert.deepEqual(missing, []);
    });

    // npm may write an entry without a hash, and would later install any package with that name.
    it("the lockfile has a hash of every package", () => {
      const unhashed = Object.entries(packages)
        .filter(([path, { integrity = "" }]) => path !== "" && !/^sha512-[A-Za-z0-9+/]{86}==$/.test(integrity))
        .map(([path]) => path);
      assert.deepEqual(unhashed, []);
    });

    it("the lockfile has no address of a registry", () => assert.doesNotMatch(text, /"resolved": "https?:/));
  });
