import { closeSync, fstatSync, openSync, readSync } from "node:fs";

/** One page of WebAssembly's memory, in bytes. */
export const wasmPageBytes = 65_536;

/** Reads a WebAssembly program and limits its memory to this many pages. */
export const readWasmWithMemoryLimit = (file: string, pages: number): Uint8Array => {
  const descriptor = openSync(file, "r");
  try {
    const { size } = fstatSync(descriptor);
    const head = Buffer.alloc(Math.min(size, wasmPageBytes));
    readSync(descriptor, head, 0, head.length, 0);
    const { start, end, minimumPages } = findMemorySection(head);
    // The number of memories is 1; flag 1 says that a minimum and a maximum follow.
    const body = [1, 1, ...encodeNumber(minimumPages), ...encodeNumber(pages)];
    const section = Buffer.from([memorySectionId, body.length, ...body]);
    // The rest of the file is read to its place after the new section: to copy it there would take longer.
    const program = Buffer.allocUnsafe(size - (end - start) + section.length);
    head.copy(program, 0, 0, start);
    section.copy(program, start);
    for (let at = end, to = start + section.length; at < size; ) {
      const read = readSync(descriptor, program, to, size - at, at);
      if (read === 0) throw new Error(`${file} ends too early`);
      at += read;
      to += read;
    }
    return program;
  } finally {
    closeSync(descriptor);
  }
};

/** The id by which WebAssembly's binary format marks the section that declares memories. */
const memorySectionId = 5;

/** Finds the section of a WebAssembly program that declares its memory, and the minimum of the memory. */
const findMemorySection = (program: Buffer): { start: number; end: number; minimumPages: number } => {
  // The sections follow a magic number and a version, of four bytes each.
  let at = 8;
  /** Reads a LEB128 number: seven bits a byte, the lowest first. */
  const readNumber = () => {
    let value = 0;
    for (let shift = 0; ; shift += 7) {
      const byte = program[at++] ?? 0;
      value |= (byte & 127) << shift;
      if (byte < 128) return value;
    }
  };
  while (at < program.length) {
    const start = at;
    const id = readNumber();
    const length = readNumber();
    const end = at + length;
    if (id === memorySectionId) {
      // Two bytes come before the minimum: the number of memories, and the flag for a maximum.
      at += 2;
      return { start, end, minimumPages: readNumber() };
    }
    at = end;
  }
  throw new Error("the program says nothing of its memory");
};

/** Encodes a number as WebAssembly does: seven bits a byte, the lowest first. */
const encodeNumber = (value: number): number[] =>
  value < 128 ? [value] : [(value & 127) | 128, ...encodeNumber(value >>> 7)];
