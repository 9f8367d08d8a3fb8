import { readFile, stat } from "node:fs/promises";
import { basename, dirname, join, relative } from "node:path";
import { getOwn, toList, toMap } from "#lib/json.ts";
import { quoteForShell } from "../cli/terminal.ts";
import { parseYamlDocuments } from "./yaml.ts";

/** A folder that kustomize builds. */
export interface Kustomization {
  folder: string;
  /** The list `buildMetadata` in its file. */
  buildMetadata: readonly string[];
  /** Why it can't be built, for instance because a file in it doesn't exist. */
  faults: readonly string[];
}

/** The charts and kustomizations in folders, and the files that belong to them. */
export interface ChartsAndKustomizations {
  /** The folders of charts. A chart in the folder of another chart is not listed. */
  charts: readonly string[];
  /** The kustomizations to build. A kustomization that another one includes is built with that one, and not listed. */
  kustomizations: readonly Kustomization[];
  /** Files that a build reads and that are no manifests themselves, such as templates and patches. */
  buildInputs: ReadonlySet<string>;
  /** Manifests that belong to a chart (its CustomResourceDefinitions), or that a kustomization includes. */
  includedManifests: ReadonlySet<string>;
}

/** Reports whether a file is Helm's Chart.yaml, which has an apiVersion but is no manifest. */
export const isChart = (file: string): boolean => /^Chart\.ya?ml$/.test(basename(file));

const kustomizationFiles = ["kustomization.yaml", "kustomization.yml", "Kustomization"];
export const isKustomization = (file: string): boolean => kustomizationFiles.includes(basename(file));

/** Matches the files in a chart's folder that aren't manifests. The folders tests and ci have values and tests. */
const inChart = /^(Chart\.ya?ml|values[^/]*\.(ya?ml|json)|(templates|charts|tests|ci)\/.*)$/;

/** Finds the charts and kustomizations among these files. */
export const findChartsAndKustomizations = async (files: readonly string[]): Promise<ChartsAndKustomizations> => {
  const charts = files.filter(isChart).map((file) => dirname(file));
  const isIn = (pattern: RegExp, file: string) => charts.some((chart) => pattern.test(relative(chart, file)));
  // Files that a build reads and that aren't manifests themselves, such as templates.
  const buildInputs = new Set(files.filter((file) => isIn(inChart, file)));
  // Manifests that the output of a build contains. helm copies those in the folder crds.
  const includedManifests = new Set(files.filter((file) => isIn(/^crds\//, file)));
  const folders = new Set(files.filter((file) => !buildInputs.has(file)).map((file) => dirname(file)));
  const kustomizations = new Map<string, KustomizationContent>();
  for (const folder of folders) await readKustomizations(folder, kustomizations);
  for (const { file, otherFiles } of kustomizations.values())
    for (const name of [file, ...otherFiles]) buildInputs.add(name);
  const buildable = [...folders].filter((folder) => kustomizations.get(folder)?.isComponent === false);
  const includedPaths = new Set([...kustomizations.values()].flatMap((content) => content.includedPaths));
  const roots: string[] = [];
  const builtFolders = new Set<string>();
  const addRoot = (folder: string) => {
    roots.push(folder);
    for (const builtFolder of listBuiltFolders(folder, kustomizations)) builtFolders.add(builtFolder);
  };
  for (const folder of buildable) if (!includedPaths.has(folder)) addRoot(folder);
  // The remaining ones include each other in a circle. They are listed, so that kustomize reports that.
  for (const folder of buildable) if (!builtFolders.has(folder)) addRoot(folder);
  for (const folder of builtFolders)
    for (const path of kustomizations.get(folder)?.includedPaths ?? [])
      if (!kustomizations.has(path)) includedManifests.add(path);
  return {
    charts: charts.filter((chart) => !isIn(/^charts\//, chart)),
    kustomizations: roots.map((folder) => {
      const faults = listBuiltFolders(folder, kustomizations).flatMap(
        (builtFolder) => kustomizations.get(builtFolder)?.faults ?? [],
      );
      return { folder, buildMetadata: kustomizations.get(folder)?.buildMetadata ?? [], faults };
    }),
    buildInputs,
    includedManifests,
  };
};

/** Returns the command with which users can build a kustomization or a chart themselves. */
export const formatBuildCommand = (kind: "kustomization" | "chart", folder: string): string => {
  const word = quoteForShell(folder.startsWith("-") ? `./${folder}` : folder);
  return kind === "chart" ? `helm template ${word}` : `kustomize build ${word}`;
};

/** The content of a kustomization's file. */
interface KustomizationContent {
  file: string;
  isComponent: boolean;
  buildMetadata: string[];
  /** The paths of included manifests, and the folders of included kustomizations. */
  includedPaths: string[];
  /** The paths of other files that it names, such as patches. */
  otherFiles: string[];
  faults: string[];
}

/** Adds the kustomization in a folder, if there is one, and the kustomizations that it includes, to `all`. */
const readKustomizations = async (folder: string, all: Map<string, KustomizationContent>): Promise<void> => {
  if (all.has(folder)) return;
  const read = await readKustomization(folder);
  if (read === undefined) return;
  all.set(folder, read);
  for (const name of read.includedPaths) await readKustomizations(name, all);
};

/** Lists the folders of a kustomization and of all kustomizations that it includes. */
const listBuiltFolders = (
  folder: string,
  all: ReadonlyMap<string, KustomizationContent>,
  found = new Set<string>(),
): string[] => {
  const content = all.get(folder);
  if (content === undefined || found.has(folder)) return [...found];
  found.add(folder);
  for (const name of content.includedPaths) listBuiltFolders(name, all, found);
  return [...found];
};

/** The most bytes of a kustomization's file. */
const largest = 1024 * 1024;

/** Reads the kustomization in a folder; undefined if there is none. */
const readKustomization = async (folder: string): Promise<KustomizationContent | undefined> => {
  for (const file of kustomizationFiles.map((name) => join(folder, name))) {
    const found = await stat(file).catch(() => undefined);
    if (!found?.isFile()) continue;
    const nothing = { file, isComponent: false, buildMetadata: [], includedPaths: [], otherFiles: [] };
    if (found.size > largest) return { ...nothing, faults: [`${file} has more than ${largest} bytes`] };
    // kustomize accepts keys in upper and lower case.
    const entries = Object.entries(toMap(parseFirst(await readFile(file, "utf8").catch(() => ""))));
    const content = Object.fromEntries(entries.map(([key, value]) => [key.toLowerCase(), value]));
    const list = (...keys: string[]) => keys.flatMap((key) => toList(content[key]));
    const listAt = (key: string, ...lists: string[]) => list(...lists).map((item) => getOwn(item, key));
    const included = list("resources", "bases", "components").filter(isName);
    const generators = ["configmapgenerator", "secretgenerator"];
    // Entries of generators are paths, or have the form `key=path`.
    const entriesOfGenerators = ["files", "envs"].flatMap((key) => listAt(key, ...generators).flatMap(toList));
    const otherFiles = [
      ...list("patchesstrategicmerge", "configurations", "generators", "transformers", "validators"),
      ...listAt("path", "patches", "patchesjson6902", "replacements"),
      ...listAt("env", ...generators),
      ...listAt("valuesFile", "helmcharts"),
      ...listAt("additionalValuesFiles", "helmcharts").flatMap(toList),
      getOwn(content.openapi, "path"),
      ...entriesOfGenerators.filter(isName).map((entry) => entry.slice(entry.indexOf("=") + 1)),
    ].filter(isName);
    const faults: string[] = [];
    // A file of `crds` must exist, too. It may be a manifest, so it isn't among `otherFiles`, which are no manifests.
    const crds = list("crds").filter(isName);
    // The path is not normalized: if the folder is a symbolic link, `..` leads to the parent of the link's target.
    for (const name of [...included, ...otherFiles, ...crds])
      await stat(`${folder}/${name}`).catch(() => void faults.push(describeMissing(file, name)));
    const toPath = (name: string) => join(folder, name).replace(/(?<=.)\/$/, "");
    return {
      file,
      isComponent: content.kind === "Component",
      buildMetadata: list("buildmetadata").filter(isName),
      includedPaths: included.map(toPath),
      otherFiles: otherFiles.map(toPath),
      faults,
    };
  }
  return undefined;
};

/** Says that a kustomization names something that doesn't exist. User and password in an address are left out. */
const describeMissing = (file: string, name: string): string =>
  `${file} names ${name.replace(/\/\/[^/]*@/, "//")}, which isn't here; --build fetches nothing`;

/** Returns the first document of a YAML text; undefined if the text is invalid. */
const parseFirst = (text: string): unknown => {
  try {
    for (const { document } of parseYamlDocuments(text)) return document.toJS();
  } catch {
    // An invalid file is no error here: kustomize reports it.
  }
  return undefined;
};

/** Reports whether a value is the name of a file or a folder. A value with several lines is a patch itself. */
const isName = (value: unknown): value is string => typeof value === "string" && value !== "" && !value.includes("\n");
