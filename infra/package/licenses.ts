import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Metafile } from "esbuild";
import { packageRoot } from "../cli/roots.ts";

/**
 * Writes a file LICENSES with the licence of each package in a bundle. Returns the paths of these packages, as in
 * package-lock.json.
 */
export const writeLicenses = async (folder: string, metafile: Metafile): Promise<string[]> => {
  // If node_modules is a link, the paths of files begin outside this folder, such as ../other/node_modules/a/index.js.
  const folders = Object.keys(metafile.inputs).flatMap(
    (file) => /node_modules\/(.*node_modules\/)?(@[^/]+\/)?[^/]+/.exec(file)?.[0] ?? [],
  );
  const paths = [...new Set(folders)].sort();
  const packages = await Promise.all(paths.map(readPackage));
  const byText = Map.groupBy(packages, ({ text }) => text);
  const licenses = [...byText].map(
    ([text, packagesWithText]) =>
      `${packagesWithText.map(({ name, version }) => `${name} ${version}`).join(", ")}\n\n${text}`,
  );
  await writeFile(join(folder, "LICENSES"), licenses.join("\n"));
  return paths;
};

const readPackage = async (path: string) => {
  const { name, version, license } = JSON.parse(await readFile(join(packageRoot, path, "package.json"), "utf8"));
  const text = await readFile(join(packageRoot, path, "LICENSE"), "utf8").catch(() => "");
  return { name, version, text: text || `${license}\n` };
};
