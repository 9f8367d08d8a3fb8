import { crc32, inflateRawSync } from "node:zlib";
import type { DeflatedFile } from "#lib/cue/cue-files.ts";

export type ZipFiles = Record<string, Uint8Array | DeflatedFile>;

export const getInflatedContents = (file: Uint8Array | DeflatedFile): Uint8Array =>
  file instanceof Uint8Array ? file : inflateRawSync(file.deflated, { maxOutputLength: file.size });

/** The signatures that begin the parts of a zip. */
const signatures = { localFile: 0x04034b50, directoryEntry: 0x02014b50, end: 0x06054b50 };
/** The bytes of a local file's header before its name. */
const localHeaderBytes = 30;

/**
 * Makes a zip with the same bytes on any machine, so without dates and owners. Compresses no file, because compressors
 * differ; but a file may be deflated already.
 */
export const zip = (files: ZipFiles): Buffer => {
  const locals: Buffer[] = [];
  const directory: Buffer[] = [];
  let offset = 0;
  for (const [name, file] of Object.entries(files)) {
    const path = Buffer.from(name);
    const isStored = file instanceof Uint8Array;
    const contents = isStored ? file : file.deflated;
    // Version 1.0 or 2.0; no flags; stored or deflated; midnight of 1 January 1980, the earliest date in a zip.
    const common = encodeFields(
      [2, isStored ? 10 : 20],
      [2, 0],
      [2, isStored ? 0 : deflate],
      [2, 0],
      [2, 0x21],
      [4, isStored ? crc32(file) : file.crc],
      [4, contents.length],
      [4, isStored ? contents.length : file.size],
      [2, path.length],
      [2, 0],
    );
    const local = Buffer.concat([encodeFields([4, signatures.localFile]), common, path, contents]);
    locals.push(local);
    // The file is created on Unix (0x03 in 0x031e) with mode 0644, so that Lambda's user can read it.
    const rest = encodeFields([2, 0], [2, 0], [2, 0], [4, 0o100644 * 0x10000], [4, offset]);
    directory.push(Buffer.concat([encodeFields([4, signatures.directoryEntry], [2, 0x031e]), common, rest, path]));
    offset += local.length;
  }
  const count = directory.length;
  const size = directory.reduce((sum, { length }) => sum + length, 0);
  const end: [size: 2 | 4, value: number][] = [
    [4, signatures.end],
    [2, 0],
    [2, 0],
    [2, count],
    [2, count],
    [4, size],
    [4, offset],
    [2, 0],
  ];
  return Buffer.concat([...locals, ...directory, encodeFields(...end)]);
};

/** Returns the files of an archive that `zip` has made; undefined for any other archive. */
export const readOwnZip = (archive: Uint8Array): ZipFiles | undefined => {
  const bytes = Buffer.from(archive);
  const files: [string, Uint8Array | DeflatedFile][] = [];
  let at = 0;
  while (at + localHeaderBytes <= bytes.length && bytes.readUInt32LE(at) === signatures.localFile) {
    const [flags, method] = [bytes.readUInt16LE(at + 6), bytes.readUInt16LE(at + 8)];
    const [crc, length, size, nameLength, extraLength] = [
      bytes.readUInt32LE(at + 14),
      bytes.readUInt32LE(at + 18),
      bytes.readUInt32LE(at + 22),
      bytes.readUInt16LE(at + 26),
      bytes.readUInt16LE(at + 28),
    ];
    if (flags !== 0 || (method !== 0 && method !== deflate) || extraLength !== 0) return undefined;
    const start = at + localHeaderBytes + nameLength;
    const contents = bytes.subarray(start, start + length);
    files.push([
      bytes.toString("utf8", at + localHeaderBytes, start),
      method === deflate ? { deflated: contents, crc, size } : contents,
    ]);
    at = start + length;
  }
  const found = Object.fromEntries(files);
  return at > 0 && bytes.equals(zip(found)) ? found : undefined;
};

/** The number of the compression method deflate in the zip format. */
const deflate = 8;

/** Encodes numbers, each with its size in bytes, in little-endian order. */
const encodeFields = (...numbers: [size: 2 | 4, value: number][]): Buffer => {
  const parts = numbers.map(([size, value]) => {
    const part = Buffer.alloc(size);
    part.writeUIntLE(value, 0, size);
    return part;
  });
  return Buffer.concat(parts);
};
