import { execFile } from "node:child_process";
import { hash } from "node:crypto";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { promisify } from "node:util";
import { Complaint } from "../cli/complaint.ts";
import { packageRoot } from "../cli/roots.ts";
import { findModule } from "../kubernetes/find-module.ts";
import { readModule } from "../kubernetes/module-files.ts";
import { findReleaseNotes } from "./changelog.ts";
import { bundlePackages, packPackages } from "./pack.ts";
import { buildSbom, type SbomSource } from "./sbom.ts";

const readText = (file: string): Promise<string> => readFile(join(packageRoot, file), "utf8");

/**
 * Packs this checkout into dist/packages, and adds the SBOM, the checksums and the notes of the release. Returns the
 * paths of the files. The tag must name the checkout's version, and CHANGELOG.md must have a section about it.
 */
export const writeReleaseFiles = async (tag: string): Promise<string[]> => {
  const { version }: { version: string } = JSON.parse(await readText("package.json"));
  if (tag !== `v${version}`) throw new Complaint(`the tag must be v${version}, as package.json has it, not ${tag}`, 1);
  const notes = findReleaseNotes(await readText("CHANGELOG.md"), version);
  if (notes === undefined) throw new Complaint(`CHANGELOG.md must have a section "## ${version} (DATE)"`, 1);
  const module = await findModule();
  if (module === undefined)
    throw new Complaint("Kubernetes' handlers are not here: npm run kubernetes builds them, before a release", 3);
  const folder = join(packageRoot, "dist/packages");
  await rm(folder, { recursive: true, force: true });
  const tarballs = await packPackages(folder);
  const { packages: locked } = JSON.parse(await readText("package-lock.json"));
  const manifest = await readManifest(join(folder, `postern-${version}.tgz`));
  const bundled = await listBundledPackages();
  const sbom = buildSbom({ manifest, locked, bundled, module: await readModule(module), date: notes.date });
  const write = async (name: string, text: string) => {
    await writeFile(join(folder, name), text);
    return join(folder, name);
  };
  const files = [...tarballs, await write(`postern-${version}.cdx.json`, `${JSON.stringify(sbom, null, 2)}\n`)];
  const sums = await Promise.all(files.map(computeChecksum));
  return [...files, await write("SHA256SUMS", sums.join("")), await write("NOTES.md", `${notes.text}\n`)];
};

const readManifest = async (tarball: string): Promise<SbomSource["manifest"]> =>
  JSON.parse((await promisify(execFile)("tar", ["-xOf", tarball, "package/package.json"])).stdout);

/** Returns the paths in package-lock.json of the packages that are bundled into the package postern. */
const listBundledPackages = async (): Promise<string[]> => {
  const folder = await mkdtemp(join(tmpdir(), "postern-bundled-"));
  try {
    return await bundlePackages(folder);
  } finally {
    await rm(folder, { recursive: true });
  }
};

/** Returns a file's line in SHA256SUMS, which `sha256sum --check` reads. */
const computeChecksum = async (file: string): Promise<string> =>
  `${hash("sha256", await readFile(file))}  ${basename(file)}\n`;
