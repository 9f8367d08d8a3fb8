import { existsSync, statSync } from "node:fs";
import { cp, readFile, rm, symlink } from "node:fs/promises";
import { basename, dirname, isAbsolute, join, relative, resolve, sep } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { parseJson, toMap } from "#lib/json.ts";
import type { AwsStage } from "../aws/stage.ts";
import { Complaint, toSentence } from "../cli/complaint.ts";
import { getProjectRoot, packageRoot } from "../cli/roots.ts";
import { truncateText } from "../cli/terminal.ts";
import { hasPosternBundles, openBundledVersion } from "./bundle-side.ts";
import { openReleasedVersion } from "./released-side.ts";
import type { ProcessResult, ReplayFoldersAndProcesses } from "./scratch.ts";
import { createReplaySideOfVersion, type ReplaySide, recordedSide } from "./sides.ts";

/** The rules to build from a checkout (if empty, all that are on), and the path of a postern.yaml if not its own. */
interface CheckoutBuildRequest {
  rules: readonly string[];
  config?: string | undefined;
}

/** How to build a version. `name` is the version's name in messages. */
interface VersionBuild {
  name: string;
  request: CheckoutBuildRequest;
  scratch: ReplayFoldersAndProcesses;
  say(line: string): void;
}

/** Reports whether a folder is a checkout of Postern, or a project that uses the package postern. */
const isPosternProject = (folder: string): boolean => existsSync(join(folder, "postern.yaml"));

/** Returns the path of the command `postern` that builds the version in a folder: in its source or its node_modules. */
const findBuildCommand = (folder: string, name: string): string => {
  if (folder === getProjectRoot()) return join(packageRoot, "infra/postern.js");
  const command = ["infra/postern.js", "node_modules/postern/infra/postern.js"]
    .map((file) => join(folder, file))
    .find(existsSync);
  if (command === undefined)
    throw new Complaint(`${name} can't be built: the package postern is not installed in it`, 3);
  return command;
};

/** Runs git in the project's folder. Returns its output, or an empty text if git fails. */
const runGitInProject = async (run: ReplayFoldersAndProcesses["run"], ...words: string[]): Promise<string> => {
  const { code, stdout } = await run("git", words, { cwd: getProjectRoot() });
  return code === 0 ? stdout.trim() : "";
};

/** Builds a commit in a temporary folder. Returns the folder of its bundles. */
const buildBundlesOfCommit = async (commit: string, version: VersionBuild): Promise<string> => {
  const { name, scratch } = version;
  const folder = await scratch.folder();
  const archive = join(folder, "archive.tar");
  const place = join(folder, "tree");
  const steps: [string, string[], string][] = [
    ["git", ["archive", "--format=tar", "--prefix=tree/", `--output=${archive}`, commit], getProjectRoot()],
    ["tar", ["-xf", archive], folder],
  ];
  for (const [program, words, cwd] of steps)
    requireSuccess(await scratch.run(program, words, { cwd }), `${name} can't be unpacked`);
  if (!isPosternProject(place)) throw new Complaint(`${name} can't be built: it has no postern.yaml`, 3);
  await installPackages(place, getProjectRoot(), version);
  return buildIn(place, version, { isCopy: true });
};

/** Builds the functions of a version without changing its checkout. Returns the folder of the bundles. */
const buildBundlesOfCheckout = async (folder: string, version: VersionBuild): Promise<string> => {
  if (await hasFolderOption(folder, version)) return buildIn(folder, version);
  // An older version builds into its own checkout, so a copy of the checkout is built.
  const place = join(await version.scratch.folder(), "tree");
  await copyProject(folder, place);
  await installPackages(place, folder, version);
  return buildIn(place, version, { isCopy: true });
};

/** Files and folders at the top of a project that aren't copied: a build doesn't read them, or creates them. */
const notCopied = new Set([".git", "dist", ".serverless", ".postern", "recordings"]);

/** Copies a checkout or project into a folder, without its packages. */
export const copyProject = async (folder: string, place: string): Promise<void> => {
  const isSkipped = (path: string) =>
    basename(path) === "node_modules" || (notCopied.has(basename(path)) && !relative(folder, path).includes(sep));
  await cp(folder, place, { recursive: true, filter: (path) => !isSkipped(path) });
};

/** Links the node_modules of `from` into `place` if both have the same lock files; otherwise installs the packages. */
const installPackages = async (place: string, from: string, { name, scratch, say }: VersionBuild): Promise<void> => {
  // A commit may contain node_modules, or a link of that name.
  await rm(join(place, "node_modules"), { recursive: true, force: true });
  const [wanted, present] = await Promise.all([place, from].map(readLockFiles));
  if (isDeepStrictEqual(wanted, present) && existsSync(join(from, "node_modules"))) {
    await symlink(join(from, "node_modules"), join(place, "node_modules"), "junction");
    return;
  }
  const [npmLockFile] = wanted ?? [];
  if (npmLockFile === undefined)
    throw new Complaint(
      `${name} can't be built: its lock file differs from the one here, and only npm's package-lock.json can be installed; check it out into a folder, install its packages there, and name the folder`,
      3,
    );
  say(`${name} wants other packages than are here: npm ci`);
  await runNpm(["ci"], place, `the packages of ${name} can't be installed`, scratch);
};

/** The program npm with its first arguments. On Windows, npm.cmd needs a shell, so Node.js runs npm-cli.js there. */
const [npm = "npm", ...npmWords] =
  process.platform === "win32"
    ? [process.execPath, join(dirname(process.execPath), "node_modules/npm/bin/npm-cli.js")]
    : ["npm"];

/** Runs npm in a folder. If npm fails, throws a Complaint with npm's error message. */
export const runNpm = async (
  words: readonly string[],
  cwd: string,
  failure: string,
  scratch: ReplayFoldersAndProcesses,
): Promise<void> => {
  const allWords = [...npmWords, ...words, "--no-audit", "--no-fund", "--json"];
  const { code, stdout, stderr } = await scratch.run(npm, allWords, { cwd });
  if (code === 0) return;
  const { summary, detail } = toMap(toMap(parseJson(stdout)).error);
  throw new Complaint(`${failure}: ${truncateText(toSentence(summary || detail || stderr), 500)}`, 3);
};

const readLockFiles = (folder: string): Promise<(string | undefined)[]> =>
  Promise.all(
    ["package-lock.json", "pnpm-lock.yaml", "yarn.lock"].map((file) =>
      readFile(join(folder, file), "utf8").catch(() => undefined),
    ),
  );

/** Reports whether the version's `postern build` has the option --to. Older versions build into the checkout. */
const hasFolderOption = async (place: string, { name, scratch }: VersionBuild): Promise<boolean> => {
  const words = [findBuildCommand(place, name), "build", "--help"];
  const result = await scratch.run(process.execPath, words, buildChildOptions(place));
  return requireSuccess(result, `${name} can't be built`).stdout.includes("--to ");
};

/**
 * Runs the version's `postern build` in its checkout. Returns the folder of the bundles. Older versions without the
 * option --to can be built only in a copy of the checkout, and only with all rules, because --rules needs --to.
 */
const buildIn = async (place: string, version: VersionBuild, { isCopy = false } = {}): Promise<string> => {
  const { name, request, scratch } = version;
  // If this isn't a copy, the caller has already found that the version has the option --to.
  const canChooseFolder = !isCopy || (await hasFolderOption(place, version));
  const out = canChooseFolder ? await scratch.folder() : join(place, "dist");
  const build = async (rules: readonly string[]): Promise<void> => {
    const words = [
      ...(canChooseFolder ? ["--to", out] : []),
      ...(canChooseFolder && rules.length > 0 ? ["--rules", rules.join(",")] : []),
      ...(request.config === undefined ? [] : ["--config", request.config]),
    ];
    const program = [findBuildCommand(place, name), "build", ...words];
    const result = await scratch.run(process.execPath, program, buildChildOptions(place));
    const [, unknownRule] = (result.code === 2 && /^there is no rule "(.*?)"/.exec(result.stderr)) || [];
    if (unknownRule === undefined || !rules.includes(unknownRule)) {
      requireSuccess(result, `${name} can't be built`);
      return;
    }
    // This version doesn't have the rule: the other rules are built without it.
    const others = rules.filter((rule) => rule !== unknownRule);
    if (others.length > 0) await build(others);
  };
  await build(request.rules);
  return out;
};

/**
 * Returns the options for a child process that runs another version of Postern in a folder: the folder, and this
 * process's environment without AWS credentials and NODE_OPTIONS, which that version doesn't need.
 */
export const buildChildOptions = (cwd: string) => {
  const env = Object.entries(process.env).filter(([key]) => !/^(AWS_|NODE_OPTIONS$)/.test(key));
  return { cwd, env: Object.fromEntries(env) };
};

const requireSuccess = (result: ProcessResult, failure: string): ProcessResult => {
  if (result.code === 0) return result;
  const lastLines = toSentence(result.stderr.trim().split("\n").slice(-3).join("\n"));
  throw new Complaint(`${failure}: ${lastLines.slice(0, 1000) || `it ended with ${result.code}`}`, 3);
};

/** The options for opening one of the two versions that a replay compares. */
interface ReplaySideOptions extends Omit<VersionBuild, "name"> {
  stage: AwsStage | undefined;
  /** The time limit of one review on this machine. */
  milliseconds: number;
}

/** Reports whether a text is `live`, or the name of a release, such as `r7`. */
const isReleased = (text: string) => text === "live" || /^r\d+$/.test(text);

/** Opens the side of a replay that `text` names: recorded answers, the working tree, a release, commit or folder. */
export const openReplaySide = async (text: string, options: ReplaySideOptions): Promise<ReplaySide> => {
  if (text === "recorded") return recordedSide;
  const { stage, request, milliseconds, scratch, say } = options;
  if (stage && isReleased(text)) return createReplaySideOfVersion(await openReleasedVersion(stage, text));
  const openBundleSide = async (folder: string) =>
    createReplaySideOfVersion(await openBundledVersion(text, folder, milliseconds, scratch));
  if (text === "working-tree")
    return openBundleSide(await buildBundlesOfCheckout(getProjectRoot(), { name: text, request, scratch, say }));
  // The option --config applies to the working tree only. Other versions use their own postern.yaml.
  const buildOptions = { name: text, request: { rules: request.rules }, scratch, say };
  const isPath = isAbsolute(text) || /^\.\.?(\/|$)/.test(text);
  const commit = isPath
    ? ""
    : await runGitInProject(scratch.run, "rev-parse", "--verify", "--quiet", "--end-of-options", `${text}^{commit}`);
  if (commit !== "") return openBundleSide(await buildBundlesOfCommit(commit, buildOptions));
  const folder = resolve(text);
  if (isPosternProject(folder)) return openBundleSide(await buildBundlesOfCheckout(folder, buildOptions));
  if (await hasPosternBundles(folder)) return openBundleSide(folder);
  throw await createUnknownVersionComplaint(text, folder, options);
};

/** Returns the Complaint about a text that names no version; the Complaint lists possible ones. */
const createUnknownVersionComplaint = async (
  text: string,
  folder: string,
  { stage, scratch }: ReplaySideOptions,
): Promise<Complaint> => {
  if (statSync(folder, { throwIfNoEntry: false })?.isDirectory())
    return new Complaint(
      `${text} is no version to replay: the folder has no postern.yaml, and is not the output of postern build`,
    );
  if (!stage && isReleased(text)) return new Complaint(`${text} is a release; --stage must name its stage`);
  const list = ["for-each-ref", "--format=%(refname:short)", "--count=10", "--sort=-creatordate"];
  const names = (await runGitInProject(scratch.run, ...list, "refs/heads", "refs/tags")).split("\n").filter(Boolean);
  const isShallow = (await runGitInProject(scratch.run, "rev-parse", "--is-shallow-repository")) === "true";
  const possibleVersions = [
    "recorded",
    "working-tree",
    ...(stage ? ["live or a release such as r7"] : []),
    names.length > 0 ? `a commit (${names.join(", ")})` : "a commit, where there is git",
    "a folder",
  ];
  const hint = isShallow ? "; this clone is shallow, and git fetch --unshallow brings other commits" : "";
  return new Complaint(
    `there is no version "${text}"; it can be ${possibleVersions.slice(0, -1).join(", ")} or ${possibleVersions.at(-1)}${hint}`,
  );
};
