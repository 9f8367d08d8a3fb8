import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { cpSync } from "node:fs";
import { chmod, mkdir, mkdtemp, readdir, readFile, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { promisify } from "node:util";
import { type Checkout, openCheckout, type ProgramOutput } from "../checkout.ts";
import { createTestFolder } from "../folders.ts";
import {
  type CodeBuild,
  type GitLabJob,
  readPipeline,
  runBash,
  type Script,
  toCodeBuildScript,
  toGitHubScript,
  toGitLabScript,
  type Workflow,
} from "../pipelines.ts";
import { readRows } from "../rows.ts";

// Runs the check jobs of the pipelines in Postern's own repository, and in a repository with only manifests.
const run = promisify(execFile);
const homeFolder = await createTestFolder();

type FileName =
  | "config"
  | "admitted"
  | "denied"
  | "assumed"
  | "undecided"
  | "workload"
  | "unreadable"
  | "withCiCommands";
// The contents of a postern.yaml and of manifests. pipelines-check.test.yaml has them, each as one text.
const { config, admitted, denied, assumed, undecided, workload, unreadable, withCiCommands } = readRows<
  Record<FileName, string>
>(import.meta.filename);

const ownGitHub = await readPipeline<Workflow>("github");
const ownGitLab = await readPipeline<Record<string, GitLabJob>>("gitlab");
const manifestsGitHub = await readPipeline<Workflow>("manifests/github");
const manifestsGitLab = (await readPipeline<Record<string, GitLabJob>>("manifests/gitlab"))["check manifests"] ?? {};
const codebuild = toCodeBuildScript(await readPipeline<CodeBuild>("manifests/codebuild"));

/** The output of a check job, a function that reads its reports, and the summary that it wrote for GitHub. */
interface CheckOutput extends ProgramOutput {
  readReport(name: string): Promise<string>;
  summary: string;
}

describe("the pipelines' checks", { concurrency: 2 }, () => {
  let checkout: Checkout;
  let environment: Record<string, string>;
  let revision: string;

  before(async () => {
    checkout = await openCheckout(["deny-service-external-ips", "always-pull-images", "security-context-deny"]);
    await checkout.write("postern.yaml", config);
    // The packages that npm would install are already here.
    const modules = join(checkout.folder, "node_modules");
    await mkdir(join(homeFolder, "bin"));
    await writeFile(join(homeFolder, "bin/npm"), `#!/bin/sh\n[ -e node_modules ] || ln -s "${modules}" node_modules\n`);
    await chmod(join(homeFolder, "bin/npm"), 0o755);
    // The team's repository of Postern, at the URL that GitLab uses.
    const runGit = (...words: string[]) => run("git", ["-C", checkout.folder, ...words]);
    await runGit("init", "--quiet");
    await runGit("add", "infra", "lib", "functions", "package.json", "postern.yaml");
    const who = ["-c", "user.name=team", "-c", "user.email=team@example.com"];
    await runGit(...who, "commit", "--quiet", "--no-gpg-sign", "--message", "rules");
    revision = (await runGit("rev-parse", "HEAD")).stdout.trim();
    const url = "https://gitlab-ci-token:the-token@gitlab.example.com/acme/postern.git";
    const gitconfig = `[url "file://${checkout.folder}"]\n\tinsteadOf = ${url}\n`;
    await writeFile(join(homeFolder, ".gitconfig"), gitconfig);
    const { NODE_TEST_CONTEXT: _, ...env } = process.env;
    environment = {
      PATH: `${join(homeFolder, "bin")}:${env.PATH}`,
      HOME: homeFolder,
      CLUSTER: "eu",
      CI_JOB_TOKEN: "the-token",
      CI_SERVER_HOST: "gitlab.example.com",
      POSTERN_REVISION: revision,
    };
  });
  after(async () => {
    await checkout?.remove();
  });

  /** Creates a copy of the team's repository of Postern (`isOwn`) or a repository of manifests, with these files. */
  const createRepository = async (files: Record<string, string>, { isOwn }: { isOwn: boolean }) => {
    const folder = await mkdtemp(join(homeFolder, "repository-"));
    if (isOwn)
      for (const name of ["infra", "lib", "functions", "package.json", "postern.yaml"])
        cpSync(join(checkout.folder, name), join(folder, name), { recursive: true });
    for (const [name, text] of Object.entries(files)) {
      await mkdir(join(folder, name, ".."), { recursive: true });
      await writeFile(join(folder, name), text);
    }
    return folder;
  };

  const runCheck = async (
    folder: string,
    script: Script,
    variables: Record<string, string> = {},
    input = "",
  ): Promise<CheckOutput> => {
    const output = await runBash(folder, script, { ...environment, ...variables }, input);
    const readReport = (name: string) => readFile(join(folder, "postern-check", name), "utf8");
    const summaryFile = variables.GITHUB_STEP_SUMMARY;
    return { ...output, readReport, summary: summaryFile === undefined ? "" : await readFile(summaryFile, "utf8") };
  };

  /** Runs the check as a GitHub job does, after its checkouts. */
  const runGitHubCheck = async (folder: string, workflow: Workflow, variables: Record<string, string> = {}) => {
    const env = {
      CHECKED_OUT: checkout.folder,
      GITHUB_WORKSPACE: folder,
      GITHUB_STEP_SUMMARY: join(folder, ".summary"),
      ...variables,
    };
    return runCheck(folder, toGitHubScript(workflow, "check"), env);
  };

  const manifestsGitLabScript = toGitLabScript(manifestsGitLab, manifestsGitLab.variables);
  const runs: [service: string, isOwn: boolean, run: (folder: string) => Promise<CheckOutput>][] = [
    ["GitHub", true, (folder) => runGitHubCheck(folder, ownGitHub)],
    ["GitHub", false, (folder) => runGitHubCheck(folder, manifestsGitHub)],
    ["GitLab", true, (folder) => runCheck(folder, toGitLabScript(ownGitLab.check ?? {}))],
    ["GitLab", false, (folder) => runCheck(folder, manifestsGitLabScript)],
    ["CodeBuild", true, (folder) => runCheck(folder, codebuild)],
    ["CodeBuild", false, (folder) => runCheck(folder, codebuild, { CODEBUILD_SRC_DIR_postern: checkout.folder })],
  ];

  for (const [service, isOwn, runService] of runs) {
    const where = `at ${service}, in ${isOwn ? "Postern's own repository" : "a repository of manifests"}`;

    it(`the checks fail if something is denied, and name its place, ${where}`, async () => {
      const repository = await createRepository({ "k8s/till.yaml": denied }, { isOwn });
      const { code, stdout, stderr, readReport } = await runService(repository);
      assert.deepEqual({ code, stderr }, { code: 1, stderr: "" }, stdout);
      assert.match(stdout, /Service default\/till k8s\/till\.yaml:2 denied/);
      const [{ results }] = JSON.parse(await readReport("check.sarif")).runs;
      const [{ physicalLocation }] = results[0].locations;
      assert.equal(results[0].ruleId, "deny-service-external-ips");
      assert.equal(physicalLocation.artifactLocation.uri, "k8s/till.yaml");
      const junit = await readReport("check.xml");
      assert.match(junit, /<testsuite name="k8s\/till\.yaml"[^>]* failures="1"/);
    });

    if (isOwn) continue;

    it(`the checks pass if everything is admitted, ${where}`, async () => {
      const repository = await createRepository({ "k8s/till.yaml": admitted }, { isOwn });
      const { code, stdout, stderr, readReport } = await runService(repository);
      assert.deepEqual({ code, stderr }, { code: 0, stderr: "" }, stdout);
      assert.match(stdout, /^1 object: 1 allowed$/m);
      assert.match(await readReport("check.xml"), / failures="0" errors="0"/);
    });
  }

  for (const [service, isOwn, runService] of runs)
    if (!isOwn)
      it(`the checks run no code of a repository, and write only into the repository, at ${service}`, async () => {
        const script = "echo foreign code ran; exit 0\n";
        const files = {
          "k8s/till.yaml": denied,
          "postern.yaml": "rules: {}\n",
          "infra/pipelines/check.sh": script,
          ".postern/infra/pipelines/check.sh": script,
          ".postern/package.json": "{}",
        };
        const folder = await createRepository(files, { isOwn: false });
        const elsewhere = await mkdtemp(join(homeFolder, "elsewhere-"));
        await writeFile(join(elsewhere, "check.txt"), "theirs");
        await symlink(elsewhere, join(folder, "postern-check"));
        const { code, stdout } = await runService(folder);
        assert.equal(code, 1, stdout);
        assert.match(stdout, /Service default\/till k8s\/till\.yaml:2 denied/);
        assert.doesNotMatch(stdout, /foreign code ran/);
        assert.deepEqual(await readdir(elsewhere), ["check.txt"]);
        assert.equal(await readFile(join(elsewhere, "check.txt"), "utf8"), "theirs");
      });

  const createOwnRepository = (files: Record<string, string>) => createRepository(files, { isOwn: true });

  it("the checks fail if the Pods of a workload are denied, and name the place of the template", async () => {
    const folder = await createOwnRepository({ "k8s/web.yaml": workload });
    const { code, stdout } = await runGitHubCheck(folder, ownGitHub);
    assert.equal(code, 1, stdout);
    assert.match(
      stdout,
      /^::error file=k8s\/web\.yaml,line=10,col=9,title=security-context-deny%3A Deployment default\/web \(its Pods\)::/m,
    );
  });

  it("the checks do nothing if there is no folder of manifests and no variable names one", async () => {
    const folder = await createOwnRepository({ "notes.txt": "nothing\n" });
    const { code, stdout } = await runCheck(folder, toGitLabScript(ownGitLab.check ?? {}));
    assert.equal(code, 0);
    assert.equal(stdout, "There is no folder k8s, so nothing is checked; the variable MANIFESTS names another.\n");
    assert.ok(!(await readdir(folder)).includes("postern-check"));
  });

  it("the checks fail if a variable names a missing folder", async () => {
    const folder = await createOwnRepository({ "k8s/till.yaml": admitted });
    const { code, stdout } = await runCheck(folder, toGitLabScript(ownGitLab.check ?? {}), { MANIFESTS: "k9s" });
    assert.deepEqual({ code, stdout }, { code: 2, stdout: "there is no file, folder or match for k9s\n" });
  });

  it("the checks check the manifests and the cluster that variables name", async () => {
    const folder = await createOwnRepository({
      "apps/one/till.yaml": denied,
      "apps/two/till.yaml": denied.replace("till\n", "two\n"),
      "k8s/x.yaml": unreadable,
    });
    // In the cluster us, the rule only warns.
    const variables = { MANIFESTS: "apps/*/till.yaml", CLUSTER: "us" };
    const { code, stdout } = await runCheck(folder, toGitLabScript(ownGitLab.check ?? {}), variables);
    assert.equal(code, 0, stdout);
    assert.match(stdout, /^2 objects: 2 allowed, 2 warnings$/m);
  });

  it("the checks list the clusters if there are several and no variable names one", async () => {
    const folder = await createOwnRepository({ "k8s/till.yaml": admitted });
    const { code, stdout } = await runCheck(folder, toGitLabScript(ownGitLab.check ?? {}), { CLUSTER: "" });
    assert.deepEqual({ code, stdout }, { code: 2, stdout: "--cluster is missing; it must name one of eu, us\n" });
  });

  it("the checks report undecided objects, and fail because of such objects only if STRICT is set", async () => {
    const folder = await createOwnRepository({ "k8s/web.yaml": undecided });
    const github = await runGitHubCheck(folder, ownGitHub);
    assert.equal(github.code, 0, github.stdout);
    assert.match(github.stdout, /^::warning file=k8s\/web\.yaml,line=1,title=undecided/m);
    assert.match(github.summary, /undecided/);
    assert.equal((await runGitHubCheck(folder, ownGitHub, { STRICT: "yes" })).code, 1);
    const build = await runCheck(folder, codebuild);
    assert.equal(build.code, 0);
    assert.match(await build.readReport("check.xml"), / errors="1"/);
    // GitLab shows exit code 3 as a warning.
    for (const [job, isOwn] of [
      [ownGitLab.check ?? {}, true],
      [manifestsGitLab, false],
    ] as const) {
      const folder = await createRepository({ "k8s/web.yaml": undecided }, { isOwn });
      assert.equal((await runCheck(folder, toGitLabScript(job, job.variables))).code, 3);
      assert.deepEqual(job.allow_failure, { exit_codes: [3] });
    }
    assert.equal((await runCheck(folder, codebuild, { STRICT: "yes" })).code, 1);
  });

  it("the checks assume the namespaces that manifests name, unless STRICT is set", async () => {
    const folder = await createOwnRepository({ "k8s/web.yaml": assumed });
    const github = await runGitHubCheck(folder, ownGitHub);
    assert.equal(github.code, 0, github.stdout);
    assert.match(github.summary, /Assumed of the cluster: namespace shop exists/);
    const strictResult = await runGitHubCheck(folder, ownGitHub, { STRICT: "yes" });
    assert.equal(strictResult.code, 1);
    assert.match(strictResult.summary, /undecided/);
  });

  it("the checks fail if a file can't be read, even if nothing is denied", async () => {
    const folder = await createOwnRepository({ "k8s/broken.yaml": unreadable, "k8s/till.yaml": admitted });
    const { code, stdout, readReport } = await runGitHubCheck(folder, ownGitHub);
    assert.equal(code, 1);
    assert.match(stdout, /k8s\/broken\.yaml/);
    assert.equal(JSON.parse(await readReport("check.json")).summary.faults, 1);
  });

  it("the checks fail if check fails, even if an earlier run has left a report without faults", async () => {
    const folder = await createOwnRepository({ "k8s/web.yaml": undecided });
    await mkdir(join(folder, "postern-check"));
    await writeFile(join(folder, "postern-check/check.json"), `{"summary":{"faults":0}}`);
    await writeFile(join(folder, "infra/commands/check.ts"), `throw new Error("torn");\n`);
    const { code, stdout } = await runCheck(folder, codebuild);
    assert.equal(code, 1);
    assert.match(stdout, /Error: torn/);
  });

  it("the checks annotate the lines at GitHub, and write the report into the summary", async () => {
    const { stdout, summary } = await runGitHubCheck(await createOwnRepository({ "k8s/till.yaml": denied }), ownGitHub);
    assert.match(stdout, /^::error file=k8s\/till\.yaml,line=\d+,.*title=deny-service-external-ips/m);
    const [heading, , ...lines] = summary.split("\n");
    assert.equal(heading, "### What the rules would do in eu");
    assert.ok(lines.filter(Boolean).every((line) => line.startsWith("    ")));
    assert.match(summary, /^ {4}1 object: 1 denied$/m);
  });

  it("the checks let no line of a manifest become a command for GitHub's runner", async () => {
    const { stdout } = await runGitHubCheck(await createOwnRepository({ "k8s/web.yaml": withCiCommands }), ownGitHub);
    const commands: string[] = [];
    let endToken: string | undefined;
    // GitHub trims lines. After the command stop-commands, GitHub ignores commands until the line `::TOKEN::`.
    for (const line of stdout.split("\n").map((line) => line.trim())) {
      if (endToken !== undefined) {
        if (line === `::${endToken}::`) endToken = undefined;
      } else if (line.startsWith("::stop-commands::")) endToken = line.slice("::stop-commands::".length);
      else if (line.startsWith("::")) commands.push(line);
    }
    assert.deepEqual([endToken, commands], [undefined, []]);
    assert.match(stdout, /^ +\?:error title=forged/m, "the printed line is not a command");
  });

  it("the checks accept standard input and more options", async () => {
    const namespace = "apiVersion: v1\nkind: Namespace\nmetadata: { name: shop }\n";
    const folder = await createOwnRepository({ "state/ns.yaml": namespace });
    const lines = "npm ci; bash infra/pipelines/check.sh --state state";
    const script = { flags: ["-eo", "pipefail"], lines, env: { MANIFESTS: "-" } };
    const { code, stdout } = await runCheck(folder, script, {}, assumed);
    assert.equal(code, 0, stdout);
    assert.match(stdout, /Pod shop\/web standard input:1 changed/);
  });

  it("the checks fetch the pinned revision at GitLab, and write no token to a log or a file", async () => {
    const folder = await createRepository({ "k8s/till.yaml": admitted }, { isOwn: false });
    const { stdout, stderr } = await runCheck(folder, manifestsGitLabScript);
    assert.ok(!`${stdout}${stderr}`.includes("the-token"));
    const { stdout: head } = await run("git", ["-C", join(folder, ".postern"), "rev-parse", "HEAD"]);
    assert.equal(head.trim(), revision);
    // grep fails if it finds no file with the token.
    const noFiles = { stdout: "" };
    const written = await run("grep", ["-rl", "the-token", join(folder, ".postern/.git")]).catch(() => noFiles);
    assert.equal(written.stdout, "");
  });

  it("the checks upload their reports", () => {
    const uploads = [ownGitHub, manifestsGitHub].map(({ jobs }) => jobs.check?.steps.at(-1)?.with?.path);
    assert.deepEqual(uploads, ["postern-check/", "postern-check/"]);
    for (const { artifacts } of [ownGitLab.check ?? {}, manifestsGitLab]) {
      assert.deepEqual(artifacts?.paths, ["postern-check/"]);
      assert.equal(artifacts?.reports?.junit, "postern-check/check.xml");
    }
  });

  it("the checks have only read rights at GitHub, and run a pinned revision", () => {
    const { permissions, jobs } = manifestsGitHub;
    assert.deepEqual(permissions, {});
    assert.deepEqual(jobs.check?.permissions, { contents: "read" });
    const checkouts = jobs.check?.steps.filter(({ uses }) => uses?.startsWith("actions/checkout@")) ?? [];
    assert.ok(checkouts.every((step) => step.with?.["persist-credentials"] === false));
    for (const pinned of [checkouts[1]?.with?.ref, manifestsGitLab.variables?.POSTERN_REVISION])
      assert.match(String(pinned), /^[0-9a-f]{40}$/);
    for (const { run = "" } of jobs.check?.steps ?? []) assert.doesNotMatch(run, /\$\{\{/);
  });
});
