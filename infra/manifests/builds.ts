import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtempDisposable, readFile, realpath, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, dirname, join, normalize, relative, resolve } from "node:path";
import { getOwn, toMap } from "#lib/json.ts";
import { newestKubernetes } from "#lib/since.ts";
import { toSentence } from "../cli/complaint.ts";
import { type Manifest, type ManifestFault, parseManifests } from "./manifests.ts";
import { type ChartsAndKustomizations, formatBuildCommand, type Kustomization } from "./parts.ts";
import { parseYamlDocuments } from "./yaml.ts";

/** Options for charts. */
export interface BuildOptions {
  namespace: string;
  /** The minor version of Kubernetes for `helm template`; undefined for the newest. */
  kubernetes: string | undefined;
}

interface BuiltManifests {
  manifests: Manifest[];
  faults: ManifestFault[];
}

/** Builds kustomizations by kustomize or kubectl, and charts by helm, without network access. */
export const buildChartsAndKustomizations = async (
  { charts, kustomizations }: ChartsAndKustomizations,
  options: BuildOptions,
): Promise<BuiltManifests> => {
  const built: BuiltManifests = { manifests: [], faults: [] };
  const addBuilt = async (folder: string, build: () => Promise<BuiltManifests>) => {
    const { manifests, faults } = await build().catch((error: unknown) => {
      return { manifests: [], faults: [{ file: folder, line: 1, sentence: `can't be built: ${toSentence(error)}` }] };
    });
    for (const manifest of manifests) built.manifests.push({ ...manifest, build: folder });
    // A fault's line is a line of the build's output, which is in no file, so line 1 is reported.
    for (const { sentence } of faults) built.faults.push({ file: folder, line: 1, sentence });
  };
  for (const kustomization of kustomizations)
    await addBuilt(kustomization.folder, () => buildKustomization(kustomization));
  for (const chart of charts) await addBuilt(chart, () => buildChart(chart, options));
  return built;
};

const originAnnotation = "config.kubernetes.io/origin";

/** Builds a kustomization. Each manifest gets the position in the file from which kustomize has made it. */
const buildKustomization = async ({ folder, faults, buildMetadata }: Kustomization): Promise<BuiltManifests> => {
  if (faults[0] !== undefined) throw new Error(faults[0]);
  // kustomize says from which file an object comes only if a kustomization has originAnnotations. So an outer
  // kustomization with originAnnotations includes this one.
  await using scratch = await mkdtempDisposable(join(await realpath(tmpdir()), "postern-build-"));
  const outerKustomization = {
    resources: [relative(scratch.path, await realpath(folder))],
    buildMetadata: [...new Set([...buildMetadata, "originAnnotations"])],
  };
  await writeFile(join(scratch.path, "kustomization.yaml"), JSON.stringify(outerKustomization));
  const text = await runFirstInstalled(formatBuildCommand("kustomization", folder), folder, [
    ["kustomize", "build", scratch.path],
    ["kubectl", "kustomize", scratch.path],
  ]);
  const parsed = parseManifests({ name: folder, folder, text }, { readsLikeKubectl: true });
  const sources = new Map<string, Promise<Manifest[]>>();
  return {
    faults: parsed.faults.map((fault) => ({ ...fault, sentence: `${fault.sentence}, as kustomize builds it` })),
    manifests: await Promise.all(
      parsed.manifests.map(async (manifest) => {
        const place = takeOrigin(manifest.object);
        if (place === undefined) return manifest;
        const file = relative("", resolve(scratch.path, place));
        if (!sources.has(file)) sources.set(file, readSource(file, folder));
        return placeInSource(manifest, file, folder, (await sources.get(file)) ?? []);
      }),
    ),
  };
};

/** Removes the annotation with an object's origin, and returns the path of the file in it. */
const takeOrigin = (object: Record<string, unknown>): string | undefined => {
  const annotations = toMap(toMap(object.metadata).annotations);
  const text = String(annotations[originAnnotation] ?? "");
  delete annotations[originAnnotation];
  if (Object.keys(annotations).length === 0) delete toMap(object.metadata).annotations;
  const [first] = [...parseYamlDocuments(text)];
  const { path, configuredIn } = toMap(first?.document.toJS());
  const file = path ?? configuredIn;
  return typeof file === "string" ? file : undefined;
};

const readSource = async (file: string, folder: string): Promise<Manifest[]> => {
  const text = await readFile(file, "utf8").catch(() => "");
  return parseManifests({ name: file, folder, text }, { readsLikeKubectl: true }).manifests;
};

/** Gives a built object the position of its source: the most similar object in the file, or else the file's start. */
const placeInSource = (manifest: Manifest, file: string, folder: string, candidates: readonly Manifest[]): Manifest => {
  const { object } = manifest;
  const get = (key: string, candidate: Manifest) => String(getOwn(candidate.object.metadata, key) ?? "");
  // A build may add a prefix or suffix to a name, and set another namespace. The longest name fits best, and of two
  // equal names the one in the same namespace.
  const rate = (candidate: Manifest) =>
    get("name", candidate).length * 2 + Number(get("namespace", candidate) === get("namespace", manifest));
  const [found] = candidates
    .filter((candidate) => candidate.object.apiVersion === object.apiVersion && candidate.object.kind === object.kind)
    .filter((candidate) => get("name", manifest).includes(get("name", candidate)))
    .sort((left, right) => rate(right) - rate(left));
  return found
    ? { ...found, object, written: found.object }
    : { ...manifest, source: { name: file, folder, text: "" }, document: 0, path: [], line: 1 };
};

/** Builds a chart by `helm template`. A library chart has no manifests. */
const buildChart = async (chart: string, { namespace, kubernetes }: BuildOptions): Promise<BuiltManifests> => {
  const built: BuiltManifests = { manifests: [], faults: [] };
  const chartText = await readFile(join(chart, "Chart.yaml"), "utf8").catch(() => "");
  if (/^type: *["']?library\b/m.test(chartText)) return built;
  const name = basename(await realpath(chart)).toLowerCase();
  const release =
    name
      .replace(/[^a-z0-9-]/g, "-")
      .slice(0, longestRelease)
      .replace(/^-+|-+$/g, "") || "release";
  const version = `${kubernetes ?? newestKubernetes}.0`;
  const options = ["--include-crds", "--namespace", namespace, "--kube-version", version];
  const helm = ["helm", "template", ...options, "--", release, chart];
  const text = await runFirstInstalled(formatBuildCommand("chart", chart), chart, [helm]);
  // Before each object is a comment with the chart and the template, such as `# Source: my-chart/templates/a.yaml`.
  for (const part of text.split(/^---\n(?=# Source: )/m)) {
    const [, path = ""] = /^# Source: [^/\n]*\/(.*)$/m.exec(part) ?? [];
    const file = normalize(join(chart, path));
    const source = { name: path !== "" && existsSync(file) ? file : chart, folder: dirname(chart), text: "" };
    const { manifests, faults } = parseManifests({ ...source, text: part }, { readsLikeKubectl: true });
    // The lines of the output are not those of the template, so line 1 is reported.
    for (const manifest of manifests) built.manifests.push({ ...manifest, source, document: 0, path: [], line: 1 });
    for (const { sentence } of faults)
      built.faults.push({ file: chart, line: 1, sentence: `${sentence}, as helm makes it of ${source.name}` });
  }
  return built;
};

/** The most characters of a release's name in Helm. */
const longestRelease = 53;

/**
 * Runs the first of these programs that is installed, and returns its output. A failed program's message may have a
 * value of a Secret. So the error has only the file that the message names, and `command`, the command that users can
 * run to see the message.
 */
const runFirstInstalled = async (command: string, folder: string, programs: readonly string[][]): Promise<string> => {
  for (const [program = "", ...words] of programs) {
    const { error, stdout, stderr } = await run(program, words);
    if (error === undefined) return stdout;
    if (error.code === "ENOENT") continue;
    if (error.killed && error.code !== "ERR_CHILD_PROCESS_STDIO_MAXBUFFER")
      throw new Error(`${program} needs more than ${longestRun / 1000} seconds`);
    if (error.code === "ERR_CHILD_PROCESS_STDIO_MAXBUFFER")
      throw new Error(`${program} prints more than ${mostOutput} bytes`);
    if (typeof error.code === "string") throw new Error(`${program} can't be started (${error.code})`);
    throw new Error(`${command} says why${findNamedFile(stderr, folder)}`);
  }
  throw new Error(`${programs.map(([program]) => program).join(" or ")} must be on the PATH for that`);
};

/** Runs kustomize, kubectl or helm without network access, and ends it with this process. */
const run = (program: string, words: readonly string[]) =>
  new Promise<{ error?: { code?: unknown; killed?: boolean }; stdout: string; stderr: string }>((done) => {
    const options = { maxBuffer: mostOutput, timeout: longestRun, killSignal: "SIGKILL" as const };
    const env = { ...process.env, ...offline };
    const child = execFile(program, words, { ...options, env }, (error, stdout, stderr) => {
      process.off("exit", end);
      done({ ...(error && { error }), stdout, stderr });
    });
    const end = () => void child.kill("SIGKILL");
    process.once("exit", end);
  });

/** Returns for instance ", at base/a.yaml:3" if a program's message names an existing file; else an empty text. */
const findNamedFile = (text: string, folder: string): string => {
  for (const [place, file = ""] of text.matchAll(/([\w./-]+\.(?:ya?ml|json|tpl|txt))(?::\d+)?/g)) {
    // helm writes the chart's name before the path of a file.
    const inside = file.slice(file.indexOf("/") + 1);
    for (const name of [file, inside])
      if (existsSync(join(folder, name))) return `, at ${join(folder, name)}${place.slice(file.length)}`;
  }
  return "";
};

/** The most bytes that a program may print. */
const mostOutput = 64 * 1024 * 1024;
/** The milliseconds after which a program is stopped. */
export const longestRun = 120_000;

/** Environment variables that prevent network access: git may use no protocol, and no proxy listens at this address. */
const offline = {
  GIT_ALLOW_PROTOCOL: "none",
  HTTP_PROXY: "http://127.0.0.1:9",
  HTTPS_PROXY: "http://127.0.0.1:9",
  NO_PROXY: "",
  no_proxy: "",
};
