import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { moduleExtension, packageRoot } from "../cli/roots.ts";

/** The folder of the bundled page in the installed package. */
const folder = join(packageRoot, "infra/console/bundle");

/** Returns the page's script or styles. A checkout bundles them now; the package contains the bundle. */
export const readPageFile = async (name: "page.js" | "page.css"): Promise<string> => {
  if (moduleExtension !== ".ts") return readFile(join(folder, name), "utf8");
  const { outputFiles = [] } = await bundlePage(folder, { write: false });
  return outputFiles.find(({ path }) => path.endsWith(name))?.text ?? "";
};

/** Bundles the page with esbuild. Writes the files if `write` is true. Returns esbuild's result. */
export const bundlePage = async (outdir: string, { write }: { write: boolean }) => {
  const { build } = await import("esbuild");
  return build({
    absWorkingDir: packageRoot,
    entryPoints: { page: "infra/console/page/main.ts" },
    outdir,
    write,
    bundle: true,
    minify: true,
    metafile: true,
    format: "esm",
    target: "es2023",
    // Each copy of uPlot must contain its licence.
    legalComments: "eof",
    logLevel: "silent",
  });
};
