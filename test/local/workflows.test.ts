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
import { readPipeline, runBash, toGitHubScript, type Workflow } from "../pipelines.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
const workflows = [
  "infra/pipelines/github.yml",
  "infra/pipelines/manifests/github.yml",
  ".github/workflows/release.yml",
];

describe("the workflows for GitHub", await needs("actionlint"), () => {
  const lint = async (words: string[], input?: string) => {
    const { program = "" } = (await findActionlint()) ?? {};
    // actionlint uses other linters only where they are installed, so they are turned off for equal results.
    const allWords = ["-no-color", "-shellcheck=", "-pyflakes=", ...words];
    const { status, stdout } = spawnSync(program, allWords, { cwd: root, encoding: "utf8", input });
    return { status, stdout };
  };

  for (const file of workflows)
    it(`actionlint passes ${file}`, async () => assert.deepEqual(await lint([file]), { status: 0, stdout: "" }));

  it("the workflows for GitHub would not pass actionlint if a step put a commit message into its script", async () => {
    const text = await readFile(join(root, ".github/workflows/release.yml"), "utf8");
    const unsafe = text.replace("sha256sum", `echo \${{ github.event.head_commit.message }}; sha256sum`);
    const { status, stdout } = await lint(["-"], unsafe);
    assert.equal(status, 1);
    assert.match(stdout, /potentially untrusted/);
  });
});

describe("the workflow of a release", async () => {
  const release = await readPipeline<Workflow>("../../.github/workflows/release");
  const folder = await createTestFolder();
  const bin = join(folder, "bin");
  const calls = join(folder, "calls");
  const module = "postern-kubernetes-1.37.2-sha256-862565fa5b76";
  before(async () => {
    await mkdir(bin);
    // These programs only log their calls, but `npm view` succeeds for the packages in PUBLISHED and logs nothing for
    // them.
    const npmView = 'case " $PUBLISHED " in *" $2 "*) echo 0.2.0; exit 0;; *) exit 1;; esac';
    for (const [name, script] of Object.entries({ npm: `[ "$1" != view ] || ${npmView}`, gh: "" })) {
      await writeFile(join(bin, name), `#!/bin/sh\n${script}\necho "${name} $*" >>"$CALLS"\n`);
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
  it("a release writes the repository's address into package.json, and packs the tag's version", async () => {
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

  it("a release publishes the module, then postern, and then create-postern, whose projects need postern", async () => {
    assert.deepEqual(await runJob("publish"), {
      code: 0,
      calls: [module, "postern-0.2.0", "create-postern-0.2.0"].map((name) => `npm publish ./${name}.tgz ${options}`),
    });
  });

  it("a release publishes in a second run only the package that is not published yet", async () => {
    const published = "postern-kubernetes@1.37.2-sha256-862565fa5b76 postern@0.2.0";
    assert.deepEqual(await runJob("publish", { PUBLISHED: published }), {
      code: 0,
      calls: [`npm publish ./create-postern-0.2.0.tgz ${options}`],
    });
  });

  it("the workflow of a release publishes nothing if a file differs from its checksum", async () => {
    const file = join(folder, "create-postern-0.2.0.tgz");
    await writeFile(file, "another\n");
    assert.deepEqual(await runJob("publish"), { code: 1, calls: [] });
    await writeFile(file, "create-postern-0.2.0.tgz\n");
  });

  it("a release attaches tarballs, bill of materials, checksums and the changelog's section", async () => {
    const files = `./create-postern-0.2.0.tgz ./postern-0.2.0.tgz ./${module}.tgz ./postern-0.2.0.cdx.json SHA256SUMS`;
    assert.deepEqual(await runJob("attach"), {
      code: 0,
      calls: [`gh release create v0.2.0 --repo a/b --verify-tag --title v0.2.0 --notes-file NOTES.md ${files}`],
    });
  });

  it("a release gives an id-token only to the job that publishes to npm, and a secret to no job", async () => {
    const text = await readFile(join(root, ".github/workflows/release.yml"), "utf8");
    assert.doesNotMatch(text, /secrets\.|NODE_AUTH_TOKEN|_authToken/);
    const permissions = Object.entries(release.jobs).map(([name, job]) => [name, job.permissions]);
    assert.deepEqual(Object.fromEntries(permissions), {
      check: { contents: "read" },
      pack: { contents: "read" },
      publish: { "id-token": "write" },
      attach: { contents: "write" },
    });
  });
});
