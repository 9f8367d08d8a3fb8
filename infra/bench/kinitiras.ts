import { cp, mkdtempDisposable } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Policy } from "#lib/policy/kinds.ts";
import type { KubernetesObject, Operation } from "#lib/review.ts";
import { fillCache, findGoProgram, type GoProgram, locate, run } from "../parity/control-plane/go-programs.ts";

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

const engine: GoProgram = {
  sources: fileURLToPath(new URL("kinitiras/", import.meta.url)),
  module: "k-cloud-labs/pkg",
  name: "kinitiras",
  files: ["engine"],
};

/** Returns the program that times kinitiras' own engine, if it was built before. */
export const findKinitiras = async (): Promise<string | undefined> => (await findGoProgram(engine))?.paths[0];

/** Builds it; of a module that the Go module proxy doesn't give, a checkout will do. */
const buildKinitiras = async (checkout: string | undefined): Promise<void> => {
  await using folder = await mkdtempDisposable(join(tmpdir(), "postern-kinitiras-"));
  const { path } = folder;
  await cp(engine.sources, path, { recursive: true });
  if (checkout !== undefined)
    await run(path, "go", "mod", "edit", "-replace", `github.com/k-cloud-labs/pkg=${checkout}`);
  await fillCache((await locate(engine)).folder, (draft) =>
    run(path, "go", "build", "-mod=mod", "-ldflags", "-s -w", "-o", join(draft, "engine"), "."),
  );
};

if (import.meta.main) {
  if (!(await findKinitiras())) await buildKinitiras(process.env.POSTERN_KINITIRAS);
  process.stdout.write(`kinitiras' engine is at ${await findKinitiras()}\n`);
}
