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
 * Returns the program of the webhook that Postern is compared with, if it was built before: Go, with
 * controller-runtime in the stated version.
 */
export const findBenchControllerRuntimeWebhook = () => findGoProgram(webhook);

export const buildBenchControllerRuntimeWebhook = () => findOrBuildGoProgram(webhook);
