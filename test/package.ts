import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, symlink } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { packPackages } from "../infra/package/pack.ts";

const run = promisify(execFile);
const root = fileURLToPath(new URL("..", import.meta.url));

/** Packs Postern and installs the package into a project, with links to the dependencies that it declares. */
export const installPackage = async (project: string): Promise<void> => {
  const folder = join(project, "node_modules/postern");
  await mkdir(folder, { recursive: true });
  const packed = await mkdtemp(join(project, ".packed-"));
  const [file = ""] = await packPackages(packed);
  await run("tar", ["-xzf", file, "--strip-components=1", "-C", folder]);
  await rm(packed, { recursive: true });
  const { dependencies } = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
  for (const name of Object.keys(dependencies)) {
    const link = join(project, "node_modules", name);
    await mkdir(dirname(link), { recursive: true });
    await symlink(join(root, "node_modules", name), link);
  }
};
