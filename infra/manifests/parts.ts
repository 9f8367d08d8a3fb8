import { readFile, stat } from "node:fs/promises";
import { basename, dirname, join, relative } from "node:path";
import { getOwn, toMap } from "#lib/json.ts";
import { parseYamlDocuments } from "./yaml.ts";

/** A folder that kustomize builds. `missing` has what it names and what isn't a file or a folder here. */
export interface Kustomization {
  folder: string;
  missing: readonly string[];
}

/** What helm and kustomize make manifests of, among the files of folders. */
export interface BuiltParts {
  /** The charts that no other chart has. */
  charts: readonly string[];
  /** The kustomizations that no other one includes; what a build of one reads is part of it. */
  kustomizations: readonly Kustomization[];
  /** Files that are no manifests by themselves, such as templates and patches. */
  unfinished: ReadonlySet<string>;
  /** Files that are manifests, and that a build includes in its own. */
  included: ReadonlySet<string>;
}

/** Reports whether a file is Helm's Chart.yaml, which has an apiVersion but is no manifest. */
export const isChart = (file: string): boolean => /^Chart\.ya?ml$/.test(basename(file));

/** The files of a chart's folder that aren't manifests. */
const inChart = /^(Chart\.ya?ml|values[^/]*\.(ya?ml|json)|(templates|charts)\/.*)$/;

/** Returns what helm and kustomize make manifests of, among these files. */
export const findBuiltParts = async (files: readonly string[]): Promise<BuiltParts> => {
  const charts = files.filter(isChart).map((file) => dirname(file));
  const isIn = (pattern: RegExp, file: string) => charts.some((chart) => pattern.test(relative(chart, file)));
  const unfinished = new Set(files.filter((file) => isIn(inChart, file)));
  const included = new Set(files.filter((file) => isIn(/^crds\//, file)));
  const folders = new Set(files.filter((file) => !unfinished.has(file)).map((file) => dirname(file)));
  const all = new Map<string, KustomizationContent>();
  for (const folder of folders) await readKustomizations(folder, all);
  for (const [folder, { file, files, sources }] of all) {
    for (const name of [file, ...files]) unfinished.add(join(folder, name));
    for (const name of sources) if (!all.has(join(folder, name))) included.add(join(folder, name));
  }
  const used = new Set([...all].flatMap(([folder, { sources }]) => sources.map((name) => join(folder, name))));
  return {
    charts: charts.filter((chart) => !isIn(/^charts\//, chart)),
    kustomizations: [...folders]
      .filter((folder) => all.get(folder)?.isComponent === false && !used.has(folder))
      .map((folder) => ({ folder, missing: listMissing(folder, all, new Set()) })),
    unfinished,
    included,
  };
};

interface KustomizationContent {
  file: string;
  isComponent: boolean;
  /** What it includes: files with manifests, and folders of other kustomizations. */
  sources: string[];
  /** Files that it needs beside them. */
  files: string[];
  /** What of both isn't there. */
  missing: string[];
}

/** Reads the kustomization in a folder, if it has one, and those that it includes, into `all`. */
const readKustomizations = async (folder: string, all: Map<string, KustomizationContent>): Promise<void> => {
  if (all.has(folder)) return;
  const read = await readKustomization(folder);
  if (read === undefined) return;
  all.set(folder, read);
  for (const name of read.sources) await readKustomizations(join(folder, name), all);
};

const largest = 1024 * 1024;

const readKustomization = async (folder: string): Promise<KustomizationContent | undefined> => {
  for (const file of ["kustomization.yaml", "kustomization.yml", "Kustomization"]) {
    const found = await stat(join(folder, file)).catch(() => undefined);
    if (!found?.isFile() || found.size > largest) continue;
    const content = toMap(parseFirst(await readFile(join(folder, file), "utf8").catch(() => "")));
    const list = (...keys: string[]) => keys.flatMap((key) => toList(content[key]));
    const listAt = (key: string, ...lists: string[]) => list(...lists).map((item) => getOwn(item, key));
    const sources = list("resources", "bases", "components").filter(isName);
    const generators = ["configMapGenerator", "secretGenerator"];
    const files = [
      ...list("patchesStrategicMerge", "configurations", "generators", "transformers", "validators"),
      ...listAt("path", "patches", "patchesJson6902", "replacements"),
      ...["files", "envs"].flatMap((key) => listAt(key, ...generators).flatMap(toList)),
      ...listAt("env", ...generators),
      ...listAt("valuesFile", "helmCharts"),
      ...listAt("additionalValuesFiles", "helmCharts").flatMap(toList),
      getOwn(content.openapi, "path"),
    ]
      .filter(isName)
      .map((name) => name.slice(name.indexOf("=") + 1));
    const missing: string[] = [];
    for (const name of [...sources, ...files])
      await stat(join(folder, name)).catch(() => void missing.push(`${join(folder, file)} names ${name}`));
    return { file, isComponent: content.kind === "Component", sources, files, missing };
  }
  return undefined;
};

const parseFirst = (text: string): unknown => {
  try {
    for (const { document } of parseYamlDocuments(text)) return document.toJS();
  } catch {
    // kustomize says what is wrong with it.
  }
  return undefined;
};

const toList = (value: unknown): unknown[] => (Array.isArray(value) ? value : []);

/** Reports whether a value names a file or a folder; a patch may also stand there itself, as several lines. */
const isName = (value: unknown): value is string => typeof value === "string" && value !== "" && !value.includes("\n");

const listMissing = (folder: string, all: ReadonlyMap<string, KustomizationContent>, seen: Set<string>): string[] => {
  const content = all.get(folder);
  if (content === undefined || seen.has(folder)) return [];
  seen.add(folder);
  return [...content.missing, ...content.sources.flatMap((name) => listMissing(join(folder, name), all, seen))];
};
