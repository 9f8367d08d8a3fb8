import { closeSync, mkdtempSync, openSync, readSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { StringDecoder } from "node:string_decoder";

/** Text that has to wait for its place in a report. */
export interface Spool {
  put(text: string): void;
  /** All of it, in its order, once. */
  take(): Iterable<string>;
}

/** In memory as long as there is little of it, beyond that in a file that nobody else sees. */
export const openSpool = (most = 1024 * 1024): Spool => {
  let kept: string[] = [];
  let length = 0;
  let file: number | undefined;
  const spill = () => {
    file ??= openUnnamed();
    writeSync(file, kept.join(""));
    kept = [];
    length = 0;
  };
  return {
    put: (text) => {
      kept.push(text);
      length += text.length;
      if (length > most) spill();
    },
    take: function* () {
      if (file !== undefined) {
        yield* contents(file);
        closeSync(file);
      }
      yield* kept;
    },
  };
};

/** It is gone as soon as it is closed, however that comes about. */
const openUnnamed = (): number => {
  const folder = mkdtempSync(join(tmpdir(), "postern-check-"));
  const file = openSync(join(folder, "spool"), "w+", 0o600);
  rmSync(folder, { recursive: true });
  return file;
};

const contents = function* (file: number): Generator<string> {
  const decoder = new StringDecoder();
  const chunk = Buffer.alloc(64 * 1024);
  for (let position = 0; ; ) {
    const bytes = readSync(file, chunk, 0, chunk.length, position);
    if (bytes === 0) break;
    position += bytes;
    yield decoder.write(chunk.subarray(0, bytes));
  }
  yield decoder.end();
};
