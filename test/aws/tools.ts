import { execFile, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { cp, mkdir, readdir, rename, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { cacheFolder } from "../../infra/kubernetes/build/go-programs.ts";
import { findMissingNpmRegistry } from "../registry/registry.ts";

// The tools that replace AWS in tests: moto and cfn-lint (Python), Lambda's own runtime client (Node), DynamoDB Local
// (Java), and a registry with package managers (Node). Only the versions that requirements.txt, pom.xml and
// package-lock.json pin are used. `npm run aws` installs them.

const resolvePath = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/**
 * Returns a folder in the cache. Its name contains a hash of these files, so a change of a file gives another folder.
 */
const buildCachePath = (name: string, ...files: string[]): string => {
  const digest = createHash("sha256");
  for (const file of files) digest.update(readFileSync(resolvePath(file)));
  return join(cacheFolder, `${name}-${digest.digest("hex").slice(0, 12)}`);
};

const getVenvFolder = () => buildCachePath("python", "requirements.txt");
/** Returns the path of the file that is written once the installation of Python's tools is complete. */
const getMarkerFile = () => join(getVenvFolder(), "complete");

const readPinnedVersion = (tool: string): string => {
  const [, version] =
    new RegExp(`^${tool}==(.+)$`, "m").exec(readFileSync(resolvePath("requirements.txt"), "utf8")) ?? [];
  if (version === undefined) throw new Error(`${resolvePath("requirements.txt")} pins no version of ${tool}`);
  return version;
};

/** A command with its first arguments, or the reason why the tool is missing. */
export type Tool = { command: string[] } | { missing: string };

type ToolCommands = Record<"installed" | "onPath" | "versionOnPath", string[]>;

/**
 * Finds a Python tool: the one that `npm run aws` installed, else one on PATH if it has the pinned version. `installed`
 * and `onPath` are the commands of these two tools; `versionOnPath` prints the version of the tool on PATH.
 */
const findTool = (name: string, { installed, onPath, versionOnPath }: ToolCommands): Tool => {
  const [program = "", ...rest] = installed;
  if (existsSync(getMarkerFile())) return { command: [join(getVenvFolder(), "bin", program), ...rest] };
  const [versionProgram = "", ...words] = versionOnPath;
  const answer = spawnSync(versionProgram, words, { encoding: "utf8" });
  const [found] = answer.status === 0 ? (/\d[\w.]*$/.exec(answer.stdout.trim()) ?? []) : [];
  const wanted = readPinnedVersion(name);
  if (found === wanted) return { command: onPath };
  const problem =
    found === undefined ? `${name} ${wanted} is not here` : `${name} ${found} is here and ${wanted} is wanted`;
  return { missing: `${problem}: npm run aws installs it` };
};

export const findCfnLint = (): Tool =>
  findTool("cfn-lint", {
    installed: ["cfn-lint"],
    onPath: ["cfn-lint"],
    versionOnPath: ["cfn-lint", "--version"],
  });

/** Throws an error with the problems that cfn-lint finds in templates. */
export const lint = async (...templates: string[]): Promise<void> => {
  const tool = findCfnLint();
  if ("missing" in tool) throw new Error(tool.missing);
  const [program = "", ...words] = tool.command;
  await run(program, [...words, ...templates]);
};

const motoVersion = "import importlib.metadata as m; print(m.version('moto'))";
export const findMoto = (): Tool => {
  const module = ["-m", "moto.server"];
  return findTool("moto", {
    installed: ["python", ...module],
    onPath: ["python3", ...module],
    versionOnPath: ["python3", "-c", motoVersion],
  });
};

/** The folder of Lambda's runtime client, under which every function on AWS runs. */
export const runtimeClient = resolvePath("../runtime/node_modules/aws-lambda-ric/");

export const findMissingRuntimeClient = (): string | undefined => {
  const { version: wanted } = JSON.parse(readFileSync(resolvePath("../runtime/package-lock.json"), "utf8")).packages[
    "node_modules/aws-lambda-ric"
  ];
  const advice = "npm run aws installs it";
  // The installation compiles this file; the client can't start without it.
  if (!existsSync(join(runtimeClient, "rapid-client.node"))) return `aws-lambda-ric ${wanted} is not here: ${advice}`;
  const { version: found } = JSON.parse(readFileSync(join(runtimeClient, "package.json"), "utf8"));
  return found === wanted ? undefined : `aws-lambda-ric ${found} is here and ${wanted} is wanted: ${advice}`;
};

const getDynamoDbFolder = () => buildCachePath("dynamodb", "pom.xml");
const oldestJava = 17;

/** Returns the command that starts DynamoDB Local, without its arguments. */
export const findDynamoDb = (): Tool => {
  const { stderr } = spawnSync("java", ["-version"], { encoding: "utf8" });
  const java = Number(/version "(\d+)/.exec(stderr ?? "")?.[1] ?? 0);
  if (java < oldestJava) return { missing: `Java ${oldestJava} is not here: DynamoDB Local needs it, or a newer one` };
  const folder = getDynamoDbFolder();
  if (!existsSync(folder)) return { missing: "DynamoDB Local is not here: npm run aws installs it" };
  // With less compilation, Java starts sooner. SQLite's library is in the folder of the jars.
  const words = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", `-Djava.library.path=${folder}`, "-cp", `${folder}/*`];
  return { command: ["java", ...words, "software.amazon.dynamodb.services.local.main.ServerRunner"] };
};

const run = (program: string, words: string[], options: { cwd?: string; env?: NodeJS.ProcessEnv } = {}) =>
  promisify(execFile)(program, words, { maxBuffer: 64 * 1024 * 1024, ...options });

const installPython = async (): Promise<void> => {
  const folder = getVenvFolder();
  if (existsSync(getMarkerFile())) return;
  await rm(folder, { recursive: true, force: true });
  await run("python3", ["-m", "venv", folder]);
  const words = ["install", "--quiet", "--disable-pip-version-check", "--requirement", resolvePath("requirements.txt")];
  await run(join(folder, "bin/python"), ["-m", "pip", ...words]);
  await writeFile(getMarkerFile(), "");
};

/**
 * Installs the packages of test/NAME, and copies them to the cache. The installation compiles Lambda's runtime client,
 * which takes a minute and needs the headers of the project's own Node.
 */
const installPackages = async (name: "runtime" | "registry", options: { ignoresScripts: boolean }): Promise<void> => {
  const cached = buildCachePath(name, "../../package-lock.json", `../${name}/package-lock.json`);
  const modules = resolvePath(`../${name}/node_modules`);
  if (!existsSync(cached)) {
    const env = { ...process.env, npm_config_nodedir: dirname(dirname(process.execPath)) };
    await run("npm", ["ci", `--ignore-scripts=${options.ignoresScripts}`], { cwd: resolvePath(`../${name}`), env });
    await cp(modules, `${cached}.${process.pid}`, { recursive: true, verbatimSymlinks: true });
    await rename(`${cached}.${process.pid}`, cached);
  }
  await rm(modules, { recursive: true, force: true });
  await cp(cached, modules, { recursive: true, verbatimSymlinks: true });
};

/**
 * Installs DynamoDB Local and its dependencies from Maven's repository. The checksum of all files must be that in
 * pom.xml.
 */
const installDynamoDb = async (): Promise<void> => {
  const folder = getDynamoDbFolder();
  if (existsSync(folder)) return;
  const unfinished = `${folder}.${process.pid}`;
  const words = ["--batch-mode", "--quiet", "dependency:copy-dependencies", `-DoutputDirectory=${unfinished}`];
  await run("mvn", words, { cwd: resolvePath(".") });
  const hash = (content: string | Buffer) => createHash("sha256").update(content).digest("hex");
  const files = (await readdir(unfinished)).sort();
  // The lines have the format of sha256sum.
  const lines = files.map((file) => `${hash(readFileSync(join(unfinished, file)))}  ${file}\n`);
  const found = hash(lines.join(""));
  const [, wanted] = /<files.sha256>(.*)<\/files.sha256>/.exec(readFileSync(resolvePath("pom.xml"), "utf8")) ?? [];
  if (found !== wanted)
    throw new Error(`the files in ${unfinished} have the checksum ${found}, and pom.xml has ${wanted}`);
  await rename(unfinished, folder);
};

if (import.meta.main) {
  await mkdir(cacheFolder, { recursive: true });
  await installPython();
  if (findMissingRuntimeClient() !== undefined) await installPackages("runtime", { ignoresScripts: false });
  if (findMissingNpmRegistry() !== undefined) await installPackages("registry", { ignoresScripts: true });
  await installDynamoDb();
  process.stdout.write(
    `moto and cfn-lint are at ${getVenvFolder()}, DynamoDB Local at ${getDynamoDbFolder()}, Lambda's runtime client and the registry in test/\n`,
  );
}
