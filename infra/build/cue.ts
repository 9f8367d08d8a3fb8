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
 * The files that CUE runs from in Lambda. They are not in the bundle, because they are loaded only to evaluate a
 * script. The WebAssembly goes into zips as its package has compressed it, which costs no time and gives the same bytes
 * on any machine.
 */
export const readCueRuntimeFiles = (): Promise<ZipFiles> => {
  made ??= createCueFiles();
  return made;
};
let made: Promise<ZipFiles> | undefined;

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
