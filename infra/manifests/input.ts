import { isUtf8 } from "node:buffer";
import { createReadStream, globSync } from "node:fs";
import { readdir, readFile, stat } from "node:fs/promises";
import { basename, dirname, join, normalize, resolve } from "node:path";
import { Complaint, toSentence } from "../cli/complaint.ts";
import { nulSentence, utf16Sentence } from "../cli/yaml-document.ts";
import type { BuildOptions } from "./builds.ts";
import { type Manifest, type ManifestFault, parseManifests, toSourceName } from "./manifests.ts";
import { type ChartsAndKustomizations, findChartsAndKustomizations, isChart, isKustomization } from "./parts.ts";

/** What was read from files and folders. */
export interface ManifestInput {
  manifests: Manifest[];
  faults: ManifestFault[];
  /** Files in folders that were left out because they have no manifest. */
  filesWithoutManifest: string[];
  /** The charts and kustomizations in folders; none, unless the option `chartsAndKustomizations` is set. */
  chartsAndKustomizations: ChartsAndKustomizations;
}

/** How strictly files are read. */
interface ParsingOptions {
  /** Folders may have files of other programs, which are left out. */
  mayHoldNonManifests?: boolean;
  /** A file that the user names may have no manifest. */
  mayFileBeEmpty?: boolean;
  /** As for kubectl, a map may have the same key twice, and metadata may have values that an API server refuses. */
  readsLikeKubectl?: boolean;
}

/** Which files in folders are read, and how strictly. */
interface InputOptions extends ParsingOptions {
  /** Files that are not read if they are in a folder. */
  leftOut?: readonly string[];
  /** Leaves the templates and patches of charts and kustomizations in folders out. With `build`, they are built. */
  chartsAndKustomizations?: { build?: BuildOptions | undefined };
  readStdin?: () => Promise<Buffer>;
}

const noCharts: ChartsAndKustomizations = {
  charts: [],
  kustomizations: [],
  buildInputs: new Set(),
  includedManifests: new Set(),
};

/** The most bytes of one file: more than users write by hand, and more than a cluster prints at once. */
export const longestFile = 64 * 1024 * 1024;

/** A file to read. */
interface FoundFile {
  name: string;
  folder: string;
  /** True if the user named the file; false if it was found in a folder. */
  isNamedByUser: boolean;
}

/**
 * Reads the manifests in files, folders, globs and, for `-`, standard input, in the order of the paths and then of
 * the file names.
 */
export const readInput = async (
  paths: readonly string[],
  {
    mayHoldNonManifests = true,
    mayFileBeEmpty = !mayHoldNonManifests, // a caller that wants only manifests may refuse empty files itself
    readsLikeKubectl = false,
    leftOut = [],
    chartsAndKustomizations: chartOptions,
    readStdin = () => readStream(process.stdin),
  }: InputOptions = {},
): Promise<ManifestInput> => {
  const leftOutPaths = leftOut.map((file) => resolve(file));
  const input: ManifestInput = {
    manifests: [],
    faults: [],
    filesWithoutManifest: [],
    chartsAndKustomizations: noCharts,
  };
  const files = new Map<string, FoundFile>();
  for (const path of paths)
    for (const file of await findFiles(path, input.faults)) {
      // If several paths lead to a file, the file is read once.
      const isLeftOut = !file.isNamedByUser && leftOutPaths.includes(resolve(file.name));
      // A file `Kustomization`, unlike kustomization.yaml, doesn't have the name of a manifest: only builds read it.
      const isOnlyForBuilds = !chartOptions && basename(file.name) === "Kustomization";
      if (!isLeftOut && !isOnlyForBuilds && !files.get(file.name)?.isNamedByUser) files.set(file.name, file);
    }
  if (chartOptions) {
    const inFolders = [...files.values()].filter(({ isNamedByUser }) => !isNamedByUser).map(({ name }) => name);
    const found = await findChartsAndKustomizations(inFolders);
    input.chartsAndKustomizations = found;
    const readByBuilds = [...found.buildInputs, ...(chartOptions.build ? found.includedManifests : [])];
    for (const name of readByBuilds) if (!files.get(name)?.isNamedByUser) files.delete(name);
    if (chartOptions.build) {
      const { buildChartsAndKustomizations } = await import("./builds.ts");
      const built = await buildChartsAndKustomizations(found, chartOptions.build);
      for (const manifest of built.manifests) input.manifests.push(manifest);
      input.faults.push(...built.faults);
    }
  }
  for (const file of files.values()) {
    const bytes = await (file.name === "-" ? readStdin() : readContents(file.name)).catch((error: unknown) => {
      input.faults.push({ file: file.name, line: 1, sentence: `can't be read: ${toSentence(error)}` });
    });
    if (bytes) addFile(input, file, bytes, { mayHoldNonManifests, mayFileBeEmpty, readsLikeKubectl });
  }
  return input;
};

/** Reads the manifests in the files of an option. Throws if a file can't be read, or if it is empty and must not be. */
export const readManifests = async (
  paths: readonly string[],
  option: string,
  mayFileBeEmpty = false,
): Promise<Manifest[]> =>
  requireManifests(
    await readInput(paths, { mayFileBeEmpty }),
    (file) => `${option} ${toSourceName(file)}`,
    /* joins faults */ "\n",
  );

/**
 * Reads files and folders that must have only manifests. Throws if one has anything else, except the files in
 * `leftOut`. `nameFile` returns the name of a file for messages.
 */
export const readManifestsStrictly = async (
  paths: readonly string[],
  nameFile: (file: string) => string = toSourceName,
  leftOut: readonly string[] = [],
): Promise<Manifest[]> =>
  requireManifests(await readInput(paths, { mayHoldNonManifests: false, leftOut }), nameFile, /* joins faults */ "; ");

/** Returns the manifests; if a file could not be read, throws a Complaint that names the lines. */
const requireManifests = (
  { manifests, faults }: ManifestInput,
  nameFile: (file: string) => string,
  faultSeparator: string,
): Manifest[] => {
  if (faults.length === 0) return manifests;
  const sentences = faults.map(({ file, line, sentence }) => `${nameFile(file)}:${line} ${sentence}`);
  throw new Complaint(sentences.join(faultSeparator));
};

/** Finds the files for a path: a file, a folder, a glob, or `-` for standard input. */
const findFiles = async (path: string, faults: ManifestFault[], root?: string): Promise<FoundFile[]> => {
  if (path === "-") return [{ name: "-", folder: "", isNamedByUser: true }];
  const found = await stat(path).catch(() => undefined);
  if (found?.isDirectory())
    return (await listFiles(path, faults)).map((name) => ({ name, folder: root ?? path, isNamedByUser: false }));
  if (found) return [{ name: normalize(path), folder: root ?? dirname(path), isNamedByUser: true }];
  const matched = /[*?[{]/.test(path) ? globSync(path).sort() : [];
  if (matched.length === 0) throw new Complaint(describeMissingPath(path));
  // For `a/b*/*.yaml`, the folder of all matched files is `a`: the pattern up to the last slash before a wildcard.
  // The x stands for the name after this slash: without it, dirname would return the parent of `a`.
  const folder = dirname(`${path.slice(0, path.search(/[*?[{]/))}x`);
  return (await Promise.all(matched.map((match) => findFiles(match, faults, folder)))).flat();
};

const describeMissingPath = (path: string): string => {
  if (path === "") return "one of the paths is empty";
  if (/^https?:\/\//.test(path)) return `${path} is an address; run curl ADDRESS | postern check -`;
  return `there is no file, folder or match for ${path}`;
};

const isManifestFile = (name: string) => /\.(ya?ml|json)$/i.test(name);

/** Lists the manifest files in a folder and its subfolders. Unreadable ones are added to `faults`. */
const listFiles = async (folder: string, faults: ManifestFault[]): Promise<string[]> => {
  const addFault = (file: string, sentence: string) => void faults.push({ file, line: 1, sentence });
  const entries = await readdir(folder, { withFileTypes: true }).catch((error) => {
    addFault(folder, `can't be read: ${toSentence(error)}`);
    return [];
  });
  const found: string[] = [];
  for (const entry of entries.sort((left, right) => (left.name < right.name ? -1 : 1))) {
    const name = join(folder, entry.name);
    if (entry.isDirectory()) {
      if (!entry.name.startsWith(".") && entry.name !== "node_modules") found.push(...(await listFiles(name, faults)));
    } else if (isManifestFile(entry.name) || isKustomization(entry.name)) {
      // Links to folders aren't followed, because they could form a cycle.
      const target = entry.isSymbolicLink() ? await stat(name).catch(() => undefined) : entry;
      if (target === undefined) addFault(name, "is a link that leads to no file");
      if (target?.isFile()) found.push(name);
    }
  }
  return found;
};

/**
 * Reads a file. Throws if it is too large. A device or a pipe, such as `<(kustomize build)`, has no known size, so it
 * is read as a stream.
 */
const readContents = async (name: string): Promise<Buffer> => {
  const found = await stat(name);
  if (!found.isFile()) return readStream(createReadStream(name));
  if (found.size > longestFile) throw createTooLongError();
  return readFile(name);
};

const createTooLongError = () => new Error(`it has more than ${longestFile} bytes, the most that is read`);

/** Reads standard input to its end. More bytes than the limit are an error. */
const readStream = async (stream: AsyncIterable<Buffer>): Promise<Buffer> => {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of stream) {
    bytes += chunk.length;
    if (bytes > longestFile) throw createTooLongError();
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
};

/** Parses a file, and adds its manifests and faults to the input. */
const addFile = (
  input: ManifestInput,
  { name, folder, isNamedByUser }: FoundFile,
  bytes: Buffer,
  { mayHoldNonManifests, mayFileBeEmpty, readsLikeKubectl }: Required<ParsingOptions>,
): void => {
  const unreadable = findEncodingFault(bytes);
  if (unreadable !== undefined) {
    input.faults.push({ file: name, line: 1, sentence: unreadable });
    return;
  }
  const decoded = bytes.toString();
  const byteOrderMark = decoded.startsWith("\uFEFF") ? "\uFEFF" : "";
  const text = decoded.slice(byteOrderMark.length);
  const source = { name, folder, byteOrderMark, text };
  const { manifests, nonManifestLines, faults } = parseManifests(source, { readsLikeKubectl });
  for (const manifest of manifests) input.manifests.push(manifest);
  // A file in a folder may be one of another program. It is left out if it has no manifest, and if its text doesn't
  // look like a manifest with mistakes. Chart.yaml is left out, too, although it has an apiVersion.
  const isLeftOut =
    mayHoldNonManifests && !isNamedByUser && manifests.length === 0 && (isChart(name) || !looksLikeManifest(text));
  if (isLeftOut && nonManifestLines.length + faults.length > 0) input.filesWithoutManifest.push(name);
  else {
    // Adds no fault for an empty file; for a Helm template, one fault instead of the many that it has as YAML.
    const templateFault = faults.length > 0 ? findTemplateFault(name, text) : undefined;
    for (const fault of templateFault ? [templateFault] : faults) input.faults.push(fault);
    for (const line of nonManifestLines) input.faults.push({ file: name, line, sentence: describeNonManifest(name) });
  }
  if (isNamedByUser && !mayFileBeEmpty && manifests.length + nonManifestLines.length + faults.length === 0)
    input.faults.push({ file: name, line: 1, sentence: "holds nothing" });
};

const describeNonManifest = (name: string): string => {
  if (isKustomization(name)) return "is a kustomization; name its folder with --build";
  if (isChart(name)) return "belongs to a chart; name its folder with --build";
  return "is no manifest: it must have an apiVersion and a kind";
};

/** Describes why bytes are no text of YAML or JSON; undefined if they are. */
const findEncodingFault = (bytes: Buffer): string | undefined => {
  const firstBytes = bytes.subarray(0, 2).toString("hex");
  // UTF-16 has its own message, because Windows PowerShell writes it if its output is redirected to a file.
  if (firstBytes === "fffe" || firstBytes === "feff") return utf16Sentence;
  if (!isUtf8(bytes)) return "is no text in UTF-8";
  return bytes.includes(0) ? nulSentence : undefined;
};

/** Reports whether a text looks like a manifest, even if it is broken. The JSON report of `check` doesn't. */
const looksLikeManifest = (text: string) =>
  /["']?apiVersion["']?\s*:/.test(text) && !/^\{\s*"objects":\s*\[/.test(text);

/** Returns a fault if a text is a Helm template, with the line of the first `{{ … }}`. */
const findTemplateFault = (file: string, text: string): ManifestFault | undefined => {
  const at = text.search(/\{\{-?\s*[\w.$("/]/);
  if (at < 0) return undefined;
  const line = text.slice(0, at).split("\n").length;
  return { file, line, sentence: "is a Helm template; run helm template CHART | postern check -" };
};
