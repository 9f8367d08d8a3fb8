import { readdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Complaint } from "../../infra/cli/complaint.ts";
import {
  findGoProgram,
  findOrBuildGoProgram,
  type GoProgram,
  runCommand,
} from "../../infra/kubernetes/build/go-programs.ts";

/** The binaries of one minor of Kubernetes. etcd stores the API server's objects. */
export interface ControlPlaneBinaries {
  /** The minor, such as 1.37. */
  minor: string;
  /** The version, such as v1.37.2. */
  version: string;
  apiserver: string;
  controllerManager: string;
  etcd: string;
}

const here = fileURLToPath(new URL("./", import.meta.url));

/** The minors of Kubernetes that can be built, the oldest first: each has a folder here with its go.mod. */
export const minors: readonly string[] = readdirSync(here)
  .filter((name) => /^\d+\.\d+$/.test(name))
  .sort((one, other) => Number(one.split(".")[1]) - Number(other.split(".")[1]));

export const newestMinor: string = minors.at(-1) ?? "";

/** Returns how to build the control plane of a minor: kube-apiserver, kube-controller-manager and etcd. */
const toGoProgram = (minor: string): GoProgram => {
  if (!minors.includes(minor)) throw new Complaint(`there is no Kubernetes ${minor} here, only ${minors.join(", ")}`);
  const sources = join(here, minor);
  return {
    sources,
    module: "k8s.io/kubernetes",
    name: "kubernetes",
    files: ["kube-apiserver", "kube-controller-manager", "etcd"],
    build: async (folder, version) => {
      await buildCommand(sources, version, join(folder, "etcd"), "go.etcd.io/etcd/server/v3");
      for (const name of ["kube-apiserver", "kube-controller-manager"])
        await buildCommand(sources, version, join(folder, name), `k8s.io/kubernetes/cmd/${name}`);
    },
  };
};

/** The newest minor's scheduler, built into a folder of its own, because few tests need it; none needs an older one. */
const scheduler: GoProgram = {
  sources: join(here, newestMinor),
  module: "k8s.io/kubernetes",
  name: "kube-scheduler",
  files: ["kube-scheduler"],
  build: (folder, version) =>
    buildCommand(scheduler.sources, version, join(folder, "kube-scheduler"), "k8s.io/kubernetes/cmd/kube-scheduler"),
};

/** Builds a Go package into a file. The program prints this version of Kubernetes as its own. */
const buildCommand = (sources: string, version: string, file: string, goPackage: string) => {
  const [gitMajor, gitMinor] = version.split(".");
  const variables = Object.entries({ gitVersion: `v${version}`, gitMajor, gitMinor });
  const flags = variables.map(([name, value]) => `-X k8s.io/component-base/version.${name}=${value}`).join(" ");
  return runCommand(sources, "go", "build", "-ldflags", `-s -w ${flags}`, "-o", file, goPackage);
};

/** Returns the newest kube-scheduler, if it was built before. */
export const findScheduler = () => findGoProgram(scheduler);

export const buildScheduler = () => findOrBuildGoProgram(scheduler);

/** Returns the binaries of a minor that were built before. Throws a sentence if they are missing. */
export const requireBinaries = async (minor: string = newestMinor): Promise<ControlPlaneBinaries> => {
  const found = await findGoProgram(toGoProgram(minor));
  const command = minor === newestMinor ? "npm run cluster" : `npm run cluster -- --minor ${minor}`;
  if (!found) throw new Complaint(`kube-apiserver ${minor} is not here: ${command} builds it`, 3);
  const { version, program, folder } = found;
  const [controllerManager, etcd] = [join(folder, "kube-controller-manager"), join(folder, "etcd")];
  return { minor, version: `v${version}`, apiserver: program, controllerManager, etcd };
};

/** Builds the binaries of a minor by its go.mod and go.sum; this takes minutes, but only once for each version. */
export const buildBinaries = (minor: string) => findOrBuildGoProgram(toGoProgram(minor));

/** The plugins that call webhooks. */
export const webhookPlugins = ["MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"];

/** Returns the admission plugins that an API server has compiled in, and those that are on by default. */
export const listPlugins = async ({
  apiserver,
}: ControlPlaneBinaries): Promise<{ all: string[]; defaultOn: string[] }> => {
  const help = await runCommand(here, apiserver, "--help");
  const [, defaultOn = "", all = ""] =
    /default enabled ones \(([^)]*)\)\. Comma-delimited list of admission plugins: ([^.]*)\./.exec(help) ?? [];
  return { all: all.split(", "), defaultOn: defaultOn.split(", ") };
};
