import { createInstance } from "../instance.ts";
import { formatHeader, type KubernetesRequest } from "../requests.ts";
import type { WasiSources } from "../wasi.ts";
import { type WasmGlobal, webAssembly } from "../webassembly.ts";

// A Go program with this many packages initializes for a second. So the build initializes it, makes the server, and
// writes what is then in its memory as an image. A process starts with the image.

interface Section {
  id: number;
  body: Buffer;
}

interface Global {
  type: number;
  mutable: number;
}

const sections = { memory: 5, globals: 6, exports: 7, data: 11, dataCount: 12 };
const [i32, i64] = [0x7f, 0x7e];
const [constI32, constI64, end] = [0x41, 0x42, 0x0b];
const globalExport = 3;
const pageBytes = 65_536;

/** The memory that a module may use, in pages: an object that needs more ends the module. */
const maxPages = (768 * 2 ** 20) / pageBytes;

/** The code of a module, and the memory that it starts with. */
export interface ModuleImage {
  code: Buffer;
  memory: Buffer;
}

/** Initializes a module, makes its server, and lets it answer some requests. */
export const createImage = async (program: Buffer, requests: readonly KubernetesRequest[]): Promise<ModuleImage> => {
  const all = readSections(program);
  const globals = readGlobals(findBody(all, sections.globals));
  const module = await webAssembly.compile(writeProgram(all.map((section) => exportGlobals(section, globals))));
  const instance = await createInstance(module, createFixedSources());
  instance.setUp({});
  for (const request of requests) {
    const answer = instance.answer(formatHeader(request), String(request.object));
    if (JSON.parse(answer).object === undefined) throw new Error(`the module answers ${answer}`);
  }
  instance.exports.collectGarbage();

  const exports = instance.exports as unknown as Record<string, WasmGlobal>;
  const values = globals.map((_, index) => exports[nameGlobal(index)]?.value ?? 0);
  const memory = Buffer.from(instance.exports.memory.buffer);
  const changed: Record<number, Buffer> = {
    [sections.memory]: Buffer.from([1, 1, ...encodeUnsigned(memory.length / pageBytes), ...encodeUnsigned(maxPages)]),
    [sections.globals]: writeGlobals(globals, values),
  };
  const kept = all.filter(({ id }) => id !== sections.data && id !== sections.dataCount);
  const code = writeProgram(kept.map(({ id, body }) => ({ id, body: changed[id] ?? body })));
  return { code, memory: memory.subarray(0, memory.findLastIndex((byte) => byte !== 0) + 1) };
};

/** Time and random numbers are the same for each build, so that the image is. */
const createFixedSources = (): WasiSources => {
  let ticks = 0n;
  let state = 1;
  return {
    getTime: () => 1_700_000_000_000_000_000n,
    getMonotonicTime: () => {
      ticks += 1000n;
      return ticks;
    },
    fillRandom: (bytes) => {
      for (let index = 0; index < bytes.length; index++) {
        state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fff_ffff;
        bytes[index] = state >> 16;
      }
    },
    print: (bytes) => process.stderr.write(bytes),
  };
};

const readSections = (program: Buffer): Section[] => {
  const found: Section[] = [];
  for (let at = 8; at < program.length; ) {
    const [length, start] = decodeUnsigned(program, at + 1);
    found.push({ id: program[at] ?? 0, body: program.subarray(start, start + length) });
    at = start + length;
  }
  return found;
};

const writeProgram = (all: readonly Section[]): Buffer =>
  Buffer.concat([
    Buffer.from("\0asm\x01\0\0\0", "latin1"),
    ...all.flatMap(({ id, body }) => [Buffer.from([id, ...encodeUnsigned(body.length)]), body]),
  ]);

const findBody = (all: readonly Section[], wanted: number): Buffer => {
  const found = all.find(({ id }) => id === wanted);
  if (found === undefined) throw new Error(`the module has no section ${wanted}`);
  return found.body;
};

/** Reads the globals, which all are numbers with a constant as their first value. */
const readGlobals = (body: Buffer): Global[] => {
  const [count, start] = decodeUnsigned(body, 0);
  let at = start;
  return Array.from({ length: count }, () => {
    const [type = 0, mutable = 0] = body.subarray(at, at + 2);
    if (type !== i32 && type !== i64) throw new Error(`the module has a global of type ${type}`);
    at = body.indexOf(end, decodeUnsigned(body, at + 3)[1]) + 1;
    return { type, mutable };
  });
};

const writeGlobals = (globals: readonly Global[], values: readonly (number | bigint)[]): Buffer =>
  Buffer.from([
    ...encodeUnsigned(globals.length),
    ...globals.flatMap(({ type, mutable }, index) => {
      const value = encodeSigned(BigInt(values[index] ?? 0));
      return [type, mutable, type === i32 ? constI32 : constI64, ...value, end];
    }),
  ]);

const nameGlobal = (index: number) => `global ${index}`;

/** Adds the globals to the exports, so that their values can be read. */
const exportGlobals = ({ id, body }: Section, globals: readonly Global[]): Section => {
  if (id !== sections.exports) return { id, body };
  const [count, start] = decodeUnsigned(body, 0);
  const added = globals.flatMap((_, index) => {
    const name = Buffer.from(nameGlobal(index));
    return [...encodeUnsigned(name.length), ...name, globalExport, ...encodeUnsigned(index)];
  });
  const length = Buffer.from(encodeUnsigned(count + globals.length));
  return { id, body: Buffer.concat([length, body.subarray(start), Buffer.from(added)]) };
};

/** Returns the number at an offset, and the offset after it. */
const decodeUnsigned = (bytes: Buffer, offset: number): [value: number, after: number] => {
  let value = 0;
  for (let at = offset, factor = 1; ; at++, factor *= 128) {
    const byte = bytes[at] ?? 0;
    value += (byte & 127) * factor;
    if (byte < 128) return [value, at + 1];
  }
};

const encodeUnsigned = (value: number): number[] =>
  value < 128 ? [value] : [(value % 128) | 128, ...encodeUnsigned(Math.floor(value / 128))];

const encodeSigned = (value: bigint): number[] => {
  const low = Number(value & 127n);
  const rest = value >> 7n;
  const isLast = (rest === 0n && low < 64) || (rest === -1n && low >= 64);
  return isLast ? [low] : [low | 128, ...encodeSigned(rest)];
};
