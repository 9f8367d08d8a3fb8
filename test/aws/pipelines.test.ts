import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { buildKubeconfig, type Checkout, cacheVariables, openCheckout } from "../checkout.ts";
import { requireBinaries } from "../control-plane/binaries.ts";
import { bootCluster, type TestCluster } from "../control-plane/cluster.ts";
import { needs } from "../parts.ts";
import {
  type CodeBuild,
  type GitLabJob,
  readPipeline,
  readPipelineText,
  runBash,
  type Script,
  toCodeBuildScript,
  toGitHubScript,
  toGitLabScript,
  type Workflow,
} from "../pipelines.ts";
import { readRows } from "../rows.ts";
import { type Account, openAccount } from "./account.ts";

// The pipelines of infra/pipelines/ run existing commands with the rights that they need, and never run typed input.
const root = fileURLToPath(new URL("../..", import.meta.url));

interface DeployWorkflow extends Workflow {
  on: { push: object; workflow_dispatch: { inputs: Record<string, { type: string; options?: string[] }> } };
  env: Record<string, string>;
}
interface GitLab {
  stages: string[];
  variables: Record<string, string>;
  default: { image: string; timeout: string };
}

const github = await readPipeline<DeployWorkflow>("github");
const gitlab = await readPipeline<GitLab & Record<string, GitLabJob>>("gitlab");
const deployProject = await readPipeline<CodeBuild>("codebuild");
const checkProject = await readPipeline<CodeBuild>("manifests/codebuild");

const reserved = new Set(["stages", "variables", "default"]);
/** GitLab's jobs, each merged with the job that it extends. Jobs whose names begin with a dot are only templates. */
const gitlabJobs = new Map(
  Object.entries<GitLabJob>(gitlab)
    .filter(([name]) => !reserved.has(name) && !name.startsWith("."))
    .map(([name, job]) => [name, { ...(job.extends && gitlab[job.extends]), ...job }]),
);

const scriptGitHub = (job: string) => toGitHubScript(github, job);
const scriptGitLab = (name: string) => {
  const job = gitlabJobs.get(name) ?? {};
  return toGitLabScript(job, { ...gitlab.variables, ...job.variables });
};

/** The jobs of the pipelines, and the commands that each job runs. */
const rows = readRows<
  {
    job: string;
    github?: string;
    gitlab?: string;
    codebuild?: "check" | "deploy";
    variables?: Record<string, string>;
    runs: string[];
  }[]
>(import.meta.filename);
const buildScript = ({ github, gitlab, codebuild: project }: (typeof rows)[number]) => {
  if (github !== undefined) return scriptGitHub(github);
  if (gitlab !== undefined) return scriptGitLab(gitlab);
  return toCodeBuildScript(project === "check" ? checkProject : deployProject);
};

describe("the pipelines", () => {
  let checkout: Checkout;
  let bin: string;
  before(async () => {
    checkout = await openCheckout();
    bin = join(checkout.folder, "bin");
    // These programs replace npx and others, and only log their calls.
    for (const name of ["npm", "npx", "node"]) {
      const lines = `call="$(printf '%s\n' "${name} $*" | sed "s#$PWD/##g")"\nprintf '%s\n' "$call" >>"$CALLS"`;
      const script = `#!/bin/sh\n${lines}\n[ "$call" != "$FAILS" ]\n`;
      await chmod(await checkout.write(`bin/${name}`, script), 0o755);
    }
  });
  after(() => checkout?.remove());

  let count = 0;
  /** Runs a script. Returns the calls of programs and the script's exit code. */
  const runScript = async (script: Script, variables: Record<string, string> = {}, failingCall = "nothing") => {
    const calls = join(checkout.folder, `calls${++count}`);
    const summary = join(checkout.folder, "summary");
    const env = {
      PATH: `${bin}:${process.env.PATH}`,
      CALLS: calls,
      FAILS: failingCall,
      GITHUB_STEP_SUMMARY: summary,
      ...variables,
    };
    const result = await runBash(checkout.folder, script, { AWS_TOKEN: "the-token", ...env });
    const lines = await readFile(calls, "utf8").catch(() => "");
    return { ...result, calls: lines.split("\n").filter(Boolean) };
  };

  for (const row of rows) {
    it(`the commands of ${row.job} run in their order`, async () => {
      const { code, calls, stderr } = await runScript(buildScript(row), row.variables);
      assert.deepEqual({ code, calls, stderr }, { code: 0, calls: row.runs, stderr: "" });
    });

    it(`${row.job} stops at its first failing command`, async () => {
      for (const [index, failing] of row.runs.entries()) {
        const { code, calls } = await runScript(buildScript(row), row.variables, failing);
        assert.equal(code, 1);
        assert.deepEqual(calls, row.runs.slice(0, index + 1));
      }
    });
  }

  it("GitLab's jobs write no token to a log", async () => {
    for (const job of gitlabJobs.keys()) {
      const { stdout, stderr } = await runScript(scriptGitLab(job));
      assert.ok(!`${stdout}${stderr}`.includes("the-token"), job);
    }
  });

  it("a cancelled job at GitHub interrupts its deployment", { timeout: 20_000 }, async () => {
    const homeFolder = join(checkout.folder, "cancelled");
    const lines = `trap 'echo interrupted >"$HOME/interrupted"; exit 1' INT; echo started; for i in $(seq 50); do sleep 0.1; done`;
    await chmod(await checkout.write("cancelled/node", `#!/bin/sh\n${lines}\n`), 0o755);
    const { run = "" } = github.jobs.deploy?.steps.at(-1) ?? {};
    const env = { ...scriptGitHub("deploy").env, PATH: `${homeFolder}:${process.env.PATH}`, HOME: homeFolder };
    // GitHub also runs a script from a file. Bash would replace itself with the command of a one-line script.
    const script = await checkout.write("cancelled/script.sh", run);
    const job = spawn("bash", ["--noprofile", "--norc", "-eo", "pipefail", script], { env, stdio: "pipe" });
    await once(job.stdout, "data");
    // GitHub sends the signal only to the process that it started, and not to its children.
    job.kill("SIGINT");
    await once(job, "exit");
    assert.equal(await readFile(join(homeFolder, "interrupted"), "utf8"), "interrupted\n");
  });

  it("CodeBuild's pipeline refuses an unknown action", async () => {
    const { code, stderr, calls } = await runScript(toCodeBuildScript(deployProject), { DO: "everything" });
    assert.deepEqual({ code, calls }, { code: 2, calls: ["npm ci"] });
    assert.equal(stderr, "DO must be plan, deploy, rollback or status, not everything\n");
  });

  it("a pipeline never runs input that a person typed", async () => {
    const typedText = '"; touch typed; echo "$(touch typed)';
    for (const [script, variables] of [
      [scriptGitHub("rollback"), { WHAT: "one rule", RULE: typedText, TO: typedText }],
      [scriptGitLab("rollback one rule"), { RULE: typedText, TO: typedText }],
    ] as const) {
      const { calls } = await runScript(script, variables);
      assert.deepEqual(calls, ["npm ci", `npx postern rollback ${typedText} --to ${typedText} --stage prod`]);
    }
    assert.ok(!(await readdir(checkout.folder)).includes("typed"));
  });

  it("the pipelines call only existing verbs and scripts, with existing options", async () => {
    const { scripts } = JSON.parse(await readFile(join(root, "package.json"), "utf8"));
    const commands = new Set(rows.flatMap(({ runs }) => runs));
    for (const command of commands) {
      const [program, verb = "", ...words] = command.split(" ");
      if (program === "npm") assert.ok(verb === "ci" || verb in scripts, command);
      else {
        assert.equal(`${program} ${verb}`, program === "npx" ? "npx postern" : "node infra/postern.js");
        // Options are checked before --help is handled.
        assert.deepEqual(await runHelp(checkout, ...words), { code: 0, stderr: "" }, command);
      }
    }
    assert.equal((await runHelp(checkout, "deploy", "--no-such-option")).code, 2);
  });

  it("each job at GitHub has a timeout, a concurrency group and only the rights that the job needs", () => {
    const aws = "aws-actions/configure-aws-credentials";
    assert.deepEqual(github.permissions, {});
    assert.deepEqual(Object.keys(github.on).sort(), ["pull_request", "push", "schedule", "workflow_dispatch"]);
    for (const [name, job] of Object.entries(github.jobs)) {
      const callsAws = job.steps.some(({ uses }) => uses?.startsWith(aws));
      const tokenPermission = callsAws && { "id-token": "write" };
      const scanPermissions = name === "scan" && { actions: "read", "security-events": "write" };
      assert.deepEqual(job.permissions, { contents: "read", ...tokenPermission, ...scanPermissions }, name);
      assert.equal(callsAws, !["test", "check", "scan"].includes(name));
      assert.ok(job["timeout-minutes"] > 0 && job["timeout-minutes"] <= 90, name);
      assert.match(job.concurrency.group, new RegExp(`^postern-${name}`));
      assert.equal(job.concurrency["cancel-in-progress"], ["test", "plan", "check", "scan"].includes(name), name);
      assert.ok(job.if, `${name} runs at every event`);
      for (const needed of [job.needs ?? []].flat()) assert.ok(needed in github.jobs);
      for (const { run = "" } of job.steps)
        assert.doesNotMatch(run, /\$\{\{/, "an expression becomes part of the script");
    }
    assert.equal(github.jobs.deploy?.needs, "test");
  });

  // The owner of an action can move a tag, and so can change the code that runs with a pipeline's rights.
  it("every action at GitHub is pinned to a commit, with its version in a comment", async () => {
    const texts = await Promise.all(
      ["github", "manifests/github", "../../.github/workflows/release"].map(readPipelineText),
    );
    const versions = new Map<string, string>();
    for (const line of texts.flatMap((text) => text.match(/^.*\buses:.*$/gm) ?? [])) {
      const [, action = "", version = ""] =
        /^\s+(?:- )?uses: ([\w-]+(?:\/[\w-]+)+@[0-9a-f]{40}) # (v\d+\.\d+\.\d+)$/.exec(line) ?? [];
      assert.notEqual(action, "", line);
      assert.equal(versions.get(action) ?? version, version, line);
      versions.set(action, version);
    }
    const names = [...versions.keys()].map((action) => action.replace(/@.*/, ""));
    assert.equal(new Set(names).size, names.length, "one version of each action");
    assert.ok(names.includes("actions/checkout"));
  });

  it("the job at GitHub that may write code scanning results runs no code of a pull request", () => {
    const scan = github.jobs.scan;
    assert.ok(scan);
    assert.deepEqual(
      scan.steps.map(({ uses, run }) => [uses?.replace(/@.*/, ""), run]),
      ["actions/checkout", "actions/download-artifact", "github/codeql-action/upload-sarif"].map((uses) => [
        uses,
        undefined,
      ]),
    );
    assert.match(String(scan.if), /head\.repo\.full_name == github\.repository/);
  });

  // GitHub restores a cache by the beginning of its key. Code scanning closes findings of a category that the next run
  // doesn't report.
  it("the findings of each cluster have a cache and a category of their own", () => {
    const steps = github.jobs.live?.steps ?? [];
    const [restore, save] = steps.filter(({ uses }) => uses?.startsWith("actions/cache/")).map((step) => step.with);
    assert.deepEqual([restore?.key, restore?.path], [save?.key, save?.path]);
    assert.match(String(restore?.["restore-keys"]), /^postern-live\/\$\{\{ matrix\.cluster \}\}\/$/);
    assert.ok(String(save?.key).startsWith(String(restore?.["restore-keys"])));
    const { category } = github.jobs.scan?.steps.at(-1)?.with ?? {};
    assert.match(String(category), /^postern-.* == 'schedule' && 'live\/' \|\| '' \}\}\$\{\{ matrix\.cluster \}\}$/);
    const { cache } = gitlabJobs.get("live") ?? {};
    assert.deepEqual(cache, { key: "postern-live-$CLUSTER", paths: [restore?.path], when: "always" });
  });

  it("GitHub's workflow uses only existing inputs and explained variables, and no secrets", async () => {
    const file = await readPipelineText("github");
    const { inputs } = github.on.workflow_dispatch;
    const listNames = (kind: string) =>
      [...file.matchAll(new RegExp(`\\b${kind}\\.(\\w+)`, "g"))].map(([, name]) => name);
    assert.deepEqual(new Set(listNames("inputs")), new Set(Object.keys(inputs)));
    const [introduction = ""] = file.split("name: postern");
    for (const name of listNames("vars")) assert.ok(introduction.includes(String(name)), `${name} isn't explained`);
    assert.deepEqual(listNames("secrets"), []);
    for (const option of inputs.what?.options ?? []) assert.ok(file.includes(`"${option}")`), option);
  });

  it("each job at GitHub has the right role", () => {
    const roles = Object.entries(github.jobs).map(([name, { steps }]) => {
      const role = steps.flatMap((step) => step.with?.["role-to-assume"] ?? []);
      return [name, role.map((name) => String(name).replace(/^\$\{\{ (.*) \}\}$/, "$1")).join()];
    });
    assert.deepEqual(Object.fromEntries(roles), {
      test: "",
      plan: "vars.POSTERN_PLAN_ROLE",
      check: "",
      scan: "",
      deploy: "vars.POSTERN_DEPLOY_ROLE",
      status: "vars.POSTERN_EMERGENCY_ROLE",
      live: "vars.POSTERN_LIVE_ROLE",
      rollback: "inputs.what == 'one rule' && vars.POSTERN_EMERGENCY_ROLE || vars.POSTERN_DEPLOY_ROLE",
    });
  });

  it("each job at GitLab has a stage and a rule, and a role and a token if the job calls AWS", () => {
    const roles: Record<string, string | undefined> = {};
    for (const [name, job] of gitlabJobs) {
      assert.ok(gitlab.stages.includes(job.stage ?? ""), name);
      assert.ok(job.rules && job.rules.length > 0, `${name} runs in every pipeline`);
      roles[name] = job.variables?.AWS_ROLE_ARN;
      const audiences = Object.entries(job.id_tokens ?? {});
      assert.deepEqual(audiences, roles[name] ? [["AWS_TOKEN", { aud: "https://gitlab.com" }]] : [], name);
      if (name.startsWith("rollback")) assert.ok(job.rules.every(({ when }) => when === "manual"));
    }
    assert.deepEqual(roles, {
      test: undefined,
      plan: "$POSTERN_PLAN_ROLE",
      check: undefined,
      deploy: "$POSTERN_DEPLOY_ROLE",
      status: "$POSTERN_EMERGENCY_ROLE",
      live: "$POSTERN_LIVE_ROLE",
      "rollback every rule": "$POSTERN_DEPLOY_ROLE",
      "rollback one rule": "$POSTERN_EMERGENCY_ROLE",
    });
    assert.ok(gitlab.default.timeout && gitlabJobs.get("deploy")?.resource_group);
  });

  it("CodeBuild's pipelines are buildspecs of version 0.2", () => {
    assert.deepEqual(Object.keys(deployProject), ["version", "env", "phases"]);
    assert.deepEqual(Object.keys(checkProject), ["version", "env", "phases", "reports"]);
    for (const { version, env, phases } of [deployProject, checkProject]) {
      assert.equal(version, 0.2);
      assert.equal(env.shell, "bash");
      assert.deepEqual(Object.keys(phases), ["install", "build"]);
      for (const { commands } of Object.values(phases))
        for (const command of commands) assert.equal(typeof command, "string");
    }
    // CodeBuild writes no report of an aborted build.
    assert.equal(checkProject.phases.build?.["on-failure"], undefined);
  });
});

/** Runs a command with --help: the command refuses unknown options, and otherwise only prints its help. */
const runHelp = async (checkout: Checkout, ...words: string[]) => {
  const { code, stderr } = await checkout.postern({}, ...words, "--help");
  return { code, stderr };
};

describe("pipelines that run in an account", await needs("moto", "runtime client", "API server"), () => {
  let account: Account;
  let cluster: TestCluster;
  let checkout: Checkout;
  let environment: Record<string, string>;

  before(async () => {
    const binaries = await requireBinaries();
    const opening = openCheckout(["always-pull-images"]);
    [account, cluster, checkout] = await Promise.all([openAccount(), bootCluster(binaries), opening]);
    await checkout.write("kubeconfig", buildKubeconfig({ shop: cluster }));
    const clusters = "clusters:\n  shop: { connect: { kubeconfig: kubeconfig } }\n";
    const stages = `stages: { prod: { account: "123456789012", region: ${account.region} } }\n`;
    await checkout.write("postern.yaml", `rules:\n  always-pull-images:\n${clusters}${stages}`);
    // `npm ci` does nothing, because the checkout already has its packages.
    await chmod(await checkout.write("bin/npm", "#!/bin/sh\n"), 0o755);
    environment = {
      PATH: `${join(checkout.folder, "bin")}:${process.env.PATH}`,
      ...cacheVariables,
      // The gateway's certificate is not one that this system trusts.
      NODE_EXTRA_CA_CERTS: await checkout.write("ca.pem", account.ca),
      GITHUB_STEP_SUMMARY: join(checkout.folder, "summary.md"),
    };
  });
  after(async () => {
    await Promise.all([account?.stop(), cluster?.stop()]);
    await checkout?.remove();
  });

  const run = async (script: Script, variables: Record<string, string>) => {
    const { code, stdout, stderr } = await runBash(checkout.folder, script, { ...environment, ...variables });
    assert.equal(code, 0, `${stdout}${stderr}`);
    return `${stdout}${stderr}`;
  };

  it("GitHub's job shows the plan in its log and summary", async () => {
    const output = await run(scriptGitHub("plan"), account.actAs("plan").env);
    assert.match(output, /always-pull-images: new/);
    const summary = await readFile(environment.GITHUB_STEP_SUMMARY ?? "", "utf8");
    assert.match(
      summary,
      /^```\npartition aws, account 123456789012, region eu-west-1, stage prod\n.*always-pull-images: new.*\n```\n$/s,
    );
  });

  it("a job stops before it calls AWS if its region differs from the region in postern.yaml", async () => {
    const { env } = account.actAs("elsewhere");
    const script = scriptGitHub("deploy");
    const variables = { ...environment, ...env, AWS_REGION: "us-east-1" };
    const { code, stderr } = await runBash(checkout.folder, script, variables);
    assert.deepEqual(
      [code, /^stage prod is in region eu-west-1, .* in region us-east-1$/m.test(stderr)],
      [2, true],
      stderr,
    );
    assert.ok(!account.recordedCalls.some(({ caller }) => caller === "elsewhere"));
  });

  it("GitHub's job makes a first deployment, although it has options for a canary", async () => {
    assert.match(await run(scriptGitHub("deploy"), account.actAs("deploy").env), /release r1 is live in shop/);
  });

  it("GitLab's job shows the plan, with the token that GitLab provides", async () => {
    const { AWS_ACCESS_KEY_ID: _, AWS_SECRET_ACCESS_KEY: __, ...env } = account.env;
    const role = { AWS_ROLE_ARN: "arn:aws:iam::123456789012:role/PosternPlan-prod", AWS_TOKEN: "the-token" };
    const output = await run(scriptGitLab("plan"), { ...env, ...role });
    assert.match(output, /1 of 1 unchanged/);
    assert.ok(!output.includes("the-token"));
  });
});
