import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { cp, mkdtempDisposable, rename, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parse } from "yaml";
import { cacheFolder, runCommand } from "../../infra/kubernetes/build/go-programs.ts";

// Downloads manifests of other projects from their Go modules and npm packages.

interface Package {
  name: string;
  version: string;
  /** The checksum: h1 of a Go module, sha512 of an npm package. */
  sum: string;
  /** The folders of the package whose manifests are copied. */
  folders: string[];
}

const table = readFileSync(new URL("published.yaml", import.meta.url), "utf8");
const digest = createHash("sha256").update(table).digest("hex").slice(0, 12);
const folder = join(cacheFolder, `published-${digest}`);

/** Returns the folder with a folder of manifests for each package; undefined if they weren't downloaded yet. */
export const findPublishedManifests = async (): Promise<string | undefined> =>
  existsSync(folder) ? folder : undefined;

/**
 * Downloads packages and copies their manifests to the cache, unless the cache already has them. The folder appears in
 * the cache only when it is complete.
 */
export const downloadPublishedManifests = async (): Promise<{ version: string; program: string }> => {
  const packages: Package[] = parse(table);
  // The result has the members that a build of a program returns, because this download is listed among such builds.
  const result = { version: `${packages.length} packages`, program: folder };
  if (existsSync(folder)) return result;
  const draft = `${folder}.${process.pid}`;
  for (const { name, version, sum, folders } of packages) {
    await using scratch = await mkdtempDisposable(join(tmpdir(), "postern-published-"));
    const download = sum.startsWith("h1:") ? downloadModule : downloadNpmPackage;
    const { checksum, sources } = await download(`${name}@${version}`, scratch.path);
    if (checksum !== sum) throw new Error(`${name}@${version} has the checksum ${checksum} instead of ${sum}`);
    for (const part of folders)
      await cp(join(sources, part), join(draft, name, part), { recursive: true, filter: isManifestOrFolder });
  }
  await rename(draft, folder);
  return result;
};

const isManifestOrFolder = async (path: string): Promise<boolean> =>
  /\.(ya?ml|json)$/.test(path) || (await stat(path)).isDirectory();

const downloadModule = async (name: string, scratch: string) => {
  // The folder has no go.mod, so that no other module affects the download.
  const { Sum, Dir } = JSON.parse(await runCommand(scratch, "go", "mod", "download", "-json", name));
  return { checksum: Sum, sources: Dir };
};

const downloadNpmPackage = async (name: string, scratch: string) => {
  const [{ integrity, filename }] = JSON.parse(await runCommand(scratch, "npm", "pack", "--json", name));
  await runCommand(scratch, "tar", "-xzf", filename);
  return { checksum: integrity, sources: join(scratch, "package") };
};
