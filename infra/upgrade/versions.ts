import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { isAbsolute, join, resolve } from "node:path";
import { isMap, parseJson } from "#lib/json.ts";
import { listRuleFolders, posternCatalogue } from "../catalogue/sources.ts";
import { Complaint, toSentence } from "../cli/complaint.ts";
import { getProjectRoot, packageRoot } from "../cli/roots.ts";
import type { DeployedObject } from "../clusters/api.ts";
import type { ProcessResult, ReplayFoldersAndProcesses } from "../replay/scratch.ts";
import { buildChildOptions, copyProject, runNpm } from "../replay/versions.ts";
import type { TestResult } from "../testing/results.ts";

/** A version of Postern, with the project or the copy of the project in which its commands run. */
export interface PosternVersion {
  version: string;
  /** The folder of the package. */
  folder: string;
  /** Runs this version's `postern` in its project. */
  run(...words: string[]): Promise<ProcessResult>;
}

/** The answer of a version's command, or the error message of the command. */
export type AnswerOrRefusal<Answer> = { answer: Answer } | { refusal: string };

/** Opens the version of Postern that is installed in `folder`. Its commands will run in the folder `cwd`. */
const openVersion = async (
  folder: string,
  cwd: string,
  scratch: ReplayFoldersAndProcesses,
): Promise<PosternVersion> => {
  const { version } = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
  const options = buildChildOptions(cwd);
  // Without this variable, each version uses a compile cache beside its own package.
  delete options.env.NODE_COMPILE_CACHE;
  const program = join(folder, "infra/postern.js");
  return { version, folder, run: (...words) => scratch.run(process.execPath, [program, ...words], options) };
};

export const openInstalledVersion = (scratch: ReplayFoldersAndProcesses): Promise<PosternVersion> =>
  openVersion(packageRoot, getProjectRoot(), scratch);

/** Installs a version in a temporary copy of the project. `wanted` is a version in npm, or the path of a package. */
export const installVersion = async (wanted: string, scratch: ReplayFoldersAndProcesses): Promise<PosternVersion> => {
  const copy = join(await scratch.folder(), "project");
  await copyProject(getProjectRoot(), copy);
  const isPath = isAbsolute(wanted) || /^\.\.?([\\/]|$)|^[^:]+\.tgz$/.test(wanted);
  const specifier = `postern@${isPath ? `file:${resolve(wanted)}` : wanted}`;
  const words = ["install", specifier, "--prefix", copy, "--install-links", "--ignore-scripts", "--fetch-retries=1"];
  await runNpm(words, copy, `postern@${wanted} can't be installed`, scratch);
  const folder = join(copy, "node_modules/postern");
  if (!existsSync(join(folder, "infra/main.js")))
    throw new Complaint(`${wanted} is not the compiled package postern; npm run pack makes one from a checkout`, 3);
  return openVersion(folder, copy, scratch);
};

/** Returns the names of the rules in the catalogue of a version. */
export const listCatalogueNames = async ({ folder }: PosternVersion): Promise<string[]> =>
  (await listRuleFolders([{ name: posternCatalogue, folder: join(folder, "functions") }])).map(({ name }) => name);

/** Builds the rules that are on, with their settings. Returns the folder of the bundles. */
export const buildProject = async (
  { run }: PosternVersion,
  scratch: ReplayFoldersAndProcesses,
): Promise<AnswerOrRefusal<string>> => {
  const folder = await scratch.folder();
  const { code, stderr } = await run("build", "--to", folder);
  return code === 0 ? { answer: folder } : { refusal: stderr.trim() };
};

/** Returns the objects that a cluster would get. The cluster isn't read. */
export const buildEntries = async (
  { run }: PosternVersion,
  cluster: string,
): Promise<AnswerOrRefusal<DeployedObject[]>> => {
  const address = ["--url", "https://postern.example", "--key-from", "KEY", "--offline"];
  const { code, stdout, stderr } = await run("manifests", "--cluster", cluster, ...address, "--output", "json");
  return code === 0 ? { answer: JSON.parse(stdout).items } : { refusal: stderr.trim() };
};

/** Runs the cases of rules. */
export const runCases = async ({ run, version }: PosternVersion, rules: readonly string[]): Promise<TestResult[]> => {
  const { stdout, stderr } = await run("test", ...rules, "--output", "json");
  const output = parseJson(stdout);
  if (!isMap(output) || !Array.isArray(output.cases))
    throw new Complaint(`the cases of functions/ can't be run with postern ${version}: ${toSentence(stderr)}`, 3);
  return output.cases;
};
