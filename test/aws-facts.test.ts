import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { it } from "node:test";
import { listCosts, sumCosts } from "./account/budget.ts";
import { facts } from "./account/facts/facts.ts";

it("the page has one line for each fact that the suite for a real account checks, in the suite's order", async () => {
  const page = await readFile(new URL("../docs/background/aws-facts.md", import.meta.url), "utf8");
  const ids = [...page.matchAll(/^\| `([a-z0-9-]+)` \|/gm)].map(([, id]) => id);
  assert.deepEqual(
    ids,
    facts.map(({ id }) => id),
  );
  assert.equal(new Set(ids).size, ids.length);
});

it("the suite for a real account costs at most three dollars", () => {
  assert.ok(listCosts().every(({ dollars }) => dollars > 0 && dollars < 1));
  assert.ok(sumCosts() < 3, `${sumCosts()}`);
});
