import { crc32 } from "node:zlib";

/**
 * A zip of one file. It is stored as it is, without date, owner or compression, so that it has the same bytes, and for
 * Lambda the same hash, on every machine; compressors differ from one to the next.
 */
export const zip = (name: string, contents: Uint8Array): Buffer => {
  const path = Buffer.from(name);
  // Version 1.0, no flags, stored; midnight of 1 January 1980, the first date a zip can say.
  const common = fields(
    [2, 10],
    [2, 0],
    [2, 0],
    [2, 0],
    [2, 0x21],
    [4, crc32(contents)],
    [4, contents.length],
    [4, contents.length],
    [2, path.length],
    [2, 0],
  );
  const local = Buffer.concat([fields([4, 0x04034b50]), common, path, contents]);
  // Made on Unix, where a plain file has mode 0644: Lambda's user must be able to read it.
  const rest = fields([2, 0], [2, 0], [2, 0], [4, 0o100644 * 0x10000], [4, 0]);
  const directory = Buffer.concat([fields([4, 0x02014b50], [2, 0x031e]), common, rest, path]);
  const end = fields([4, 0x06054b50], [2, 0], [2, 0], [2, 1], [2, 1], [4, directory.length], [4, local.length], [2, 0]);
  return Buffer.concat([local, directory, end]);
};

/** Numbers of so many bytes each, least first. */
const fields = (...numbers: [size: 2 | 4, value: number][]): Buffer => {
  const parts = numbers.map(([size, value]) => {
    const part = Buffer.alloc(size);
    part.writeUIntLE(value, 0, size);
    return part;
  });
  return Buffer.concat(parts);
};
