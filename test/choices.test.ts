import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { readCatalogue } from "../infra/catalogue/registry.ts";
import { minors } from "../infra/parity/control-plane/binaries.ts";
import { listPluginPorts } from "../infra/parity/plugins.ts";
import {
  chooseMinors,
  chooseOtherMinor,
  choosePorts,
  chooseTenth,
  chooseTurn,
  chooseUpgrade,
} from "./cluster/choices.ts";

const ports = listPluginPorts(await readCatalogue());
const seeds = Array.from({ length: 1000 }, (_, seed) => seed);
const tenths = Array.from({ length: 10 }, (_, index) => index);

describe("what a run compares with real API servers", () => {
  // It states the minor for the whole run.
  delete process.env.POSTERN_KUBERNETES;

  for (const turn of [0, 1] as const)
    it(`is every minor by some seed, if a suite takes one (${turn})`, () => {
      assert.deepEqual([...new Set(seeds.flatMap((seed) => chooseMinors(undefined, turn, seed)))].sort(), minors);
    });

  it("is at most two minors, the same in all suites of a run", () => {
    for (const seed of seeds) {
      const both = chooseMinors(undefined, undefined, seed);
      const chosen = [chooseMinors(undefined, 0, seed), chooseMinors(undefined, 1, seed)].flat();
      assert.deepEqual(chosen.sort(), both.toSorted());
      assert.deepEqual(
        choosePorts(ports, seed).map(([minor]) => minor),
        both,
      );
      assert.equal(both.length, 2);
    }
  });

  it("is every port in every minor", () => {
    const pairs = seeds.flatMap((seed) =>
      choosePorts(ports, seed).flatMap(([minor, chosen]) => chosen.map(({ name }) => `${name} ${minor}`)),
    );
    const wanted = ports.flatMap(({ name }) => minors.map((minor) => `${name} ${minor}`));
    assert.deepEqual([...new Set(pairs)].sort(), wanted.sort());
  });

  it("is every tenth of the fields in every minor", () => {
    const pairs = seeds.flatMap((seed) =>
      chooseMinors(undefined, 1, seed).flatMap((minor) =>
        tenths.filter(chooseTenth(seed)).map((index) => `${index} ${minor}`),
      ),
    );
    const wanted = tenths.flatMap((index) => minors.map((minor) => `${index} ${minor}`));
    assert.deepEqual([...new Set(pairs)].sort(), wanted.sort());
  });

  it("is one of two suites that take turns, and both in a run of some tests", () => {
    const counts = [0, 1].map(
      (turn) => seeds.filter((seed) => !chooseTurn("a", turn as 0 | 1, seed, true).skip).length,
    );
    assert.ok(counts.every((count) => count > 400));
    assert.equal(
      counts.reduce((sum, count) => sum + count),
      seeds.length,
    );
    assert.deepEqual([chooseTurn("a", 0, 1, false), chooseTurn("a", 1, 1, false)], [{ skip: false }, { skip: false }]);
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
