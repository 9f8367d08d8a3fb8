import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { mkdir, readdir, readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, it, type TestContext } from "node:test";
import { promisify } from "node:util";
import { toLogicalId } from "../../infra/catalogue/rule-names.ts";
import type { ProgramOutput } from "../checkout.ts";
import { buildProjectOfEveryRule } from "../every-rule.ts";
import { createTestFolder } from "../folders.ts";
import { packOnce } from "../package.ts";
import { needs } from "../parts.ts";
import { findPackageManager, type Registry, startRegistry } from "../registry/registry.ts";
import { type Account, openAccount } from "./account.ts";

// Creates projects as users do: a package manager installs the packed packages from a registry.

const pod = `apiVersion: v1
kind: Pod
metadata: { name: web }
spec: { containers: [{ name: web, image: nginx }] }
`;

const managers = [
  { name: "npm", run: ["exec", "--"] },
  { name: "pnpm", run: ["exec"] },
  { name: "yarn", run: ["run"] },
] as const;

/** The test of each package manager takes half a minute, so the seed of a run chooses one of three. */
const seed = Number(process.env.POSTERN_SEED ?? 0);

/**
 * Returns the size of the files in a folder in bytes. A file with several hard links counts once: the installation of
 * esbuild makes such a link.
 */
const measureFolder = async (folder: string): Promise<number> => {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile());
  const fileStats = await Promise.all(files.map(({ parentPath, name }) => stat(join(parentPath, name))));
  const sizes = new Map(fileStats.map(({ ino, size }) => [ino, size]));
  return [...sizes.values()].reduce((sum, size) => sum + size, 0);
};

/** Returns the files that the pages about rules show, by path, and a README for each of these rules. */
const readRulesOfPage = async (): Promise<Map<string, string>> => {
  const read = (page: string) => readFile(new URL(`../../docs/how-to/${page}.md`, import.meta.url), "utf8");
  const pages = (await Promise.all(["write-a-rule", "custom-kinds"].map(read))).join("\n");
  // A page names the path in backquotes and shows the file in the block of code after the path.
  const matches = [...pages.matchAll(/^`([\w/.-]+)`:\n\n```\w+\n(.*?)^```$/gms)];
  const shownFiles = matches.map(([, file = "", text = ""]) => [file, text] as const);
  const readmes = shownFiles.flatMap(([file, text]) => {
    const [, folder, rule] = /^(functions\/(.*))\/rule\.ts$/.exec(file) ?? [];
    const [, summary] = /summary: "(.*)"/.exec(text) ?? [];
    return folder
      ? [[`${folder}/README.md`, `# ${rule}\n\n${summary}\n\n## Why\n\n## Settings\n\n## Needs\n`] as const]
      : [];
  });
  // A definition must exist before the rule that is created from it, and rule.ts before the rule's other files.
  const rank = (file: string) => {
    if (!file.startsWith("functions/")) return 0;
    return file.endsWith("/rule.ts") ? 1 : 2;
  };
  return new Map([...readmes, ...shownFiles].sort(([left], [right]) => rank(left) - rank(right)));
};

describe("a project of a user's own", await needs("registry", "moto", "Kubernetes module"), () => {
  let registry: Registry;
  let account: Account;
  const folder = createTestFolder();

  before(async () => {
    [registry, account] = await Promise.all([startRegistry(), openAccount()]);
    const { postern, create, module = "" } = await packOnce();
    for (const tarball of [module, postern, create]) await registry.publish(tarball);
  });
  after(async () => {
    await Promise.all([registry?.stop(), account?.stop()]);
  });

  for (const { name, run } of managers.filter((_, index) => index === seed % managers.length)) {
    const [program, ...first] = findPackageManager(name);
    const start = (cwd: string, words: readonly string[], env: Record<string, string> = {}) =>
      execFile(program, [...first, ...words], { cwd, env: { ...registry.env, ...env }, maxBuffer: 64 * 1024 * 1024 });
    const execute = async (...command: Parameters<typeof start>): Promise<ProgramOutput> => {
      const child = start(...command);
      const output = { stdout: "", stderr: "" };
      for (const stream of ["stdout", "stderr"] as const)
        child[stream]?.on("data", (chunk) => {
          output[stream] += chunk;
        });
      const [code] = await once(child, "close");
      return { code, ...output };
    };
    /** Runs a command that must succeed; returns its output. */
    const mustWork = async (...words: Parameters<typeof execute>): Promise<string> => {
      const { code, stdout, stderr } = await execute(...words);
      assert.equal(code, 0, `${words[1].join(" ")}: ${stdout}${stderr}`);
      return stdout;
    };

    it(`a new project works with ${name} at once, from an empty folder`, async (test: TestContext) => {
      const emptyFolder = join(await folder, name);
      await mkdir(emptyFolder);
      const startTime = Date.now();
      await mustWork(emptyFolder, ["create", "postern", "my-rules"]);
      const project = join(emptyFolder, "my-rules");
      await mustWork(project, ["install"]);
      await writeFile(join(project, "pod.yaml"), pod);
      const checked = await execute(project, [...run, "postern", "check", "pod.yaml"]);
      test.diagnostic(`${name}: ${((Date.now() - startTime) / 1000).toFixed(1)} s to the first denial`);
      assert.match(checked.stdout, /denied by require-owner-label: metadata\.labels must have a label "owner"/);
      assert.equal(checked.code, 1, checked.stderr);

      assert.match(await mustWork(project, ["test"]), /^10 tests: 10 passed$/m);
      assert.match(await mustWork(project, [...run, "postern", "rules"]), /^require-owner-label .*functions/m);
      const plan = ["postern", "deploy", "--stage", "prod", "--plan-only"];
      assert.match(await mustWork(project, [...run, ...plan], account.env), /require-owner-label/);
      const shownRules = await readRulesOfPage();
      for (const [file, text] of shownRules) {
        const [, rule] = /^functions\/(.*)\/rule\.ts$/.exec(file) ?? [];
        const crd = text.includes("./types.ts") ? ["--crd", "databases.yaml"] : [];
        if (rule !== undefined) await mustWork(project, [...run, "postern", "new", rule, ...crd]);
        await writeFile(join(project, file), text);
      }
      const built = await mustWork(project, ["run", "check"]);
      assert.match(
        built,
        /^\d+ tests: \d+ passed$.*^forbid-engine-change +\d.*^forbid-latest-tag +\d.*^require-known-team +\d/ms,
      );
      const source = join(project, "functions/require-owner-label/rule.ts");
      const rightSource = await readFile(source, "utf8");
      await writeFile(source, rightSource.replaceAll("settings.label", "settings.lable"));
      assert.match((await execute(project, ["run", "check"])).stdout, /Property 'lable' does not exist/);
      await writeFile(source, rightSource);

      const functions = join(project, "node_modules/postern/functions");
      const entries = await readdir(functions, { withFileTypes: true });
      const names = entries.filter((entry) => entry.isDirectory()).map((entry) => entry.name);
      await writeFile(join(project, "postern.yaml"), await buildProjectOfEveryRule(names, account.ca));
      const { stack } = JSON.parse(await mustWork(project, [...run, ...plan, "-o", "json"], account.env));
      const planned = stack.added.filter((id: string) => id.endsWith("LambdaFunction"));
      assert.deepEqual(planned.sort(), names.map((name) => `${toLogicalId(name)}LambdaFunction`).sort());
      assert.deepEqual(
        account.recordedCalls.filter(({ action }) => /Create|Put|Update|Delete/.test(action)),
        [],
      );
    });
  }

  it("`npm install postern` installs less than 60 MB, with the module of Kubernetes' handlers and without osls", async (test: TestContext) => {
    const [program, ...first] = findPackageManager("npm");
    const project = join(await folder, "small");
    await mkdir(project);
    await promisify(execFile)(program, [...first, "install", "postern"], { cwd: project, env: registry.env });
    const size = await measureFolder(join(project, "node_modules"));
    test.diagnostic(`${(size / 1e6).toFixed(1)} MB`);
    assert.ok(size < 60_000_000);
    assert.ok((await measureFolder(join(project, "node_modules/postern-kubernetes"))) > 10_000_000);
  });
});
