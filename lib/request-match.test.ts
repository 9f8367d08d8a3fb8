import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { buildPodRequest } from "../test/requests.ts";
import { readRows } from "../test/rows.ts";
import { matchesRequest } from "./request-match.ts";
import type { AdmissionRequest } from "./review.ts";
import type { RequestMatch } from "./rule.ts";

const rows = readRows<
  { name: string; match?: Partial<RequestMatch>; change?: Partial<AdmissionRequest>; expected: boolean }[]
>(import.meta.filename);

const pods: RequestMatch = {
  apiGroups: [""],
  apiVersions: ["v1"],
  resources: ["pods"],
  operations: ["CREATE", "UPDATE"],
};

describe("a match", () => {
  for (const { name, match, change, expected } of rows)
    it(name, () =>
      assert.equal(matchesRequest({ ...pods, ...match }, buildPodRequest({ namespace: "shop", ...change })), expected),
    );
});
