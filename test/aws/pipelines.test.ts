import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { requireBinaries } from "../../infra/parity/control-plane/binaries.ts";
import { bootCluster, type TestCluster } from "../../infra/parity/control-plane/cluster.ts";
import { buildKubeconfig, type Checkout, openCheckout } from "../checkout.ts";
import { needs } from "../parts.ts";
import {
  type CodeBuild,
  type GitHub,
  type GitLabJob,
  readPipeline,
  readPipelineText,
  runBash,
  type Script,
  toCodeBuildScript,
  toGitHubScript,
  toGitLabScript,
} from "../pipelines.ts";
import { type Account, openAccount } from "./account.ts";

// The pipelines of infra/pipelines/ run commands that exist, with the rights that they need, and never run typed input.
const root = fileURLToPath(new URL("../..", import.meta.url));

interface Workflow extends GitHub {
  on: { push: object; workflow_dispatch: { inputs: Record<string, { type: string; options?: string[] }> } };
  env: Record<string, string>;
}
interface GitLab {
  stages: string[];
  variables: Record<string, string>;
  default: { image: string; timeout: string };
}

const github = await readPipeline<Workflow>("github");
const gitlab = await readPipeline<GitLab & Record<string, GitLabJob>>("gitlab");
const codebuild = await readPipeline<CodeBuild>("codebuild");
const checking = await readPipeline<CodeBuild>("manifests/codebuild");

const reserved = new Set(["stages", "variables", "default"]);
/** GitLab's jobs with what they extend; those that begin with a dot only lend. */
const gitlabJobs = new Map(
  Object.entries<GitLabJob>(gitlab)
    .filter(([name]) => !reserved.has(name) && !name.startsWith("."))
    .map(([name, job]) => [name, { ...(job.extends && gitlab[job.extends]), ...job }]),
);

const ofWorkflow = (job: string) => toGitHubScript(github, job);
const ofJob = (job: string) => toGitLabScript(gitlabJobs.get(job) ?? {}, gitlab.variables);

const plan = "npx postern deploy --stage prod --plan-only";
const deploy = "node infra/postern.js deploy --stage prod --canary 10% --for 10m";
const all = "npx postern rollback --all --stage prod";
const allTo = "npx postern rollback --all --to r7 --stage prod";
const one = "npx postern rollback pod-security --stage prod";
const oneTo = "npx postern rollback pod-security --to r7 --stage prod";
const install = "npm ci";
const reports = "json=check.json sarif=check.sarif junit=check.xml github=check.github"
  .split(" ")
  .map((report) => `-o ${report.replace("=", "=postern-check/")}`)
  .join(" ");
const check = `node infra/postern.js check apps --config postern.yaml --cluster eu -o text ${reports}`;
const whatToCheck = { MANIFESTS: "apps", CLUSTER: "eu" };

/** The commands that each job runs, with its variables. */
const runs: [string, Script, Record<string, string>, string[]][] = [
  ["GitHub's test", ofWorkflow("test"), {}, [install, "npm test"]],
  ["GitHub's plan", ofWorkflow("plan"), {}, [install, plan]],
  ["GitHub's deploy", ofWorkflow("deploy"), {}, [install, deploy]],
  ["GitHub's rollback", ofWorkflow("rollback"), { WHAT: "every rule", RULE: "", TO: "" }, [install, all]],
  ["GitHub's rollback to a release", ofWorkflow("rollback"), { WHAT: "every rule", TO: "r7" }, [install, allTo]],
  ["GitHub's rollback of a rule", ofWorkflow("rollback"), { WHAT: "one rule", RULE: "pod-security" }, [install, one]],
  [
    "GitHub's rollback of a rule to a release",
    ofWorkflow("rollback"),
    { WHAT: "one rule", RULE: "pod-security", TO: "r7" },
    [install, oneTo],
  ],
  ["GitHub's check", ofWorkflow("check"), whatToCheck, [install, check]],
  ["GitLab's test", ofJob("test"), {}, [install, "npm test"]],
  ["GitLab's plan", ofJob("plan"), {}, [install, plan]],
  ["GitLab's deploy", ofJob("deploy"), {}, [install, deploy]],
  ["GitLab's rollback", ofJob("rollback every rule"), {}, [install, all]],
  ["GitLab's rollback to a release", ofJob("rollback every rule"), { TO: "r7" }, [install, allTo]],
  ["GitLab's rollback of a rule", ofJob("rollback one rule"), { RULE: "pod-security" }, [install, one]],
  ["GitLab's check", ofJob("check"), whatToCheck, [install, check]],
  ["CodeBuild's check", toCodeBuildScript(checking), whatToCheck, [install, check]],
  ["CodeBuild's plan", toCodeBuildScript(codebuild), { DO: "plan" }, [install, "npm test", plan]],
  ["CodeBuild's deploy", toCodeBuildScript(codebuild), { DO: "deploy" }, [install, deploy]],
  ["CodeBuild's rollback", toCodeBuildScript(codebuild), { DO: "rollback" }, [install, all]],
  ["CodeBuild's rollback to a release", toCodeBuildScript(codebuild), { DO: "rollback", TO: "r7" }, [install, allTo]],
];

describe("the pipelines", () => {
  let checkout: Checkout;
  let bin: string;
  before(async () => {
    checkout = await openCheckout();
    bin = join(checkout.folder, "bin");
    // These only write down how they are called.
    for (const name of ["npm", "npx", "node"]) {
      const lines = `said="$(printf '%s\n' "${name} $*" | sed "s#$PWD/##g")"\nprintf '%s\n' "$said" >>"$CALLS"`;
      const script = `#!/bin/sh\n${lines}\n[ "$said" != "$FAILS" ]\n`;
      await chmod(await checkout.write(`bin/${name}`, script), 0o755);
    }
  });
  after(() => checkout?.remove());

  let count = 0;
  /** Runs a script; returns its calls and its exit code. */
  const called = async (script: Script, more: Record<string, string>, fails = "nothing") => {
    const calls = join(checkout.folder, `calls${++count}`);
    const summary = join(checkout.folder, "summary");
    const env = {
      PATH: `${bin}:${process.env.PATH}`,
      CALLS: calls,
      FAILS: fails,
      GITHUB_STEP_SUMMARY: summary,
      ...more,
    };
    const said = await runBash(checkout.folder, script, { AWS_TOKEN: "the-token", ...env });
    const lines = await readFile(calls, "utf8").catch(() => "");
    return { ...said, calls: lines.split("\n").filter(Boolean) };
  };

  for (const [name, script, more, expected] of runs) {
    it(`have ${name} run what it says`, async () => {
      const { code, calls, stderr } = await called(script, more);
      assert.deepEqual({ code, calls, stderr }, { code: 0, calls: expected, stderr: "" });
    });

    it(`have ${name} fail where what it runs fails`, async () => {
      for (const [index, failing] of expected.entries()) {
        const { code, calls } = await called(script, more, failing);
        assert.equal(code, 1);
        assert.deepEqual(calls, expected.slice(0, index + 1));
      }
    });
  }

  it("write at GitLab no token to a log", async () => {
    for (const job of gitlabJobs.keys()) {
      const { stdout, stderr } = await called(ofJob(job), {});
      assert.ok(!`${stdout}${stderr}`.includes("the-token"), job);
    }
  });

  it("tell a deployment at GitHub that its job was cancelled", { timeout: 20_000 }, async () => {
    const home = join(checkout.folder, "cancelled");
    const told = `trap 'echo told >"$HOME/told"; exit 1' INT; echo started; for i in $(seq 50); do sleep 0.1; done`;
    await chmod(await checkout.write("cancelled/node", `#!/bin/sh\n${told}\n`), 0o755);
    const { run = "" } = github.jobs.deploy?.steps.at(-1) ?? {};
    const env = { ...ofWorkflow("deploy").env, PATH: `${home}:${process.env.PATH}`, HOME: home };
    // GitHub runs a script from a file, too. Bash would replace itself by the command of a script of one line.
    const script = await checkout.write("cancelled/script.sh", run);
    const job = spawn("bash", ["--noprofile", "--norc", "-eo", "pipefail", script], { env, stdio: "pipe" });
    await once(job.stdout, "data");
    // GitHub sends the signal only to the process that it started.
    job.kill("SIGINT");
    await once(job, "exit");
    assert.equal(await readFile(join(home, "told"), "utf8"), "told\n");
  });

  it("refuse unknown actions in CodeBuild", async () => {
    const { code, stderr, calls } = await called(toCodeBuildScript(codebuild), { DO: "everything" });
    assert.deepEqual({ code, calls }, { code: 2, calls: [install] });
    assert.equal(stderr, "DO must be plan, deploy or rollback, not everything\n");
  });

  it("take typed input as a name only", async () => {
    const typed = '"; touch typed; echo "$(touch typed)';
    for (const [script, more] of [
      [ofWorkflow("rollback"), { WHAT: "one rule", RULE: typed, TO: typed }],
      [ofJob("rollback one rule"), { RULE: typed, TO: typed }],
    ] as const) {
      const { calls } = await called(script, more);
      assert.deepEqual(calls, [install, `npx postern rollback ${typed} --to ${typed} --stage prod`]);
    }
    assert.ok(!(await readdir(checkout.folder)).includes("typed"));
  });

  it("call verbs and scripts that exist, with options that they have", async () => {
    const { scripts } = JSON.parse(await readFile(join(root, "package.json"), "utf8"));
    const commands = new Set(runs.flatMap(([, , , expected]) => expected));
    for (const command of commands) {
      const [program, verb = "", ...words] = command.split(" ");
      if (program === "npm") assert.ok(verb === "ci" || verb in scripts, command);
      else {
        assert.equal(`${program} ${verb}`, program === "npx" ? "npx postern" : "node infra/postern.js");
        // Options are looked at before --help is.
        assert.deepEqual(await helped(checkout, ...words), { code: 0, stderr: "" }, command);
      }
    }
    assert.equal((await helped(checkout, "deploy", "--no-such-option")).code, 2);
  });

  it("have each job at GitHub end in time, by itself, with the rights that it needs", () => {
    const aws = "aws-actions/configure-aws-credentials";
    assert.deepEqual(github.permissions, {});
    assert.deepEqual(Object.keys(github.on).sort(), ["pull_request", "push", "workflow_dispatch"]);
    for (const [name, job] of Object.entries(github.jobs)) {
      const asksAws = job.steps.some(({ uses }) => uses?.startsWith(aws));
      const scans = name === "scan" && { actions: "read", "security-events": "write" };
      assert.deepEqual(job.permissions, { contents: "read", ...(asksAws && { "id-token": "write" }), ...scans }, name);
      assert.equal(asksAws, !["test", "check", "scan"].includes(name));
      assert.ok(job["timeout-minutes"] > 0 && job["timeout-minutes"] <= 90, name);
      assert.match(job.concurrency.group, new RegExp(`^postern-${name}`));
      assert.equal(job.concurrency["cancel-in-progress"], ["test", "plan", "check", "scan"].includes(name), name);
      assert.ok(job.if, `${name} runs at every event`);
      assert.ok(job.needs === undefined || job.needs in github.jobs);
      for (const { run = "" } of job.steps)
        assert.doesNotMatch(run, /\$\{\{/, "an expression becomes part of the script");
    }
    assert.equal(github.jobs.deploy?.needs, "test");
  });

  // The owner of an action can move a tag, and so change what runs with a pipeline's rights.
  it("pin at GitHub every action by its commit, with the version beside it", async () => {
    const texts = await Promise.all(["github", "manifests/github"].map(readPipelineText));
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

  it("run no code of a pull request at GitHub in the job with the right to write code scanning results", () => {
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

  it("name at GitHub inputs, variables and outputs that there are, and no secret", async () => {
    const file = await readPipelineText("github");
    const { inputs } = github.on.workflow_dispatch;
    const named = (kind: string) => [...file.matchAll(new RegExp(`\\b${kind}\\.(\\w+)`, "g"))].map(([, name]) => name);
    assert.deepEqual(new Set(named("inputs")), new Set(Object.keys(inputs)));
    const [top = ""] = file.split("name: postern");
    for (const name of named("vars")) assert.ok(top.includes(String(name)), `${name} isn't explained`);
    assert.deepEqual(named("secrets"), []);
    for (const option of inputs.what?.options ?? []) assert.ok(file.includes(`"${option}")`), option);
  });

  it("take at GitHub the role for what they do", () => {
    const roles = Object.entries(github.jobs).map(([name, { steps }]) => {
      const role = steps.flatMap((step) => step.with?.["role-to-assume"] ?? []);
      return [name, role.map((one) => String(one).replace(/^\$\{\{ (.*) \}\}$/, "$1")).join()];
    });
    assert.deepEqual(Object.fromEntries(roles), {
      test: "",
      plan: "vars.POSTERN_PLAN_ROLE",
      check: "",
      scan: "",
      deploy: "vars.POSTERN_DEPLOY_ROLE",
      rollback: "inputs.what == 'one rule' && vars.POSTERN_EMERGENCY_ROLE || vars.POSTERN_DEPLOY_ROLE",
    });
  });

  it("give each job at GitLab a stage, a rule and, if it asks AWS, a role and the token that AWS trusts", () => {
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
      "rollback every rule": "$POSTERN_DEPLOY_ROLE",
      "rollback one rule": "$POSTERN_EMERGENCY_ROLE",
    });
    assert.ok(gitlab.default.timeout && gitlabJobs.get("deploy")?.resource_group);
  });

  it("are for CodeBuild buildspecs of version 0.2", () => {
    assert.deepEqual(Object.keys(codebuild), ["version", "env", "phases"]);
    assert.deepEqual(Object.keys(checking), ["version", "env", "phases", "reports"]);
    for (const { version, env, phases } of [codebuild, checking]) {
      assert.equal(version, 0.2);
      assert.equal(env.shell, "bash");
      assert.deepEqual(Object.keys(phases), ["install", "build"]);
      for (const { commands } of Object.values(phases))
        for (const command of commands) assert.equal(typeof command, "string");
    }
    // An aborted build has no report.
    assert.equal(checking.phases.build?.["on-failure"], undefined);
  });
});

const helped = async (checkout: Checkout, ...words: string[]) => {
  const { code, stderr } = await checkout.postern({}, ...words, "--help");
  return { code, stderr: code === 0 ? stderr : "" };
};

describe("a pipeline in an account", await needs("moto", "runtime client", "API server"), () => {
  let account: Account;
  let cluster: TestCluster;
  let checkout: Checkout;
  let surroundings: Record<string, string>;

  before(async () => {
    const binaries = await requireBinaries();
    const opening = openCheckout(["always-pull-images"]);
    [account, cluster, checkout] = await Promise.all([openAccount(), bootCluster(binaries), opening]);
    await checkout.write("kubeconfig", buildKubeconfig({ shop: cluster }));
    const clusters = "clusters:\n  shop: { connect: { kubeconfig: kubeconfig } }\n";
    await checkout.write("postern.yaml", `rules:\n  always-pull-images:\n${clusters}`);
    // The packages are installed already.
    await chmod(await checkout.write("bin/npm", "#!/bin/sh\n"), 0o755);
    surroundings = {
      PATH: `${join(checkout.folder, "bin")}:${process.env.PATH}`,
      // The gateway's certificate is one that no system trusts.
      NODE_EXTRA_CA_CERTS: await checkout.write("ca.pem", account.ca),
      GITHUB_STEP_SUMMARY: join(checkout.folder, "summary.md"),
    };
  });
  after(async () => {
    await Promise.all([account?.stop(), cluster?.stop()]);
    await checkout?.remove();
  });

  const run = async (script: Script, more: Record<string, string>) => {
    const { code, stdout, stderr } = await runBash(checkout.folder, script, { ...surroundings, ...more });
    assert.equal(code, 0, `${stdout}${stderr}`);
    return `${stdout}${stderr}`;
  };

  it("shows the plan in GitHub's log and summary", async () => {
    const said = await run(ofWorkflow("plan"), account.as("plan").env);
    assert.match(said, /always-pull-images: new/);
    const summary = await readFile(surroundings.GITHUB_STEP_SUMMARY ?? "", "utf8");
    assert.match(summary, /^```\nstage prod\n.*always-pull-images: new.*\n```\n$/s);
  });

  it("deploys for the first time with a canary option", async () => {
    assert.match(await run(ofWorkflow("deploy"), account.as("deploy").env), /release r1 is live in shop/);
  });

  it("shows the plan at GitLab, by the token that GitLab gives it", async () => {
    const { AWS_ACCESS_KEY_ID: _, AWS_SECRET_ACCESS_KEY: __, ...env } = account.env;
    const role = { AWS_ROLE_ARN: "arn:aws:iam::123456789012:role/PosternPlan-prod", AWS_TOKEN: "the-token" };
    const said = await run(ofJob("plan"), { ...env, ...role });
    assert.match(said, /1 of 1 unchanged/);
    assert.ok(!said.includes("the-token"));
  });
});
