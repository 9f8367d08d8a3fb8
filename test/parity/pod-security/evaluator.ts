import { spawn } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import type { Pod } from "#lib/kubernetes/core/v1.ts";
import {
  type CachedGoProgram,
  findGoProgram,
  findOrBuildGoProgram,
  type GoProgram,
  runCommand,
} from "../../../infra/kubernetes/build/go-programs.ts";

/** A test pod of upstream, and its path in upstream's repository, such as `baseline/v1.35/fail/privileged0.yaml`. */
export interface UpstreamPodSecurityTestPod {
  place: string;
  pod: Pod;
}

/** The verdict of upstream's Pod Security evaluator for a pod and a level. It holds from Kubernetes 1.`since` on. */
export interface UpstreamPodSecurityVerdict {
  since: number;
  allowed: boolean;
  reasons: string[] | null;
  details: string[] | null;
  reason: string;
  detail: string;
}

/** Upstream's verdicts for a pod: by level, the verdicts of all versions; and the verdicts of the version `latest`. */
export interface UpstreamPodSecurityVerdicts {
  baseline: UpstreamPodSecurityVerdict[];
  restricted: UpstreamPodSecurityVerdict[];
  latest: Record<"baseline" | "restricted", UpstreamPodSecurityVerdict>;
}

/** A Go program with kube-apiserver's Pod Security evaluator, and a file with the test pods of the same Go module. */
const evaluator: GoProgram = {
  sources: fileURLToPath(new URL("./", import.meta.url)),
  module: "pod-security-admission",
  name: "pod-security-admission",
  files: ["evaluator", "corpus.jsonl"],
  build: async (folder) => {
    const { sources } = evaluator;
    const program = join(folder, "evaluator");
    await runCommand(sources, "go", "build", "-ldflags", "-s -w", "-o", program, ".");
    const module = await runCommand(sources, "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/pod-security-admission");
    await writeFile(
      join(folder, "corpus.jsonl"),
      await runCommand(sources, program, join(module.trim(), "test", "testdata")),
    );
  },
};

/**
 * Returns the Go program with upstream's Pod Security evaluator; undefined if it wasn't built before.
 */
export const findPodSecurityEvaluator = () => findGoProgram(evaluator);

export const buildPodSecurityEvaluator = () => findOrBuildGoProgram(evaluator);

/** Returns upstream's test pods for Pod Security. For each level and version, some are allowed, and some are not. */
export const readUpstreamTestPods = async ({ folder }: CachedGoProgram): Promise<UpstreamPodSecurityTestPod[]> =>
  parse(await readFile(join(folder, "corpus.jsonl"), "utf8"));

/** Returns upstream's verdicts for each pod. A Go program with upstream's code makes them. */
export const evaluateUpstreamPodSecurity = async (
  { program }: CachedGoProgram,
  pods: readonly object[],
): Promise<UpstreamPodSecurityVerdicts[]> => {
  const child = spawn(program, { stdio: ["pipe", "pipe", "inherit"] });
  child.stdin.end(pods.map((pod) => `${JSON.stringify(pod)}\n`).join(""));
  return parse(await text(child.stdout));
};

const parse = (lines: string) =>
  lines
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line));
