import { createRequire } from "node:module";
import { parentPort, workerData } from "node:worker_threads";
import type { CueWorkerSettings, MessageFromCueWorker } from "./engine.ts";
import { readWasmWithMemoryLimit, wasmPageBytes } from "./wasm-memory.ts";

// Go's runtime and CUE define these globals. The global scope belongs to this thread alone.
declare global {
  var fs: { writeSync(file: number, bytes: Uint8Array): number };
  var Go: new () => {
    importObject: object;
    exit(code: number): void;
    run(instance: Instance): Promise<void>;
  };
  var CueWasmAPI: { _toJSONImpl?(source: string): { value: string; error: string | null } | undefined };
}

// The types of Node don't contain WebAssembly. The following types describe the part that this file uses.
interface Instance {
  exports: { mem: { buffer: ArrayBuffer } };
}
interface WebAssembly {
  instantiate(program: Uint8Array, imports: object): Promise<{ instance: Instance }>;
}

const { wasm, glue, megabytes, longest } = workerData as CueWorkerSettings;
const sendMessage = (message: MessageFromCueWorker) => parentPort?.postMessage(message);

/** The first 1000 characters or so that the Go program prints; they explain why it ended. */
let output = "";
let hasExited = false;

// CUE's program, when it starts, puts its functions into this object.
globalThis.CueWasmAPI = {};
// The file `glue` is Go's script wasm_exec. It defines the globals `Go` and `fs`.
createRequire(glue)(glue);
// Go's runtime prints with writeSync, for instance why it crashes.
globalThis.fs.writeSync = (_, bytes) => {
  if (output.length < 1000) output += Buffer.from(bytes).toString();
  return bytes.length;
};

const go = new globalThis.Go();
go.exit = () => {
  hasExited = true;
};
/** Evaluates CUE source. If the source crashes CUE, returns a message with `fatal`, after which this thread ends. */
const evaluate = (source: string, { mem }: Instance["exports"]): MessageFromCueWorker => {
  try {
    const result = globalThis.CueWasmAPI._toJSONImpl?.(source);
    if (!hasExited && result !== undefined) {
      const memory = mem.buffer.byteLength;
      if (result.error) return { error: result.error, memory };
      if (result.value.length > longest) return { error: `its value has more than ${longest} characters`, memory };
      return { value: result.value, memory };
    }
  } catch (error) {
    output += String(error);
  }
  return { fatal: describeCause(output) };
};

const describeCause = (text: string): string => {
  if (/out of memory|cannot allocate|failed to allocate/i.test(text))
    return `the script needs more than ${megabytes} MiB of memory`;
  if (/stack overflow|stack exceeds|call stack size/i.test(text)) return "the script nests too deeply";
  return `the script made CUE fail: ${text.trim().split("\n")[0]?.slice(0, 300)}`;
};

const program = readWasmWithMemoryLimit(wasm, (megabytes * 2 ** 20) / wasmPageBytes);
// TypeScript knows WebAssembly only in browsers, so Node's global of this name is read by reflection.
const { instantiate } = Reflect.get(globalThis, "WebAssembly") as WebAssembly;
instantiate(program, go.importObject).then(({ instance }) => {
  // An error that ends the Go program is not handled here: `evaluate` then returns a message with `fatal`.
  go.run(instance).catch(() => {});
  parentPort?.on("message", (source: string) => {
    const message = evaluate(source, instance.exports);
    sendMessage(message);
    if (message.fatal !== undefined) parentPort?.close();
  });
  sendMessage({ ready: true });
});
