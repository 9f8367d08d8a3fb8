import { existsSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import {
  findGoProgram,
  findOrBuildGoProgram,
  type GoProgram,
  runCommand,
} from "../parity/control-plane/go-programs.ts";

const evaluator: GoProgram = {
  sources: fileURLToPath(new URL("../../test/cel/", import.meta.url)),
  module: "k8s.io/apiserver",
  name: "cel",
  files: ["cel"],
  build: (folder) => runCommand(evaluator.sources, "go", "build", "-ldflags", "-s -w", "-o", join(folder, "cel"), "."),
};

/** Returns the program that evaluates CEL with the packages of kube-apiserver, if it was built before. */
export const findCelEvaluator = async () => (existsSync(evaluator.sources) ? findGoProgram(evaluator) : undefined);

export const buildCelEvaluator = () => findOrBuildGoProgram(evaluator);
