import { execFile, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { access, cp, mkdir, mkdtemp, readFile, rename, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import type { Policy } from "#lib/policy/kinds.ts";
import type { KubernetesObject, Operation } from "#lib/review.ts";
import { cacheFolder } from "../parity/control-plane/binaries.ts";

const here = fileURLToPath(new URL("kinitiras/", import.meta.url));

/** What one evaluation of policies takes, and what came of it. */
export interface Evaluations {
  nanoseconds: number[];
  patch?: unknown[];
  denied?: string;
  error?: string;
}

/** What is to be evaluated, from the object's bytes to the patch's, so many times. */
export interface Question {
  policies: Policy[];
  object: KubernetesObject;
  operation: Operation;
  rounds: number;
}

const place = async (): Promise<string> => {
  const sources = await Promise.all(["go.mod", "go.sum", "main.go"].map((file) => readFile(join(here, file), "utf8")));
  const [, version] = /k-cloud-labs\/pkg v([\d.]+)/.exec(sources.join("\n")) ?? [];
  if (version === undefined) throw new Error(`${here}go.mod names no version of k-cloud-labs/pkg`);
  const digest = createHash("sha256").update(sources.join("\0")).digest("hex").slice(0, 12);
  return join(cacheFolder, `kinitiras-${version}-${digest}`, "engine");
};

/** The program that times kinitiras' own engine, where it was built before. */
export const findKinitiras = async (): Promise<string | undefined> => {
  const program = await place();
  return access(program).then(
    () => program,
    () => undefined,
  );
};

/** Builds it; of a module that the Go module proxy doesn't give, a checkout will do. */
export const buildKinitiras = async (checkout: string | undefined): Promise<string> => {
  const program = await place();
  const folder = await mkdtemp(join(tmpdir(), "postern-kinitiras-"));
  const go = (...args: string[]) =>
    promisify(execFile)("go", args, { cwd: folder, env: { ...process.env, CGO_ENABLED: "0" } });
  try {
    await cp(here, folder, { recursive: true });
    if (checkout !== undefined) await go("mod", "edit", "-replace", `github.com/k-cloud-labs/pkg=${checkout}`);
    await go("build", "-mod=mod", "-ldflags", "-s -w", "-o", "engine", ".");
    await mkdir(dirname(program), { recursive: true });
    await cp(join(folder, "engine"), `${program}.${process.pid}`);
    await rename(`${program}.${process.pid}`, program);
  } finally {
    await rm(folder, { recursive: true });
  }
  return program;
};

/** A process that evaluates policies, and is asked one thing after the other. */
export interface Evaluator {
  ask(question: Question): Promise<Evaluations>;
  stop(): Promise<void>;
}

export const startKinitiras = async (program: string): Promise<Evaluator> => started(program, []);

/** The same of our own. */
export const startPolicies = async (): Promise<Evaluator> =>
  started(process.execPath, [fileURLToPath(new URL("evaluator.ts", import.meta.url))]);

const started = (program: string, args: string[]): Evaluator => {
  const child = spawn(program, args, { stdio: ["pipe", "pipe", "inherit"] });
  const ended = once(child, "close");
  const answers = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  return {
    async ask(question: Question): Promise<Evaluations> {
      child.stdin.write(`${JSON.stringify(question)}\n`);
      const { value, done } = await answers.next();
      if (done) throw new Error(`${program} ended, and was asked about ${JSON.stringify(question).slice(0, 500)}`);
      return JSON.parse(value);
    },
    // It ends with its standard input, even if we end by surprise.
    stop: async () => {
      child.stdin.end();
      await ended;
    },
  };
};

if (import.meta.main) {
  const program = (await findKinitiras()) ?? (await buildKinitiras(process.env.POSTERN_KINITIRAS));
  process.stdout.write(`kinitiras' engine is at ${program}\n`);
}
