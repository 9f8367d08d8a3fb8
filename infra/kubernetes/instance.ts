import { closeSync, fstatSync, openSync, readSync } from "node:fs";
import { createWasi, type WasiSources } from "./wasi.ts";
import { type ModuleExports, type WasmModule, webAssembly } from "./webassembly.ts";

/** What differs between the API servers of one module. */
export interface ServerOptions {
  /** The minor to emulate, such as 1.36; empty for the module's own. */
  minor?: string;
  featureGates?: Readonly<Record<string, boolean>>;
}

/** A running module. */
export interface Instance {
  exports: ModuleExports;
  /** Makes the server. Throws a sentence if the options aren't possible. */
  setUp(options: ServerOptions): void;
  /** Returns the answer to a request, as JSON. */
  answer(header: string, object: string | Uint8Array, old?: string | Uint8Array): string;
}

/** Instantiates a compiled module. Its memory is that of the image, if there is one. */
export const createInstance = async (
  module: WasmModule,
  sources: WasiSources,
  imageFile?: string,
): Promise<Instance> => {
  const wasi = createWasi(module, sources, () => exports.memory);
  const { exports } = await webAssembly.instantiate(module, wasi);
  if (imageFile === undefined) exports._initialize();
  else readImage(imageFile, exports.memory.buffer);

  const write = (parts: readonly Uint8Array[]) => {
    const total = parts.reduce((sum, { length }) => sum + length, 0);
    let address = exports.buffer(Math.max(total, 1));
    for (const part of parts) {
      new Uint8Array(exports.memory.buffer).set(part, address);
      address += part.length;
    }
  };
  const read = (result: bigint): string =>
    Buffer.from(exports.memory.buffer, Number(result >> 32n), Number(result & 0xffff_ffffn)).toString();
  return {
    exports,
    setUp: (options) => {
      const text = Buffer.from(JSON.stringify(options));
      write([text]);
      const problem = read(exports.setUp(text.length));
      if (problem !== "") throw new Error(problem);
    },
    answer: (header, object, old = "") => {
      const parts = [header, object, old].map((part) => Buffer.from(part as string));
      write(parts);
      const [first = 0, second = 0, third = 0] = parts.map(({ length }) => length);
      return read(exports.answer(first, second, third));
    },
  };
};

const readImage = (file: string, memory: ArrayBuffer): void => {
  const descriptor = openSync(file, "r");
  try {
    const { size } = fstatSync(descriptor);
    for (let at = 0; at < size; ) {
      const length = readSync(descriptor, new Uint8Array(memory, at, size - at), 0, size - at, at);
      if (length === 0) throw new Error(`${file} ends too early`);
      at += length;
    }
  } finally {
    closeSync(descriptor);
  }
};
