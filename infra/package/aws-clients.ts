import { glob, readFile } from "node:fs/promises";
import { join } from "node:path";
import { build } from "esbuild";
import { packageRoot } from "../cli/roots.ts";
import { writeLicenses } from "./licenses.ts";

/**
 * Bundles the AWS clients that infra imports as `#aws/NAME` into a folder. The bundle contains only code that infra
 * calls: 1 MB instead of the 50 MB of the installed packages. The file LICENSES in the folder has the licence of each
 * bundled package. Returns the paths of these packages, as in package-lock.json.
 */
export const bundleAwsClients = async (folder: string): Promise<string[]> => {
  const names = await listAwsClients();
  const { metafile } = await build({
    absWorkingDir: packageRoot,
    entryPoints: names.map((name) => ({ in: `@aws-sdk/${name}`, out: name })),
    outdir: folder,
    bundle: true,
    splitting: true,
    minify: true,
    metafile: true,
    format: "esm",
    // The packages also have CommonJS files (`main`). Bundled from these, a client would have only a default export.
    mainFields: ["module", "main"],
    platform: "node",
    target: "node24",
    legalComments: "none",
    logLevel: "warning",
    // Some files of the SDK are CommonJS and call `require` for modules of Node.js.
    banner: { js: 'import{createRequire}from"node:module";const require=createRequire(import.meta.url);' },
  });
  return writeLicenses(folder, metafile);
};

/** Returns the names of the AWS clients that files in infra import. */
const listAwsClients = async (): Promise<string[]> => {
  const names = new Set<string>();
  for await (const file of glob("infra/**/*.ts", { cwd: packageRoot }))
    for (const [, name = ""] of (await readFile(join(packageRoot, file), "utf8")).matchAll(/"#aws\/([\w-]+)"/g))
      names.add(name);
  return [...names].sort();
};
