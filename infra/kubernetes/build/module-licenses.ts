import { readdir, readFile } from "node:fs/promises";
import { dirname, join } from "node:path";

/** The file with the licences of what is compiled in. */
export const licensesFile = "LICENSES";

/** A package of a Go module. */
export interface GoPackage {
  module: string;
  version: string;
  /** The folder of the module. */
  root: string;
  /** The folder of the package, within that of the module. */
  folder: string;
}

/** Returns the licences and notices of Go packages, each once, below the modules that have it. */
export const formatLicenses = async (packages: readonly GoPackage[]): Promise<string> => {
  const modules = new Map<string, Set<string>>();
  const visited = new Set<string>();
  // A module may have code of others in folders with a licence of their own.
  for (const { module, version, root, folder } of packages)
    for (let at = folder; at.startsWith(root) && !visited.has(at); at = dirname(at)) {
      visited.add(at);
      for (const text of await readLicenses(at))
        modules.set(text, (modules.get(text) ?? new Set()).add(`${module} ${version}`));
    }
  const licenses = [...modules].map(([text, names]) => `${[...names].sort().join(", ")}\n\n${text}`);
  return licenses.sort().join("\n");
};

const readLicenses = async (folder: string): Promise<string[]> => {
  const entries = await readdir(folder, { withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile() && /^(?:COPYING|LICEN[CS]E|NOTICE|PATENTS)/i.test(entry.name));
  return Promise.all(files.map(({ name }) => readFile(join(folder, name), "utf8")));
};
