import { isUtf8 } from "node:buffer";

/** A line of a file, from 1 on; one that is too long, or no text, has none. */
export interface Line {
  number: number;
  text?: string;
  wrong?: string;
}

/** Longer than any recording. */
export const longestLine = 4 * 1024 * 1024;

const newline = 10;

/** The lines of what may be too large to be held, one at a time. */
export async function* linesOf(source: AsyncIterable<Uint8Array>, longest = longestLine): AsyncGenerator<Line> {
  let number = 1;
  let parts: Uint8Array[] = [];
  let length = 0;
  const take = (part: Uint8Array) => {
    length += part.length;
    // What goes on for too long is counted, and not kept.
    if (length > longest) parts = [];
    else if (part.length > 0) parts.push(part);
  };
  const line = (): Line => {
    const made = lineOf(number, parts, length, longest);
    [number, parts, length] = [number + 1, [], 0];
    return made;
  };
  for await (const chunk of source) {
    let from = 0;
    for (let at = chunk.indexOf(newline); at >= 0; at = chunk.indexOf(newline, from)) {
      take(chunk.subarray(from, at));
      yield line();
      from = at + 1;
    }
    take(chunk.subarray(from));
  }
  if (length > 0) yield line();
}

const lineOf = (number: number, parts: readonly Uint8Array[], length: number, longest: number): Line => {
  if (length > longest) return { number, wrong: `is longer than ${longest} bytes` };
  const bytes = Buffer.concat(parts);
  if (!isUtf8(bytes)) return { number, wrong: "is not UTF-8" };
  return { number, text: bytes.toString().replace(/\r$/, "") };
};
