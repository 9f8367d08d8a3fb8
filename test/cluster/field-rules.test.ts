import assert from "node:assert/strict";
import { it } from "node:test";
import { selectFieldRules } from "../../infra/apiserver/validation/fields.ts";
import { chooseMinors, choosePart } from "../choices.ts";
import { findWrongRules } from "../generate/field-rule-learning.ts";
import { needsApiServer } from "../parts.ts";

// What fields.json says of built-in kinds holds for a real API server: objects in which one field is wrong are refused,
// in the same words. A run tries a tenth of the fields, and all of them with POSTERN_RUNS; npm run field-rules learns the rules again.
const { POSTERN_RUNS } = process.env;

for (const minor of chooseMinors(POSTERN_RUNS, 1))
  it(`the rules of fields hold in Kubernetes ${minor}`, await needsApiServer(minor), async (t) => {
    const isChosen = choosePart("fields", 10, undefined, POSTERN_RUNS === undefined);
    const { refusals, wrong } = await findWrongRules(selectFieldRules(minor), minor, isChosen);
    t.diagnostic(`${refusals} refusals`);
    assert.deepEqual(
      wrong.slice(0, 5).map(({ object, field, message }) => `${object.kind} ${field}: ${message}`),
      [],
      `${wrong.length} are wrong`,
    );
    assert.ok(refusals > 50, String(refusals));
  });
