import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { toFailure } from "#lib/failure.ts";
import { buildPodRequest } from "../../test/requests.ts";
import { formatReport } from "./serve.ts";

describe("the gateway's line of a failed review", () => {
  it("formatReport writes a failed review as one line with a sentence, without its values and quoted texts", () => {
    const object = { metadata: { name: "web", annotations: { note: "S3cret-pa55" } }, spec: { containers: [] } };
    const line = formatReport({
      rule: "sample",
      phase: "validate",
      cluster: "local",
      mode: "enforce",
      code: 500,
      refused: false,
      operations: 0,
      milliseconds: 1,
      function: "sample",
      version: "1",
      request: buildPodRequest({ object }),
      error: toFailure(new RangeError('S3cret-pa55 is wrong,\nas is "other"')),
    });
    assert.match(line, / 500 the rule failed: RangeError: \*\*\* is wrong, as is "\*\*\*" 1\.00 ms\n$/);
  });
});
