import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { hash } from "node:crypto";
import { chmod, mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { findActionlint } from "../actionlint/actionlint.ts";
import { createTestFolder } from "../folders.ts";
import { needs } from "../parts.ts";
import { type GitHub, readPipeline, runBash, toGitHubScript } from "../pipelines.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
const workflows = [
  "infra/pipelines/github.yml",
  "infra/pipelines/manifests/github.yml",
  ".github/workflows/release.yml",
];

describe("the workflows for GitHub", await needs("actionlint"), () => {
  const lint = async (words: string[], input?: string) => {
    const { program = "" } = (await findActionlint()) ?? {};
    // Other linters are used only if they happen to be installed, so they are off.
    const all = ["-no-color", "-shellcheck=", "-pyflakes=", ...words];
    const { status, stdout } = spawnSync(program, all, { cwd: root, encoding: "utf8", input });
    return { status, stdout };
  };

  for (const file of workflows)
    it(`have no fault that actionlint finds in ${file}`, async () =>
      assert.deepEqual(await lint([file]), { status: 0, stdout: "" }));

  it("would be refused with a step that takes typed text into its script", async () => {
    const text = await readFile(join(root, ".github/workflows/release.yml"), "utf8");
    const { status, stdout } = await lint(
      ["-"],
      text.replace("sha256sum", `echo \${{ github.event.head_commit.message }}; sha256sum`),
    );
    assert.equal(status, 1);
    assert.match(stdout, /potentially untrusted/);
  });
});

describe("the workflow of a release", async () => {
  const release = await readPipeline<GitHub>("../../.github/workflows/release");
  const folder = await createTestFolder();
  const bin = join(folder, "bin");
  const calls = join(folder, "calls");
  const module = "postern-kubernetes-1.37.2-sha256-862565fa5b76";
  before(async () => {
    await mkdir(bin);
    // The programs only log their calls; `npm view` knows the packages in PUBLISHED.
    const view = 'case " $PUBLISHED " in *" $2 "*) echo 0.2.0; exit 0;; *) exit 1;; esac';
    for (const [name, does] of Object.entries({ npm: `[ "$1" != view ] || ${view}`, gh: "" })) {
      await writeFile(join(bin, name), `#!/bin/sh\n${does}\necho "${name} $*" >>"$CALLS"\n`);
      await chmod(join(bin, name), 0o755);
    }
    const names = [`${module}.tgz`, "postern-0.2.0.tgz", "create-postern-0.2.0.tgz", "postern-0.2.0.cdx.json"];
    for (const name of [...names, "NOTES.md"]) await writeFile(join(folder, name), `${name}\n`);
    const sums = names.map((name) => `${hash("sha256", `${name}\n`)}  ${name}\n`);
    await writeFile(join(folder, "SHA256SUMS"), sums.join(""));
  });

  const runJob = async (job: string, variables: Record<string, string> = {}) => {
    await writeFile(calls, "");
    const github = { GITHUB_REF_NAME: "v0.2.0", GITHUB_SERVER_URL: "https://github.com", GITHUB_REPOSITORY: "a/b" };
    const env = { ...github, PATH: `${bin}:${process.env.PATH}`, CALLS: calls, ...variables };
    const { code } = await runBash(folder, toGitHubScript(release, job), env);
    return { code, calls: (await readFile(calls, "utf8")).split("\n").filter(Boolean) };
  };

  const options = "--provenance --access public --tag latest";
  it("names the repository, and packs the tag's version", async () => {
    assert.deepEqual(await runJob("pack"), {
      code: 0,
      calls: [
        "npm ci",
        "npm run kubernetes",
        "npm pkg set repository.type=git repository.url=git+https://github.com/a/b.git",
        "npm run release -- --tag v0.2.0",
      ],
    });
  });

  it("publishes the module before postern, and that before create-postern, whose projects need it", async () => {
    assert.deepEqual(await runJob("publish"), {
      code: 0,
      calls: [module, "postern-0.2.0", "create-postern-0.2.0"].map((name) => `npm publish ./${name}.tgz ${options}`),
    });
  });

  it("continues in a second run with the package that is not published", async () => {
    const published = "postern-kubernetes@1.37.2-sha256-862565fa5b76 postern@0.2.0";
    assert.deepEqual(await runJob("publish", { PUBLISHED: published }), {
      code: 0,
      calls: [`npm publish ./create-postern-0.2.0.tgz ${options}`],
    });
  });

  it("publishes nothing if a file differs from its checksum", async () => {
    const file = join(folder, "create-postern-0.2.0.tgz");
    await writeFile(file, "another\n");
    assert.deepEqual(await runJob("publish"), { code: 1, calls: [] });
    await writeFile(file, "create-postern-0.2.0.tgz\n");
  });

  it("attaches the tarballs, the bill of materials and the checksums, with the changelog's section as notes", async () => {
    const files = `./create-postern-0.2.0.tgz ./postern-0.2.0.tgz ./${module}.tgz ./postern-0.2.0.cdx.json SHA256SUMS`;
    assert.deepEqual(await runJob("attach"), {
      code: 0,
      calls: [`gh release create v0.2.0 --repo a/b --verify-tag --title v0.2.0 --notes-file NOTES.md ${files}`],
    });
  });

  it("gives only the job that publishes a token of GitHub for npm, and no job a secret", async () => {
    const text = await readFile(join(root, ".github/workflows/release.yml"), "utf8");
    assert.doesNotMatch(text, /secrets\.|NODE_AUTH_TOKEN|_authToken/);
    assert.deepEqual(
      Object.fromEntries(Object.entries(release.jobs).map(([name, { permissions }]) => [name, permissions])),
      {
        check: { contents: "read" },
        pack: { contents: "read" },
        publish: { "id-token": "write" },
        attach: { contents: "write" },
      },
    );
  });
});
