import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { chmod, cp, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { promisify } from "node:util";
import { type Checkout, openCheckout, type Said } from "../checkout.ts";
import {
  type CodeBuild,
  type GitHub,
  type GitLabJob,
  readPipeline,
  runBash,
  type Script,
  scriptCodeBuild,
  scriptGitHubJob,
  scriptGitLabJob,
} from "../pipelines.ts";

// The pipelines' checks, run as they stand, on manifests: in Postern's own repository, and in one that has manifests alone.
const run = promisify(execFile);

const service = (externalIPs: string) =>
  `# The till.\napiVersion: v1\nkind: Service\nmetadata:\n  name: till\nspec:\n  ports: [{ port: 80 }]\n${externalIPs}`;
const admitted = service("");
const denied = service("  externalIPs: [192.0.2.1]\n");
/** About which only a cluster can say whether its namespace is exempt. */
const undecided =
  "apiVersion: v1\nkind: Pod\nmetadata: { name: web, namespace: shop }\nspec: { containers: [{ name: web, image: 'web:1' }] }\n";
/** Its Pods are refused, and not the Deployment itself. */
const workload = `apiVersion: apps/v1
kind: Deployment
metadata: { name: web, namespace: default }
spec:
  selector: { matchLabels: { app: web } }
  template:
    metadata: { labels: { app: web } }
    spec:
      securityContext:
        runAsUser: 0
      containers: [{ name: web, image: 'web:1', imagePullPolicy: Always }]
`;
const unreadable = "apiVersion: v1\nkind: [\n";
/** What a runner of GitHub's would take for a command, were it said to it. */
const commanding = `apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  containers:
    - name: web
      args:
        - |
          ::warning::a line
          ::error title=forged::another
      image: web:1
`;

const config = `rules:
  deny-service-external-ips:
  security-context-deny:
  always-pull-images: { exempt: { namespaceLabels: { free: "yes" } } }
clusters:
  eu:
`;
const several = `${config}  us: { rules: { deny-service-external-ips: { mode: warn } } }\n`;

const githubs = await readPipeline<GitHub>("github");
const gitlabs = await readPipeline<Record<string, GitLabJob>>("gitlab");
const theirGitHub = await readPipeline<GitHub>("manifests/github");
const theirGitLab = (await readPipeline<Record<string, GitLabJob>>("manifests/gitlab"))["check manifests"] ?? {};
const codebuild = scriptCodeBuild(await readPipeline<CodeBuild>("manifests/codebuild"));

/** What was said, and the reports that are left. */
interface Checked extends Said {
  file(name: string): Promise<string>;
  summary: string;
}

describe("the pipelines' checks", { concurrency: 2 }, () => {
  let checkout: Checkout;
  let home: string;
  let surroundings: Record<string, string>;
  let revision: string;

  before(async () => {
    checkout = await openCheckout(["deny-service-external-ips", "always-pull-images", "security-context-deny"]);
    home = await mkdtemp(join(tmpdir(), "postern-home-"));
    await checkout.write("postern.yaml", several);
    // What npm would install is here already.
    const modules = join(checkout.folder, "node_modules");
    await mkdir(join(home, "bin"));
    await writeFile(join(home, "bin/npm"), `#!/bin/sh\n[ -e node_modules ] || ln -s "${modules}" node_modules\n`);
    await chmod(join(home, "bin/npm"), 0o755);
    // The team's Postern, where GitLab would have it.
    const git = (...words: string[]) => run("git", ["-C", checkout.folder, ...words]);
    await git("init", "--quiet");
    await git("add", "infra", "lib", "functions", "package.json", "postern.yaml");
    const who = ["-c", "user.name=team", "-c", "user.email=team@example.com"];
    await git(...who, "commit", "--quiet", "--no-gpg-sign", "--message", "rules");
    revision = (await git("rev-parse", "HEAD")).stdout.trim();
    const place = "https://gitlab-ci-token:the-token@gitlab.example.com/acme/postern.git";
    const gitconfig = `[url "file://${checkout.folder}"]\n\tinsteadOf = ${place}\n`;
    await writeFile(join(home, ".gitconfig"), gitconfig);
    const { NODE_TEST_CONTEXT: _, ...env } = process.env;
    surroundings = {
      ...{ PATH: `${join(home, "bin")}:${env.PATH}`, HOME: home, CLUSTER: "eu" },
      ...{ CI_JOB_TOKEN: "the-token", CI_SERVER_HOST: "gitlab.example.com", POSTERN_REVISION: revision },
    };
  });
  after(async () => {
    await checkout?.remove();
    await rm(home, { recursive: true, force: true });
  });

  /** A repository with these files: Postern's own with manifests in it, or one that has manifests alone. */
  const repository = async (files: Record<string, string>, isOwn: boolean) => {
    const folder = await mkdtemp(join(home, "repository-"));
    if (isOwn)
      for (const name of ["infra", "lib", "functions", "package.json", "postern.yaml"])
        await cp(join(checkout.folder, name), join(folder, name), { recursive: true });
    for (const [name, text] of Object.entries(files)) {
      await mkdir(join(folder, name, ".."), { recursive: true });
      await writeFile(join(folder, name), text);
    }
    return folder;
  };

  const checked = async (
    folder: string,
    script: Script,
    more: Record<string, string> = {},
    input = "",
  ): Promise<Checked> => {
    const said = await runBash(folder, script, { ...surroundings, ...more }, input);
    const file = (name: string) => readFile(join(folder, "postern-check", name), "utf8");
    const summary = more.GITHUB_STEP_SUMMARY === undefined ? "" : await readFile(more.GITHUB_STEP_SUMMARY, "utf8");
    return { ...said, file, summary };
  };

  /** As GitHub runs a job, in a repository into which it has checked out what the job asks for. */
  const byGitHub = async (folder: string, workflow: GitHub, more: Record<string, string> = {}) => {
    if (workflow === theirGitHub) await symlink(checkout.folder, join(folder, ".postern"));
    const env = { GITHUB_WORKSPACE: folder, GITHUB_STEP_SUMMARY: join(folder, ".summary"), ...more };
    return checked(folder, scriptGitHubJob(workflow, "check"), env);
  };

  type Run = (folder: string, more?: Record<string, string>) => Promise<Checked>;
  const services: [string, boolean, Run][] = [
    ["GitHub", true, (folder, more) => byGitHub(folder, githubs, more)],
    ["GitHub", false, (folder, more) => byGitHub(folder, theirGitHub, more)],
    ["GitLab", true, (folder, more) => checked(folder, scriptGitLabJob(gitlabs.check ?? {}), more)],
    ["GitLab", false, (folder, more) => checked(folder, scriptGitLabJob(theirGitLab, theirGitLab.variables), more)],
    ["CodeBuild", true, (folder, more) => checked(folder, codebuild, more)],
    [
      "CodeBuild",
      false,
      (folder, more) => checked(folder, codebuild, { CODEBUILD_SRC_DIR_postern: checkout.folder, ...more }),
    ],
  ];

  for (const [service, isOwn, go] of services) {
    const where = `at ${service}, in ${isOwn ? "Postern's own repository" : "a repository of manifests"}`;

    it(`fail where something is denied, and say where it stands, ${where}`, async () => {
      const { code, stdout, stderr, file } = await go(await repository({ "k8s/till.yaml": denied }, isOwn));
      assert.deepEqual({ code, stderr }, { code: 1, stderr: "" }, stdout);
      assert.match(stdout, /Service default\/till k8s\/till\.yaml:2 denied/);
      const [{ results }] = JSON.parse(await file("check.sarif")).runs;
      const [{ physicalLocation }] = results[0].locations;
      assert.equal(results[0].ruleId, "deny-service-external-ips");
      assert.equal(physicalLocation.artifactLocation.uri, "k8s/till.yaml");
      const junit = await file("check.xml");
      assert.match(junit, /<testsuite name="k8s\/till\.yaml"[^>]* failures="1"/);
    });

    if (isOwn) continue;

    it(`pass where all is admitted, ${where}`, async () => {
      const { code, stdout, stderr, file } = await go(await repository({ "k8s/till.yaml": admitted }, isOwn));
      assert.deepEqual({ code, stderr }, { code: 0, stderr: "" }, stdout);
      assert.match(stdout, /^1 object: 1 allowed$/m);
      assert.match(await file("check.xml"), / failures="0" errors="0"/);
    });
  }

  const own = (files: Record<string, string>) => repository(files, true);

  it("fail where the Pods of a workload are denied, and say where the template is", async () => {
    const folder = await own({ "k8s/web.yaml": workload });
    const { code, stdout } = await byGitHub(folder, githubs);
    assert.equal(code, 1, stdout);
    assert.match(
      stdout,
      /^::error file=k8s\/web\.yaml,line=10,col=9,title=security-context-deny%3A Deployment default\/web \(its Pods\)::/m,
    );
  });

  it("do nothing where there is no folder of manifests, and nobody has named one", async () => {
    const folder = await own({ "notes.txt": "nothing\n" });
    const { code, stdout } = await checked(folder, scriptGitLabJob(gitlabs.check ?? {}));
    assert.equal(code, 0);
    assert.equal(stdout, "There is no folder k8s, so nothing is checked; the variable MANIFESTS names another.\n");
    assert.ok(!(await readdir(folder)).includes("postern-check"));
  });

  it("fail where somebody has named what isn't there", async () => {
    const folder = await own({ "k8s/till.yaml": admitted });
    const { code, stdout } = await checked(folder, scriptGitLabJob(gitlabs.check ?? {}), { MANIFESTS: "k9s" });
    assert.deepEqual({ code, stdout }, { code: 2, stdout: "k9s is no file or folder, and matches none\n" });
  });

  it("check what a variable names, for the cluster that a variable names", async () => {
    const folder = await own({
      "apps/one/till.yaml": denied,
      "apps/two/till.yaml": denied.replace("till\n", "two\n"),
      "k8s/x.yaml": unreadable,
    });
    const more = { MANIFESTS: "apps/*/till.yaml", CLUSTER: "us" };
    const { code, stdout } = await checked(folder, scriptGitLabJob(gitlabs.check ?? {}), more);
    assert.equal(code, 0, stdout);
    assert.match(stdout, /^2 objects: 2 allowed, 2 warnings$/m);
  });

  it("say which clusters there are where there are several and nobody has chosen", async () => {
    const folder = await own({ "k8s/till.yaml": admitted });
    const { code, stdout } = await checked(folder, scriptGitLabJob(gitlabs.check ?? {}), { CLUSTER: "" });
    assert.deepEqual({ code, stdout }, { code: 2, stdout: "--cluster must name one of eu, us\n" });
  });

  it("show what can't be said, and stop nobody for it unless they shall", async () => {
    const folder = await own({ "k8s/web.yaml": undecided });
    const github = await byGitHub(folder, githubs);
    assert.equal(github.code, 0, github.stdout);
    assert.match(github.stdout, /^::warning file=k8s\/web\.yaml,line=1,title=can't say/m);
    assert.match(github.summary, /can't say/);
    assert.equal((await byGitHub(folder, githubs, { STRICT: "yes" })).code, 1);
    const build = await checked(folder, codebuild);
    assert.equal(build.code, 0);
    assert.match(await build.file("check.xml"), / errors="1"/);
    // GitLab has a sign for it.
    for (const [job, isOwn] of [
      [gitlabs.check ?? {}, true],
      [theirGitLab, false],
    ] as const) {
      const one = await repository({ "k8s/web.yaml": undecided }, isOwn);
      assert.equal((await checked(one, scriptGitLabJob(job, job.variables))).code, 3);
      assert.deepEqual(job.allow_failure, { exit_codes: [3] });
    }
    assert.equal((await checked(folder, codebuild, { STRICT: "yes" })).code, 1);
  });

  it("fail where something can't be read, though nothing is denied", async () => {
    const folder = await own({ "k8s/broken.yaml": unreadable, "k8s/till.yaml": admitted });
    const { code, stdout, file } = await byGitHub(folder, githubs);
    assert.equal(code, 1);
    assert.match(stdout, /k8s\/broken\.yaml/);
    assert.equal(JSON.parse(await file("check.json")).summary.faults, 1);
  });

  it("fail where the check itself does, whatever the run before has left", async () => {
    const folder = await own({ "k8s/web.yaml": undecided });
    await mkdir(join(folder, "postern-check"));
    await writeFile(join(folder, "postern-check/check.json"), `{"summary":{"faults":0}}`);
    await writeFile(join(folder, "infra/commands/check.ts"), `throw new Error("torn");\n`);
    const { code, stdout } = await checked(folder, codebuild);
    assert.equal(code, 1);
    assert.match(stdout, /Error: torn/);
  });

  it("annotate at GitHub the lines that are meant, and put the whole into the summary", async () => {
    const { stdout, summary } = await byGitHub(await own({ "k8s/till.yaml": denied }), githubs);
    assert.match(stdout, /^::error file=k8s\/till\.yaml,line=\d+,.*title=deny-service-external-ips/m);
    const [head, , ...lines] = summary.split("\n");
    assert.equal(head, "### What the rules would do in eu");
    assert.ok(lines.filter(Boolean).every((line) => line.startsWith("    ")));
    assert.match(summary, /^ {4}1 object: 1 denied$/m);
  });

  it("let no line of a manifest command GitHub's runner", async () => {
    const { stdout } = await byGitHub(await own({ "k8s/web.yaml": commanding }), githubs);
    const heard: string[] = [];
    let until: string | undefined;
    // As the runner reads: what surrounds a line doesn't count, and after stop-commands only the token does.
    for (const line of stdout.split("\n").map((one) => one.trim())) {
      if (until !== undefined) {
        if (line === `::${until}::`) until = undefined;
      } else if (line.startsWith("::stop-commands::")) until = line.slice("::stop-commands::".length);
      else if (line.startsWith("::")) heard.push(line);
    }
    assert.deepEqual([until, heard], [undefined, []]);
    assert.match(stdout, /^ +\?:error title=forged/m, "what it is told with is no command in itself");
  });

  it("take what is piped in, and more options", async () => {
    const folder = await own({ "state/ns.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: { name: shop }\n" });
    const lines = "npm ci; bash infra/pipelines/check.sh --state state";
    const script = { flags: ["-eo", "pipefail"], lines, env: { MANIFESTS: "-" } };
    const { code, stdout } = await checked(folder, script, {}, undecided);
    assert.equal(code, 0, stdout);
    assert.match(stdout, /Pod shop\/web standard input:1 changed/);
  });

  it("fetch at GitLab the revision that is pinned, and write no token to a log or to a file", async () => {
    const folder = await repository({ "k8s/till.yaml": admitted }, false);
    const { stdout, stderr } = await checked(folder, scriptGitLabJob(theirGitLab, theirGitLab.variables));
    assert.ok(!`${stdout}${stderr}`.includes("the-token"));
    const { stdout: head } = await run("git", ["-C", join(folder, ".postern"), "rev-parse", "HEAD"]);
    assert.equal(head.trim(), revision);
    const written = await run("grep", ["-rl", "the-token", join(folder, ".postern/.git")]).catch(() => ({
      stdout: "",
    }));
    assert.equal(written.stdout, "");
  });

  it("hand over the reports that they leave", () => {
    const uploads = [githubs, theirGitHub].map(({ jobs }) => jobs.check?.steps.at(-1)?.with?.path);
    assert.deepEqual(uploads, ["postern-check/", "postern-check/"]);
    for (const { artifacts } of [gitlabs.check ?? {}, theirGitLab]) {
      assert.deepEqual(artifacts?.paths, ["postern-check/"]);
      assert.equal(artifacts?.reports?.junit, "postern-check/check.xml");
    }
  });

  it("have at GitHub the right to read, no more, and a pinned revision of what they run", () => {
    const { permissions, jobs } = theirGitHub;
    assert.deepEqual(permissions, {});
    assert.deepEqual(jobs.check?.permissions, { contents: "read" });
    const checkouts = jobs.check?.steps.filter(({ uses }) => uses?.startsWith("actions/checkout@")) ?? [];
    assert.ok(checkouts.every((step) => step.with?.["persist-credentials"] === false));
    for (const pinned of [checkouts[1]?.with?.ref, theirGitLab.variables?.POSTERN_REVISION])
      assert.match(String(pinned), /^[0-9a-f]{40}$/);
    for (const { run = "" } of jobs.check?.steps ?? []) assert.doesNotMatch(run, /\$\{\{/);
  });
});
