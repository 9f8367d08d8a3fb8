import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { parse } from "yaml";
import { type Account, accountMissing, openAccount } from "./aws/account.ts";
import { type Checkout, kubeconfigOf, openCheckout, type Said } from "./checkout.ts";
import { findBinaries } from "./cluster/binaries.ts";
import { bootCluster, type Cluster } from "./cluster/cluster.ts";

// The pipelines of infra/pipelines/ run what is there, with the rights that it takes, and nothing that somebody typed.
const root = fileURLToPath(new URL("..", import.meta.url));
const text = (path: string) => readFile(join(root, path), "utf8");
const read = async <T>(name: string): Promise<T> => parse(await text(`infra/pipelines/${name}.yml`));

interface GitHubJob {
  if?: string;
  needs?: string;
  "timeout-minutes": number;
  permissions: Record<string, string>;
  concurrency: { group: string; "cancel-in-progress": boolean };
  steps: { uses?: string; run?: string; env?: Record<string, string>; with?: Record<string, unknown> }[];
}
interface GitHub {
  on: { push: object; workflow_dispatch: { inputs: Record<string, { type: string; options?: string[] }> } };
  permissions: Record<string, string>;
  env: Record<string, string>;
  jobs: Record<string, GitHubJob>;
}
interface GitLabJob {
  extends?: string;
  stage?: string;
  rules?: { if: string; when?: string }[];
  variables?: Record<string, string>;
  id_tokens?: Record<string, { aud: string }>;
  before_script?: string[];
  script?: string[];
  timeout?: string;
  resource_group?: string;
}
interface GitLab {
  stages: string[];
  variables: Record<string, string>;
  default: { image: string; timeout: string };
}
interface CodeBuild {
  version: number;
  env: { shell: string; variables: Record<string, string> };
  phases: Record<string, { commands: string[]; "runtime-versions"?: Record<string, number> }>;
}

const github = await read<GitHub>("github");
const gitlab = await read<GitLab & Record<string, GitLabJob>>("gitlab");
const codebuild = await read<CodeBuild>("codebuild");

const reserved = new Set(["stages", "variables", "default"]);
/** GitLab's jobs with what they extend; those that begin with a dot only lend. */
const gitlabJobs = new Map(
  Object.entries<GitLabJob>(gitlab)
    .filter(([name]) => !reserved.has(name) && !name.startsWith("."))
    .map(([name, job]) => [name, { ...(job.extends && gitlab[job.extends]), ...job }]),
);

/** A job as a script for the bash that its service would start, with the variables that its file sets. */
interface Script {
  flags: string[];
  lines: string;
  env: Record<string, string>;
}

const ofGitHub = (job: string): Script => {
  const steps = github.jobs[job]?.steps.filter(({ run }) => run !== undefined) ?? [];
  // Each is a process of its own.
  const lines = steps.map(({ run = "" }) => `(\n${run}\n)`).join("\n");
  return { flags: ["-eo", "pipefail"], lines, env: { STAGE: github.env.STAGE ?? "" } };
};
const ofGitLab = (job: string): Script => {
  const { before_script = [], script = [] } = gitlabJobs.get(job) ?? {};
  return { flags: ["-eo", "pipefail"], lines: [...before_script, ...script].join("\n"), env: gitlab.variables };
};
const ofCodeBuild = (): Script => {
  const commands = Object.values(codebuild.phases).flatMap((phase) => phase.commands);
  // The first that fails ends it.
  return { flags: [], lines: commands.join(" || exit $?\n"), env: codebuild.env.variables };
};

const bash = (folder: string, { flags, lines, env }: Script, more: Record<string, string>): Promise<Said> =>
  new Promise((resolve) => {
    const options = { cwd: folder, env: { PATH: process.env.PATH, HOME: folder, ...env, ...more } };
    execFile("bash", ["--noprofile", "--norc", ...flags, "-c", lines], options, (error, stdout, stderr) =>
      resolve({ code: error ? Number(error.code) : 0, stdout, stderr }),
    );
  });

const plan = "npx postern deploy --stage prod --plan-only";
const deploy = "node infra/postern.js deploy --stage prod --canary 10% --for 10m";
const all = "npx postern rollback --all --stage prod";
const allTo = "npx postern rollback --all --to r7 --stage prod";
const one = "npx postern rollback pod-security --stage prod";
const oneTo = "npx postern rollback pod-security --to r7 --stage prod";
const install = "npm ci";

/** What each job runs, and with what. */
const runs: [string, Script, Record<string, string>, string[]][] = [
  ["GitHub's test", ofGitHub("test"), {}, [install, "npm test"]],
  ["GitHub's plan", ofGitHub("plan"), {}, [install, plan]],
  ["GitHub's deploy", ofGitHub("deploy"), {}, [install, deploy]],
  ["GitHub's rollback", ofGitHub("rollback"), { WHAT: "every rule", RULE: "", TO: "" }, [install, all]],
  ["GitHub's rollback to a release", ofGitHub("rollback"), { WHAT: "every rule", TO: "r7" }, [install, allTo]],
  ["GitHub's rollback of a rule", ofGitHub("rollback"), { WHAT: "one rule", RULE: "pod-security" }, [install, one]],
  [
    "GitHub's rollback of a rule to a release",
    ofGitHub("rollback"),
    { WHAT: "one rule", RULE: "pod-security", TO: "r7" },
    [install, oneTo],
  ],
  ["GitLab's test", ofGitLab("test"), {}, [install, "npm test"]],
  ["GitLab's plan", ofGitLab("plan"), {}, [install, plan]],
  ["GitLab's deploy", ofGitLab("deploy"), {}, [install, deploy]],
  ["GitLab's rollback", ofGitLab("rollback every rule"), {}, [install, all]],
  ["GitLab's rollback to a release", ofGitLab("rollback every rule"), { TO: "r7" }, [install, allTo]],
  ["GitLab's rollback of a rule", ofGitLab("rollback one rule"), { RULE: "pod-security" }, [install, one]],
  ["CodeBuild's plan", ofCodeBuild(), { DO: "plan" }, [install, "npm test", plan]],
  ["CodeBuild's deploy", ofCodeBuild(), { DO: "deploy" }, [install, deploy]],
  ["CodeBuild's rollback", ofCodeBuild(), { DO: "rollback" }, [install, all]],
  ["CodeBuild's rollback to a release", ofCodeBuild(), { DO: "rollback", TO: "r7" }, [install, allTo]],
];

describe("the pipelines", () => {
  let checkout: Checkout;
  let bin: string;
  before(async () => {
    checkout = await openCheckout();
    bin = join(checkout.folder, "bin");
    // These only write down how they are called.
    for (const name of ["npm", "npx", "node"]) {
      const line = `echo "${name} $*" >>"$CALLS"; [ "${name} $*" != "$FAILS" ]`;
      await chmod(await checkout.write(`bin/${name}`, `#!/bin/sh\n${line}\n`), 0o755);
    }
  });
  after(() => checkout?.remove());

  let count = 0;
  /** What a script calls, and how it ends. */
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
    const said = await bash(checkout.folder, script, { AWS_TOKEN: "the-token", ...env });
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
      const { stdout, stderr } = await called(ofGitLab(job), {});
      assert.ok(!`${stdout}${stderr}`.includes("the-token"), job);
    }
  });

  it("tell a deployment at GitHub that its job was cancelled", { timeout: 20_000 }, async () => {
    const home = join(checkout.folder, "cancelled");
    const told = `trap 'echo told >"$HOME/told"; exit 1' INT; echo started; for i in $(seq 50); do sleep 0.1; done`;
    await chmod(await checkout.write("cancelled/node", `#!/bin/sh\n${told}\n`), 0o755);
    const { run = "" } = github.jobs.deploy?.steps.at(-1) ?? {};
    const env = { ...ofGitHub("deploy").env, PATH: `${home}:${process.env.PATH}`, HOME: home };
    // From a file, as GitHub does; of one line alone, bash would make itself the command.
    const script = await checkout.write("cancelled/script.sh", run);
    const job = spawn("bash", ["--noprofile", "--norc", "-eo", "pipefail", script], { env, stdio: "pipe" });
    await once(job.stdout, "data");
    // To the process that GitHub has started, and to no other.
    job.kill("SIGINT");
    await once(job, "exit");
    assert.equal(await readFile(join(home, "told"), "utf8"), "told\n");
  });

  it("refuse in CodeBuild to do what they don't know", async () => {
    const { code, stderr, calls } = await called(ofCodeBuild(), { DO: "everything" });
    assert.deepEqual({ code, calls }, { code: 2, calls: [install] });
    assert.equal(stderr, "DO must be plan, deploy or rollback, not everything\n");
  });

  it("take what somebody types for a name, and for nothing else", async () => {
    const typed = '"; touch typed; echo "$(touch typed)';
    for (const [script, more] of [
      [ofGitHub("rollback"), { WHAT: "one rule", RULE: typed, TO: typed }],
      [ofGitLab("rollback one rule"), { RULE: typed, TO: typed }],
    ] as const) {
      const { calls } = await called(script, more);
      assert.deepEqual(calls, [install, `npx postern rollback ${typed} --to ${typed} --stage prod`]);
    }
    assert.ok(!(await readdir(checkout.folder)).includes("typed"));
  });

  it("call verbs and scripts that exist, with options that they have", async () => {
    const { scripts } = JSON.parse(await text("package.json"));
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
      assert.deepEqual(job.permissions, { contents: "read", ...(asksAws && { "id-token": "write" }) }, name);
      assert.equal(asksAws, name !== "test");
      assert.ok(job["timeout-minutes"] > 0 && job["timeout-minutes"] <= 90, name);
      assert.match(job.concurrency.group, new RegExp(`^postern-${name}`));
      assert.equal(job.concurrency["cancel-in-progress"], ["test", "plan"].includes(name), name);
      assert.ok(job.if, `${name} runs at every event`);
      assert.ok(job.needs === undefined || job.needs in github.jobs);
      for (const { uses, run = "" } of job.steps) {
        if (uses !== undefined) assert.match(uses, /^[\w-]+\/[\w-]+@v\d+$/);
        assert.doesNotMatch(run, /\$\{\{/, "an expression becomes part of the script");
      }
    }
    assert.equal(github.jobs.deploy?.needs, "test");
  });

  it("name at GitHub inputs, variables and outputs that there are, and no secret", async () => {
    const file = await text("infra/pipelines/github.yml");
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
      deploy: "$POSTERN_DEPLOY_ROLE",
      "rollback every rule": "$POSTERN_DEPLOY_ROLE",
      "rollback one rule": "$POSTERN_EMERGENCY_ROLE",
    });
    assert.ok(gitlab.default.timeout && gitlabJobs.get("deploy")?.resource_group);
  });

  it("are for CodeBuild a buildspec of version 0.2", () => {
    assert.deepEqual(Object.keys(codebuild), ["version", "env", "phases"]);
    assert.equal(codebuild.version, 0.2);
    assert.equal(codebuild.env.shell, "bash");
    assert.deepEqual(Object.keys(codebuild.phases), ["install", "build"]);
    for (const { commands } of Object.values(codebuild.phases))
      for (const command of commands) assert.equal(typeof command, "string");
  });
});

const helped = async (checkout: Checkout, ...words: string[]) => {
  const { code, stderr } = await checkout.postern({}, ...words, "--help");
  return { code, stderr: code === 0 ? stderr : "" };
};

const binaries = await findBinaries();
const missing = accountMissing() ?? (binaries ? undefined : "kube-apiserver and etcd are not here: npm run cluster");
if (process.env.POSTERN_REQUIRE_ALL && missing) throw new Error(missing);

describe("a pipeline in an account", { skip: missing ?? false }, () => {
  let account: Account;
  let cluster: Cluster;
  let checkout: Checkout;
  let surroundings: Record<string, string>;

  before(async () => {
    assert.ok(binaries);
    const opening = openCheckout(["always-pull-images"]);
    [account, cluster, checkout] = await Promise.all([openAccount(), bootCluster(binaries), opening]);
    await checkout.write("kubeconfig", kubeconfigOf({ shop: cluster }));
    const clusters = "clusters:\n  shop: { connect: { kubeconfig: kubeconfig } }\n";
    await checkout.write("postern.yaml", `rules:\n  always-pull-images:\n${clusters}`);
    // What it would install is there already.
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
    const { code, stdout, stderr } = await bash(checkout.folder, script, { ...surroundings, ...more });
    assert.equal(code, 0, `${stdout}${stderr}`);
    return `${stdout}${stderr}`;
  };

  it("shows the plan in GitHub's log and summary", async () => {
    const said = await run(ofGitHub("plan"), account.as("plan").env);
    assert.match(said, /always-pull-images: new/);
    const summary = await readFile(surroundings.GITHUB_STEP_SUMMARY ?? "", "utf8");
    assert.match(summary, /^```\nstage prod\n.*always-pull-images: new.*\n```\n$/s);
  });

  it("deploys for the first time, though it says how large a trial shall be", async () => {
    assert.match(await run(ofGitHub("deploy"), account.as("deploy").env), /release r1 is live in shop/);
  });

  it("shows the plan at GitLab, by the token that GitLab gives it", async () => {
    const { AWS_ACCESS_KEY_ID: _, AWS_SECRET_ACCESS_KEY: __, ...env } = account.env;
    const role = { AWS_ROLE_ARN: "arn:aws:iam::123456789012:role/PosternPlan-prod", AWS_TOKEN: "the-token" };
    const said = await run(ofGitLab("plan"), { ...env, ...role });
    assert.match(said, /1 of 1 stays as it is/);
    assert.ok(!said.includes("the-token"));
  });
});
