import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import {
  findGoProgram,
  findOrBuildGoProgram,
  type GoProgram,
  runCommand,
} from "../../../infra/kubernetes/build/go-programs.ts";
import { newestMinor } from "../../control-plane/binaries.ts";

/** The minors of Kubernetes whose CEL is compared with `lib/cel`. */
export const celMinors: readonly string[] = ["1.36", newestMinor];

const code = fileURLToPath(new URL("../../cel/", import.meta.url));

/** Returns the program for a minor. It is built with the versions of Go modules that the minor's kube-apiserver has. */
const toGoProgram = (minor: string): GoProgram => {
  const sources = fileURLToPath(new URL(`../../control-plane/${minor}/`, import.meta.url));
  return {
    sources,
    code,
    module: "k8s.io/apiserver",
    name: "cel",
    files: ["cel"],
    build: (folder) => {
      const files = readdirSync(code).filter((file) => file.endsWith(".go"));
      const paths = files.map((file) => join(code, file));
      return runCommand(sources, "go", "build", "-ldflags", "-s -w", "-o", join(folder, "cel"), ...paths);
    },
  };
};

/** Returns the program that evaluates CEL with the packages of a minor's kube-apiserver, if it was built before. */
export const findCelEvaluator = async (minor = newestMinor) =>
  existsSync(code) ? findGoProgram(toGoProgram(minor)) : undefined;

export const buildCelEvaluator = (minor = newestMinor) => findOrBuildGoProgram(toGoProgram(minor));
