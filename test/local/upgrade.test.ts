import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { cpSync } from "node:fs";
import { mkdir, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { after, before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { type ProgramOutput, runProgram } from "../checkout.ts";
import { createTestFolder } from "../folders.ts";
import { type NpmRegistry, startNpmRegistry } from "../npm-registry.ts";
import { packOnce, unpackModulePackage } from "../package.ts";
import { needs } from "../parts.ts";
import { readRows } from "../rows.ts";

// Tests a user's project in which npm has installed Postern 0.1.0 from a registry on this machine. The registry also
// has later versions.
const run = promisify(execFile);
const root = fileURLToPath(new URL("../..", import.meta.url));
const folder = await createTestFolder();
const project = join(folder, "project");
const withGit = await needs("git");
const env = { PATH: process.env.PATH ?? "", HOME: folder, CI: "true" };
let registry: NpmRegistry;

interface Rows {
  /** The files of the project. */
  files: Record<string, string>;
  /** The changes of each version since 0.1.0, by file: the old words and the new words. */
  versions: Record<string, Record<string, [before: string, after: string]>>;
  /** The rules that a version removes from the catalogue, or adds as copies of another rule. */
  removed: Record<string, string[]>;
  added: Record<string, string[]>;
  /** The runs of `postern upgrade`: the arguments, and the expected code, output and error. */
  upgrades: { it: string; words: string; code: number; prints?: string; complains?: string }[];
}
const rows = readRows<Rows>(import.meta.filename);

const install = (...words: string[]) =>
  run("npm", ["install", "--ignore-scripts", "--no-audit", "--no-fund", ...words], { cwd: project, env });

const edit = async (file: string, change: (text: string) => string) => {
  const text = await readFile(file, "utf8");
  const changed = change(text);
  assert.notEqual(changed, text, file);
  await writeFile(file, changed);
};

/** Writes the content of each version's package to a separate folder. Returns the folders. */
const writeVersions = async (): Promise<string[]> => {
  const { postern } = await packOnce();
  const first = join(folder, "0.1.0");
  await mkdir(first);
  await run("tar", ["-xzf", postern, "--strip-components=1", "-C", first]);
  const later = Object.entries(rows.versions).map(async ([version, changes]) => {
    const versionFolder = join(folder, version);
    cpSync(first, versionFolder, { recursive: true });
    await edit(join(versionFolder, "package.json"), (text) => text.replace('"0.1.0"', `"${version}"`));
    for (const [path, [before, after]] of Object.entries(changes))
      await edit(join(versionFolder, path), (text) => text.replaceAll(before, after));
    for (const rule of rows.removed[version] ?? [])
      await rm(join(versionFolder, "functions", rule), { recursive: true });
    for (const rule of rows.added[version] ?? [])
      cpSync(join(versionFolder, "functions/always-deny"), join(versionFolder, "functions", rule), { recursive: true });
    return versionFolder;
  });
  // Packs 0.1.0 into a file, too, because `postern upgrade --check FILE` takes a version from a file, not the registry.
  await run("tar", ["-czf", join(folder, "packed.tgz"), "-C", folder, "0.1.0"]);
  return [first, ...(await Promise.all(later)), ...(await unpackModulePackage(join(folder, "module")))];
};

before(async () => {
  registry = await startNpmRegistry(await writeVersions());
  for (const [path, text] of Object.entries(rows.files)) {
    await mkdir(dirname(join(project, path)), { recursive: true });
    await writeFile(join(project, path), text);
  }
  await writeFile(join(project, ".npmrc"), `registry=${registry.url}\ncache=${join(folder, "cache")}\n`);
  await install();
});

after(() => registry.close());

const runPostern = (...words: string[]): Promise<ProgramOutput> =>
  runProgram(["node_modules/postern/infra/postern.js", ...words], { cwd: project, env });

/** Returns the inode, size and time of each of the project's files, by path, without files in the compile cache. */
const listFiles = async (): Promise<Record<string, string>> => {
  const entries = await readdir(project, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
  const foundFiles = files
    .filter((file) => !file.startsWith(join(project, "node_modules/.cache")))
    .map(async (file) => {
      const { ino, size, mtimeMs } = await stat(file);
      return [file, `${ino} ${size} ${mtimeMs}`];
    });
  return Object.fromEntries(await Promise.all(foundFiles));
};

describe("postern upgrade", () => {
  for (const { it: title, words, code, prints, complains } of rows.upgrades)
    it(`postern upgrade ${title}`, async () => {
      const filesBefore = await listFiles();
      const result = await runPostern("upgrade", ...words.replaceAll("FOLDER", folder).split(" ").filter(Boolean));
      const complaint = result.stderr.replace(/^installs .*\n/, "").trim();
      assert.deepEqual(
        { code: result.code, prints: result.stdout.trim(), complains: complaint.replaceAll(registry.url, "REGISTRY") },
        { code, prints: prints?.trim() ?? "", complains: complains ?? "" },
      );
      assert.deepEqual(await listFiles(), filesBefore);
    });

  it("postern upgrade prints JSON", async () => {
    const { code, stdout } = await runPostern("upgrade", "--check", "0.2.0", "-o", "json");
    const { answers, cases, ...found } = JSON.parse(stdout);
    const rule = "minimum-replicas";
    assert.equal(code, 1);
    assert.deepEqual(found.catalogue, {
      added: ["require-team"],
      removed: ["always-admit"],
      replaced: ["require-owner"],
    });
    assert.deepEqual(found.settings, [{ rule, changes: ["prod.settings.minimum: 2 → 3"] }]);
    const [prod, test, ...others] = found.entries;
    assert.deepEqual([prod.cluster, prod.differences.length], ["prod", 1]);
    assert.deepEqual([test.cluster, test.differences.length, others], ["test", 0, []]);
    assert.deepEqual(
      [cases[0].before, cases[0].after.rule, cases[0].after.result],
      ["passed", "require-owner", "failed"],
    );
    assert.deepEqual([answers.summary.alike, answers.summary.differs], [1, 1]);
  });

  it("postern upgrade fails in a checkout, which git upgrades, and says what to run instead", async () => {
    const { code, stderr } = await runProgram([join(root, "infra/postern.js"), "upgrade", "--check", "0.2.0"], { env });
    assert.equal(code, 2);
    assert.match(stderr, /^this is a checkout of Postern, which git upgrades; .*\n$/);
  });
});

describe("postern replay in a project", withGit, () => {
  it("postern replay compares the working tree with a commit that has another version of Postern", async () => {
    const runGit = (...words: string[]) =>
      run("git", ["-c", "user.name=a", "-c", "user.email=a@example.com", ...words], { cwd: project, env });
    await runGit("init", "--quiet");
    await runGit("add", ".npmrc", "functions", "package.json", "package-lock.json", "postern.yaml");
    await runGit("commit", "--quiet", "--message", "first");
    await install("postern@0.2.0");
    const { code, stdout } = await runPostern("replay", "recordings", "--against", "HEAD");
    // `admits CREATE …` is the name of a recorded case: 0.1.0 admits 2 replicas, but 0.2.0 requires at least 3.
    assert.equal(
      stdout,
      `minimum-replicas
  admits CREATE of Deployment shop/api recordings/prod/minimum-replicas.yaml:1
    - HEAD: allowed
    + working-tree: denied: spec.replicas must be at least 3, not 2 (403 Forbidden)
2 reviews: 1 alike, 1 differs
`,
    );
    assert.equal(code, 1);
  });
});
