import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { evaluatePolicy } from "./evaluation.ts";
import type { ValidatingPolicy } from "./policies.ts";

const evaluate = (spec: object) => {
  const matchConstraints = { resourceRules: [] };
  const policy = { kind: "ValidatingAdmissionPolicy", metadata: { name: "a" }, spec: { matchConstraints, ...spec } };
  // The cast is safe: each test adds the members that its policy has.
  return evaluatePolicy(policy as ValidatingPolicy, { object: null, oldObject: null, request: {} }, []);
};

/** Returns an expression whose value repeats a character. */
const repeat = (length: number, character: string) => `lists.range(${length}).map(i, '${character}').join()`;

describe("a message of a policy", () => {
  const makeMessage = (length: number) => {
    const validations = [{ expression: "false", message: "short", messageExpression: repeat(length, "é") }];
    return evaluate({ validations }).violations[0]?.message;
  };

  it("the message of a policy is the value of messageExpression if this has at most 5,120 bytes", () => {
    assert.equal(makeMessage(2560), "é".repeat(2560));
    assert.equal(makeMessage(2561), "short");
  });

  it("the message of a policy has no characters at both ends that are white space for Go", () => {
    const validations = [{ expression: "false", message: "\u0085 \ufeffno\u00a0" }];
    assert.equal(evaluate({ validations }).violations[0]?.message, "\ufeffno");
  });
});

describe("an audit annotation of a policy", () => {
  const makeAnnotation = (length: number, character: string) =>
    evaluate({ auditAnnotations: [{ key: "k", valueExpression: repeat(length, character) }] }).annotations;

  it("an audit annotation of a policy is cut off after 10,240 bytes", () => {
    assert.deepEqual(makeAnnotation(5120, "é"), [["k", "é".repeat(5120)]]);
    assert.deepEqual(makeAnnotation(5121, "é"), [["k", "é".repeat(5120)]]);
    assert.deepEqual(makeAnnotation(10_241, "a"), [["k", "a".repeat(10_240)]]);
  });
});
