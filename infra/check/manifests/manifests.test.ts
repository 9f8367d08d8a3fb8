import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { parseManifests } from "./manifests.ts";
import { findPosition } from "./positions.ts";

const read = (text: string) => parseManifests({ name: "a.yaml", text });

const levels = [1, 2, 3, 4, 5, 6];
const bomb = [
  ...["apiVersion: v1", "kind: Pod", `a0: &a0 [${"x,".repeat(9)}]`],
  ...levels.map((level) => `a${level}: &a${level} [${`*a${level - 1},`.repeat(9)}]`),
].join("\n");
const merging = [
  ...["apiVersion: v1", "kind: Pod", "a0: &a0 { x: 1 }"],
  ...levels.map((level) => `a${level}: &a${level} { <<: [${`*a${level - 1},`.repeat(9)}] }`),
].join("\n");

describe("what a file holds", () => {
  const broken: [name: string, text: string, sentence: RegExp][] = [
    ["no YAML", "a: b: c\n", /^is no YAML: /],
    ["aliases without end", bomb, /^can't be read: Excessive alias count/],
    ["merges without end", merging, /^can't be read: Excessive alias count/],
    ["what is nested too deeply", `apiVersion: v1\nkind: Pod\nspec: ${"[".repeat(50_000)}`, /nested too deeply/],
    [
      "what is nested deeply",
      `{"apiVersion":"v1","kind":"Pod","a":${"[".repeat(300)}${"]".repeat(300)}}`,
      /^is nested deeper than 200 levels$/,
    ],
    ["a list", "- 1\n", /^is no manifest: it must be a map$/],
    ["a word", "word\n", /^is no manifest: it must be a map$/],
    [
      "a name that is none",
      "apiVersion: v1\nkind: Pod\nmetadata: { name: 1 }\n",
      /^metadata.name must be a text, not 1; in quotes it would be one$/,
    ],
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
      "apiVersion: v1\nkind: A\nmode: 0644\nnew: 0o17\nset: off\ntime: 12:30\nday: 2026-01-01\nmany: 1_000\nhash: e1\nbig: 1e3\n",
    ).manifests;
    const { mode, new: octal, set, time, day, many, hash, big } = manifest?.object ?? {};
    assert.deepEqual(
      [mode, octal, set, time, day, many, hash, big],
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

  const merges: [name: string, written: string, value: object][] = [
    ["in the place of what stands before it", "{ name: d, <<: *a }", { name: "a", size: 1 }],
    ["and is replaced by what stands behind it", "{ <<: *a, name: d }", { name: "d", size: 1 }],
    ["the first of several counting", "{ size: 0, <<: [*b, *a] }", { name: "b", size: 1 }],
    ["with what that merges", "{ name: d, <<: *c }", { name: "a", size: 1, far: true }],
    ["where its key isn't in quotes", '{ "<<": x }', { "<<": "x" }],
  ];
  for (const [name, written, value] of merges)
    it(`has what is merged as kubectl has it, ${name}`, () => {
      const anchors = "a: &a { name: a, size: 1 }\nb: &b { name: b }\nc: &c { name: c, <<: *a, far: true }\n";
      assert.deepEqual(read(`apiVersion: v1\nkind: A\n${anchors}d: ${written}\n`).manifests[0]?.object.d, value);
    });

  it("has the keys that kubectl reads, which are no texts where they mean something else", () => {
    const keys = ["on", "NO", '"y"', "'off'", "010", "0x1F", "1.10", "9000", "1.2.3", "only", "null"];
    for (const text of [
      keys.map((key) => `  ${key}: x\n`).join(""),
      `  {${keys.map((key) => `${key}: x`).join(", ")}}\n`,
    ]) {
      const [manifest] = read(`apiVersion: v1\nkind: ConfigMap\ndata:\n${text}`).manifests;
      const wanted = ["true", "false", "y", "off", "8", "31", "1.1", "9000", "1.2.3", "only", "null"];
      assert.deepEqual(Object.keys(Object(manifest?.object.data)).toSorted(), wanted.toSorted());
    }
  });

  it("merges nothing but maps", () => {
    const { faults } = read("apiVersion: v1\nkind: A\na: { <<: [1] }\n");
    assert.match(String(faults[0]?.sentence), /what is merged by << must be a map/);
  });

  it("takes keys of prototypes for keys like any other", () => {
    const [manifest] = read(
      "apiVersion: v1\nkind: A\n__proto__: { a: 1 }\nmetadata: { labels: { constructor: b } }\n",
    ).manifests;
    assert.ok(Object.hasOwn(manifest?.object ?? {}, "__proto__"));
  });

  const printObject = (name: string) => JSON.stringify({ apiVersion: "v1", kind: "A", metadata: { name } }, null, 2);
  const summarize = (text: string) => {
    const { manifests, faults } = read(text);
    return [
      manifests.map(({ object, document, line }) => [Object(object.metadata).name, document, line]),
      faults.map(({ line, sentence }) => [line, sentence]),
    ];
  };

  const streams: [name: string, text: string, found: object[], faults?: object[]][] = [
    ["one object of JSON", printObject("a"), [["a", 0, 1]]],
    [
      "several, one after the other",
      `\n${printObject("a")}\n\n${printObject("b")}`,
      [
        ["a", 0, 2],
        ["b", 1, 10],
      ],
    ],
    [
      "several on a line",
      JSON.stringify(JSON.parse(printObject("a"))).repeat(2),
      [
        ["a", 0, 1],
        ["a", 1, 1],
      ],
    ],
    ["JSON with tabs", printObject("a").replaceAll("  ", "\t"), [["a", 0, 1]]],
    [
      "JSON and YAML with a marker between",
      `${printObject("a")}\n---\n${printObject("b")}`,
      [
        ["a", 0, 1],
        ["b", 1, 9],
      ],
    ],
    ["a map of YAML in braces", "{apiVersion: v1, kind: A, metadata: {name: a}}\n", [["a", 0, 1]]],
    [
      "braces and brackets in texts",
      `${printObject('{"[')}${printObject("]}\\")}`,
      [
        ['{"[', 0, 1],
        ["]}\\", 1, 7],
      ],
    ],
  ];
  for (const [name, text, found] of streams)
    it(`may be ${name}`, () => {
      assert.deepEqual(summarize(text), [found, []]);
    });

  const brokenStreams: [name: string, text: string, line: number][] = [
    ["is a text without an end", `${printObject("a")}\n{"${'\\"'.repeat(50_000)}`, 8],
    ["isn't closed", `${printObject("a")}\n{"apiVersion"`, 8],
    ["is something else", `${printObject("a")}${printObject("b")}\nword`, 14],
    ["has a key twice", `${printObject("a")}\n{"a":1,"b":{"c":1,"c":2}}`, 8],
  ];
  for (const [name, text, line] of brokenStreams)
    it(`reports the line of a part of a stream that ${name}`, () => {
      const { faults, manifests } = read(text);
      assert.deepEqual(faults, [{ file: "a.yaml", line, sentence: "is no JSON, as what is before it" }]);
      assert.equal(Object(manifests[0]?.object.metadata).name, "a");
    });

  it("may not have a key twice, in JSON either", () => {
    assert.match(read('{"apiVersion":"v1","kind":"A","kind":"B"}').faults[0]?.sentence ?? "", /keys must be unique/);
  });

  it("is every object of a List in JSON as well", () => {
    const list = {
      apiVersion: "v1",
      kind: "List",
      items: [JSON.parse(printObject("a")), JSON.parse(printObject("b"))],
    };
    assert.deepEqual(summarize(JSON.stringify(list, null, 2)), [
      [
        ["a", 0, 5],
        ["b", 0, 12],
      ],
      [],
    ]);
  });

  it("is found again in a stream of JSON, each field by its line and column", () => {
    const { manifests } = read(`${printObject("a")} ${printObject("b")}`);
    const locate = (index: number, ...field: string[]) => {
      const manifest = manifests[index];
      assert.ok(manifest);
      return Object.values(findPosition(manifest, field));
    };
    assert.deepEqual(locate(0, "metadata", "name"), [5, 5]);
    assert.deepEqual(locate(1), [7, 3]);
    assert.deepEqual(locate(1, "metadata", "name"), [11, 5]);
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
    const locate = (...field: (string | number)[]) => Object.values(findPosition(manifest, field));
    assert.deepEqual(locate("spec", "containers", 0, "image"), [12, 7]);
    assert.deepEqual(locate("spec", "containers", 0), [11, 7]);
    assert.deepEqual(locate("spec", "containers", 0, "resources", "limits"), [11, 7]);
    assert.deepEqual(locate("spec", "containers", 7), [9, 5]);
    assert.deepEqual(locate(), [6, 3]);
    assert.deepEqual(locate("nothing"), [6, 3]);
  });
});
