import assert from "node:assert/strict";
import { it } from "node:test";
import { decideCase, readCases, reviewOf } from "../../infra/catalogue/cases.ts";
import { readCatalogue } from "../../infra/catalogue/registry.ts";

const listed = (await readCatalogue()).find(({ name }) => name === "pod-resize-validator");
assert.ok(listed);

for (const entry of await readCases(listed)) {
  if (entry.refused === undefined || entry.refused.includes("not found")) continue;
  it(`tells programs the cause as well: ${entry.name}`, async () => {
    const { outcome } = await decideCase(listed, entry, reviewOf(listed, entry));
    const reason = entry.refused?.includes("linux") ? "UnsupportedPlatform" : "NodeCapacity";
    assert.deepEqual(outcome.status?.details, { name: "a", kind: "pods", causes: [{ reason }] });
  });
}
