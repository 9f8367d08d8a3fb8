import assert from "node:assert/strict";
import { globSync } from "node:fs";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { readCatalogue } from "../infra/catalogue/registry.ts";
import {
  alternatingFiles,
  chooseMinors,
  choosePart,
  choosePluginRules,
  chooseUpgrade,
  listLeftOut,
} from "./choices.ts";
import { minors } from "./control-plane/binaries.ts";
import { listRulesThatReplacePlugins } from "./parity/plugins.ts";

const root = fileURLToPath(new URL("..", import.meta.url));
const pluginRules = listRulesThatReplacePlugins(await readCatalogue());
const seeds = Array.from({ length: 1000 }, (_, seed) => seed);
// choosePart's last argument: true for a run of all test files, which has one part of the slow tests, to save time.
const [runOfAllTests, otherRun] = [true, false];
const indexesOfTenTests = Array.from({ length: 10 }, (_, index) => index);

// A suite's group, 0 or 1, decides which of the run's two minors the suite compares.
describe("what a run compares with real API servers", () => {
  // With this variable, every comparison would use the minor that the variable states.
  delete process.env.POSTERN_KUBERNETES;
  const chooseMinorsOfRun = (seed: number) => chooseMinors({ seed });
  const chooseMinorsOfGroup = (suiteGroup: 0 | 1, seed: number) => chooseMinors({ suiteGroup, seed });

  for (const group of [0, 1] as const)
    it(`a suite that compares one minor compares every minor for some seed (group ${group})`, () => {
      assert.deepEqual([...new Set(seeds.flatMap((seed) => chooseMinorsOfGroup(group, seed)))].sort(), minors);
    });

  it("a run compares two minors, and all suites of the run compare the same two", () => {
    for (const seed of seeds) {
      const allChosen = chooseMinorsOfRun(seed);
      const chosenInBothGroups = [...chooseMinorsOfGroup(0, seed), ...chooseMinorsOfGroup(1, seed)];
      assert.deepEqual(chosenInBothGroups.sort(), allChosen.toSorted());
      assert.deepEqual(
        choosePluginRules(pluginRules, seed).map(([minor]) => minor),
        allChosen,
      );
      assert.equal(allChosen.length, 2);
    }
  });

  it("every rule that replaces a plugin is compared in every minor for some seeds", () => {
    const rulesAndMinors = seeds.flatMap((seed) =>
      choosePluginRules(pluginRules, seed).flatMap(([minor, chosen]) => chosen.map(({ name }) => `${name} ${minor}`)),
    );
    const wanted = pluginRules.flatMap(({ name }) => minors.map((minor) => `${name} ${minor}`));
    assert.deepEqual([...new Set(rulesAndMinors)].sort(), wanted.sort());
  });

  it("a suite that compares a tenth of all fields compares each tenth in every minor for some seeds", () => {
    const partsAndMinors = seeds.flatMap((seed) =>
      chooseMinorsOfGroup(1, seed).flatMap((minor) =>
        indexesOfTenTests.filter(choosePart("fields", 10, seed, runOfAllTests)).map((index) => `${index} ${minor}`),
      ),
    );
    const wanted = indexesOfTenTests.flatMap((index) => minors.map((minor) => `${index} ${minor}`));
    assert.deepEqual([...new Set(partsAndMinors)].sort(), wanted.sort());
  });

  it("a run of all tests has one part of the slow tests, and a run of some tests has all parts", () => {
    for (const seed of seeds) {
      assert.equal(indexesOfTenTests.filter(choosePart("a", 10, seed, runOfAllTests)).length, 1);
      assert.deepEqual(indexesOfTenTests.filter(choosePart("a", 10, seed, otherRun)), indexesOfTenTests);
    }
  });

  it("a run has exactly one of the two lists of test files in each pair of alternatingFiles", () => {
    const files = alternatingFiles.flat(2);
    assert.deepEqual(globSync(files, { cwd: root }).sort(), files.toSorted());
    for (const pair of alternatingFiles) {
      const isRun = (list: string[], seed: number) => list.some((file) => !listLeftOut(seed).includes(file));
      const runs = seeds.map((seed) => pair.map((list) => isRun(list, seed)));
      assert.ok(runs.every(([isFirstRun, isSecondRun]) => isFirstRun !== isSecondRun));
      // Each list is run with some seed.
      assert.equal(new Set(runs.map(String)).size, 2);
    }
  });

  // Two suites test what changes when an upgrade brings MutatingAdmissionPolicy, which is on by default from 1.36 on.
  it("each of the two suites that upgrade a cluster starts from each minor before 1.36 for some seed", () => {
    const describeUpgrade = (suite: number, older: string) => `suite ${suite} upgrades from ${older}`;
    const upgrades = seeds.flatMap((seed) =>
      ([0, 1] as const).flatMap((suite) => {
        const { older, skip } = chooseUpgrade(suite, seed);
        return skip ? [] : [describeUpgrade(suite, older)];
      }),
    );
    const wanted = [0, 1].flatMap((suite) => ["1.33", "1.34", "1.35"].map((older) => describeUpgrade(suite, older)));
    assert.deepEqual([...new Set(upgrades)].sort(), wanted);
  });
});
