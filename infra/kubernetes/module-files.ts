import { createHash } from "node:crypto";
import { createReadStream, createWriteStream, existsSync } from "node:fs";
import { mkdir, readdir, readFile, rename, rm, stat, utimes } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { createBrotliDecompress } from "node:zlib";
import { Complaint } from "../cli/complaint.ts";

/** The file that says what a module consists of. */
export const manifestFile = "manifest.json";

/** The files of a module. A package has them compressed, with `.br` at the end of their names. */
export const moduleFiles = { code: "code.wasm", memory: "memory.bin" } as const;

export interface ModuleManifest {
  /** The version of Kubernetes, such as 1.37.2. */
  kubernetes: string;
  /** The version of Go, such as go1.26.8. */
  go: string;
  /** The versions of the Go modules that are compiled in. */
  modules: Record<string, string>;
  /** The checksum and the length of each file, by its name. */
  files: Record<string, { sha256: string; bytes: number }>;
}

/** The manifest of a module (API server code as WebAssembly), and the version of the npm package that has it. */
export interface PackedModule {
  manifest: ModuleManifest;
  version: string;
}

/** The paths of a module's files, and the version of Kubernetes that they are. */
export type ModulePaths = Record<keyof typeof moduleFiles | "kubernetes", string>;

/** The cache folder of this user. */
const userCache = join(process.env.XDG_CACHE_HOME ?? join(homedir(), ".cache"), "postern");

/** The start of the names of unpacked modules in the cache. */
const unpackedName = "kubernetes-unpacked-";

/** An unpacked module that no process has used for this time is deleted when another one is unpacked. */
const longestUnused = 7 * 24 * 60 * 60 * 1000;

/**
 * Reads a packed module. Its version has a digest of the manifest, such as 1.37.2-sha256-862565fa5b76, so that another
 * build of the same Kubernetes is another version.
 */
export const readModule = async (packed: string): Promise<PackedModule> => {
  const text = await readFile(join(packed, manifestFile), "utf8");
  const manifest: ModuleManifest = JSON.parse(text);
  const digest = createHash("sha256").update(text).digest("hex").slice(0, 12);
  return { manifest, version: `${manifest.kubernetes}-sha256-${digest}` };
};

/**
 * Returns the files of a packed module, which are unpacked into the user's cache the first time, and checked then. Several
 * processes may do so at once.
 */
export const unpackModule = async (packed: string, cache: string = userCache): Promise<ModulePaths> => {
  const { manifest, version } = await readModule(packed);
  const { kubernetes, files } = manifest;
  const folder = join(cache, `${unpackedName}${version}`);
  // The time of the folder is that of its last use. A cache that can't be written can be used even so.
  await utimes(folder, new Date(), new Date()).catch(() => {});
  if (!existsSync(folder)) {
    const draft = chooseDraft(folder);
    await mkdir(draft, { recursive: true }).catch((error: Error) => {
      // The user can set the variable XDG_CACHE_HOME to choose another cache.
      throw new Complaint(`the cache can't be written, XDG_CACHE_HOME names another one: ${error.message}`, 3);
    });
    try {
      const unpacked = Object.values(moduleFiles).map((name) => unpackFile(packed, name, files[name], draft));
      // The draft is deleted only when nothing writes to it any more.
      const failed = (await Promise.allSettled(unpacked)).find(({ status }) => status === "rejected");
      if (failed?.status === "rejected") throw failed.reason;
      await rename(draft, folder);
    } catch (error) {
      await rm(draft, { recursive: true, force: true });
      // Another process may have been faster.
      if (!existsSync(folder)) throw error;
    }
    await deleteUnused(cache);
  }
  return { kubernetes, code: join(folder, moduleFiles.code), memory: join(folder, moduleFiles.memory) };
};

/** Returns the path of a folder that is not complete yet, or not complete any more. */
const chooseDraft = (folder: string): string => `${folder}.${process.pid}.${Math.random().toString(36).slice(2)}`;

const deleteUnused = async (cache: string): Promise<void> => {
  for (const name of (await readdir(cache)).filter((each) => each.startsWith(unpackedName))) {
    const [folder, draft] = [join(cache, name), chooseDraft(join(cache, name))];
    try {
      if (Date.now() - (await stat(folder)).mtimeMs < longestUnused) continue;
      // A deletion that is interrupted leaves nothing that looks complete.
      await rename(folder, draft);
      await rm(draft, { recursive: true });
    } catch {
      // Another process deletes it, or it belongs to another user.
    }
  }
};

/** Writes a file to the folder while it is unpacked: the whole of it would take 80 MB of memory. */
const unpackFile = async (
  packed: string,
  name: string,
  expected: ModuleManifest["files"][string] | undefined,
  folder: string,
): Promise<void> => {
  const file = join(packed, `${name}.br`);
  const hash = createHash("sha256");
  let bytes = 0;
  const check = async function* (parts: AsyncIterable<Buffer>) {
    for await (const part of parts) {
      bytes += part.length;
      if (bytes > (expected?.bytes ?? 0)) throw new Error(`it has more than ${expected?.bytes ?? 0} bytes`);
      hash.update(part);
      yield part;
    }
  };
  const unpacked = createBrotliDecompress({ chunkSize: 1 << 20 });
  await pipeline(createReadStream(file), unpacked, check, createWriteStream(join(folder, name))).catch(
    (error: Error) => {
      throw new Complaint(`${file} can't be unpacked: ${error.message}`, 3);
    },
  );
  if (hash.digest("hex") !== expected?.sha256)
    throw new Complaint(`${file} is not the file that ${manifestFile} names: its SHA-256 differs`, 3);
};
