import { parentPort, workerData } from "node:worker_threads";
import { computeRandomBytes } from "../apiserver/object-uid.ts";
import { createInstance, type ServerOptions } from "./instance.ts";
import type { KubernetesRequest } from "./requests.ts";
import type { WasmModule } from "./webassembly.ts";

// Runs one instance of the module, so that an object that takes too long can be stopped.

/** What a worker is started with. */
export interface KubernetesWorkerData {
  module: WasmModule;
  /** The file with the image: the module's memory, as the build saved it after it had set up the API server there. */
  imageFile: string;
  options: ServerOptions;
}

/** A request to the module (API server code as WebAssembly): `header` is its JSON without objects. */
export type MessageToKubernetesWorker = readonly [
  header: string,
  object: string | Uint8Array,
  oldObject: string | Uint8Array | undefined,
];
/** `ready` once the worker takes requests, or a `problem` if it can't start. Then the module's answers, as JSON. */
export type MessageFromKubernetesWorker = { ready: true } | { answer: string } | { problem: string };

const { module, imageFile, options } = workerData as KubernetesWorkerData;
const send = (message: MessageFromKubernetesWorker) => parentPort?.postMessage(message);

const started = process.hrtime.bigint();
/**
 * The nanoseconds at which the module's monotonic clock starts: one second. The image is the memory of an earlier
 * instance, saved in the first second of its clock. So the module never sees its time run backwards.
 */
const clockStart = 1_000_000_000n;
/** The header of the current request, and how many blocks of random bytes it got: the module makes uids from these. */
let currentHeader: Partial<KubernetesRequest> = {};
let usedRandomBlocks = 0;
const fillRandom = (bytes: Uint8Array) => {
  for (let at = 0; at < bytes.length; at += 32)
    bytes.set(computeRandomBytes(currentHeader, usedRandomBlocks++).subarray(0, bytes.length - at), at);
};
const moduleInstance = await createInstance(
  module,
  {
    getTime: () => BigInt(Date.now()) * 1_000_000n,
    getMonotonicTime: () => process.hrtime.bigint() - started + clockStart,
    fillRandom,
  },
  imageFile,
);
try {
  // The server in the image was made without options.
  if (Object.keys(options).length > 0) moduleInstance.setUp(options);
  send({ ready: true });
} catch (error) {
  send({ problem: error instanceof Error ? error.message : String(error) });
}

parentPort?.on("message", ([header, object, oldObject]: MessageToKubernetesWorker) => {
  currentHeader = JSON.parse(header); // the request without its objects
  usedRandomBlocks = 0; // So each time, a request gets the same random bytes, and its object the same uid.
  // An error of the module ends this worker.
  send({ answer: moduleInstance.answer(header, object, oldObject) });
});
