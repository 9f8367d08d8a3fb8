import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdir, mkdtempDisposable, readdir, readFile, rm, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { brotliCompressSync } from "node:zlib";
import { findBuiltModule } from "../../infra/kubernetes/build/module-program.ts";
import { findModule } from "../../infra/kubernetes/find-module.ts";
import { createKubernetes, type Kubernetes } from "../../infra/kubernetes/kubernetes.ts";
import { manifestFile, moduleFiles, unpackModule } from "../../infra/kubernetes/module-files.ts";
import type { KubernetesRequest } from "../../infra/kubernetes/requests.ts";
import { runProgram } from "../checkout.ts";
import { createTestFolder } from "../folders.ts";
import { installPackage } from "../package.ts";
import { needs } from "../parts.ts";

const openFolder = () => mkdtempDisposable(join(tmpdir(), "postern-kubernetes-"));

/** Writes a packed module into a folder: the compressed files of its code and its memory, and their manifest. */
const writePacked = async (folder: string, code: Buffer, memory: Buffer): Promise<void> => {
  const files: Record<string, object> = {};
  for (const [name, contents] of [
    [moduleFiles.code, code],
    [moduleFiles.memory, memory],
  ] as const) {
    files[name] = { sha256: createHash("sha256").update(contents).digest("hex"), bytes: contents.length };
    await writeFile(join(folder, `${name}.br`), brotliCompressSync(contents));
  }
  await writeFile(join(folder, manifestFile), JSON.stringify({ kubernetes: "1.37.2", files }));
};

const listCache = async (cache: string) => (await readdir(cache)).map((name) => join(cache, name)).sort();

const simpleMemory = Buffer.from('{"notServed":true}');

/**
 * The bytes of a minimal WebAssembly module with the exports of the real one. The module contains no data: from a file
 * beside it, the loader copies `simpleMemory` to the address 0 of the module's memory. `answer` returns this text. For
 * an object of one byte, `answer` fails by the instruction `unreachable`. For an object of two bytes, it loops forever.
 */
const simpleModule = (() => {
  const list = (...items: number[][]) => [items.length, ...items.flat()];
  const section = (id: number, body: number[]) => [id, body.length, ...body];
  const [i32, i64, end] = [0x7f, 0x7e, 0x0b];
  const [ifStart, noResult, localGet, i32Const, i64Const, i32Eq] = [0x04, 0x40, 0x20, 0x41, 0x42, 0x46];
  const type = (from: number[], to: number[]) => [0x60, from.length, ...from, to.length, ...to];
  const exported = (name: string, kind: number, index: number) => [name.length, ...Buffer.from(name), kind, index];
  const functionBody = (...instructions: number[]) => [instructions.length + 2, 0, ...instructions, end];
  const ifLengthIs = (bytes: number) => [localGet, /* object's length */ 1, i32Const, bytes, i32Eq, ifStart, noResult];
  const unreachable = [0x00];
  const endlessLoop = [0x03, 0x40, 0x0c, 0, end];
  const types = list(type([i32], [i32]), type([i32], [i64]), type([i32, i32, i32], [i64]));
  const functions = [exported("buffer", 0, 0), exported("setUp", 0, 1), exported("answer", 0, 2)];
  const failures = [...ifLengthIs(1), ...unreachable, end, ...ifLengthIs(2), ...endlessLoop, end];
  // `buffer` returns the address 4096, and `setUp` an empty text. A text is returned as its address in the upper 32
  // bits and its length in the lower ones. The text of `answer`, `simpleMemory`, has the address 0.
  const bodies = list(
    functionBody(i32Const, 0x80, 0x20),
    functionBody(i64Const, 0),
    functionBody(...failures, i64Const, simpleMemory.length),
  );
  // The sections have the types, the types of the functions, the memory, the exports and the functions.
  return Buffer.from([
    ...Buffer.from("\0asm\x01\0\0\0", "latin1"),
    ...section(1, types),
    ...section(3, [3, 0, 1, 2]),
    ...section(5, list([0, 1])),
    ...section(7, list(exported("memory", 2, 0), ...functions)),
    ...section(10, bodies),
  ]);
})();

describe("the loader of a module", () => {
  it("the loader unpacks a module once, and again if another module has the same name", async () => {
    await using packed = await openFolder();
    await using cache = await openFolder();
    await writePacked(packed.path, simpleModule, simpleMemory);
    const first = await unpackModule(packed.path, cache.path);
    assert.deepEqual(await readFile(first.memory), simpleMemory);
    assert.deepEqual(await unpackModule(packed.path, cache.path), first);
    await writePacked(packed.path, simpleModule, Buffer.from("another image"));
    const second = await unpackModule(packed.path, cache.path);
    assert.equal(await readFile(second.memory, "utf8"), "another image");
  });

  it("the loader unpacks a module in several processes at once", async () => {
    await using packed = await openFolder();
    await using cache = await openFolder();
    await writePacked(packed.path, simpleModule, simpleMemory);
    const modules = await Promise.all(Array.from({ length: 4 }, () => unpackModule(packed.path, cache.path)));
    assert.equal(new Set(modules.map(({ code }) => code)).size, 1);
    assert.deepEqual((await readdir(cache.path)).length, 1);
  });

  it("the loader deletes modules that no process has used for a week when it unpacks another module", async () => {
    await using packed = await openFolder();
    await using cache = await openFolder();
    const unpack = async (memory: string) => {
      await writePacked(packed.path, simpleModule, Buffer.from(memory));
      return dirname((await unpackModule(packed.path, cache.path)).code);
    };
    const eightDaysAgo = new Date(Date.now() - 8 * 24 * 60 * 60 * 1000);
    const [unused, used, recent, draft, other] = [
      await unpack("unused"),
      await unpack("used"),
      await unpack("recent"),
      join(cache.path, "kubernetes-unpacked-1.37.2-abc.1.x"),
      join(cache.path, "registry-abc"),
    ];
    for (const folder of [draft, other]) await mkdir(folder);
    for (const folder of [unused, used, draft, other]) await utimes(folder, new Date(), eightDaysAgo);
    assert.equal(await unpack("used"), used);
    assert.deepEqual(await listCache(cache.path), [draft, other, recent, unused, used].sort());
    const added = await unpack("added");
    assert.deepEqual(await listCache(cache.path), [added, other, recent, used].sort());
  });

  it("the loader says that the cache can't be written", async () => {
    await using packed = await openFolder();
    await writePacked(packed.path, simpleModule, simpleMemory);
    await assert.rejects(unpackModule(packed.path, join(packed.path, manifestFile)), {
      message: /^the cache can't be written, XDG_CACHE_HOME names another one: ENOTDIR/,
    });
  });

  for (const [name, change, message] of [
    ["that was changed", () => brotliCompressSync(Buffer.alloc(simpleMemory.length)), /its SHA-256 differs$/],
    ["that is cut off", (file: Buffer) => file.subarray(0, 20), /can't be unpacked: unexpected end of file$/],
    [
      "that is too long",
      () => brotliCompressSync(Buffer.alloc(1 << 20)),
      /can't be unpacked: it has more than 18 bytes$/,
    ],
  ] as const)
    it(`the loader refuses a file ${name}, and leaves no file in the cache`, async () => {
      await using packed = await openFolder();
      await using cache = await openFolder();
      await writePacked(packed.path, simpleModule, simpleMemory);
      const file = join(packed.path, `${moduleFiles.memory}.br`);
      await writeFile(file, change(await readFile(file)));
      await assert.rejects(unpackModule(packed.path, cache.path), { message });
      assert.deepEqual(await readdir(cache.path), []);
    });

  it("the module still answers after an object that makes the module fail, or that takes too long", async () => {
    await using packed = await openFolder();
    await using cache = await openFolder();
    await writePacked(packed.path, simpleModule, simpleMemory);
    const module = await createKubernetes({ packed: packed.path, cache: cache.path, timeout: 2000 });
    const create = (object: string) => module.handle({ verb: "create", apiVersion: "v1", kind: "Pod", object });
    // The simple module fails at an object of one character, and never ends for an object of two characters.
    const answers = await Promise.all(["...", "x", "...", "xx", "..."].map(create));
    await module.stop();
    const notServed = { notServed: true, warnings: [] };
    assert.deepEqual(answers, [
      notServed,
      { undecided: "Kubernetes' handlers failed at this object", warnings: [] },
      notServed,
      { undecided: "Kubernetes' handlers took longer than 2 s for this object", warnings: [] },
      notServed,
    ]);
  });
});

describe("the folder of the module", () => {
  const writeModulePackage = async (parent: string): Promise<void> => {
    const folder = join(parent, "node_modules/postern-kubernetes");
    await mkdir(folder, { recursive: true });
    await writeFile(join(folder, "package.json"), '{"name":"postern-kubernetes","version":"1.37.2"}');
    await writeFile(join(folder, manifestFile), "{}");
  };
  /** Returns the folder that a loader finds, while the process runs in the folder `cwd`. */
  const find = async (cwd: string, loader: string): Promise<string> => {
    const code = `import { findModule } from ${JSON.stringify(loader)}; console.log(await findModule())`;
    const { stdout, stderr } = await runProgram(["--input-type=module", "--eval", code], { cwd, env: process.env });
    assert.equal(stderr, "");
    return stdout.trim();
  };

  it("the folder of the module is a package beside the package postern, never the working directory", async () => {
    const [folder, other] = [await createTestFolder(), await createTestFolder()];
    await Promise.all([installPackage(folder), writeModulePackage(other)]);
    const loader = join(folder, "node_modules/postern/infra/kubernetes/find-module.js");
    const installed = join(folder, "node_modules/postern-kubernetes");
    await rm(installed, { force: true }); // installPackage links the module if it was built.
    assert.equal(await find(other, loader), "undefined");
    await writeModulePackage(folder);
    assert.equal(await find(other, loader), installed);
    assert.equal(existsSync(join(folder, "node_modules/postern/infra/kubernetes/build")), false);
  });

  it("the folder of the module is the built folder in a checkout", async () => {
    const folder = await createTestFolder();
    await writeModulePackage(folder);
    const loader = fileURLToPath(new URL("../../infra/kubernetes/find-module.ts", import.meta.url));
    assert.equal(await find(folder, loader), String(await findBuiltModule()));
  });
});

describe("the module of Kubernetes' handlers", await needs("Kubernetes module"), () => {
  let module: Kubernetes;
  before(async () => {
    module = await createKubernetes({ packed: (await findModule()) ?? "" });
  });
  after(() => module?.stop());

  const pod = {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name: "p" },
    spec: { containers: [{ name: "c", image: "i" }] },
  };
  const create = (object: string | Uint8Array, overrides: Partial<KubernetesRequest> = {}) =>
    module.handle({
      verb: "create",
      apiVersion: "v1",
      kind: "Pod",
      namespace: "default",
      fieldValidation: "Strict",
      object,
      ...overrides,
    });

  it("the module sets defaults before mutating admission, and prepares an object after it", async () => {
    const text = JSON.stringify({ ...pod, status: { phase: "Running" } });
    const withDefaults = await create(text, { until: "admission" });
    const prepared = await create(text);
    assert.equal(Object(withDefaults.object).spec.restartPolicy, "Always");
    assert.equal(Object(withDefaults.object).status.phase, "Running");
    assert.equal(Object(prepared.object).status.phase, "Pending");
    assert.ok(Object(prepared.object).metadata.uid);
  });

  it("the module names the fields of a refusal", async () => {
    const { status } = await create(JSON.stringify({ ...pod, spec: { containers: [{ name: "C", image: "" }] } }));
    assert.equal(status?.code, 422);
    assert.deepEqual(
      status.details?.causes?.map(({ field, reason }) => `${field} ${reason}`),
      ["spec.containers[0].name FieldValueInvalid", "spec.containers[0].image FieldValueRequired"],
    );
  });

  it("the module returns warnings", async () => {
    const object = { ...pod, spec: { containers: [{ name: "c", image: "i", env: [{ name: "A" }, { name: "A" }] }] } };
    const { warnings } = await create(JSON.stringify(object));
    assert.deepEqual(warnings, [
      'spec.containers[0].env[1]: hides previous definition of "A", which may be dropped when using apply',
    ]);
  });

  it("the module compares an update with the stored object", async () => {
    const stored = JSON.stringify((await create(JSON.stringify(pod))).object);
    const changed = { ...JSON.parse(stored), spec: { ...JSON.parse(stored).spec, hostNetwork: true } };
    const { status } = await create(JSON.stringify(changed), { verb: "update", name: "p", oldObject: stored });
    assert.match(status?.message ?? "", /^Pod "p" is invalid: spec: Forbidden: pod updates may not change fields/);
  });

  it("the module validates custom resources by their newest CustomResourceDefinition", async () => {
    const define = (largestSize: number) =>
      module.handle({
        verb: "define",
        apiVersion: "apiextensions.k8s.io/v1",
        kind: "CustomResourceDefinition",
        name: "things.example.com",
        object: JSON.stringify(buildDefinition(largestSize)),
      });
    const createThing = (spec: object, until?: "admission") =>
      create(JSON.stringify({ apiVersion: "example.com/v1", kind: "Thing", metadata: { name: "t" }, spec }), {
        apiVersion: "example.com/v1",
        kind: "Thing",
        fieldValidation: "Ignore",
        ...(until && { until }),
      });
    assert.deepEqual(await createThing({}), { notServed: true, warnings: [] });
    assert.equal((await define(3)).status, undefined);
    const { object } = await createThing({ size: 2, unknown: 1 }, "admission");
    assert.deepEqual(Object(object).spec, { size: 2, color: "red" });
    assert.match((await createThing({ size: 4 })).status?.message ?? "", /spec: Invalid value: at most 3$/);
    await define(5);
    assert.equal((await createThing({ size: 4 })).status, undefined);
  });

  const nested = (levels: number) => `${"[".repeat(levels)}${"]".repeat(levels)}`;
  for (const [name, object, code, message] of [
    ["with 5,000 levels", `{"metadata":{"name":"p"},"spec":${nested(5000)}}`, 400, /cannot unmarshal array/],
    ["with 20,000 levels", `{"metadata":{"name":"p"},"spec":${nested(20_000)}}`, 400, /exceeded max depth/],
    ["of 4 MB", JSON.stringify({ ...pod, data: "x".repeat(4 << 20) }), 413, /limit is 3145728/],
    [
      "with a key __proto__",
      '{"metadata":{"name":"p","labels":{"__proto__":"a"}},"__proto__":{"x":1}}',
      400,
      /unknown field "__proto__"/,
    ],
    ["with the key of another type", '{"metadata":{"name":7}}', 400, /cannot unmarshal number/],
    ["that is a list", "[]", 400, /cannot unmarshal array/],
    ["that is empty", "", 400, /./],
    ["that isn't UTF-8", Buffer.from('{"metadata":{"name":"\xff\xfe"}}', "latin1"), 422, /./],
    ["with a repeated key", '{"metadata":{"name":"p","name":"q"}}', 400, /duplicate field "metadata.name"/],
  ] as const)
    it(`the module refuses an object ${name}, and answers for the next object`, async () => {
      const { status, undecided } = await create(object);
      assert.equal(undecided, undefined);
      assert.match(status?.message ?? "", message);
      assert.equal(status?.code, code);
      assert.ok((await create(JSON.stringify(pod))).object);
    });

  for (const namespace of ["", "..", "a/b", "../../nodes", "a?b", "\0"])
    it(`the module reaches no other path by the namespace ${JSON.stringify(namespace)}`, async () => {
      const { object, status } = await create(JSON.stringify(pod), { namespace });
      assert.equal(object, undefined);
      assert.ok(status?.code === 400 || status?.code === 422, JSON.stringify(status));
    });

  it("the module refuses to start with a feature gate that Kubernetes doesn't know, and names the gate", async () => {
    const packed = (await findModule()) ?? "";
    await assert.rejects(createKubernetes({ packed, featureGates: { NoSuchGate: true } }), {
      message: /^Kubernetes [\d.]+: unrecognized feature gate: NoSuchGate$/,
    });
  });

  // 1.34 drops image volumes; only since 1.37, a template must have their reference, too. The gate of distinctAttribute
  // is on since 1.36: 1.35 drops the field, so that the constraint has no attribute, but 1.34 keeps it.
  /** The fields in which a minor finds faults. */
  const faultsByMinor: Record<string, { pod: string[]; podTemplate: string[]; claim: string[] }> = {
    1.34: { pod: [], podTemplate: [], claim: [] },
    1.35: {
      pod: ["spec.volumes[0].image.reference"],
      podTemplate: [],
      claim: ["spec.devices.constraints[0].matchAttribute"],
    },
    1.36: { pod: ["spec.volumes[0].image.reference"], podTemplate: [], claim: [] },
    1.37: {
      pod: ["spec.volumes[0].image.reference"],
      podTemplate: ["template.spec.volumes[0].image.reference"],
      claim: [],
    },
  };
  for (const [minor, wanted] of Object.entries(faultsByMinor))
    it(`the module finds the faults that Kubernetes ${minor} finds in image volumes and in a device's constraint`, async () => {
      const spec = { ...pod.spec, volumes: [{ name: "files", image: {} }] };
      const podTemplate = { apiVersion: "v1", kind: "PodTemplate", metadata: pod.metadata, template: { spec } };
      const claim = {
        apiVersion: "resource.k8s.io/v1",
        kind: "ResourceClaim",
        metadata: pod.metadata,
        spec: { devices: { constraints: [{ distinctAttribute: "example.com/a" }] } },
      };
      const kubernetes = await createKubernetes({ packed: (await findModule()) ?? "", minor });
      const listFaults = async (object: typeof pod | typeof podTemplate | typeof claim) => {
        const { apiVersion, kind } = object;
        const answer = await kubernetes.handle({ verb: "create", apiVersion, kind, namespace: "default", object });
        assert.ok(answer.object ?? answer.status?.details?.causes, JSON.stringify(answer));
        return answer.status?.details?.causes?.map(({ field }) => field) ?? [];
      };
      const found = {
        pod: await listFaults({ ...pod, spec }),
        podTemplate: await listFaults(podTemplate),
        claim: await listFaults(claim),
      };
      await kubernetes.stop();
      assert.deepEqual(found, wanted);
    });
});

const buildDefinition = (largestSize: number) => ({
  apiVersion: "apiextensions.k8s.io/v1",
  kind: "CustomResourceDefinition",
  metadata: { name: "things.example.com" },
  spec: {
    group: "example.com",
    scope: "Namespaced",
    names: { plural: "things", singular: "thing", kind: "Thing", listKind: "ThingList" },
    versions: [
      {
        name: "v1",
        served: true,
        storage: true,
        schema: {
          openAPIV3Schema: {
            type: "object",
            properties: {
              spec: {
                type: "object",
                properties: { size: { type: "integer" }, color: { type: "string", default: "red" } },
                "x-kubernetes-validations": [
                  { rule: `self.size <= ${largestSize}`, message: `at most ${largestSize}` },
                ],
              },
            },
          },
        },
      },
    ],
  },
});
