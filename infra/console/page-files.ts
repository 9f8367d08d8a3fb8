import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { moduleExtension, packageRoot } from "../cli/roots.ts";

/** The folder of the bundled page in the installed package. */
const folder = join(packageRoot, "infra/console/bundle");

/** Returns the page's script or styles: bundled now in a checkout, and when it was made in the package. */
export const readPageFile = async (name: "page.js" | "page.css"): Promise<string> => {
  if (moduleExtension !== ".ts") return readFile(join(folder, name), "utf8");
  const { outputFiles = [] } = await bundlePage(folder, false);
  return outputFiles.find(({ path }) => path.endsWith(name))?.text ?? "";
};

/** Bundles the page, and writes it if wanted. Returns what esbuild says of it. */
export const bundlePage = async (outdir: string, write: boolean) => {
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
    // uPlot's licence must be in each copy.
    legalComments: "eof",
    logLevel: "silent",
  });
};
