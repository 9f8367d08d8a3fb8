import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { parse } from "yaml";
import type { ProgramOutput } from "./checkout.ts";

/** A step of a workflow. */
export interface GitHubStep {
  if?: string;
  uses?: string;
  run?: string;
  "working-directory"?: string;
  env?: Record<string, string>;
  with?: Record<string, unknown>;
}
export interface GitHubJob {
  if?: string;
  needs?: string | string[];
  "timeout-minutes": number;
  permissions: Record<string, string>;
  concurrency: { group: string; "cancel-in-progress": boolean };
  steps: GitHubStep[];
}
export interface Workflow {
  permissions: Record<string, string>;
  env?: Record<string, string>;
  jobs: Record<string, GitHubJob>;
}
export interface GitLabJob {
  extends?: string;
  stage?: string;
  rules?: { if: string; when?: string }[];
  variables?: Record<string, string>;
  id_tokens?: Record<string, { aud: string }>;
  before_script?: string[];
  script?: string[];
  timeout?: string;
  resource_group?: string;
  allow_failure?: { exit_codes: number[] };
  cache?: object;
  artifacts?: { paths: string[]; reports?: { junit: string } };
}
export interface CodeBuild {
  version: number;
  env: { shell: string; variables: Record<string, string> };
  phases: Record<string, { commands: string[]; "on-failure"?: string }>;
  reports?: Record<string, { files: string[]; "file-format": string }>;
}

export const readPipelineText = (name: string): Promise<string> =>
  readFile(fileURLToPath(new URL(`../infra/pipelines/${name}.yml`, import.meta.url)), "utf8");

export const readPipeline = async <T>(name: string): Promise<T> => parse(await readPipelineText(name));

/** A job as a script for the bash that its service would start, with the variables that its file sets. */
export interface Script {
  flags: string[];
  lines: string;
  env: Record<string, string>;
}

/** Returns variables without those whose values GitHub computes, which a test sets. */
const listPlainVariables = (env: Record<string, string> = {}) =>
  Object.fromEntries(Object.entries(env).filter(([, value]) => !value.includes("${{")));

/** Returns a job's steps as a script. A step that checks out another repository becomes a link to $CHECKED_OUT. */
export const toGitHubScript = ({ env, jobs }: Workflow, job: string): Script => {
  const replaceCheckout = ({ uses = "", ...step }: GitHubStep): GitHubStep => {
    const checkoutFolder = uses.startsWith("actions/checkout@") ? step.with?.path : undefined;
    return checkoutFolder === undefined ? step : { run: `ln -s "$CHECKED_OUT" "${checkoutFolder}"` };
  };
  const steps = jobs[job]?.steps.map(replaceCheckout).filter(({ run }) => run !== undefined) ?? [];
  // Each step is a process of its own.
  const lines = steps.map(({ run = "", ...step }) => {
    const folder = step["working-directory"];
    return `(${folder === undefined ? "" : `cd "${folder}"`}\n${run}\n)`;
  });
  const variables = Object.assign({}, ...[env, ...steps.map((step) => step.env)].map(listPlainVariables));
  return { flags: ["-eo", "pipefail"], lines: lines.join("\n"), env: variables };
};

export const toGitLabScript = (
  { before_script = [], script = [] }: GitLabJob,
  variables: Record<string, string> = {},
): Script => {
  return { flags: ["-eo", "pipefail"], lines: [...before_script, ...script].join("\n"), env: variables };
};

export const toCodeBuildScript = ({ env, phases }: CodeBuild): Script => {
  const commands = Object.values(phases).flatMap((phase) => phase.commands);
  // The first command that fails ends the script.
  return { flags: [], lines: commands.join(" || exit $?\n"), env: env.variables };
};

/** Runs a script in a folder, with further variables and an input, which the script reads from stdin. */
export const runBash = (
  folder: string,
  { flags, lines, env }: Script,
  variables: Record<string, string>,
  input = "",
): Promise<ProgramOutput> =>
  new Promise((resolve) => {
    const options = { cwd: folder, env: { PATH: process.env.PATH, HOME: folder, ...env, ...variables } };
    const words = ["--noprofile", "--norc", ...flags, "-c", lines];
    const child = execFile("bash", words, options, (error, stdout, stderr) =>
      resolve({ code: error ? Number(error.code) : 0, stdout, stderr }),
    );
    child.stdin?.on("error", () => {});
    child.stdin?.end(input);
  });
