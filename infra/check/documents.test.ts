import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { manifestsIn, positionOf } from "./documents.ts";

const read = (text: string) => manifestsIn({ name: "a.yaml", text });

const bomb = [
  ...["apiVersion: v1", "kind: Pod", `a0: &a0 [${"x,".repeat(9)}]`],
  ...[1, 2, 3, 4, 5, 6].map((level) => `a${level}: &a${level} [${`*a${level - 1},`.repeat(9)}]`),
].join("\n");

describe("what a file holds", () => {
  const broken: [name: string, text: string, sentence: RegExp][] = [
    ["no YAML", "a: b: c\n", /^is no YAML: /],
    ["aliases without end", bomb, /^can't be read: Excessive alias count/],
    ["what is nested too deeply", `apiVersion: v1\nkind: Pod\nspec: ${"[".repeat(50_000)}`, /nested too deeply/],
    [
      "what is nested deeply",
      `{"apiVersion":"v1","kind":"Pod","a":${"[".repeat(300)}${"]".repeat(300)}}`,
      /^is nested deeper than 200 levels$/,
    ],
    ["a list", "- 1\n", /^is no manifest: it must be a map$/],
    ["a word", "word\n", /^is no manifest: it must be a map$/],
    ["a name that is none", "apiVersion: v1\nkind: Pod\nmetadata: { name: 1 }\n", /^metadata.name must be a text$/],
    ["metadata that is none", "apiVersion: v1\nkind: Pod\nmetadata: []\n", /^metadata must be a map$/],
    [
      "a label that is none",
      "apiVersion: v1\nkind: Pod\nmetadata: { labels: { a: yes } }\n",
      /^metadata.labels.a must be a text; in quotes true would be one$/,
    ],
    ["finalizers that are none", "apiVersion: v1\nkind: Pod\nmetadata: { finalizers: a }\n", /must be a list$/],
    ["an item that is none", "apiVersion: v1\nkind: List\nitems: [1]\n", /^is no manifest: it must be a map$/],
  ];
  for (const [name, text, sentence] of broken)
    it(`is refused in a sentence with its line where it is ${name}`, () => {
      const { manifests, faults } = read(`# first\n---\n${text}`);
      assert.deepEqual(manifests, []);
      assert.match(faults[0]?.sentence ?? "", sentence);
      assert.ok((faults[0]?.line ?? 0) >= 3);
    });

  it("is read as kubectl reads it", () => {
    const [manifest] = read(
      "apiVersion: v1\nkind: A\nmode: 0644\nnew: 0o17\non: off\ntime: 12:30\nday: 2026-01-01\nmany: 1_000\nhash: e1\nbig: 1e3\n",
    ).manifests;
    const { mode, new: fresh, on, time, day, many, hash, big } = manifest?.object ?? {};
    assert.deepEqual(
      [mode, fresh, on, time, day, many, hash, big],
      [420, 15, false, "12:30", "2026-01-01", 1000, "e1", 1000],
    );
  });

  it("is every object of Lists, which may be typed, and in Lists", () => {
    const { manifests } = read(`apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: PodList
  items:
  - metadata: { name: a }
- { apiVersion: v1, kind: Secret }
`);
    assert.deepEqual(
      manifests.map(({ object: { kind }, line, path }) => [kind, line, path.join("/")]),
      [
        ["Pod", 7, "items/0/items/0"],
        ["Secret", 8, "items/1"],
      ],
    );
  });

  it("is in each place of its own, though aliases lead there", () => {
    const [manifest] = read("apiVersion: v1\nkind: A\na: &a { b: 1 }\nc: *a\nd: { <<: *a }\n").manifests;
    const { a, c, d } = manifest?.object ?? {};
    assert.deepEqual([a, c, d], [{ b: 1 }, { b: 1 }, { b: 1 }]);
    assert.notEqual(a, c);
  });

  it("takes keys of prototypes for keys like any other", () => {
    const [manifest] = read(
      "apiVersion: v1\nkind: A\n__proto__: { a: 1 }\nmetadata: { labels: { constructor: b } }\n",
    ).manifests;
    assert.ok(Object.hasOwn(manifest?.object ?? {}, "__proto__"));
  });

  it("is found again, each field by its line and column", () => {
    const [manifest] = read(`a: 1
---
apiVersion: v1
kind: List
items:
- kind: Pod
  apiVersion: v1
  spec:
    containers:
    # one
    - name: a
      image: b
`).manifests;
    assert.ok(manifest);
    const at = (...field: (string | number)[]) => Object.values(positionOf(manifest, field));
    assert.deepEqual(at("spec", "containers", 0, "image"), [12, 7]);
    assert.deepEqual(at("spec", "containers", 0), [11, 7]);
    assert.deepEqual(at("spec", "containers", 0, "resources", "limits"), [11, 7]);
    assert.deepEqual(at("spec", "containers", 7), [9, 5]);
    assert.deepEqual(at(), [6, 3]);
    assert.deepEqual(at("nothing"), [6, 3]);
  });
});
