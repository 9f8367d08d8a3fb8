import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { access, mkdir, readdir, readFile, rename, rm } from "node:fs/promises";
import { homedir } from "node:os";
import { basename, dirname, extname, join } from "node:path";
import { promisify } from "node:util";

/** The cache folder for programs that are built only once on this machine. */
export const cacheFolder = join(process.env.XDG_CACHE_HOME ?? join(homedir(), ".cache"), "postern");

/** A program in Go that is built once, with the go.mod and go.sum in its folder. */
export interface GoProgram {
  sources: string;
  /** The folder with the Go files, if `sources` has only go.mod and go.sum. */
  code?: string;
  /** Files that aren't Go's and that the build depends on. */
  inputs?: readonly string[];
  /** The Go module whose version in go.mod is the program's version. `name` is the program's name in the cache. */
  module: string;
  name: string;
  /** The files that a Go program's build leaves in the cache; the first one is the program. */
  files: [program: string, ...others: string[]];
  /** Builds the program in its version, and writes its files into a folder. */
  build(folder: string, version: string): Promise<unknown>;
}

/** A Go program that was built, and its folder in the cache. */
export interface CachedGoProgram {
  version: string;
  program: string;
  folder: string;
}

/** Runs a program and returns its output. */
export const runCommand = async (cwd: string, file: string, ...args: string[]): Promise<string> => {
  const env = { ...process.env, CGO_ENABLED: "0" };
  return (await promisify(execFile)(file, args, { cwd, env, maxBuffer: 64 * 1024 * 1024 })).stdout;
};

/** Returns a Go program's version and its folder in the cache; the folder's name contains a digest of the sources. */
const locateProgram = async ({ sources, code, inputs = [], module, name }: Omit<GoProgram, "files" | "build">) => {
  const texts: string[] = [];
  for (const folder of code === undefined ? [sources] : [sources, code])
    for (const file of (await readdir(folder)).filter((name) => /^go\.(mod|sum)$|\.go$/.test(name)).sort())
      texts.push(await readFile(join(folder, file), "utf8"));
  for (const file of inputs) texts.push(await readFile(file, "utf8"));
  const [, version] = new RegExp(`${module} v([\\d.]+)`).exec(texts.join("\n")) ?? [];
  if (version === undefined) throw new Error(`${sources}go.mod names no version of ${module}`);
  const digest = createHash("sha256").update(texts.join("\0")).digest("hex").slice(0, 12);
  return { version, folder: join(cacheFolder, `${name}-${version}-${digest}`) };
};

/** Reports whether a folder has all these files. */
const hasFiles = (folder: string, files: readonly string[]): Promise<boolean> =>
  Promise.all(files.map((file) => access(join(folder, file)))).then(
    () => true,
    () => false,
  );

/** Returns a built Go program from the cache folder; undefined if it wasn't built yet. */
export const findGoProgram = async ({ files, ...program }: GoProgram): Promise<CachedGoProgram | undefined> => {
  const { version, folder } = await locateProgram(program);
  return (await hasFiles(folder, files)) ? { version, program: join(folder, files[0]), folder } : undefined;
};

/** Builds a program from the Go module proxy, by its go.mod and go.sum, unless it was built before. */
export const findOrBuildGoProgram = async (program: GoProgram): Promise<CachedGoProgram> => {
  const found = await findGoProgram(program);
  if (found) return found;
  const { version, folder } = await locateProgram(program);
  await deleteAbandonedDrafts(folder);
  // A draft is renamed when it is complete, so that an interrupted build leaves nothing behind that looks complete.
  const draft = `${folder}.${process.pid}`;
  await mkdir(draft, { recursive: true });
  await program.build(draft, version);
  const built = await findGoProgram(program);
  if (built) {
    // Another process was faster.
    await rm(draft, { recursive: true });
    return built;
  }
  await rm(folder, { recursive: true, force: true });
  await rename(draft, folder);
  return findOrBuildGoProgram(program);
};

/** Deletes the drafts of builds whose processes have ended. */
const deleteAbandonedDrafts = async (folder: string): Promise<void> => {
  const names = await readdir(dirname(folder)).catch(() => []);
  for (const name of names.filter((name) => name.startsWith(`${basename(folder)}.`)))
    if (!isRunning(Number(extname(name).slice(1)))) await rm(join(dirname(folder), name), { recursive: true });
};

const isRunning = (pid: number): boolean => {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
};
