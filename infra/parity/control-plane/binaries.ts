import { execFile } from "node:child_process";
import { access, mkdir, readFile, rename, rm } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { Complaint } from "../../cli/complaint.ts";

/** The API server that judges, and what it keeps its objects in. */
export interface Binaries {
  version: string;
  apiserver: string;
  etcd: string;
}

/** Where go.mod is: for the newest version here, for older ones in a folder named for their minor, such as 1.35. */
const here = fileURLToPath(new URL(`./${process.env.POSTERN_KUBERNETES ?? ""}`, import.meta.url));

/** The Kubernetes version that go.mod names, for instance v1.36.3. */
const versionOf = async (): Promise<string> => {
  const text = await readFile(join(here, "go.mod"), "utf8").catch(() => "");
  const [, version] = /k8s\.io\/kubernetes (v[\d.]+)/.exec(text) ?? [];
  if (version === undefined) throw new Error(`${here} has no go.mod that names a version of k8s.io/kubernetes`);
  return version;
};

/** Where what is built once is kept. */
export const cacheFolder = join(process.env.XDG_CACHE_HOME ?? join(homedir(), ".cache"), "postern");

const cacheOf = (version: string) => join(cacheFolder, `kubernetes-${version}`);

/**
 * Returns the binaries in the folder that KUBEBUILDER_ASSETS names, or else those that were built before. Throws a
 * sentence if they are missing or not of the version that go.mod names.
 */
export const requireBinaries = async (): Promise<Binaries> => {
  const version = await versionOf();
  const { KUBEBUILDER_ASSETS: given } = process.env;
  const folder = given ?? cacheOf(version);
  const binaries = { version, apiserver: join(folder, "kube-apiserver"), etcd: join(folder, "etcd") };
  const isThere = await Promise.all([binaries.apiserver, binaries.etcd].map((file) => access(file))).then(
    () => true,
    () => false,
  );
  if (!isThere) throw new Complaint(`kube-apiserver and etcd ${version} are not here: npm run cluster builds them`, 3);
  if (given === undefined) return binaries;
  const { stdout } = await promisify(execFile)(binaries.apiserver, ["--version"]);
  const found = stdout.trim().replace(/^Kubernetes /, "");
  if (found === version) return binaries;
  throw new Complaint(
    `KUBEBUILDER_ASSETS has kube-apiserver ${found}, and ${version} is wanted: unset it, and npm run cluster builds that`,
    3,
  );
};

/** The plugins without which nothing of ours is called. */
export const callers = ["MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"];

/** The admission plugins that an API server has compiled in, and those of them that are on where nobody says otherwise. */
export const pluginsIn = async ({ apiserver }: Binaries): Promise<{ all: string[]; defaultOn: string[] }> => {
  const { stdout } = await promisify(execFile)(apiserver, ["--help"], { maxBuffer: 64 * 1024 * 1024 });
  const [, defaultOn = "", all = ""] =
    /default enabled ones \(([^)]*)\)\. Comma-delimited list of admission plugins: ([^.]*)\./.exec(stdout) ?? [];
  return { all: all.split(", "), defaultOn: defaultOn.split(", ") };
};

/** Builds both from the Go module proxy, by go.mod and go.sum; a few minutes, once for each version. */
export const buildBinaries = async (): Promise<Binaries> => {
  const version = await versionOf();
  const folder = cacheOf(version);
  const draft = `${folder}.${process.pid}`;
  const [, major = "", minor = ""] = /^v(\d+)\.(\d+)/.exec(version) ?? [];
  const stamp = { gitVersion: version, gitMajor: major, gitMinor: minor };
  const flags = Object.entries(stamp).map(([key, value]) => `-X k8s.io/component-base/version.${key}=${value}`);
  const go = (...args: string[]) =>
    promisify(execFile)("go", args, {
      cwd: here,
      maxBuffer: 64 * 1024 * 1024,
      env: { ...process.env, CGO_ENABLED: "0" },
    });

  await mkdir(draft, { recursive: true });
  await go("build", "-o", join(draft, "etcd"), "go.etcd.io/etcd/server/v3");
  await go(
    "build",
    "-ldflags",
    `-s -w ${flags.join(" ")}`,
    "-o",
    join(draft, "kube-apiserver"),
    "k8s.io/kubernetes/cmd/kube-apiserver",
  );
  await rm(folder, { recursive: true, force: true });
  await rename(draft, folder);
  return { version, apiserver: join(folder, "kube-apiserver"), etcd: join(folder, "etcd") };
};

if (import.meta.main) {
  const { version, apiserver } = await requireBinaries().catch(buildBinaries);
  process.stdout.write(`kube-apiserver ${version} is at ${apiserver}\n`);
}
