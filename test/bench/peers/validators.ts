import { join } from "node:path";
import { fileURLToPath } from "node:url";
import {
  findGoProgram,
  findOrBuildGoProgram,
  type GoProgram,
  runCommand,
} from "../../../infra/kubernetes/build/go-programs.ts";

/** Describes a Go program that is built from the module in a folder beside this file. */
const define = (name: string, module: string, path: string): GoProgram => {
  const sources = fileURLToPath(new URL(`${name}/`, import.meta.url));
  const build = (folder: string) =>
    runCommand(sources, "go", "build", "-ldflags", "-s -w", "-o", join(folder, name), path);
  return { sources, module, name, files: [name], build };
};

const validators = [
  define("kubectl-validate", "sigs.k8s.io/kubectl-validate", "sigs.k8s.io/kubectl-validate"),
  define("kubeconform", "github.com/yannh/kubeconform", "github.com/yannh/kubeconform/cmd/kubeconform"),
] as const;

/** Returns the paths of kubectl-validate and kubeconform, if both were built before. */
export const findValidators = async (): Promise<{ kubectlValidate: string; kubeconform: string } | undefined> => {
  const [kubectlValidate, kubeconform] = await Promise.all(validators.map(findGoProgram));
  return (
    kubectlValidate && kubeconform && { kubectlValidate: kubectlValidate.program, kubeconform: kubeconform.program }
  );
};

if (import.meta.main)
  for (const validator of validators)
    process.stdout.write(`${validator.name} is at ${(await findOrBuildGoProgram(validator)).program}\n`);
