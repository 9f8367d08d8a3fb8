import assert from "node:assert/strict";
import { it } from "node:test";
import { handleInterrupt } from "./interrupt.ts";

it("two signals at once interrupt a command once, and don't end the process", () => {
  let interrupts = 0;
  const restore = handleInterrupt(() => interrupts++);
  process.emit("SIGINT");
  process.emit("SIGTERM");
  restore();
  assert.equal(interrupts, 1);
});
