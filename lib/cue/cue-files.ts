import { existsSync } from "node:fs";
import { access, mkdir, readdir, readFile, rename, writeFile } from "node:fs/promises";
import { basename, dirname, extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { inflateRawSync } from "node:zlib";

/** The paths of the files that CUE runs from. */
export interface CueRuntimePaths {
  worker: string;
  wasm: string;
  /** The path of Go's wasm_exec script: the JavaScript that runs a Go program in WebAssembly. */
  glue: string;
}

/** A compressed file, with the checksum and the length of its contents. Zip files contain the same deflate stream. */
export interface DeflatedFile {
  deflated: Uint8Array;
  crc: number;
  size: number;
}

const workerFile = `worker${extname(import.meta.url ?? "")}`;
const programPattern = /^cue\.wasm\.full\.inline-.*\.js$/;

/**
 * Returns the folders of this file and of the package cue-wasm. It is called only when a script is evaluated: a program
 * that bundles Postern has neither folder, and works as long as its policies have no scripts.
 */
const findFolders = () => {
  const { dirname: ownFolder, resolve } = import.meta;
  if (ownFolder === undefined || !existsSync(join(ownFolder, workerFile)))
    throw new Error("a program whose policies have scripts must not bundle postern (--external:postern in esbuild)");
  return { ownFolder, cueWasm: dirname(fileURLToPath(resolve("cue-wasm"))) };
};

/** Reads CUE's program (a gzip in base64 in a JavaScript file) and Go's script from the package cue-wasm. */
export const readCueWasmPackage = async (): Promise<{ wasm: DeflatedFile; glue: Uint8Array }> => {
  const text = await readFile(await findPackageFile(programPattern), "latin1");
  // Each gzip in base64 begins with H4sI.
  const start = text.indexOf('"H4sI') + 1;
  const gzip = Buffer.from(text.slice(start, text.indexOf('"', start)), "base64");
  // The gzip header has ten bytes if it contains neither name nor comment.
  if (start === 0 || gzip[3] !== 0) throw new Error("cue-wasm doesn't hold its program as one gzip");
  const wasm = {
    deflated: gzip.subarray(10, -8),
    crc: gzip.readUInt32LE(gzip.length - 8),
    size: gzip.readUInt32LE(gzip.length - 4),
  };
  return { wasm, glue: await readFile(await findPackageFile(/^wasm_exec\.full-.*\.js$/)) };
};

const findPackageFile = async (name: RegExp): Promise<string> => {
  const packageFolder = findFolders().cueWasm;
  const found = (await readdir(packageFolder)).filter((file) => name.test(file)).sort();
  if (found[0] === undefined) throw new Error(`cue-wasm has no file such as ${name.source}`);
  return join(packageFolder, found[0]);
};

/**
 * Returns the paths of CUE's files; unpacks them into a cache folder if they aren't there. In a bundle,
 * infra/build/cue.ts replaces this function.
 */
export const locateOrUnpackCueFiles = async (): Promise<CueRuntimePaths> => {
  const { ownFolder, cueWasm } = findFolders();
  // The cache folder is in the folder node_modules that contains cue-wasm.
  const cacheFolder = join(cueWasm.slice(0, cueWasm.lastIndexOf("cue-wasm")), ".cache/postern");
  // The name of CUE's program file has a hash of its content, so each version of the program gets a folder of its own.
  const folder = join(cacheFolder, basename(await findPackageFile(programPattern), ".js"));
  const files = { wasm: join(folder, "cue.wasm"), glue: join(folder, "cue-glue.cjs") };
  const isThere = await Promise.all(Object.values(files).map((file) => access(file))).catch(() => undefined);
  if (isThere === undefined) {
    const { wasm, glue } = await readCueWasmPackage();
    await mkdir(folder, { recursive: true });
    await writeAtomically(files.wasm, inflateRawSync(wasm.deflated));
    await writeAtomically(files.glue, glue);
  }
  return { worker: join(ownFolder, workerFile), ...files };
};

/** Writes a file in one step by renaming it, because several processes may unpack at the same time. */
const writeAtomically = async (file: string, contents: Uint8Array): Promise<void> => {
  const temporaryFile = `${file}.${process.pid}.${Math.random().toString(36).slice(2)}`;
  await writeFile(temporaryFile, contents);
  await rename(temporaryFile, file);
};
