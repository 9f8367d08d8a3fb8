import { join } from "node:path";
import { build } from "esbuild";
import { readCueWasmPackage } from "#lib/cue/cue-files.ts";
import { moduleExtension, packageRoot } from "../cli/roots.ts";
import type { ZipFiles } from "./zip.ts";

const names = { worker: "cue-worker.cjs", wasm: "cue.wasm", glue: "cue-glue.cjs" };

/** The JavaScript source that replaces the module lib/cue/cue-files.ts in a bundle. */
export const cueFilesModuleSource = `const names = ${JSON.stringify(names)};
  export const locateOrUnpackCueFiles = async () =>
    Object.fromEntries(Object.entries(names).map(([what, name]) => [what, __dirname + "/" + name]));`;

/**
 * Returns the files of CUE for Lambda. They are not in the bundle, because a function loads them only to run a script.
 * The WebAssembly is compressed in its npm package. Zips get these compressed bytes unchanged: that takes no time, and
 * the bytes are the same on any machine.
 */
export const readCueRuntimeFiles = (): Promise<ZipFiles> => {
  cueFiles ??= createCueFiles();
  return cueFiles;
};
let cueFiles: Promise<ZipFiles> | undefined;

/** Returns the files that a function needs to evaluate CUE. */
const createCueFiles = async (): Promise<ZipFiles> => {
  const { wasm, glue } = await readCueWasmPackage();
  const { outputFiles } = await build({
    entryPoints: [join(packageRoot, `lib/cue/worker${moduleExtension}`)],
    bundle: true,
    write: false,
    outfile: names.worker,
    format: "cjs",
    platform: "node",
    target: "node24",
    minify: true,
    logLevel: "silent",
  });
  const [worker] = outputFiles;
  if (worker === undefined) throw new Error("esbuild made nothing of lib/cue/worker.ts");
  return { [names.worker]: worker.contents, [names.glue]: glue, [names.wasm]: wasm };
};
