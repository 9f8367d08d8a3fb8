import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { evaluateCalls } from "../../../test/cel-calls.ts";
import {
  type AuthorizationAnswer,
  type AuthorizationAttributes,
  Authorizer,
  authorizerFunctions,
  MissingAuthorization,
  ResourceCheck,
} from "./authorizer.ts";

/** Evaluates an expression with this answer to its check; returns its value and what was asked. */
const evaluate = (expression: string, answer: AuthorizationAnswer = { allowed: false }) => {
  const asked: AuthorizationAttributes[] = [];
  const authorizer = new Authorizer({ user: "alice", groups: ["developers"] }, (attributes) => {
    asked.push(attributes);
    return answer;
  });
  const requestResource = new ResourceCheck(authorizer, { group: "", resource: "pods", namespace: "a", name: "b" });
  const { value } = evaluateCalls(expression, authorizerFunctions, { authorizer, requestResource });
  return { value, asked };
};

describe("the authorizer", () => {
  it("is asked for a resource with all that the check names", () => {
    const chain = 'group("apps").resource("deployments").subresource("scale").namespace("a").name("b")';
    const { asked } = evaluate(`authorizer.${chain}.check("patch").allowed()`);
    assert.deepEqual(asked, [
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

  it("is asked for the requested resource, with a change", () => {
    const { asked } = evaluate('requestResource.name("other").check("get").allowed()');
    const resourceAttributes = {
      group: "",
      version: "*",
      resource: "pods",
      namespace: "a",
      name: "other",
      verb: "get",
    };
    assert.deepEqual(asked, [{ user: "alice", groups: ["developers"], resourceAttributes }]);
  });

  it("is asked for a path in the name of a service account", () => {
    const { asked } = evaluate('authorizer.serviceAccount("ns", "app").path("/metrics").check("get").allowed()');
    const nonResourceAttributes = { path: "/metrics", verb: "get" };
    const groups = ["system:serviceaccounts", "system:serviceaccounts:ns"];
    assert.deepEqual(asked, [{ user: "system:serviceaccount:ns:app", groups, nonResourceAttributes }]);
  });

  it("is asked with selectors as they were written", () => {
    const { asked } = evaluate(
      'authorizer.group("").resource("pods").fieldSelector("a=b").labelSelector("c in (").check("list").allowed()',
    );
    const [{ resourceAttributes }] = asked as [Extract<AuthorizationAttributes, { resourceAttributes: object }>];
    assert.deepEqual(resourceAttributes.fieldSelector, { rawSelector: "a=b" });
    assert.deepEqual(resourceAttributes.labelSelector, { rawSelector: "c in (" });
  });

  const check = 'authorizer.path("/").check("get")';
  it("gives its answer to the expression", () => {
    assert.equal(evaluate(`${check}.allowed()`, { allowed: true }).value, true);
    assert.equal(evaluate(`${check}.allowed()`).value, false);
    assert.equal(evaluate(`${check}.reason()`, { allowed: true, reason: "RBAC" }).value, "RBAC");
    assert.equal(evaluate(`${check}.reason()`).value, "");
    assert.equal(evaluate(`${check}.errored()`).value, false);
    assert.equal(evaluate(`${check}.errored()`, { allowed: false, error: "timeout" }).value, true);
    assert.equal(evaluate(`${check}.error()`, { allowed: false, error: "timeout" }).value, "timeout");
  });

  it("can stop an evaluation whose answer is missing", () => {
    const authorizer = new Authorizer({ user: "alice" }, (attributes) => {
      throw new MissingAuthorization(attributes);
    });
    const { error } = evaluateCalls(`${check}.allowed()`, authorizerFunctions, { authorizer });
    assert.equal(error, "the answer of the authorizer is missing");
  });
});
