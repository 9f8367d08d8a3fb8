import { join } from "node:path";
import { fileURLToPath } from "node:url";
import {
  findGoProgram,
  findOrBuildGoProgram,
  type GoProgram,
  runCommand,
} from "../../../infra/kubernetes/build/go-programs.ts";

const webhook: GoProgram = {
  sources: fileURLToPath(new URL("controller-runtime/", import.meta.url)),
  module: "controller-runtime",
  name: "controller-runtime",
  files: ["webhook"],
  build: (folder) =>
    runCommand(webhook.sources, "go", "build", "-ldflags", "-s -w", "-o", join(folder, "webhook"), "."),
};

/**
 * Returns the program of the webhook in Go with which Postern is compared, if it was built before, and the version of
 * its controller-runtime.
 */
export const findBenchControllerRuntimeWebhook = () => findGoProgram(webhook);

export const buildBenchControllerRuntimeWebhook = () => findOrBuildGoProgram(webhook);
