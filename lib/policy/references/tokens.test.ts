import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { readRows } from "../../../test/rows.ts";
import { computeTokenCacheSeconds, parseGoDurationMilliseconds, parseTokenResponse } from "./tokens.ts";

const rows = readRows<{
  /** Response bodies of a token service, and what is read from them. */
  answers: { body: string; token: string | undefined; expireAt: number }[];
  /** How long a token service's response is cached. `refused` is an older token, which the called service refused. */
  kept: { auth: object; refused: string | undefined; body: string; seconds: number }[];
}>(import.meta.filename);

describe("a token", () => {
  for (const { body, token, expireAt } of rows.answers)
    it(`${token === undefined ? "is not" : "is"} in ${body}`, () =>
      assert.deepEqual(parseTokenResponse({ status: 200, body }), token && { token, expireAt }));
  it("a token is not read from a response with an error status", () => {
    for (const status of [199, 301, 401, 500])
      assert.equal(parseTokenResponse({ status, body: '{"token":"t"}' }), undefined);
  });

  for (const { auth, refused, body, seconds } of rows.kept)
    it(`in ${body} is cached for ${seconds} s with auth ${JSON.stringify(auth)}${refused ? `, if the service has refused "${refused}"` : ""}`, () =>
      assert.equal(computeTokenCacheSeconds(auth, refused)({ status: 200, body }), seconds));

  it("the cache time counts from the first read of a response, so it is the same for a later read of it", (test) => {
    test.mock.timers.enable({ apis: ["Date"], now: 1_000_000 });
    const answer = { status: 200, body: '{"token":"t","expireAt":1100000}' };
    assert.equal(computeTokenCacheSeconds({}, undefined)(answer), 90); // 100 s minus a tenth
    // The time of the first read is stored for the object `answer`, not in the function that is returned.
    test.mock.timers.setTime(1_050_000);
    assert.equal(computeTokenCacheSeconds({}, undefined)(answer), 90);
  });
});

describe("a duration", () => {
  const durations: Record<string, number | undefined> = {
    "1h30m": 5_400_000,
    "1.5h": 5_400_000,
    "300ms": 300,
    "10s": 10_000,
    "1m0.5s": 60_500,
    "2us": 0.002,
    "2µs": 0.002,
    "1ns": 1e-6,
    "+1s": 1000,
    ".5s": 500,
    "": undefined,
    "1": undefined,
    h: undefined,
    "1d": undefined,
    "1.2.3s": undefined,
    "-1s": undefined,
    "1 s": undefined,
    ".s": undefined,
  };
  for (const [text, milliseconds] of Object.entries(durations))
    it(`"${text}" has ${milliseconds ?? "no"} milliseconds`, () =>
      assert.equal(parseGoDurationMilliseconds(text), milliseconds));
  it("a duration is parsed in linear time for any text", () => {
    fc.assert(fc.property(fc.string(), (text) => void parseGoDurationMilliseconds(text)));
    assert.equal(parseGoDurationMilliseconds("1".repeat(100_000)), undefined);
    assert.equal(parseGoDurationMilliseconds(`${"1s".repeat(50_000)}x`), undefined);
  });
});
