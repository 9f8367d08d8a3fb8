import assert from "node:assert/strict";
import { describe, it } from "node:test";
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
const request = (change: Partial<AdmissionRequest> = {}): AdmissionRequest => ({
  uid: "1",
  kind: { group: "", version: "v1", kind: "Pod" },
  resource: { group: "", version: "v1", resource: "pods" },
  namespace: "shop",
  operation: "CREATE",
  userInfo: {},
  ...change,
});

describe("a match", () => {
  for (const { name, match, change, expected } of rows)
    it(name, () => assert.equal(matchesRequest({ ...pods, ...match }, request(change)), expected));
});
