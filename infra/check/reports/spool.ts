import { closeSync, mkdtempSync, openSync, readSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { StringDecoder } from "node:string_decoder";

/** Text that has to wait for its place in a report. */
export interface Spool {
  put(text: string): void;
  /** Yields all text in order; may be called once. */
  take(): Iterable<string>;
}

/** Keeps up to `most` characters in memory, and more in a temporary file that no other user can read. */
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

/** Opens a file that is already deleted: its content is freed when it is closed or the process ends. */
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
