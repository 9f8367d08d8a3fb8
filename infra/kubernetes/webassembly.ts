// Node's types don't have WebAssembly. This is the part of it that is used here.

export interface WasmMemory {
  buffer: ArrayBuffer;
}

export interface WasmGlobal {
  value: number | bigint;
}

/** The functions that infra/kubernetes/module exports to its host. */
export interface ModuleExports {
  memory: WasmMemory;
  _initialize(): void;
  /** Returns the address of a buffer of this size. */
  buffer(size: number): number;
  /** Creates a server with the options in the buffer. Returns an error message as `answer` does, or an empty text. */
  setUp(length: number): bigint;
  /**
   * Answers the request in the buffer: a header, an object and the object that it replaces. Returns the address of the
   * answer in the upper 32 bits, and its length in the lower ones.
   */
  answer(headerLength: number, objectLength: number, oldLength: number): bigint;
  collectGarbage(): void;
}

export interface WasmInstance {
  exports: ModuleExports;
}

/** A compiled module. It can be sent to a worker. */
export type WasmModule = object;

export const webAssembly = Reflect.get(globalThis, "WebAssembly") as {
  compile(bytes: Uint8Array): Promise<WasmModule>;
  instantiate(module: WasmModule, imports: object): Promise<WasmInstance>;
  Module: { imports(module: WasmModule): { module: string; name: string }[] };
};
