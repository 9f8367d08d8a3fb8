import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { parseHookResponse } from "./answer.ts";

/** A patch that is no base64, and the byte that the error of Go 1.26's decoder names. */
const wrongPatches: [patch: string, byte: number][] = [
  ["A", 0],
  ["AAA", 0],
  ["AAAAA\n", 5],
  ["A-AA", 1],
  ["é===", 0],
  ["A===", 1],
  ["AA=", 3],
  ["AA=\n", 4],
  ["AA=A", 2],
  ["AA=\nA", 3],
  ["AA==A", 4],
  ["AA==\nA", 5],
  ["AAA==", 4],
  ["AAA=\r\nA", 6],
  ["AA\nA-", 4],
];

describe("the answer of a webhook", () => {
  for (const [patch, byte] of wrongPatches)
    it(`the error for the patch ${JSON.stringify(patch)} names byte ${byte}`, () => {
      const response = { uid: "1", allowed: true, patchType: "JSONPatch", patch };
      const body = { apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview", response };
      assert.deepEqual(parseHookResponse("mutate", "v1", "1", body), {
        fault: `failed to call webhook: illegal base64 data at input byte ${byte}`,
      });
    });
});
