import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { readRows } from "../../../../test/rows.ts";
import { check } from "../../checker/checker.ts";
import { createAdmissionEnvironment } from "../../kubernetes.ts";
import { parse } from "../../parser/parser.ts";
import type { Expression } from "../../parser/syntax.ts";
import { compile, type Outcome } from "../../program/program.ts";
import { CelMap, getDouble, isDouble, isMap, listEntries, Optional, type Value } from "../../values.ts";
import {
  type AuthorizationAnswer,
  type AuthorizationAttributes,
  createAuthorizer,
  createResourceCheck,
  MissingAuthorization,
} from "./authorizer.ts";

const environment = createAdmissionEnvironment({ hasAuthorizer: true, isMutation: true });

const evaluate = (text: string, decide: (attributes: AuthorizationAttributes) => AuthorizationAnswer): Outcome => {
  const checked = check(parse(text, environment.macros) as Expression, environment);
  assert.ok("expression" in checked, text);
  const authorizer = createAuthorizer({ user: "alice", groups: ["developers"] }, decide);
  const requestResource = createResourceCheck(authorizer, { group: "", resource: "pods", namespace: "a", name: "b" });
  const variables = new Map<string, Value>([
    ["authorizer", authorizer],
    ["authorizer.requestResource", requestResource],
  ]);
  const costBudget = { left: 1_000_000 };
  return compile(checked, environment).evaluate({ find: (name) => variables.get(name) }, costBudget);
};

/** Converts a value into the form that the table of expected values has. */
const toPlain = (value: Value): unknown => {
  if (value instanceof Optional) return value.value === undefined ? "none" : { optional: toPlain(value.value) };
  if (value instanceof CelMap)
    return Object.fromEntries(Array.from(listEntries(value), ([key, member]) => [`${key}`, toPlain(member)]));
  assert.ok(!isMap(value));
  return isDouble(value) ? getDouble(value) : value;
};

type Row = { expression: string; value?: unknown; error?: string; cost: number };
for (const [library, rows] of Object.entries(readRows<Record<string, Row[]>>(import.meta.filename)))
  describe(library, () => {
    for (const { expression, ...expected } of rows)
      it(`evaluates ${expression}`, () => {
        const outcome = evaluate(expression, () => ({ allowed: true }));
        assert.deepEqual("value" in outcome ? { ...outcome, value: toPlain(outcome.value) } : outcome, expected);
      });
  });

describe("the authorizer", () => {
  /** Evaluates an expression and returns the questions that it asks the authorizer. */
  const ask = (expression: string): AuthorizationAttributes[] => {
    const questions: AuthorizationAttributes[] = [];
    evaluate(expression, (attributes) => {
      questions.push(attributes);
      return { allowed: false };
    });
    return questions;
  };

  it("the authorizer is asked about a resource with everything that the expression states about the resource", () => {
    const chain = 'group("apps").resource("deployments").subresource("scale").namespace("a").name("b")';
    assert.deepEqual(ask(`authorizer.${chain}.check("patch").allowed()`), [
      {
        user: "alice",
        groups: ["developers"],
        resourceAttributes: {
          group: "apps",
          version: "*",
          resource: "deployments",
          subresource: "scale",
          namespace: "a",
          name: "b",
          verb: "patch",
        },
      },
    ]);
  });

  it("the authorizer is asked about the resource of the request, with the name that the expression sets", () => {
    const questions = ask('authorizer.requestResource.name("other").check("get").allowed()');
    const resource = { group: "", version: "*", resource: "pods", namespace: "a", name: "other" };
    const resourceAttributes = { ...resource, verb: "get" };
    assert.deepEqual(questions, [{ user: "alice", groups: ["developers"], resourceAttributes }]);
  });

  it("the authorizer is asked whether a service account, instead of the user, may read a path", () => {
    const questions = ask('authorizer.serviceAccount("ns", "app").path("/metrics").check("get").allowed()');
    const nonResourceAttributes = { path: "/metrics", verb: "get" };
    const groups = ["system:serviceaccounts", "system:serviceaccounts:ns"];
    assert.deepEqual(questions, [{ user: "system:serviceaccount:ns:app", groups, nonResourceAttributes }]);
  });

  it("the authorizer gets field and label selectors as the expression states them", () => {
    const chain = 'group("").resource("pods").fieldSelector("a=b").labelSelector("c in (")';
    const [question] = ask(`authorizer.${chain}.check("list").allowed()`);
    assert.ok(question && "resourceAttributes" in question);
    assert.deepEqual(question.resourceAttributes.fieldSelector, { rawSelector: "a=b" });
    assert.deepEqual(question.resourceAttributes.labelSelector, { rawSelector: "c in (" });
  });

  const answers: [method: string, answer: AuthorizationAnswer, value: unknown][] = [
    ["allowed", { allowed: true }, true],
    ["allowed", { allowed: false }, false],
    ["reason", { allowed: true, reason: "RBAC" }, "RBAC"],
    ["reason", { allowed: true }, ""],
    ["errored", { allowed: false, error: "timeout" }, true],
    ["errored", { allowed: false }, false],
    ["error", { allowed: false, error: "timeout" }, "timeout"],
  ];
  for (const [method, answer, value] of answers)
    it(`gives ${JSON.stringify(value)} for ${method}() of ${JSON.stringify(answer)}`, () => {
      const outcome = evaluate(`authorizer.path("/").check("get").${method}()`, () => answer);
      assert.deepEqual(outcome, { value, cost: 350_003 });
    });

  it("an evaluation that needs an unknown answer of the authorizer fails, unless another operand decides", () => {
    const check = 'authorizer.path("/").check("get").allowed()';
    const decide = () => {
      throw new MissingAuthorization();
    };
    assert.ok("error" in evaluate(check, decide));
    assert.ok("value" in evaluate(`${check} || true`, decide));
  });
});
