import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Complaint } from "../../cli/complaint.ts";
import { cacheFolder, fillCache, hasFiles, runCommand } from "./go-programs.ts";

/** The binaries of kube-apiserver and of etcd, which stores its objects. */
export interface ControlPlaneBinaries {
  version: string;
  apiserver: string;
  etcd: string;
}

/** The folder of go.mod: this one for the newest version, a folder such as 1.35 for an older one. */
const sourceFolder = fileURLToPath(new URL(`./${process.env.POSTERN_KUBERNETES ?? ""}`, import.meta.url));

/** Returns the Kubernetes version in go.mod, such as v1.36.3. */
const readVersion = async (): Promise<string> => {
  const text = await readFile(join(sourceFolder, "go.mod"), "utf8").catch(() => "");
  const [, version] = /k8s\.io\/kubernetes (v[\d.]+)/.exec(text) ?? [];
  if (version === undefined) throw new Error(`${sourceFolder} has no go.mod that names a version of k8s.io/kubernetes`);
  return version;
};

const getCacheFolder = (version: string) => join(cacheFolder, `kubernetes-${version}`);

/**
 * Returns kube-apiserver and etcd from the folder that KUBEBUILDER_ASSETS names, or else those that were built
 * before. Throws a
 * sentence if they are missing or not of the version that go.mod names.
 */
export const requireBinaries = async (): Promise<ControlPlaneBinaries> => {
  const version = await readVersion();
  const { KUBEBUILDER_ASSETS: given } = process.env;
  const folder = given ?? getCacheFolder(version);
  const binaries = { version, apiserver: join(folder, "kube-apiserver"), etcd: join(folder, "etcd") };
  if (!(await hasFiles(folder, ["kube-apiserver", "etcd"])))
    throw new Complaint(`kube-apiserver and etcd ${version} are not here: npm run cluster builds them`, 3);
  if (given === undefined) return binaries;
  const found = (await runCommand(folder, binaries.apiserver, "--version")).trim().replace(/^Kubernetes /, "");
  if (found === version) return binaries;
  throw new Complaint(
    `KUBEBUILDER_ASSETS has kube-apiserver ${found}, and ${version} is wanted: unset it, and npm run cluster builds that`,
    3,
  );
};

/** The plugins that call webhooks. */
export const webhookPlugins = ["MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"];

/** Returns the admission plugins that an API server has compiled in, and those that are on by default. */
export const listPlugins = async ({
  apiserver,
}: ControlPlaneBinaries): Promise<{ all: string[]; defaultOn: string[] }> => {
  const help = await runCommand(sourceFolder, apiserver, "--help");
  const [, defaultOn = "", all = ""] =
    /default enabled ones \(([^)]*)\)\. Comma-delimited list of admission plugins: ([^.]*)\./.exec(help) ?? [];
  return { all: all.split(", "), defaultOn: defaultOn.split(", ") };
};

/** Builds kube-apiserver and etcd by go.mod and go.sum; this takes minutes, but only once for each version. */
export const buildBinaries = async (): Promise<ControlPlaneBinaries> => {
  const version = await readVersion();
  const folder = getCacheFolder(version);
  const [, major = "", minor = ""] = /^v(\d+)\.(\d+)/.exec(version) ?? [];
  const stamp = { gitVersion: version, gitMajor: major, gitMinor: minor };
  const flags = Object.entries(stamp).map(([key, value]) => `-X k8s.io/component-base/version.${key}=${value}`);
  await fillCache(folder, async (draft) => {
    await runCommand(sourceFolder, "go", "build", "-o", join(draft, "etcd"), "go.etcd.io/etcd/server/v3");
    const linking = ["-ldflags", `-s -w ${flags.join(" ")}`];
    const server = "k8s.io/kubernetes/cmd/kube-apiserver";
    await runCommand(sourceFolder, "go", "build", ...linking, "-o", join(draft, "kube-apiserver"), server);
  });
  return { version, apiserver: join(folder, "kube-apiserver"), etcd: join(folder, "etcd") };
};

if (import.meta.main) {
  const { version, apiserver } = await requireBinaries().catch(buildBinaries);
  process.stdout.write(`kube-apiserver ${version} is at ${apiserver}\n`);
}
