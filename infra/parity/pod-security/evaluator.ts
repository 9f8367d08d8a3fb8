import { execFile, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { access, mkdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import type { Pod } from "kubernetes-types/core/v1.d.ts";
import { cacheFolder } from "../control-plane/binaries.ts";

const here = fileURLToPath(new URL("./", import.meta.url));

/** Upstream's evaluator, and the pods on which upstream tests it. */
export interface Evaluator {
  version: string;
  program: string;
  corpus: string;
}

/** A pod of upstream's, and where it stands among them: `baseline/v1.35/fail/privileged0.yaml`. */
export interface Placed {
  place: string;
  pod: Pod;
}

/** What a level has against a pod from a version on. */
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

/** Where it is or would be. What it is made of is in the name: a change makes another one. */
const place = async (): Promise<Evaluator> => {
  const sources = await Promise.all(["go.mod", "go.sum", "main.go"].map((file) => readFile(join(here, file), "utf8")));
  const [, version] = /pod-security-admission v([\d.]+)/.exec(sources.join("\n")) ?? [];
  if (version === undefined) throw new Error(`${here}go.mod names no version of pod-security-admission`);
  const digest = createHash("sha256").update(sources.join("\0")).digest("hex").slice(0, 12);
  const folder = join(cacheFolder, `pod-security-admission-${version}-${digest}`);
  return { version, program: join(folder, "evaluator"), corpus: join(folder, "corpus.jsonl") };
};

/** The evaluator, where it was built before. */
export const findEvaluator = async (): Promise<Evaluator | undefined> => {
  const found = await place();
  return Promise.all([found.program, found.corpus].map((file) => access(file))).then(
    () => found,
    () => undefined,
  );
};

/** Builds it from the Go module proxy, by go.mod and go.sum, once; the pods come with the module. */
export const buildEvaluator = async (): Promise<Evaluator> => {
  const made = await place();
  const folder = dirname(made.program);
  const draft = `${folder}.${process.pid}`;
  const program = join(draft, "evaluator");
  const run = (file: string, ...args: string[]) =>
    promisify(execFile)(file, args, {
      cwd: here,
      maxBuffer: 64 * 1024 * 1024,
      env: { ...process.env, CGO_ENABLED: "0" },
    }).then(({ stdout }) => stdout);

  await mkdir(draft, { recursive: true });
  await run("go", "build", "-ldflags", "-s -w", "-o", program, ".");
  const module = await run("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/pod-security-admission");
  await writeFile(join(draft, "corpus.jsonl"), await run(program, join(module.trim(), "test", "testdata")));
  await rm(folder, { recursive: true, force: true });
  await rename(draft, folder);
  return made;
};

/** Upstream's own pods, for each level and version those that pass and those that fail. */
export const readCorpus = async ({ corpus }: Evaluator): Promise<Placed[]> => parse(await readFile(corpus, "utf8"));

/** What upstream has against each pod. */
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
  const { version, program } = (await findEvaluator()) ?? (await buildEvaluator());
  process.stdout.write(`The evaluator of pod-security-admission ${version} is at ${program}\n`);
}
