import { spawn } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import type { Pod } from "kubernetes-types/core/v1.d.ts";
import { fillCache, findGoProgram, type GoProgram, locate, run } from "../control-plane/go-programs.ts";

/** Upstream's evaluator, and the pods on which upstream tests it. */
export interface Evaluator {
  version: string;
  program: string;
  corpus: string;
}

/** A pod of upstream's, and its path: `baseline/v1.35/fail/privileged0.yaml`. */
export interface Placed {
  place: string;
  pod: Pod;
}

/** The offences of a pod against a level from a version on. */
export interface Verdict {
  since: number;
  allowed: boolean;
  reasons: string[] | null;
  details: string[] | null;
  reason: string;
  detail: string;
}

export interface Verdicts {
  baseline: Verdict[];
  restricted: Verdict[];
  latest: Record<"baseline" | "restricted", Verdict>;
}

const evaluator: GoProgram = {
  sources: fileURLToPath(new URL("./", import.meta.url)),
  module: "pod-security-admission",
  name: "pod-security-admission",
  files: ["evaluator", "corpus.jsonl"],
};

/** Returns the evaluator if it was built before. */
export const findEvaluator = async (): Promise<Evaluator | undefined> => {
  const found = await findGoProgram(evaluator);
  if (!found) return undefined;
  const [program = "", corpus = ""] = found.paths;
  return { version: found.version, program, corpus };
};

/** Builds it from the Go module proxy, by go.mod and go.sum, once; the pods come with the module. */
const buildEvaluator = async (): Promise<void> =>
  fillCache((await locate(evaluator)).folder, async (draft) => {
    const program = join(draft, "evaluator");
    await run(evaluator.sources, "go", "build", "-ldflags", "-s -w", "-o", program, ".");
    const module = await run(evaluator.sources, "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/pod-security-admission");
    const pods = await run(evaluator.sources, program, join(module.trim(), "test", "testdata"));
    await writeFile(join(draft, "corpus.jsonl"), pods);
  });

/** Returns upstream's own pods, for each level and version those that pass and those that fail. */
export const readCorpus = async ({ corpus }: Evaluator): Promise<Placed[]> => parse(await readFile(corpus, "utf8"));

/** Returns upstream's verdicts on each pod. */
export const evaluate = async ({ program }: Evaluator, pods: readonly object[]): Promise<Verdicts[]> => {
  const child = spawn(program, { stdio: ["pipe", "pipe", "inherit"] });
  child.stdin.end(pods.map((pod) => `${JSON.stringify(pod)}\n`).join(""));
  return parse(await text(child.stdout));
};

const parse = (lines: string) =>
  lines
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line));

if (import.meta.main) {
  if (!(await findEvaluator())) await buildEvaluator();
  const { version, program } = (await findEvaluator()) ?? {};
  process.stdout.write(`The evaluator of pod-security-admission ${version} is at ${program}\n`);
}
