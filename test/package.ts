import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readdir, readFile, rename, symlink } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { findModule } from "../infra/kubernetes/find-module.ts";
import { packPackages } from "../infra/package/pack.ts";
import { modulePackageName } from "../infra/package/package-manifest.ts";
import { createTestFolder } from "./folders.ts";

const run = promisify(execFile);
const root = fileURLToPath(new URL("..", import.meta.url));
const shared = process.env.POSTERN_SHARED ?? (await createTestFolder());

/**
 * Packs Postern, unless another test file of this run has done it. Returns the tarballs of its packages create-postern,
 * postern and, if the module of Kubernetes' handlers was built, postern-kubernetes.
 */
export const packOnce = async (): Promise<{ postern: string; create: string; module?: string }> => {
  const folder = join(shared, "packages");
  if (!existsSync(folder)) {
    const draft = await mkdtemp(join(shared, "draft-"));
    await packPackages(draft);
    // Two files may have begun at the same time.
    await rename(draft, folder).catch((error) => {
      if (!existsSync(folder)) throw error;
    });
  }
  const [create = "", postern = "", module] = (await readdir(folder)).sort().map((file) => join(folder, file));
  return { postern, create, ...(module !== undefined && { module }) };
};

/** Writes the files of the module's package into a folder, if the module was built. Returns the folder in a list. */
export const unpackModulePackage = async (folder: string): Promise<string[]> => {
  const { module } = await packOnce();
  if (module === undefined) return [];
  await mkdir(folder, { recursive: true });
  await run("tar", ["-xzf", module, "--strip-components=1", "-C", folder]);
  return [folder];
};

/** Installs postern into a project, with links to its dependencies: installed packages, and the built module. */
export const installPackage = async (project: string): Promise<void> => {
  const folder = join(project, "node_modules/postern");
  await mkdir(folder, { recursive: true });
  await run("tar", ["-xzf", (await packOnce()).postern, "--strip-components=1", "-C", folder]);
  const { dependencies } = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
  for (const name of Object.keys(dependencies)) {
    const link = join(project, "node_modules", name);
    await mkdir(dirname(link), { recursive: true });
    const builtModule = name === modulePackageName ? await findModule() : undefined;
    await symlink(builtModule ?? join(root, "node_modules", name), link);
  }
};
