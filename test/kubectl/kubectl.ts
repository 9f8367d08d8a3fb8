import { join } from "node:path";
import { fileURLToPath } from "node:url";
import {
  findGoProgram,
  findOrBuildGoProgram,
  type GoProgram,
  runCommand,
} from "../../infra/parity/control-plane/go-programs.ts";

const kubectl: GoProgram = {
  sources: fileURLToPath(new URL("./", import.meta.url)),
  module: "k8s.io/kubectl",
  name: "kubectl",
  files: ["kubectl"],
  build: (folder, version) => {
    // Version 0.37.2 of the module is kubectl 1.37.2.
    const flags = `-s -w -X k8s.io/component-base/version.gitVersion=v1${version.slice(1)}`;
    return runCommand(kubectl.sources, "go", "build", "-ldflags", flags, "-o", join(folder, "kubectl"), ".");
  },
};

/** Returns kubectl in the version that its go.mod pins, if it was built before. */
export const findKubectl = () => findGoProgram(kubectl);

export const buildKubectl = () => findOrBuildGoProgram(kubectl);
