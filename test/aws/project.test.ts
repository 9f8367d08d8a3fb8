import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { mkdir, readdir, stat, writeFile } from "node:fs/promises";
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

// Makes projects as users do: the packed packages come from a registry, and a package manager installs them.

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

/** Each package manager takes half a minute, so the seed of a run chooses one: POSTERN_SEED=0, 1 and 2 are all. */
const seed = Number(process.env.POSTERN_SEED ?? 0);

/** Returns the size in bytes of the files in a folder, without those of links. */
const measureFolder = async (folder: string): Promise<number> => {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile());
  const sizes = await Promise.all(files.map(async ({ parentPath, name }) => (await stat(join(parentPath, name))).size));
  return sizes.reduce((sum, size) => sum + size, 0);
};

describe("a project of a user's own", await needs("registry", "moto"), () => {
  let registry: Registry;
  let account: Account;
  const folder = createTestFolder();

  before(async () => {
    [registry, account] = await Promise.all([startRegistry(), openAccount()]);
    const { postern, create } = await packOnce();
    for (const tarball of [postern, create]) await registry.publish(tarball);
  });
  after(async () => {
    await Promise.all([registry?.stop(), account?.stop()]);
  });

  for (const { name, run } of managers.filter((_, index) => index === seed % managers.length)) {
    const [program, ...first] = findPackageManager(name);
    const start = (cwd: string, words: readonly string[], env: Record<string, string> = {}) =>
      execFile(program, [...first, ...words], {
        cwd,
        env: { ...registry.env, ...env },
        maxBuffer: 64 * 1024 * 1024,
      });
    const execute = async (
      cwd: string,
      words: readonly string[],
      env?: Record<string, string>,
    ): Promise<ProgramOutput> => {
      const child = start(cwd, words, env);
      const texts = { stdout: "", stderr: "" };
      for (const stream of ["stdout", "stderr"] as const)
        child[stream]?.on("data", (chunk) => {
          texts[stream] += chunk;
        });
      const [code] = await once(child, "close");
      return { code, ...texts };
    };
    const mustWork = async (...words: Parameters<typeof execute>): Promise<string> => {
      const { code, stdout, stderr } = await execute(...words);
      assert.equal(code, 0, `${words[1].join(" ")}: ${stdout}${stderr}`);
      return stdout;
    };

    it(`works with ${name} at once, from an empty folder`, async (test: TestContext) => {
      const empty = join(await folder, name);
      await mkdir(empty);
      const begun = Date.now();
      await mustWork(empty, ["create", "postern", "my-rules"]);
      const project = join(empty, "my-rules");
      await mustWork(project, ["install"]);
      await writeFile(join(project, "pod.yaml"), pod);
      const checked = await execute(project, [...run, "postern", "check", "pod.yaml"]);
      test.diagnostic(`${name}: ${((Date.now() - begun) / 1000).toFixed(1)} s to the first denial`);
      assert.match(checked.stdout, /denied by require-owner-label: metadata\.labels must have a label "owner"/);
      assert.equal(checked.code, 1, checked.stderr);

      assert.match(await mustWork(project, ["test"]), /^9 tests: 9 passed$/m);
      assert.match(await mustWork(project, [...run, "postern", "rules"]), /^require-owner-label .*functions/m);
      assert.match(await mustWork(project, [...run, "postern", "build"]), /^require-owner-label +\d/m);
      const plan = ["postern", "deploy", "--stage", "prod", "--plan-only"];
      assert.match(await mustWork(project, [...run, ...plan], account.env), /require-owner-label/);

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

  it("installs less than 60 MB without osls", async () => {
    const [program, ...first] = findPackageManager("npm");
    const project = join(await folder, "small");
    await mkdir(project);
    await promisify(execFile)(program, [...first, "install", "postern"], { cwd: project, env: registry.env });
    assert.ok((await measureFolder(join(project, "node_modules"))) < 60_000_000);
  });
});
