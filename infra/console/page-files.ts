import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { moduleExtension, packageRoot } from "../cli/roots.ts";

/** The folder of the bundled page in the installed package, and its files. */
const folder = join(packageRoot, "infra/console/bundle");
const names = ["main.js", "main.css"];

/** Returns the page's script and styles: bundled now in a checkout, and when it was made in the package. */
export const readPageFiles = async (): Promise<string[]> => {
  if (moduleExtension !== ".ts") return Promise.all(names.map((name) => readFile(join(folder, name), "utf8")));
  const { outputFiles = [] } = await bundlePage(folder, false);
  return names.map((name) => outputFiles.find(({ path }) => path.endsWith(name))?.text ?? "");
};

/** Bundles the page, and writes it if wanted. Returns what esbuild says of it. */
export const bundlePage = async (outdir: string, write: boolean) => {
  const { build } = await import("esbuild");
  return build({
    absWorkingDir: packageRoot,
    entryPoints: ["infra/console/page/main.ts"],
    outdir,
    write,
    bundle: true,
    minify: true,
    metafile: true,
    format: "esm",
    target: "es2023",
    // uPlot's licence must be in each copy.
    legalComments: "eof",
    logLevel: "silent",
  });
};
