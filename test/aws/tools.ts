import { execFile, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { cp, mkdir, rename, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { cacheFolder } from "../../infra/parity/control-plane/go-programs.ts";

// The tools that stand in for AWS: moto and cfn-lint (Python), and Lambda's own runtime client (Node). Each is used
// only in the version that requirements.txt or package-lock.json pins. `npm run aws` installs them.

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/** The folder in the cache for what was made of these files: a change of one makes another folder. */
const buildCachePath = (name: string, ...files: string[]): string => {
  const digest = createHash("sha256");
  for (const file of files) digest.update(readFileSync(here(file)));
  return join(cacheFolder, `${name}-${digest.digest("hex").slice(0, 12)}`);
};

const getVenvFolder = () => buildCachePath("python", "requirements.txt");
/** The file that is written last when the folder is made. */
const getMarkerFile = () => join(getVenvFolder(), "complete");

const readPinnedVersion = (tool: string): string => {
  const [, version] = new RegExp(`^${tool}==(.+)$`, "m").exec(readFileSync(here("requirements.txt"), "utf8")) ?? [];
  if (version === undefined) throw new Error(`${here("requirements.txt")} pins no version of ${tool}`);
  return version;
};

/** A command and its first arguments, or the sentence that says why there is none. */
export type Tool = { command: string[] } | { missing: string };

/** Finds a tool: the one that `npm run aws` installed, or else the one on PATH if it has the pinned version. */
const findTool = (name: string, installed: string[], onPath: string[], version: string[]): Tool => {
  const [program = "", ...rest] = installed;
  if (existsSync(getMarkerFile())) return { command: [join(getVenvFolder(), "bin", program), ...rest] };
  const [asked = "", ...words] = version;
  const answer = spawnSync(asked, words, { encoding: "utf8" });
  const [found] = answer.status === 0 ? (/\d[\w.]*$/.exec(answer.stdout.trim()) ?? []) : [];
  const wanted = readPinnedVersion(name);
  if (found === wanted) return { command: onPath };
  const first =
    found === undefined ? `${name} ${wanted} is not here` : `${name} ${found} is here and ${wanted} is wanted`;
  return { missing: `${first}: npm run aws installs it` };
};

export const findCfnLint = (): Tool => findTool("cfn-lint", ["cfn-lint"], ["cfn-lint"], ["cfn-lint", "--version"]);

/** Throws what cfn-lint finds wrong with a template. */
export const lint = async (template: string): Promise<void> => {
  const tool = findCfnLint();
  if ("missing" in tool) throw new Error(tool.missing);
  const [program = "", ...words] = tool.command;
  await run(program, [...words, template]);
};

const motoVersion = "import importlib.metadata as m; print(m.version('moto'))";
export const findMoto = (): Tool => {
  const module = ["-m", "moto.server"];
  return findTool("moto", ["python", ...module], ["python3", ...module], ["python3", "-c", motoVersion]);
};

/** Lambda's runtime client, which every function on AWS runs under. */
export const runtimeClient = here("../runtime/node_modules/aws-lambda-ric/");

export const findMissingRuntimeClient = (): string | undefined => {
  const { version: wanted } = JSON.parse(readFileSync(here("../runtime/package-lock.json"), "utf8")).packages[
    "node_modules/aws-lambda-ric"
  ];
  const how = "npm run aws installs it";
  // It is compiled when it is installed; without that file it can't start.
  if (!existsSync(join(runtimeClient, "rapid-client.node"))) return `aws-lambda-ric ${wanted} is not here: ${how}`;
  const { version: found } = JSON.parse(readFileSync(join(runtimeClient, "package.json"), "utf8"));
  return found === wanted ? undefined : `aws-lambda-ric ${found} is here and ${wanted} is wanted: ${how}`;
};

const run = (program: string, words: string[], options: { cwd?: string; env?: NodeJS.ProcessEnv } = {}) =>
  promisify(execFile)(program, words, { maxBuffer: 64 * 1024 * 1024, ...options });

const installPython = async (): Promise<void> => {
  const folder = getVenvFolder();
  if (existsSync(getMarkerFile())) return;
  await rm(folder, { recursive: true, force: true });
  await run("python3", ["-m", "venv", folder]);
  const words = ["install", "--quiet", "--disable-pip-version-check", "--requirement", here("requirements.txt")];
  await run(join(folder, "bin/python"), ["-m", "pip", ...words]);
  await writeFile(getMarkerFile(), "");
};

/** It compiles for a minute, against the headers of the Node that the project brings. */
const installRuntimeClient = async (): Promise<void> => {
  if (findMissingRuntimeClient() === undefined) return;
  const kept = buildCachePath("runtime", "../../package-lock.json", "../runtime/package-lock.json");
  const modules = here("../runtime/node_modules");
  if (!existsSync(kept)) {
    const env = { ...process.env, npm_config_nodedir: dirname(dirname(process.execPath)) };
    await run("npm", ["ci", "--ignore-scripts=false"], { cwd: here("../runtime"), env });
    await cp(modules, `${kept}.${process.pid}`, { recursive: true, verbatimSymlinks: true });
    await rename(`${kept}.${process.pid}`, kept);
  }
  await rm(modules, { recursive: true, force: true });
  await cp(kept, modules, { recursive: true, verbatimSymlinks: true });
};

if (import.meta.main) {
  await mkdir(cacheFolder, { recursive: true });
  await installPython();
  await installRuntimeClient();
  process.stdout.write(`moto and cfn-lint are at ${getVenvFolder()}, Lambda's runtime client at ${runtimeClient}\n`);
}
