import { execFile } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { Complaint } from "../cli/complaint.ts";
import { packageRoot } from "../cli/roots.ts";
import { closeChangelog, findUnreleasedSectionFault } from "./changelog.ts";
import { writeReleaseFiles } from "./release-files.ts";

// `npm run release -- 0.2.0` sets the version, renames the section "Unreleased" of CHANGELOG.md, and writes the files
// of the release to dist/packages. The maintainer then commits, tags and pushes. In the workflow that publishes the
// files, `npm run release -- --tag v0.2.0` writes the same files again from the tag's commit.

/** The files that state the version of Postern. */
const filesWithVersion = ["package.json", "package-lock.json"];

const runGit = async (...words: string[]): Promise<string> =>
  (await promisify(execFile)("git", words, { cwd: packageRoot })).stdout.trim();

const readText = (file: string): Promise<string> => readFile(join(packageRoot, file), "utf8");

/** Returns the numbers of a version such as 0.2.0. Returns undefined for other texts, such as 0.2.0-rc.1. */
const parseVersion = (text: string): number[] | undefined =>
  /^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)$/.exec(text)?.slice(1).map(Number);

const isNewer = (version: readonly number[], current: readonly number[]): boolean => {
  const firstDifference = version.findIndex((number, index) => number !== current[index]);
  return firstDifference !== -1 && (version[firstDifference] ?? 0) > (current[firstDifference] ?? 0);
};

/** Throws a complaint unless this checkout can be released as this version. */
const requireReleasable = async (version: string): Promise<void> => {
  const wanted = parseVersion(version);
  if (wanted === undefined) throw new Complaint(`"${version}" must be a version of three numbers, for instance 0.2.0`);
  const current: string = JSON.parse(await readText("package.json")).version;
  if (!isNewer(wanted, parseVersion(current) ?? []))
    throw new Complaint(`the version must be newer than ${current}, which package.json has; ${version} is not`);
  const changed = await runGit("status", "--porcelain");
  if (changed !== "") {
    const files = changed.replace(/^ *\S+ +/gm, "").replaceAll("\n", ", ");
    throw new Complaint(`the working tree must be clean; commit or remove ${files}`, 1);
  }
  if ((await runGit("tag", "--list", `v${version}`)) !== "")
    throw new Complaint(`the tag v${version} exists; a release needs a version that has no tag`, 1);
  const reason = findUnreleasedSectionFault(await readText("CHANGELOG.md"));
  if (reason !== undefined) throw new Complaint(reason, 1);
};

const setVersion = (text: string, version: string): string => {
  const content = JSON.parse(text);
  content.version = version;
  if (content.packages !== undefined) content.packages[""].version = version;
  return `${JSON.stringify(content, null, 2)}\n`;
};

/** Sets the version in all files that state it, and makes the section "Unreleased" of CHANGELOG.md its section. */
const writeVersion = async (version: string): Promise<void> => {
  for (const file of filesWithVersion)
    await writeFile(join(packageRoot, file), setVersion(await readText(file), version));
  const date = new Date().toISOString().slice(0, 10);
  await writeFile(join(packageRoot, "CHANGELOG.md"), closeChangelog(await readText("CHANGELOG.md"), version, date));
};

/** Writes a new version's number and files into the working tree, and prints what to do next. */
const prepareRelease = async (version: string): Promise<void> => {
  await requireReleasable(version);
  await writeVersion(version);
  const files = await writeReleaseFiles(`v${version}`).catch(async (error) => {
    // The working tree was clean before, so this removes only the changes of `writeVersion`.
    await runGit("restore", ".");
    throw error;
  });
  const lines = [
    ...files,
    "",
    "Read the changes with git diff. Then commit, tag and push; the workflow of the tag publishes the packages:",
    `  git commit --all --message "release ${version}"`,
    `  git tag --annotate v${version} --message v${version}`,
    `  git push --atomic origin HEAD v${version}`,
  ];
  process.stdout.write(`${lines.join("\n")}\n`);
};

// The arguments are a version, or `--tag` and a tag.
const [versionOrOption = "", tag = "", ...otherArguments] = process.argv.slice(2);
try {
  const hasOption = versionOrOption === "--tag";
  const hasTag = tag !== "";
  if (versionOrOption === "" || otherArguments.length > 0 || hasOption !== hasTag)
    throw new Complaint("name one version: npm run release -- 0.2.0");
  await (hasOption ? writeReleaseFiles(tag) : prepareRelease(versionOrOption));
} catch (error) {
  process.stderr.write(`${error instanceof Complaint ? error.message : (error as Error).stack}\n`);
  process.exitCode = error instanceof Complaint ? error.exitCode : 3;
}
