import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { freezeDeep } from "../json.ts";
import type { Patch } from "../review.ts";
import { applyPatch, createDraft } from "./patch.ts";

/** Applies a patch exactly as RFC 6902 says, to test the patches of drafts. */
const applyByStandard = (document: unknown, patch: Patch): unknown => {
  const holder = { root: structuredClone(document) };
  for (const change of patch) {
    const { op, path } = change;
    const keys = path
      .split("/")
      .slice(1)
      .map((key) => key.replaceAll("~1", "/").replaceAll("~0", "~"));
    let parent: any = holder;
    let lastKey = "root";
    for (const key of keys) {
      assert.ok(Object.hasOwn(parent, lastKey), `${path} has a parent`);
      parent = Object.getOwnPropertyDescriptor(parent, lastKey)?.value;
      lastKey = key;
    }
    const newValue = "value" in change ? structuredClone(change.value) : undefined;
    if (op !== "add") assert.ok(Object.hasOwn(parent, lastKey), `${op} ${path} exists`);
    if (Array.isArray(parent)) {
      assert.match(lastKey, /^(0|[1-9]\d*)$/);
      assert.ok(Number(lastKey) <= parent.length, `${path} is within the list`);
      parent.splice(Number(lastKey), op === "add" ? 0 : 1, ...(op === "remove" ? [] : [newValue]));
    } else if (op === "remove") delete parent[lastKey];
    else
      Object.defineProperty(parent, lastKey, { value: newValue, writable: true, enumerable: true, configurable: true });
  }
  return holder.root;
};

const buildPatch = <T extends object>(original: T, edit: (value: any) => void): Patch => {
  const { value, changes } = createDraft(freezeDeep(original));
  edit(value);
  return changes();
};

const buildPod = () => ({
  metadata: { labels: { "a/b": "1", "c~d": "2" } },
  spec: { containers: [{ name: "a", ports: [1, 2] }, { name: "b" }, { name: "c" }], nodeName: "n" },
});

describe("a draft", () => {
  const add = (path: string, value: unknown): Patch => [{ op: "add", path, value }];
  const replace = (path: string, value: unknown): Patch => [{ op: "replace", path, value }];
  const remove = (path: string): Patch => [{ op: "remove", path }];
  const edits: [name: string, edit: (pod: any) => unknown, patch: Patch][] = [
    ["has no operation if nothing was written", (p) => p.spec.containers.map((c: any) => c.ports?.length), []],
    ["has no operation if the same text was written", (p) => Object.assign(p.spec, { nodeName: "n" }), []],
    [
      "has no operation if an equal list was written",
      (p) => Object.assign(p.spec.containers[0], { ports: [1, 2] }),
      [],
    ],
    ["replaces a leaf", (p) => Object.assign(p.spec, { nodeName: "m" }), replace("/spec/nodeName", "m")],
    ["removes a key", (p) => delete p.spec.nodeName, remove("/spec/nodeName")],
    ["removes a key set to undefined", (p) => Object.assign(p.spec, { nodeName: undefined }), remove("/spec/nodeName")],
    [
      "adds a new object with all its members in one operation",
      (p) => {
        p.status = { a: { b: 1 } };
        p.status.a.c = 2;
      },
      add("/status", { a: { b: 1, c: 2 } }),
    ],
    [
      "escapes ~ and / in keys",
      (p) => Object.assign(p.metadata.labels, { "a/b": "x", "c~d": "y" }),
      [...replace("/metadata/labels/a~1b", "x"), ...replace("/metadata/labels/c~0d", "y")],
    ],
    ["appends", (p) => p.spec.containers.push({ name: "d" }), add("/spec/containers/3", { name: "d" })],
    [
      "appends by a new list",
      (p) => Object.assign(p.spec, { containers: [...p.spec.containers, { name: "d" }] }),
      add("/spec/containers/3", { name: "d" }),
    ],
    [
      "inserts in front with one operation",
      (p) => p.spec.containers.unshift({ name: "z" }),
      add("/spec/containers/0", { name: "z" }),
    ],
    ["cuts out of the middle with one operation", (p) => p.spec.containers.splice(1, 1), remove("/spec/containers/1")],
    [
      "filters with one operation",
      (p) => Object.assign(p.spec, { containers: p.spec.containers.filter((c: any) => c.name !== "a") }),
      remove("/spec/containers/0"),
    ],
    [
      "edits an element in place",
      (p) =>
        Object.assign(
          p.spec.containers.find((c: any) => c.name === "b"),
          { image: "i" },
        ),
      add("/spec/containers/1/image", "i"),
    ],
    [
      "edits an element of a list that grew",
      (p) => {
        p.spec.containers[0].ports.push(3);
        p.spec.containers[2].name = "C";
      },
      [...add("/spec/containers/0/ports/2", 3), ...replace("/spec/containers/2/name", "C")],
    ],
    [
      "adds the key __proto__",
      (p) => Object.defineProperty(p.metadata.labels, "__proto__", { value: "x" }),
      add("/metadata/labels/__proto__", "x"),
    ],
    [
      "empties a list",
      (p) => Object.assign(p.spec.containers[0].ports, { length: 0 }),
      [...remove("/spec/containers/0/ports/1"), ...remove("/spec/containers/0/ports/0")],
    ],
    [
      "turns a list into an object",
      (p) => Object.assign(p.spec.containers[0], { ports: { 0: 1 } }),
      replace("/spec/containers/0/ports", { 0: 1 }),
    ],
  ];
  for (const [name, edit, patch] of edits) it(name, () => assert.deepEqual(buildPatch(buildPod(), edit), patch));

  it("the patch of a draft has the final content of values that were moved or inserted twice", () => {
    const patch = buildPatch(buildPod(), (p) => {
      const first = p.spec.containers[0];
      p.copy = first;
      p.spec.containers.push(p.spec.containers.shift());
      first.name = "moved";
    });
    assert.deepEqual(applyByStandard(buildPod(), patch), {
      ...buildPod(),
      copy: { name: "moved", ports: [1, 2] },
      spec: { containers: [{ name: "b" }, { name: "c" }, { name: "moved", ports: [1, 2] }], nodeName: "n" },
    });
  });

  it("a draft has the same keys and values as the object", () => {
    const { value } = createDraft<any>(buildPod());
    assert.deepEqual(JSON.parse(JSON.stringify(value)), buildPod());
    assert.deepEqual(Object.keys(value.spec), ["containers", "nodeName"]);
    assert.ok(Array.isArray(value.spec.containers) && "nodeName" in value.spec && !("x" in value.spec));
    assert.equal(Reflect.get(value.spec, "__proto__"), Object.prototype);
    assert.deepEqual({ ...value.spec.containers[1] }, { name: "b" });
  });

  it("a draft finds the one change in a deep copy of a value with 400 levels", () => {
    let deep: unknown = 1;
    for (let level = 0; level < 400; level++) deep = [deep, level];
    const patch = buildPatch({ deep }, (value) => {
      const copy = structuredClone(deep) as unknown[];
      copy.push("end");
      value.deep = copy;
    });
    assert.deepEqual(patch, [{ op: "add", path: "/deep/2", value: "end" }]);
  });

  for (const wrong of [() => {}, 1n, Number.NaN, Symbol("x")])
    it(`refuses to write a ${typeof wrong}`, () =>
      assert.throws(
        () =>
          buildPatch(buildPod(), (p) => {
            p.x = { y: [wrong] };
          }),
        /the rule wrote/,
      ));

  // A random edit of the part of a draft at `path`. The edit uses `value` or the part at `sourcePath`.
  type Edit = { path: number[]; act: string; key: string; index: number; value: unknown; sourcePath: number[] };
  const key = fc.oneof(
    fc.constantFrom("a", "b", "~", "/", "a/~b", "", "0", "__proto__", "constructor", "toJSON", "length"),
    // A key with a backslash makes V8's JSON.parse misread other keys (github.com/nodejs/node/issues/63785).
    fc.string().filter((text) => !text.includes("\\")),
  );
  const json = fc.letrec((tie) => ({
    any: fc.oneof(
      { maxDepth: 4 },
      fc.constantFrom(null, true, "", "a", 0, -1, 1.5),
      fc.array(tie("any"), { maxLength: 4 }),
      tie("object"),
    ),
    object: fc.array(fc.tuple(key, tie("any")), { maxLength: 4 }).map((pairs) => Object.fromEntries(pairs)),
  }));
  const path = fc.array(fc.nat(5), { maxLength: 4 });
  const edit: fc.Arbitrary<Edit> = fc.record({
    path,
    sourcePath: path,
    key,
    index: fc.nat(5),
    value: json.any,
    act: fc.constantFrom(
      "set",
      "delete",
      "push",
      "unshift",
      "splice",
      "reverse",
      "length",
      "move",
      "alias",
      "insert",
      "spread",
    ),
  });
  /** Each number of `path` chooses one of the objects and lists in the value. */
  const findPart = (value: any, path: number[]): any => {
    for (const choice of path) {
      const parts = Object.values(value).filter((v) => typeof v === "object" && v !== null);
      if (parts.length === 0) return value;
      value = parts[choice % parts.length];
    }
    return value;
  };
  const contains = (outer: unknown, inner: unknown): boolean =>
    outer === inner ||
    (typeof outer === "object" && outer !== null && Object.values(outer).some((v) => contains(v, inner)));
  const makeEdit = (root: any, { path, act, key, index, value, sourcePath }: Edit) => {
    const target = findPart(root, path);
    const source = findPart(root, sourcePath);
    const setOwn = (k: string, v: unknown) =>
      Object.defineProperty(target, k, { value: v, writable: true, enumerable: true, configurable: true });
    // A value that contains itself can't be JSON.
    const replacement = contains(source, target) ? structuredClone(value) : source;
    if (!Array.isArray(target)) {
      const keys = Object.keys(target);
      if (act === "delete" && keys.length > 0) delete target[keys[index % keys.length] ?? ""];
      else setOwn(key, act === "move" || act === "alias" ? replacement : structuredClone(value));
    } else if (act === "set" && target.length > 0) target[index % target.length] = structuredClone(value);
    else if (act === "push") target.push(structuredClone(value));
    else if (act === "unshift") target.unshift(structuredClone(value), structuredClone(value));
    else if (act === "splice") target.splice(index, 1);
    else if (act === "reverse") target.reverse();
    else if (act === "length") target.length = Math.min(index, target.length);
    else if (act === "alias" || act === "move") target.push(replacement);
    else if (act === "insert") target.splice(index, 0, replacement);
  };

  it("the patch of a draft changes any object as any edits of the draft did", () => {
    fc.assert(
      fc.property(json.object, fc.array(edit, { maxLength: 8 }), (start, edits) => {
        const original = freezeDeep(structuredClone(start) as object);
        const expected = structuredClone(start) as object;
        for (const edit of edits) makeEdit(expected, edit);
        const patch = buildPatch(original, (value) => {
          for (const edit of edits) makeEdit(value, edit);
        });
        assert.deepEqual(applyPatch(original, patch), applyByStandard(original, patch));
        // The patch is sent as JSON.
        assert.deepEqual(
          applyByStandard(JSON.parse(JSON.stringify(original)), JSON.parse(JSON.stringify(patch))),
          JSON.parse(JSON.stringify(expected)),
        );
      }),
      { numRuns: 2000 },
    );
  });

  it("a draft is applied fast if it removes many members of a large map", () => {
    const keys = Array.from({ length: 50_000 }, (_, index) => `k${index}`);
    const original = freezeDeep({ map: Object.fromEntries(keys.map((key) => [key, key])) });
    const patch = keys.slice(1).map((key) => ({ op: "remove" as const, path: `/map/${key}` }));
    assert.deepEqual(applyPatch(original, patch), { map: { k0: "k0" } });
    assert.equal(Object.keys(original.map).length, 50_000);
  });
  it("the patch of a draft is applied to a copy that shares the unchanged parts with the original", () => {
    const original = freezeDeep(buildPod());
    const patch = buildPatch(original, (value) => {
      value.spec.containers.splice(0, 1);
      value.spec.containers[0].image = "i";
      delete value.metadata.labels["a/b"];
    });
    const result = applyPatch(original, patch) as typeof original;
    assert.deepEqual(result, {
      metadata: { labels: { "c~d": "2" } },
      spec: { containers: [{ name: "b", image: "i" }, { name: "c" }], nodeName: "n" },
    });
    assert.equal(result.spec.containers[1], original.spec.containers[2]);
    assert.throws(
      () => applyPatch({}, [{ op: "remove", path: "/a/b" }]),
      /^TypeError: there is nothing at \/a\/b to remove$/,
    );
  });

  it("the patch of a draft changes any value to any other value", () => {
    fc.assert(
      fc.property(json.any, json.any, (before, after) => {
        const patch = buildPatch({ at: before }, (value) => {
          value.at = after;
        });
        assert.deepEqual(applyByStandard({ at: before }, patch), { at: after });
      }),
      { numRuns: 2000 },
    );
  });
});
