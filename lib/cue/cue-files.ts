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
/** Returns the folders of this file and of cue-wasm. Not constants: in a program's bundle, only scripts need them. */
const findFolders = () => {
  const { dirname: own, resolve } = import.meta;
  if (own === undefined || !existsSync(join(own, workerFile)))
    throw new Error("a program whose policies have scripts must not bundle postern (--external:postern in esbuild)");
  return { own, cueWasm: dirname(fileURLToPath(resolve("cue-wasm"))) };
};

export const readCueWasmPackage = async (): Promise<{ wasm: DeflatedFile; glue: Uint8Array }> => {
  const text = await readFile(await findPackageFile(programPattern), "latin1");
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
  const { own, cueWasm } = findFolders();
  // In the folder node_modules that has cue-wasm.
  const cacheFolder = join(cueWasm.slice(0, cueWasm.lastIndexOf("cue-wasm")), ".cache/postern");
  const folder = join(cacheFolder, basename(await findPackageFile(programPattern), ".js"));
  const files = { wasm: join(folder, "cue.wasm"), glue: join(folder, "cue-glue.cjs") };
  const isThere = await Promise.all(Object.values(files).map((file) => access(file))).catch(() => undefined);
  if (isThere === undefined) {
    const { wasm, glue } = await readCueWasmPackage();
    await mkdir(folder, { recursive: true });
    await writeAtomically(files.wasm, inflateRawSync(wasm.deflated));
    await writeAtomically(files.glue, glue);
  }
  return { worker: join(own, workerFile), ...files };
};

/** Writes a file atomically, because several processes may unpack at once. */
const writeAtomically = async (file: string, contents: Uint8Array): Promise<void> => {
  const temporaryFile = `${file}.${process.pid}.${Math.random().toString(36).slice(2)}`;
  await writeFile(temporaryFile, contents);
  await rename(temporaryFile, file);
};
