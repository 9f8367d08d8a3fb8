import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { evaluateCalls } from "../../../test/cel-calls.ts";
import { readRows } from "../../../test/rows.ts";
import { Authorizer, authorizerFunctions } from "./authorizer.ts";
import { cidrFunctions } from "./cidr.ts";
import { formatFunctions } from "./format.ts";
import { ipFunctions } from "./ip.ts";
import { jsonPatchFunctions } from "./json-patch.ts";
import { quantityFunctions } from "./quantity.ts";
import { semverFunctions } from "./semver.ts";
import { urlFunctions } from "./url.ts";

const functions = [
  ...authorizerFunctions,
  ...cidrFunctions,
  ...formatFunctions,
  ...ipFunctions,
  ...jsonPatchFunctions,
  ...quantityFunctions,
  ...semverFunctions,
  ...urlFunctions,
];
const authorizer = new Authorizer({ user: "alice" }, () => ({ allowed: true }));

type Row = { expression: string; value?: unknown; error?: string; cost: number };
for (const [library, rows] of Object.entries(readRows<Record<string, Row[]>>(import.meta.filename)))
  describe(`the library ${library}`, () => {
    for (const { expression, ...outcome } of rows)
      it(expression, () => assert.deepEqual(evaluateCalls(expression, functions, { authorizer }), outcome));
  });
