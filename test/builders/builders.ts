import { join } from "node:path";
import { fileURLToPath } from "node:url";
import {
  findGoProgram,
  findOrBuildGoProgram,
  type GoProgram,
  runCommand,
} from "../../infra/kubernetes/build/go-programs.ts";

const builders: GoProgram = {
  sources: fileURLToPath(new URL("./", import.meta.url)),
  module: "helm.sh/helm/v4",
  name: "builders",
  files: ["helm", "kustomize"],
  build: async (folder) => {
    for (const [name, path] of [
      ["helm", "helm.sh/helm/v4/cmd/helm"],
      ["kustomize", "sigs.k8s.io/kustomize/kustomize/v5"],
    ] as const)
      await runCommand(builders.sources, "go", "build", "-ldflags", "-s -w", "-o", join(folder, name), path);
  },
};

/** Returns the folder of helm and kustomize, if they were built before. */
export const findBuilders = () => findGoProgram(builders);

export const buildHelmAndKustomize = () => findOrBuildGoProgram(builders);
