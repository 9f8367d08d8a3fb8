import { execFile } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import {
  findGoProgram,
  findOrBuildGoProgram,
  type GoProgram,
  runCommand,
} from "../../infra/kubernetes/build/go-programs.ts";

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

/** Runs kubectl with these words and this input, and returns the output. Without KUBECONFIG, it knows no cluster. */
export const runKubectl = async (
  words: readonly string[],
  input = "",
  variables: Record<string, string> = {},
): Promise<string> => {
  const built = await findKubectl();
  if (built === undefined) throw new Error("kubectl is not here: npm run cluster builds it");
  const env = { ...process.env, KUBECONFIG: "/dev/null", ...variables };
  const execution = promisify(execFile)(built.program, words, { env, maxBuffer: 256 * 1024 * 1024 });
  // If kubectl ends before it has read everything, its own error says why.
  execution.child.stdin?.on("error", () => {}).end(input);
  return (await execution).stdout;
};

/** Returns the objects in a YAML document as kubectl reads them. */
export const readByKubectl = async (text: string): Promise<unknown[]> => {
  // `annotate --local` prints the objects without a cluster, as one indented JSON object after another.
  const output = await runKubectl(["annotate", "--local", "--overwrite", "-f", "-", "-o", "json", "read=yes"], text);
  return output.split(/\n(?=\{)/).map((json) => {
    const { metadata, ...object } = JSON.parse(json);
    const { annotations, ...rest } = metadata;
    return { ...object, metadata: rest };
  });
};
