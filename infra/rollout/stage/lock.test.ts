import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { AwsStage } from "../../aws/stage.ts";
import { lockStage } from "./lock.ts";

describe("a command that is interrupted while AWS doesn't answer", () => {
  const never = new Promise<never>(() => {});
  for (const call of ["findBucket", "readStatus"])
    it(`ends at once: ${call}`, async () => {
      const stop = new AbortController();
      const stack = { findBucket: async () => "bucket", readStatus: async () => undefined, [call]: () => never };
      const stage = { name: "prod", stack, guard: { check: async () => {} } } as unknown as AwsStage;
      const locked = lockStage(stage, "postern deploy", async () => assert.fail(), { signal: stop.signal });
      setImmediate(() => stop.abort());
      await assert.rejects(locked, /^Error: interrupted; run the command again to continue$/);
    });
});
