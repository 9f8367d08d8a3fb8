import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { readRows } from "../../test/rows.ts";
import { type Manifest, parseManifests } from "./manifests.ts";
import { findPosition } from "./positions.ts";

interface BrokenText {
  name: string;
  text: string;
  sentence: string;
}
const rows = readRows<{
  broken: BrokenText[];
  indented: { name: string; text: string; value: unknown }[];
  merges: { name: string; written: string; value: object }[];
  streams: { name: string; text: string; found: unknown[] }[];
}>(import.meta.filename);

const read = (text: string) => parseManifests({ name: "a.yaml", text });

const levels = [1, 2, 3, 4, 5, 6];
const start = "apiVersion: v1\nkind: Pod\n";
const bomb = `${start}a0: &a0 [${"x,".repeat(9)}]\n${levels
  .map((level) => `a${level}: &a${level} [${`*a${level - 1},`.repeat(9)}]`)
  .join("\n")}`;
const merging = `${start}a0: &a0 { x: 1 }\n${levels
  .map((level) => `a${level}: &a${level} { <<: [${`*a${level - 1},`.repeat(9)}] }`)
  .join("\n")}`;

describe("the manifests of a file", () => {
  const broken: BrokenText[] = [
    ...rows.broken,
    { name: "aliases without end", text: bomb, sentence: "^can't be read: its aliases stand for too many" },
    { name: "merges without end", text: merging, sentence: "^can't be read: its aliases stand for too many" },
    { name: "lists 50,000 levels deep", text: `${start}spec: ${"[".repeat(50_000)}`, sentence: "nested too deeply" },
    {
      name: "lists 300 levels deep",
      text: `{"apiVersion":"v1","kind":"Pod","a":${"[".repeat(300)}${"]".repeat(300)}}`,
      sentence: "^is nested deeper than 200 levels$",
    },
  ];
  for (const { name, text, sentence } of broken)
    it(`are not read if there is ${name}, and the sentence has the line`, () => {
      const { manifests, faults } = read(`# first\n---\n${text}`);
      assert.deepEqual(manifests, []);
      assert.match(faults[0]?.sentence ?? "", new RegExp(sentence));
      assert.ok((faults[0]?.line ?? 0) >= 3);
    });

  it("the manifests of a file have numbers, booleans and texts as kubectl reads them", () => {
    const [manifest] = read(
      "apiVersion: v1\nkind: A\nmode: 0644\nnew: 0o17\nset: off\ntime: 12:30\nday: 2026-01-01\nmany: 1_000\nhash: e1\nbig: 1e3\n",
    ).manifests;
    const { mode, new: octal, set, time, day, many, hash, big } = manifest?.object ?? {};
    assert.deepEqual(
      [mode, octal, set, time, day, many, hash, big],
      [420, 15, false, "12:30", "2026-01-01", 1000, "e1", 1000],
    );
  });

  it("the manifests of a file have integers of 64 bits without rounding", () => {
    const list = "[9007199254740993, -9223372036854775808, 9223372036854775808, 9007199254740991]";
    const plain = "apiVersion: v1\nkind: A\nlist:\n- 9007199254740993\n- 1\n";
    const texts = [
      plain,
      plain.replace("9007199254740993", "0x20000000000001 # hexadecimal"),
      plain.replace("9007199254740993", "9_007_199_254_740_993"),
      `apiVersion: v1\nkind: A\nlist: ${list}\n`,
      `apiVersion: v1\nkind: A\nsame: &list ${list}\nlist: *list\n`,
      `{"apiVersion":"v1","kind":"A","list":${list}}`,
    ];
    const firstNumbers = [9007199254740993n, 1];
    const allNumbers = [9007199254740993n, -9223372036854775808n, 2 ** 63, 9007199254740991];
    assert.deepEqual(
      texts.map((text) => read(text).manifests[0]?.object.list),
      [firstNumbers, firstNumbers, firstNumbers, allNumbers, allNumbers, allNumbers],
    );
  });

  it("the manifests of a file are the objects in Lists, in typed lists and in Lists within Lists", () => {
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

  it("the manifests of a file have a separate copy of a value for each alias", () => {
    const [manifest] = read("apiVersion: v1\nkind: A\na: &a { b: 1 }\nc: *a\nd: { <<: *a }\n").manifests;
    const { a, c, d } = manifest?.object ?? {};
    assert.deepEqual([a, c, d], [{ b: 1 }, { b: 1 }, { b: 1 }]);
    assert.notEqual(a, c);
  });

  it("points, signs and underscores without a digit are texts, as in kubectl", () => {
    const words = [".", "-.", "+.", "._", "._5", ".5", "-.5", "1.", "1_0.5", ".5_5", "-._5"];
    const { manifests } = read(`apiVersion: v1\nkind: A\nall:\n${words.map((word) => `- ${word}\n`).join("")}`);
    assert.deepEqual(manifests[0]?.object.all, [".", "-.", "+.", "._", "._5", 0.5, -0.5, 1, 10.5, 0.55, -0.5]);
  });
  it("the manifests of a file have sets and ordered maps as kubectl reads them, as plain maps and lists", () => {
    const texts = "a: !!omap [{ x: 1 }, { z: 2 }]\nb: !!set {? x, ? z}\nc: !!pairs [x: 1, x: 2]\n";
    assert.deepEqual(read(`apiVersion: v1\nkind: A\n${texts}`).manifests[0]?.object, {
      apiVersion: "v1",
      kind: "A",
      a: [{ x: 1 }, { z: 2 }],
      b: { x: null, z: null },
      c: [{ x: 1 }, { x: 2 }],
    });
  });

  const growing: [name: string, write: (index: number) => string][] = [
    ["keys of a map", (index) => `  k${index}: v`],
    ["keys of a map in braces", (index) => `${index === 0 ? "  {" : ","} k${index}: v`],
    ["keys of a set", (index) => `${index === 0 ? "  !!set\n" : ""}  ? k${index}`],
    ["anchors with aliases", (index) => `  - &a${index} v\n  - *a${index}`],
    ["aliases in a list with an alias", (index) => `${index === 0 ? "  &l\n" : ""}  - &a${index} v\n  - *a${index}`],
  ];
  for (const [name, write] of growing)
    it(`take eight times as long to read, not 64 times, with eight times as many ${name}`, () => {
      const measureReading = (count: number) => {
        const written = Array.from({ length: count }, (_, index) => write(index)).join("\n");
        const text = `apiVersion: v1\nkind: A\nm: {x: y}\na:\n${written}${written.startsWith("  {") ? "}" : ""}\nb: 1\n`;
        const before = process.cpuUsage();
        assert.deepEqual(read(text).faults, []);
        const { user, system } = process.cpuUsage(before);
        return user + system;
      };
      const measure = (count: number) => Math.min(...[1, 2].map(() => measureReading(count)));
      const [one, eight] = [measure(2000), measure(16_000)];
      assert.ok(eight < 24 * one, `${one} µs, then ${eight} µs`);
    });

  it("refused manifests are reported with the line of the first repeated key, or of an earlier error", () => {
    const findLine = (text: string) => read(`apiVersion: v1\nkind: A\n${text}`).faults[0]?.line;
    const repeated = "a:\n  b: {x: 1,\n    x: 2}\n  c: 1\n  c: 2\n";
    assert.deepEqual(
      [findLine(repeated), findLine(`d: "\\q"\n${repeated}`), findLine(`${repeated}d: "\\q"\n`)],
      [5, 3, 5],
    );
  });

  for (const { name, text, value } of rows.indented)
    it(`have lines of any indentation as in kubectl: ${name}`, () => {
      const { manifests, faults } = read(`apiVersion: v1\nkind: A\ninner:\n  spec: ${text}\nlast: 1\n`);
      assert.deepEqual(faults, []);
      assert.deepEqual(manifests[0]?.object, { apiVersion: "v1", kind: "A", inner: { spec: value }, last: 1 });
      assert.equal(findPosition(manifests[0] as Manifest, ["last"]).line, 5 + text.split("\n").length - 1);
    });

  for (const { name, written, value } of rows.merges)
    it(`have merged keys as in kubectl: ${name}`, () => {
      const anchors = "a: &a { name: a, size: 1 }\nb: &b { name: b }\nc: &c { name: c, <<: *a, far: true }\n";
      assert.deepEqual(read(`apiVersion: v1\nkind: A\n${anchors}d: ${written}\n`).manifests[0]?.object.d, value);
    });

  it("the manifests of a file have keys that are numbers or booleans converted as in kubectl", () => {
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

  it("the manifests of a file have a key << in quotes as a usual key", () =>
    assert.deepEqual(read('apiVersion: v1\nkind: A\nd: { "<<": x }\n').manifests[0]?.object.d, { "<<": "x" }));

  it("the manifests of a file are refused if a merged value is not a map", () => {
    const { faults } = read("apiVersion: v1\nkind: A\na: { <<: [1] }\n");
    assert.match(String(faults[0]?.sentence), /what is merged by << must be a map/);
  });

  it("the manifests of a file may have keys with the names of members of a prototype", () => {
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

  for (const { name, text, found } of rows.streams)
    it(`may be ${name}`, () => {
      assert.deepEqual(summarize(text), [found, []]);
    });

  const brokenStreams: [name: string, text: string, line: number][] = [
    ["has a text without an end", `${printObject("a")}\n{"${'\\"'.repeat(50_000)}`, 8],
    ["is not closed", `${printObject("a")}\n{"apiVersion"`, 8],
    ["is not JSON", `${printObject("a")}${printObject("b")}\nword`, 14],
    ["has a key twice", `${printObject("a")}\n{"a":1,"b":{"c":1,"c":2}}`, 8],
  ];
  for (const [name, text, line] of brokenStreams)
    it(`are read up to a part of a stream that ${name}, and its line is reported`, () => {
      const { faults, manifests } = read(text);
      assert.deepEqual(faults, [{ file: "a.yaml", line, sentence: "is no JSON, but the text before it is" }]);
      assert.equal(Object(manifests[0]?.object.metadata).name, "a");
    });

  it("a file may have a repeated key if the caller accepts repeated keys; the last value counts", () => {
    const text = 'apiVersion: v1\nkind: A\nmetadata:\n  name: a\n  "name": b\n';
    assert.match(read(text).faults[0]?.sentence ?? "", /is there twice/);
    const { faults, manifests } = parseManifests({ name: "a.yaml", text }, { readsLikeKubectl: true });
    assert.deepEqual(faults, []);
    assert.deepEqual(manifests[0]?.object.metadata, { name: "b" });
    assert.deepEqual(manifests[0]?.repeated, [{ key: '"name"', line: 5 }]);
    const json = '{"apiVersion":"v1","kind":"A","kind":"B"}';
    assert.deepEqual(parseManifests({ name: "a.json", text: json }, { readsLikeKubectl: true }), {
      faults: [],
      nonManifestLines: [],
      manifests: [
        {
          source: { name: "a.json", text: json },
          document: 0,
          path: [],
          line: 1,
          object: { apiVersion: "v1", kind: "B" },
          repeated: [{ key: '"kind"', line: 1 }],
        },
      ],
    });
  });

  it("the manifests of a file may have a key a hundred thousand times, read in linear time", () => {
    const text = `apiVersion: v1\nkind: A\ndata:\n${"  k: a\n".repeat(100_000)}`;
    const [manifest] = parseManifests({ name: "a.yaml", text }, { readsLikeKubectl: true }).manifests;
    assert.deepEqual(manifest?.repeated?.length, 99_999);
    assert.deepEqual(manifest.repeated.at(-1), { key: "k", line: 100_003 });
  });

  it("the manifests of a file are refused if a key of a JSON object is there twice", () => {
    assert.match(read('{"apiVersion":"v1","kind":"A","kind":"B"}').faults[0]?.sentence ?? "", /is there twice/);
  });

  it("keys of JSON may have escapes, even if V8 misreads such keys because of a text before", () => {
    const metadata = '"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}';
    for (let count = 0; count < 20; count++) JSON.parse(`{${metadata},"\\\\u00":1}`);
    const { manifests, faults } = read(`{${metadata},"\\u0073pec":{"hostNetwork":true}}`);
    assert.deepEqual([manifests.map(({ object }) => object.spec), faults], [[{ hostNetwork: true }], []]);
  });

  it("the manifests of a file are the objects in a List of JSON", () => {
    const list = {
      apiVersion: "v1",
      kind: "List",
      items: [JSON.parse(printObject("a")), JSON.parse(printObject("b"))],
    };
    assert.deepEqual(summarize(JSON.stringify(list, null, 2)), [
      [
        ["a", 0, 5], // the name, the document and the line
        ["b", 0, 12],
      ],
      [],
    ]);
  });

  it("the manifests of a file have the line and column of each field in a stream of JSON", () => {
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

  it("the manifests of a file have the line and column of each field in a List of YAML", () => {
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
