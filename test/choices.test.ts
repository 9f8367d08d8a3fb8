import assert from "node:assert/strict";
import { globSync } from "node:fs";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { readCatalogue } from "../infra/catalogue/registry.ts";
import {
  alternatingFiles,
  chooseMinors,
  chooseOtherMinor,
  choosePart,
  choosePorts,
  chooseUpgrade,
  listLeftOut,
} from "./choices.ts";
import { minors } from "./control-plane/binaries.ts";
import { listPluginPorts } from "./parity/plugins.ts";

const root = fileURLToPath(new URL("..", import.meta.url));
const pluginRules = listPluginPorts(await readCatalogue());
const seeds = Array.from({ length: 1000 }, (_, seed) => seed);
const tenths = Array.from({ length: 10 }, (_, index) => index);
const isRunOfAllTests = true;

// A suite's turn, 0 or 1, decides which of the run's two minors the suite compares.
describe("what a run compares with real API servers", () => {
  // With this variable, every comparison would use the minor that it states.
  delete process.env.POSTERN_KUBERNETES;

  for (const turn of [0, 1] as const)
    it(`is every minor for some seed, if a suite compares one minor (turn ${turn})`, () => {
      assert.deepEqual([...new Set(seeds.flatMap((seed) => chooseMinors(undefined, turn, seed)))].sort(), minors);
    });

  it("is at most two minors, the same in all suites of a run", () => {
    for (const seed of seeds) {
      const allChosen = chooseMinors(undefined, undefined, seed);
      const chosen = [chooseMinors(undefined, 0, seed), chooseMinors(undefined, 1, seed)].flat();
      assert.deepEqual(chosen.sort(), allChosen.toSorted());
      assert.deepEqual(
        choosePorts(pluginRules, seed).map(([minor]) => minor),
        allChosen,
      );
      assert.equal(allChosen.length, 2);
    }
  });

  it("is every rule that replaces a plugin in every minor, for some seeds", () => {
    const rulesAndMinors = seeds.flatMap((seed) =>
      choosePorts(pluginRules, seed).flatMap(([minor, chosen]) => chosen.map(({ name }) => `${name} ${minor}`)),
    );
    const wanted = pluginRules.flatMap(({ name }) => minors.map((minor) => `${name} ${minor}`));
    assert.deepEqual([...new Set(rulesAndMinors)].sort(), wanted.sort());
  });

  it("is every part of the fields in every minor, for some seeds", () => {
    const partsAndMinors = seeds.flatMap((seed) =>
      chooseMinors(undefined, 1, seed).flatMap((minor) =>
        tenths.filter(choosePart("fields", 10, seed, isRunOfAllTests)).map((index) => `${index} ${minor}`),
      ),
    );
    const wanted = tenths.flatMap((index) => minors.map((minor) => `${index} ${minor}`));
    assert.deepEqual([...new Set(partsAndMinors)].sort(), wanted.sort());
  });

  it("is one part of slow tests in a run of all tests, and all parts in a run of some tests", () => {
    for (const seed of seeds) {
      assert.equal(tenths.filter(choosePart("a", 10, seed, isRunOfAllTests)).length, 1);
      assert.deepEqual(tenths.filter(choosePart("a", 10, seed, !isRunOfAllTests)), tenths);
    }
  });

  it("is exactly one list of each pair of lists of test files that take turns", () => {
    const files = alternatingFiles.flat(2);
    assert.deepEqual(globSync(files, { cwd: root }).sort(), files.toSorted());
    for (const pair of alternatingFiles) {
      const runs = seeds.map((seed) => pair.map((list) => list.some((file) => !listLeftOut(seed).includes(file))));
      assert.ok(runs.every(([one, other]) => one !== other));
      assert.equal(new Set(runs.map(String)).size, 2);
    }
  });

  it("is an upgrade from every minor without MutatingAdmissionPolicy, in one of two suites", () => {
    const chosen = seeds.flatMap((seed) =>
      ([0, 1] as const)
        .filter((turn) => !chooseUpgrade(turn, seed).skip)
        .map((turn) => `${turn} ${chooseOtherMinor(seed)}`),
    );
    const older = ["1.33", "1.34", "1.35"];
    assert.deepEqual(
      [...new Set(chosen)].sort(),
      [0, 1].flatMap((turn) => older.map((minor) => `${turn} ${minor}`)),
    );
  });
});
