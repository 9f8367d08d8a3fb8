import { type WasmMemory, type WasmModule, webAssembly } from "./webassembly.ts";

/** What differs between a build, which must give the same bytes each time, and a run. */
export interface WasiSources {
  /** Returns the nanoseconds since 1970. */
  getTime(): bigint;
  /** Returns nanoseconds that never decrease. */
  getMonotonicTime(): bigint;
  fillRandom(bytes: Uint8Array): void;
  /** Takes what the program prints. Without it, that is dropped: it may have values of objects. */
  print?(bytes: Uint8Array): void;
}

/** The error for all that the host doesn't have: files, directories, sockets, arguments. */
const notFound = 44;
const badDescriptor = 8;
/** The only argument of the program: some packages read it. */
const programName = Buffer.from("kubernetes\0");
const [success, monotonicClock, clockEvent] = [0, 1, 0];
const [subscriptionBytes, eventBytes] = [48, 32];

/**
 * Returns WASI functions that give a program a clock and random numbers. They give it no files, no network
 * and no environment.
 */
export const createWasi = (module: WasmModule, sources: WasiSources, getMemory: () => WasmMemory): object => {
  const view = () => new DataView(getMemory().buffer);
  const functions: Record<string, (...values: never[]) => number> = {
    args_get: (list: number, texts: number) => {
      view().setUint32(list, texts, true);
      new Uint8Array(getMemory().buffer).set(programName, texts);
      return success;
    },
    args_sizes_get: (count: number, bytes: number) => {
      view().setUint32(count, 1, true);
      view().setUint32(bytes, programName.length, true);
      return success;
    },
    environ_get: () => success,
    environ_sizes_get: (count: number, bytes: number) => {
      view().setUint32(count, 0, true);
      view().setUint32(bytes, 0, true);
      return success;
    },
    clock_time_get: (clock: number, _precision: bigint, result: number) => {
      view().setBigUint64(result, clock === monotonicClock ? sources.getMonotonicTime() : sources.getTime(), true);
      return success;
    },
    random_get: (address: number, length: number) => {
      sources.fillRandom(new Uint8Array(getMemory().buffer, address, length));
      return success;
    },
    sched_yield: () => success,
    poll_oneoff: (subscriptions: number, events: number, count: number, written: number) => {
      waitForClock(view(), subscriptions, sources);
      for (let index = 0; index < count; index++) {
        const [from, to] = [subscriptions + index * subscriptionBytes, events + index * eventBytes];
        view().setBigUint64(to, view().getBigUint64(from, true), true);
        view().setUint16(to + 8, success, true);
        view().setUint8(to + 10, view().getUint8(from + 8));
      }
      view().setUint32(written, count, true);
      return success;
    },
    fd_write: (_descriptor: number, pieces: number, count: number, written: number) => {
      let length = 0;
      for (let piece = pieces; piece < pieces + count * 8; piece += 8) {
        const [address, size] = [view().getUint32(piece, true), view().getUint32(piece + 4, true)];
        sources.print?.(new Uint8Array(getMemory().buffer, address, size));
        length += size;
      }
      view().setUint32(written, length, true);
      return success;
    },
    fd_prestat_get: () => badDescriptor,
    fd_fdstat_get: (_descriptor: number, result: number) => {
      new Uint8Array(getMemory().buffer, result, 24).fill(0);
      return success;
    },
    proc_exit: (code: number) => {
      throw new Error(`the module ended with code ${code}`);
    },
  };
  const names = webAssembly.Module.imports(module).map(({ name }) => name);
  return {
    wasi_snapshot_preview1: Object.fromEntries(names.map((name) => [name, functions[name] ?? (() => notFound)])),
  };
};

/** Waits as long as the first subscription says, if it is a clock's: Go sleeps when there is nothing to do. */
const waitForClock = (view: DataView, subscription: number, { getMonotonicTime }: WasiSources): void => {
  if (view.getUint8(subscription + 8) !== clockEvent) return;
  const [timeout, flags] = [view.getBigUint64(subscription + 24, true), view.getUint16(subscription + 40, true)];
  const nanoseconds = flags === 1 ? timeout - getMonotonicTime() : timeout;
  const nothing = new Int32Array(new SharedArrayBuffer(4));
  if (nanoseconds > 0n) Atomics.wait(nothing, 0, 0, Number(nanoseconds) / 1e6);
};
