import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, it, mock } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import fc from "fast-check";
import { createProgressPrinter, runInParallel } from "./progress.ts";

/** Creates a stream that records its text and may be a terminal. */
const createStream = ({ isTTY }: { isTTY: boolean }) => {
  const written: string[] = [];
  const stream = Object.assign(Object.create(process.stderr), {
    isTTY,
    write: (text: string) => {
      written.push(text);
      return true;
    },
  });
  const readLines = () => written.join("").replaceAll(/\d+\.\d s/g, "N s");
  return { progress: createProgressPrinter(stream), written, readLines };
};

/** Runs a function with the variable CI set or deleted. */
const runWithCi = <T>(value: string | undefined, act: () => T): T => {
  const before = process.env.CI;
  const set = (to: string | undefined) => {
    if (to === undefined) delete process.env.CI;
    else process.env.CI = to;
  };
  set(value);
  try {
    return act();
  } finally {
    set(before);
  }
};

describe("progress", () => {
  describe("without a terminal", () => {
    it("is one line for each step", async () => {
      const { progress, written, readLines } = runWithCi(undefined, () => createStream({ isTTY: false }));
      await progress.step("versions", async (tell) => {
        for (const done of [1, 2, 3]) tell(done, 3);
        await turn();
        assert.deepEqual(written, []);
        return "3 published";
      });
      progress.say("a word");
      assert.equal(readLines(), "   N s  versions: 3 published\na word\n");
    });

    it("names the step that failed, and throws its error", async () => {
      const { progress, readLines } = runWithCi(undefined, () => createStream({ isTTY: false }));
      const failure = new Error("no");
      const step = progress.step("stack", () => Promise.reject(failure));
      await assert.rejects(step, (error) => error === failure);
      assert.equal(readLines(), "   N s  stack: failed\n");
    });
  });

  it("progress is printed as lines in CI, even on a terminal", async () => {
    const { progress, readLines } = runWithCi("true", () => createStream({ isTTY: true }));
    await progress.step("stack", async () => "made");
    assert.equal(readLines(), "   N s  stack: made\n");
  });

  describe("on a terminal", () => {
    beforeEach(() => mock.timers.enable({ apis: ["setInterval"] }));
    afterEach(() => mock.timers.reset());

    /** Returns the output of a step after 200 ms, and after its end. */
    const drawStep = async (...reports: [number, number][]): Promise<string[]> => {
      const { progress, readLines } = runWithCi(undefined, () => createStream({ isTTY: true }));
      await progress.step("versions", async (tell) => {
        for (const [done, total] of reports) tell(done, total);
        mock.timers.tick(200);
        return "over";
      });
      return readLines().split("\r\u001b[K").slice(1);
    };
    const end = "   N s  versions: over\n";

    it("has a bar that grows and is replaced by the line", async () => {
      assert.deepEqual(await drawStep([0, 4]), [`versions [${".".repeat(24)}] 0 of 4 N s`, end]);
      assert.deepEqual(await drawStep([0, 4], [1, 4]), [
        `versions [${"#".repeat(6)}${".".repeat(18)}] 1 of 4 N s`,
        end,
      ]);
      assert.deepEqual(await drawStep([4, 4]), [`versions [${"#".repeat(24)}] 4 of 4 N s`, end]);
    });

    it("has a bar of constant width", async () => {
      assert.deepEqual(await drawStep([7, 4]), [`versions [${"#".repeat(24)}] 7 of 4 N s`, end]);
      assert.deepEqual(await drawStep([0, 0]), [`versions [${".".repeat(24)}] 0 of 0 N s`, end]);
    });

    it("has no bar before the first report", async () => {
      assert.deepEqual(await drawStep(), ["versions N s", end]);
    });

    it("stops drawing when a step ends or fails", async () => {
      const { progress, written, readLines } = runWithCi(undefined, () => createStream({ isTTY: true }));
      const step = progress.step("stack", async () => {
        mock.timers.tick(400);
        throw new Error("no");
      });
      await assert.rejects(step, /^Error: no$/);
      assert.deepEqual(readLines().split("\r\u001b[K"), ["", "stack N s", "stack N s", "   N s  stack: failed\n"]);
      const count = written.length;
      mock.timers.tick(1000);
      assert.equal(written.length, count);
    });
  });
});

describe("parallel actions", () => {
  /** Creates actions that end only when the test resolves or rejects them. */
  const createGates = () => {
    const gates = new Map<number, { resolve(): void; reject(error: Error): void }>();
    const act = (item: number) =>
      new Promise<string>((resolve, reject) => {
        const finish = (end: () => void) => () => {
          gates.delete(item);
          end();
        };
        gates.set(item, {
          resolve: finish(() => resolve(`${item} done`)),
          reject: (error) => finish(() => reject(error))(),
        });
      });
    return { gates, act };
  };

  it("parallel actions return results in the order of the items", async () => {
    const { gates, act } = createGates();
    const results = runInParallel(3, [1, 2, 3], act);
    for (const item of [3, 1, 2]) {
      await turn();
      gates.get(item)?.resolve();
    }
    assert.deepEqual(await results, ["1 done", "2 done", "3 done"]);
  });

  it("parallel actions never exceed the limit, and run once for each item", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 1, max: 6 }),
        fc.array(fc.integer({ min: 0, max: 3 }), { maxLength: 12 }),
        async (atOnce, turns) => {
          let [running, highest] = [0, 0];
          const started: number[] = [];
          const items = turns.map((count, index) => ({ count, index }));
          const answers = await runInParallel(atOnce, items, async ({ count, index }) => {
            started.push(index);
            running += 1;
            highest = Math.max(highest, running);
            for (let time = 0; time < count; time++) await turn();
            running -= 1;
            return index;
          });
          assert.deepEqual(answers, [...turns.keys()]);
          assert.deepEqual(started, [...turns.keys()]);
          assert.equal(running, 0);
          assert.ok(highest <= atOnce);
        },
      ),
      { numRuns: 50 },
    );
  });

  it("parallel actions start as many actions as the limit allows", async () => {
    const { gates, act } = createGates();
    const results = runInParallel(2, [1, 2, 3], act);
    await turn();
    assert.deepEqual([...gates.keys()], [1, 2]);
    gates.get(2)?.resolve();
    await turn();
    assert.deepEqual([...gates.keys()], [1, 3]);
    for (const gate of gates.values()) gate.resolve();
    await results;
  });

  it("parallel actions throw an error after the actions under way have ended, and start no more", async () => {
    const { gates, act } = createGates();
    let isOver = false;
    const results = runInParallel(2, [1, 2, 3, 4], act).finally(() => {
      isOver = true;
    });
    results.catch(() => {});
    await turn();
    gates.get(1)?.reject(new Error("no"));
    await turn();
    assert.deepEqual([[...gates.keys()], isOver], [[2], false]);
    gates.get(2)?.resolve();
    await assert.rejects(results, /^Error: no$/);
    assert.deepEqual([...gates.keys()], []);
  });

  it("parallel actions throw the first of several errors, also if an action throws without a promise", async () => {
    const thrown = runInParallel(3, [1, 2, 3], (item) => {
      throw new Error(`no ${item}`);
    });
    await assert.rejects(thrown, /^Error: no 1$/);
  });

  it("parallel actions return nothing for no items", async () => {
    assert.deepEqual(await runInParallel(3, [], () => assert.fail("it was called")), []);
  });
});
