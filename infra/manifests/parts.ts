import { readFile, stat } from "node:fs/promises";
import { basename, dirname, join, relative } from "node:path";
import { getOwn, toList, toMap } from "#lib/json.ts";
import { quoteForShell } from "../cli/terminal.ts";
import { parseYamlDocuments } from "./yaml.ts";

/** A folder that kustomize builds. */
export interface Kustomization {
  folder: string;
  /** What its file adds to the metadata of a build. */
  buildMetadata: readonly string[];
  /** Why nothing can be built, such as names of what isn't a file or a folder here. */
  faults: readonly string[];
}

/** What helm and kustomize make manifests of, among the files of folders. */
export interface BuiltParts {
  /** The folders of charts that no other chart has. */
  charts: readonly string[];
  /** The kustomizations that no other one includes. Each kustomization is part of the build of one, except unused components. */
  kustomizations: readonly Kustomization[];
  /** Files that are no manifests by themselves, such as templates and patches. */
  unfinished: ReadonlySet<string>;
  /** Files that are manifests, and that a build includes in its own. */
  included: ReadonlySet<string>;
}

/** Reports whether a file is Helm's Chart.yaml, which has an apiVersion but is no manifest. */
export const isChart = (file: string): boolean => /^Chart\.ya?ml$/.test(basename(file));

const kustomizationFiles = ["kustomization.yaml", "kustomization.yml", "Kustomization"];
export const isKustomization = (file: string): boolean => kustomizationFiles.includes(basename(file));

/** The files of a chart's folder that aren't manifests; tests and ci have values and tests of the chart. */
const inChart = /^(Chart\.ya?ml|values[^/]*\.(ya?ml|json)|(templates|charts|tests|ci)\/.*)$/;

/** Returns what helm and kustomize make manifests of, among these files. */
export const findBuiltParts = async (files: readonly string[]): Promise<BuiltParts> => {
  const charts = files.filter(isChart).map((file) => dirname(file));
  const isIn = (pattern: RegExp, file: string) => charts.some((chart) => pattern.test(relative(chart, file)));
  const unfinished = new Set(files.filter((file) => isIn(inChart, file)));
  const included = new Set(files.filter((file) => isIn(/^crds\//, file)));
  const folders = new Set(files.filter((file) => !unfinished.has(file)).map((file) => dirname(file)));
  const all = new Map<string, KustomizationContent>();
  for (const folder of folders) await readKustomizations(folder, all);
  for (const { file, files } of all.values()) for (const name of [file, ...files]) unfinished.add(name);

  const own = [...folders].filter((folder) => all.get(folder)?.isComponent === false);
  const used = new Set([...all.values()].flatMap(({ sources }) => sources));
  const roots: string[] = [];
  const built = new Set<string>();
  const addRoot = (folder: string) => {
    roots.push(folder);
    for (const one of listIncluded(folder, all)) built.add(one);
  };
  for (const folder of own) if (!used.has(folder)) addRoot(folder);
  // What is left includes itself in a circle, which kustomize refuses.
  for (const folder of own) if (!built.has(folder)) addRoot(folder);
  for (const folder of built) for (const name of all.get(folder)?.sources ?? []) if (!all.has(name)) included.add(name);
  return {
    charts: charts.filter((chart) => !isIn(/^charts\//, chart)),
    kustomizations: roots.map((folder) => {
      const faults = listIncluded(folder, all).flatMap((one) => all.get(one)?.faults ?? []);
      return { folder, buildMetadata: all.get(folder)?.buildMetadata ?? [], faults };
    }),
    unfinished,
    included,
  };
};

/** Returns the command by which users build a kustomization or a chart themselves. */
export const formatBuildCommand = (kind: "kustomization" | "chart", folder: string): string => {
  const word = quoteForShell(folder.startsWith("-") ? `./${folder}` : folder);
  return kind === "chart" ? `helm template ${word}` : `kustomize build ${word}`;
};

interface KustomizationContent {
  file: string;
  isComponent: boolean;
  buildMetadata: string[];
  /** The paths of what it includes: files with manifests, and folders of other kustomizations. */
  sources: string[];
  /** The paths of files that it needs beside them. */
  files: string[];
  faults: string[];
}

/** Reads the kustomization in a folder, if it has one, and those that it includes, into `all`. */
const readKustomizations = async (folder: string, all: Map<string, KustomizationContent>): Promise<void> => {
  if (all.has(folder)) return;
  const read = await readKustomization(folder);
  if (read === undefined) return;
  all.set(folder, read);
  for (const name of read.sources) await readKustomizations(name, all);
};

/** Lists a kustomization and all that it includes. */
const listIncluded = (
  folder: string,
  all: ReadonlyMap<string, KustomizationContent>,
  found = new Set<string>(),
): string[] => {
  const content = all.get(folder);
  if (content === undefined || found.has(folder)) return [...found];
  found.add(folder);
  for (const name of content.sources) listIncluded(name, all, found);
  return [...found];
};

const largest = 1024 * 1024;

const readKustomization = async (folder: string): Promise<KustomizationContent | undefined> => {
  for (const file of kustomizationFiles.map((name) => join(folder, name))) {
    const found = await stat(file).catch(() => undefined);
    if (!found?.isFile()) continue;
    const nothing = { file, isComponent: false, buildMetadata: [], sources: [], files: [] };
    if (found.size > largest) return { ...nothing, faults: [`${file} has more than ${largest} bytes`] };
    // kustomize takes the keys in any case.
    const entries = Object.entries(toMap(parseFirst(await readFile(file, "utf8").catch(() => ""))));
    const content = Object.fromEntries(entries.map(([key, value]) => [key.toLowerCase(), value]));
    const list = (...keys: string[]) => keys.flatMap((key) => toList(content[key]));
    const listAt = (key: string, ...lists: string[]) => list(...lists).map((item) => getOwn(item, key));
    const sources = list("resources", "bases", "components").filter(isName);
    const generators = ["configmapgenerator", "secretgenerator"];
    const keyed = [...["files", "envs"].flatMap((key) => listAt(key, ...generators).flatMap(toList))].filter(isName);
    const files = [
      ...list("patchesstrategicmerge", "configurations", "generators", "transformers", "validators"),
      ...listAt("path", "patches", "patchesjson6902", "replacements"),
      ...listAt("env", ...generators),
      ...listAt("valuesFile", "helmcharts"),
      ...listAt("additionalValuesFiles", "helmcharts").flatMap(toList),
      getOwn(content.openapi, "path"),
      ...keyed.map((name) => name.slice(name.indexOf("=") + 1)),
    ].filter(isName);
    const faults: string[] = [];
    // The system follows links in the folder before `..`.
    for (const name of [...sources, ...files, ...list("crds").filter(isName)])
      await stat(`${folder}/${name}`).catch(() => void faults.push(describeMissing(file, name)));
    const toPath = (name: string) => join(folder, name).replace(/(?<=.)\/$/, "");
    return {
      file,
      isComponent: content.kind === "Component",
      buildMetadata: list("buildmetadata").filter(isName),
      sources: sources.map(toPath),
      files: files.map(toPath),
      faults,
    };
  }
  return undefined;
};

/** Says that a kustomization names what isn't here; of an address, the user and the password are left out. */
const describeMissing = (file: string, name: string): string =>
  `${file} names ${name.replace(/\/\/[^/]*@/, "//")}, which isn't here; --build fetches nothing`;

const parseFirst = (text: string): unknown => {
  try {
    for (const { document } of parseYamlDocuments(text)) return document.toJS();
  } catch {
    // kustomize says what is wrong with it.
  }
  return undefined;
};

/** Reports whether a value names a file or a folder; a patch may also stand there itself, as several lines. */
const isName = (value: unknown): value is string => typeof value === "string" && value !== "" && !value.includes("\n");
