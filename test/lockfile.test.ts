import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { it } from "node:test";

interface Locked {
  optionalDependencies?: Record<string, string>;
}

// npm leaves out of the lockfile what it could not fetch on the machine that locked; `npm ci` then fails elsewhere.
it("locks every optional package of every platform, and no address of a registry", async () => {
  const text = await readFile(new URL("../package-lock.json", import.meta.url), "utf8");
  const { packages }: { packages: Record<string, Locked> } = JSON.parse(text);
  const missing = Object.values(packages)
    .flatMap(({ optionalDependencies = {} }) => Object.keys(optionalDependencies))
    .filter((name) => !Object.keys(packages).some((path) => path.endsWith(`node_modules/${name}`)));
  assert.deepEqual(missing, []);
  assert.doesNotMatch(text, /"resolved": "https?:/);
});
