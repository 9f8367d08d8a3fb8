import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Request } from "../review.ts";
import { hasUnusualNull, resolveNulls } from "./nulls.ts";

const request = (object: unknown, oldObject: unknown = null): Request => ({
  uid: "1",
  kind: { group: "", version: "v1", kind: "Pod" },
  resource: { group: "", version: "v1", resource: "pods" },
  operation: "CREATE",
  userInfo: {},
  object,
  oldObject,
});

describe("an object with nulls", () => {
  const table: [name: string, sent: object, read: object][] = [
    [
      "does without a member that is null",
      { metadata: null, spec: { volumes: null, nodeName: "n" } },
      { spec: { nodeName: "n" } },
    ],
    [
      "has an empty element where one is null",
      { spec: { volumes: [null, { name: "v" }] } },
      { spec: { volumes: [{}, { name: "v" }] } },
    ],
    ["has an empty text in a list of texts", { metadata: { finalizers: [null] } }, { metadata: { finalizers: [""] } }],
    ["keeps the key in a map of texts", { metadata: { labels: { a: null } } }, { metadata: { labels: { a: "" } } }],
    ["keeps the key in a map of amounts", { limits: { cpu: null } }, { limits: { cpu: "0" } }],
    ["takes __proto__ for a key like others", JSON.parse('{"__proto__":{"a":null}}'), JSON.parse('{"__proto__":{}}')],
  ];
  for (const [name, sent, read] of table)
    it(name, () => {
      const before = JSON.stringify(sent);
      assert.deepEqual(resolveNulls(request(sent, sent)), request(read, read));
      assert.equal(JSON.stringify(sent), before, "the given object stays as it is");
    });

  it("is the same object where it has none, and shares what has none", () => {
    const plain = request({ metadata: { labels: { a: "" } } });
    assert.equal(resolveNulls(plain), plain);
    const status = { conditions: [] };
    assert.equal(Object(resolveNulls(request({ status, spec: null })).object).status, status);
  });

  it("may nest deeper than a function can call itself", () => {
    const nested = JSON.parse(`${'{"a":'.repeat(100_000)}null${"}".repeat(100_000)}`);
    assert.equal(resolveNulls(request(nested)).object, nested);
  });
});

describe("the text of a review", () => {
  for (const [text, may] of [
    ['{"object":{"metadata":{"creationTimestamp":null}},"oldObject":null,"options":null}', false],
    ['{"object":null,"oldObject":{}}', false],
    ['{"object":{"spec":null}}', true],
    ['{"object":{"spec":{"volumes":[null]}}}', true],
    ['{"object": null}', true],
  ] as const)
    it(`${may ? "may hold" : "holds"} ${may ? "" : "no "}nulls that concern a rule: ${text}`, () =>
      assert.equal(hasUnusualNull(text), may));
});
