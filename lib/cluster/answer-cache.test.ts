import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { type AnswerCache, type CacheableAnswer, createAnswerCache } from "./answer-cache.ts";

/** Returns the cached answer, or the answer of a pending search. */
const recall = async (cache: AnswerCache, ...parameters: Parameters<AnswerCache["recall"]>): Promise<unknown> => {
  const cached = cache.recall(...parameters);
  return "pending" in cached ? cached.pending : cached.content;
};

const buildAnswer = (content: unknown, bytes: number | undefined = 1): CacheableAnswer => ({ content, bytes });

describe("an answer cache", () => {
  it("an answer cache returns a cached answer if it is recent enough, and searches otherwise", async () => {
    const cache = createAnswerCache();
    let searches = 0;
    const ask = (earliest: number) => recall(cache, "a", earliest, async () => buildAnswer(++searches));
    assert.equal(await ask(0), 1);
    assert.equal(await ask(0), 1);
    assert.equal(await ask(Date.now() + 1), 2);
    assert.equal(await ask(0), 2);
  });

  it("an answer cache searches once for all callers that wait for the same answer", async () => {
    const cache = createAnswerCache();
    const { promise, resolve } = Promise.withResolvers<CacheableAnswer>();
    let searches = 0;
    const search = () => {
      searches += 1;
      return promise;
    };
    const pending = [recall(cache, "a", 0, search), recall(cache, "a", 0, search)];
    resolve(buildAnswer("b"));
    assert.deepEqual(await Promise.all(pending), ["b", "b"]);
    assert.equal(searches, 1);
  });

  it("an answer cache doesn't keep failures or answers without a size", async () => {
    const cache = createAnswerCache();
    const failing = recall(cache, "a", 0, async () => Promise.reject(new Error("no")));
    await assert.rejects(failing, /no/);
    assert.equal(await recall(cache, "a", 0, async () => ({ content: "none", bytes: undefined })), "none");
    assert.equal(await recall(cache, "a", 0, async () => buildAnswer("there")), "there");
  });

  it("an answer cache stays within its limits, and keeps the answers that were used last", async () => {
    const cache = createAnswerCache({ entries: 3, bytes: 100 });
    const put = (key: string, bytes: number) => recall(cache, key, 0, async () => buildAnswer(`${key}1`, bytes));
    const isCached = async (key: string) =>
      (await recall(cache, key, 0, async () => ({ content: undefined, bytes: undefined }))) !== undefined;
    for (const key of ["a", "b", "c"]) await put(key, 1);
    await put("a", 1);
    await put("d", 1);
    assert.deepEqual(await Promise.all(["b"].map(isCached)), [false], "too many entries");
    assert.deepEqual(await Promise.all(["a", "c", "d"].map(isCached)), [true, true, true]);
    await put("e", 99);
    assert.deepEqual(
      [await isCached("d"), await isCached("e"), await isCached("a"), await isCached("c")],
      [true, true, false, false],
      "too many bytes",
    );
    await put("f", 200);
    assert.deepEqual(await Promise.all(["d", "e", "f"].map(isCached)), [false, false, false], "f alone is too large");
  });

  it("an answer cache never mixes the answers of different keys, in any order of calls", async () => {
    const calls = fc.array(fc.tuple(fc.integer({ min: 0, max: 8 }), fc.nat(3), fc.boolean()), { maxLength: 60 });
    await fc.assert(
      fc.asyncProperty(calls, async (calls) => {
        const cache = createAnswerCache({ entries: 4, bytes: 10 });
        const answers = calls.map(async ([key, bytes, isFresh]) => {
          const search = async () => {
            await new Promise(setImmediate);
            // An answer without a size isn't cached.
            return buildAnswer(key, bytes === 3 ? undefined : bytes);
          };
          return [key, await recall(cache, `${key}`, isFresh ? Date.now() : 0, search)] as const;
        });
        for (const [key, content] of await Promise.all(answers)) assert.equal(content, key);
      }),
      { numRuns: 200 },
    );
  });
});
