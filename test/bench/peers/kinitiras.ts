import { cp, mkdtempDisposable } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { KinitirasPolicy } from "#lib/policy/types.ts";
import type { KubernetesObject, Operation } from "#lib/review.ts";
import {
  findGoProgram,
  findOrBuildGoProgram,
  type GoProgram,
  runCommand,
} from "../../../infra/kubernetes/build/go-programs.ts";

/** The times of repeated evaluations of policies, and their result. */
export interface TimedPolicyEvaluations {
  nanoseconds: number[];
  patch?: unknown[];
  denied?: string;
  error?: string;
}

/** An evaluation of policies that is measured `rounds` times, from the object's JSON to the JSON of the patch. */
export interface KinitirasBenchQuestion {
  policies: KinitirasPolicy[];
  object: KubernetesObject;
  operation: Operation;
  rounds: number;
}

const engine: GoProgram = {
  sources: fileURLToPath(new URL("kinitiras/", import.meta.url)),
  module: "k-cloud-labs/pkg",
  name: "kinitiras",
  files: ["engine"],
  /**
   * Builds kinitiras' engine. If the Go module proxy doesn't have its module, POSTERN_KINITIRAS can name a checkout.
   */
  build: async (folder) => {
    await using sources = await mkdtempDisposable(join(tmpdir(), "postern-kinitiras-"));
    await cp(engine.sources, sources.path, { recursive: true });
    const checkout = process.env.POSTERN_KINITIRAS;
    if (checkout !== undefined)
      await runCommand(sources.path, "go", "mod", "edit", "-replace", `github.com/k-cloud-labs/pkg=${checkout}`);
    await runCommand(sources.path, "go", "build", "-mod=mod", "-ldflags", "-s -w", "-o", join(folder, "engine"), ".");
  },
};

/** Returns the program that measures kinitiras' own engine, if the program was built before. */
export const findBuiltKinitirasEngine = () => findGoProgram(engine);

if (import.meta.main) process.stdout.write(`kinitiras' engine is at ${(await findOrBuildGoProgram(engine)).program}\n`);
