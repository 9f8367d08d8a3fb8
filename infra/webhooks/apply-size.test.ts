import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { countAnnotationBytesAfterApply } from "./apply-size.ts";

const key = "kubectl.kubernetes.io/last-applied-configuration";

describe("the annotations of an object that kubectl applies", () => {
  const cases: [name: string, object: object, annotations: Record<string, string>][] = [
    [
      "contain the whole object",
      { kind: "A", metadata: { name: "a" } },
      { [key]: '{"kind":"A","metadata":{"annotations":{},"name":"a"}}\n' },
    ],
    [
      "contain the object's own annotations twice",
      { metadata: { name: "a", annotations: { b: "cd" } } },
      { b: "cd", [key]: '{"metadata":{"annotations":{"b":"cd"},"name":"a"}}\n' },
    ],
    [
      "are written as Go writes JSON",
      { metadata: {}, spec: "a && b < c\u2028" },
      { [key]: '{"metadata":{"annotations":{}},"spec":"a \\u0026\\u0026 b \\u003c c\\u2028"}\n' },
    ],
    ["are counted in bytes", { metadata: {}, spec: "ä" }, { [key]: '{"metadata":{"annotations":{}},"spec":"ä"}\n' }],
  ];
  for (const [name, object, annotations] of cases)
    it(name, () => {
      const text = Object.entries(annotations).flat().join("");
      assert.equal(countAnnotationBytesAfterApply(object), Buffer.byteLength(text));
    });
});
