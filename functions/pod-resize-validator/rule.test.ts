import assert from "node:assert/strict";
import { it } from "node:test";
import { openRule } from "postern/test";

const { cases, decideCase } = await openRule(import.meta.dirname);

for (const entry of cases) {
  if (entry.refused === undefined || entry.refused.includes("not found")) continue;
  it(`tells programs the cause as well: ${entry.name}`, async () => {
    const { outcome } = await decideCase(entry);
    const reason = entry.refused?.includes("linux") ? "UnsupportedPlatform" : "NodeCapacity";
    assert.deepEqual(outcome.status?.details, { name: "a", kind: "pods", causes: [{ reason }] });
  });
}
