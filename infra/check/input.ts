import { isUtf8 } from "node:buffer";
import { globSync } from "node:fs";
import { readdir, readFile, stat } from "node:fs/promises";
import { join, normalize } from "node:path";
import { Complaint, sentenceOf } from "../complaint.ts";
import { type Fault, type Manifest, manifestsIn } from "./documents.ts";

/** What paths were found to hold. */
export interface Input {
  manifests: Manifest[];
  /** What can't be read, or is nothing that an API server takes; each with its file and line. */
  faults: Fault[];
  /** What was left out, and why. */
  notes: string[];
}

/** More than this nobody writes by hand, and no cluster prints at once. */
const longest = 64 * 1024 * 1024;

/** A file, and whether somebody named it; in a folder, there may be others beside the manifests. */
interface Found {
  name: string;
  isChosen: boolean;
}

/** Everything in files, folders, globs and, for `-`, standard input, in the order of the paths and of the files' names. */
export const readInput = async (
  paths: readonly string[],
  stdin: () => Promise<Buffer> = standardInput,
): Promise<Input> => {
  const input: Input = { manifests: [], faults: [], notes: [] };
  const files = new Map<string, Found>();
  for (const path of paths)
    for (const file of await filesAt(path)) {
      // A file that several paths lead to is read once.
      if (!files.get(file.name)?.isChosen) files.set(file.name, file);
    }
  for (const file of files.values()) take(input, file, await (file.name === "-" ? stdin() : contents(file.name)));
  return input;
};

const filesAt = async (path: string): Promise<Found[]> => {
  if (path === "-") return [{ name: "-", isChosen: true }];
  const found = await stat(path).catch(() => undefined);
  if (found?.isDirectory()) return filesIn(path);
  if (found) return [{ name: normalize(path), isChosen: true }];
  const matched = /[*?[{]/.test(path) ? globSync(path).sort() : [];
  if (matched.length === 0) throw new Complaint(`${path} is no file or folder, and matches none`);
  return (await Promise.all(matched.map(filesAt))).flat();
};

const isManifestFile = (name: string) => /\.(ya?ml|json)$/i.test(name);

const filesIn = async (folder: string): Promise<Found[]> => {
  const entries = await readdir(folder, { withFileTypes: true }).catch((error) => {
    throw new Complaint(`${folder} can't be read: ${sentenceOf(error)}`);
  });
  const found: Found[] = [];
  for (const entry of entries.sort((one, other) => (one.name < other.name ? -1 : 1))) {
    const name = join(folder, entry.name);
    if (entry.isDirectory()) {
      if (!entry.name.startsWith(".") && entry.name !== "node_modules") found.push(...(await filesIn(name)));
    } else if (isManifestFile(entry.name)) {
      // A link may lead anywhere; to a folder, it could lead in circles.
      const isFile = entry.isFile() || (await stat(name).catch(() => undefined))?.isFile() === true;
      if (isFile) found.push({ name, isChosen: false });
    }
  }
  return found;
};

const contents = async (name: string): Promise<Buffer> => {
  const { size } = await stat(name);
  if (size > longest) throw new Complaint(`${name} has more than ${longest} bytes, the most that is read`);
  return readFile(name).catch((error) => {
    throw new Complaint(`${name} can't be read: ${sentenceOf(error)}`);
  });
};

const standardInput = async (): Promise<Buffer> => {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of process.stdin) {
    bytes += chunk.length;
    if (bytes > longest) throw new Complaint(`standard input has more than ${longest} bytes, the most that is read`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
};

const take = (input: Input, { name, isChosen }: Found, bytes: Buffer): void => {
  if (!isUtf8(bytes)) {
    input.faults.push({ file: name, line: 1, sentence: "is no YAML: it is not UTF-8" });
    return;
  }
  const { manifests, strangers, faults } = manifestsIn({ name, text: bytes.toString().replace(/^\uFEFF/, "") });
  input.manifests.push(...manifests);
  // Values and settings of other programs lie among manifests; what nobody named, and nothing in which is one, isn't meant.
  if (!isChosen && manifests.length === 0 && (strangers.length > 0 || faults.length > 0) && !looksMeant(bytes))
    input.notes.push(`${name} holds no manifest, and is left out`);
  else {
    input.faults.push(...faults);
    for (const line of strangers)
      input.faults.push({ file: name, line, sentence: "is no manifest: it must have an apiVersion and a kind" });
  }
  if (isChosen && manifests.length + strangers.length + faults.length === 0)
    input.faults.push({ file: name, line: 1, sentence: "holds nothing" });
};

/** A broken manifest is none, but was meant to be one. */
const looksMeant = (bytes: Buffer) => /["']?apiVersion["']?\s*:/.test(bytes.toString());
