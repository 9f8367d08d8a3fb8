import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtempDisposable, readFile, realpath, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, dirname, join, normalize, relative, resolve } from "node:path";
import { getOwn, toMap } from "#lib/json.ts";
import { newestKubernetes } from "#lib/since.ts";
import { toSentence } from "../cli/complaint.ts";
import { type Manifest, type ManifestFault, parseManifests } from "./manifests.ts";
import { type BuiltParts, formatBuildCommand, type Kustomization } from "./parts.ts";
import { parseYamlDocuments } from "./yaml.ts";

export interface BuildOptions {
  namespace: string;
  /** The minor that charts are made for; the newest without one. */
  kubernetes: string | undefined;
}

interface BuiltManifests {
  manifests: Manifest[];
  faults: ManifestFault[];
}

/** Lets kustomize or kubectl, and helm, make the manifests of kustomizations and charts. They may not fetch anything. */
export const buildParts = async (
  { charts, kustomizations }: BuiltParts,
  options: BuildOptions,
): Promise<BuiltManifests> => {
  const built: BuiltManifests = { manifests: [], faults: [] };
  const take = async (folder: string, build: () => Promise<BuiltManifests>) => {
    const { manifests, faults } = await build().catch((error: unknown) => {
      return { manifests: [], faults: [{ file: folder, line: 1, sentence: `can't be built: ${toSentence(error)}` }] };
    });
    for (const manifest of manifests) built.manifests.push({ ...manifest, build: folder });
    // The lines are those of what is built, which is in no file.
    for (const { sentence } of faults) built.faults.push({ file: folder, line: 1, sentence });
  };
  for (const kustomization of kustomizations) await take(kustomization.folder, () => buildKustomization(kustomization));
  for (const chart of charts) await take(chart, () => buildChart(chart, options));
  return built;
};

const originAnnotation = "config.kubernetes.io/origin";

const buildKustomization = async ({ folder, faults, buildMetadata }: Kustomization): Promise<BuiltManifests> => {
  if (faults[0] !== undefined) throw new Error(faults[0]);
  // kustomize says where an object is from only if a kustomization asks for it.
  await using scratch = await mkdtempDisposable(join(await realpath(tmpdir()), "postern-build-"));
  const above = {
    resources: [relative(scratch.path, await realpath(folder))],
    buildMetadata: [...new Set([...buildMetadata, "originAnnotations"])],
  };
  await writeFile(join(scratch.path, "kustomization.yaml"), JSON.stringify(above));
  const text = await runFirst(formatBuildCommand("kustomization", folder), folder, [
    ["kustomize", "build", scratch.path],
    ["kubectl", "kustomize", scratch.path],
  ]);
  const parsed = parseManifests({ name: folder, folder, text }, true);
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

/** Takes the annotation with an object's origin out of the object, and returns the origin's path. */
const takeOrigin = (object: Record<string, unknown>): string | undefined => {
  const annotations = toMap(toMap(object.metadata).annotations);
  const text = String(annotations[originAnnotation] ?? "");
  delete annotations[originAnnotation];
  if (Object.keys(annotations).length === 0) delete toMap(object.metadata).annotations;
  const [first] = [...parseYamlDocuments(text)];
  const { path, configuredIn } = toMap(first?.document.toJS());
  const place = path ?? configuredIn;
  return typeof place === "string" ? place : undefined;
};

const readSource = async (file: string, folder: string): Promise<Manifest[]> => {
  const text = await readFile(file, "utf8").catch(() => "");
  return parseManifests({ name: file, folder, text }, true).manifests;
};

/** Places an object at the one of a source file that it was made from, or else at the beginning of the file. */
const placeInSource = (manifest: Manifest, file: string, folder: string, written: readonly Manifest[]): Manifest => {
  const { object } = manifest;
  const get = (key: string, one: Manifest) => String(getOwn(one.object.metadata, key) ?? "");
  // A build may add to a name, and set another namespace.
  const rate = (one: Manifest) =>
    get("name", one).length * 2 + Number(get("namespace", one) === get("namespace", manifest));
  const [found] = written
    .filter((one) => one.object.apiVersion === object.apiVersion && one.object.kind === object.kind)
    .filter((one) => get("name", manifest).includes(get("name", one)))
    .sort((one, other) => rate(other) - rate(one));
  return found
    ? { ...found, object, written: found.object }
    : { ...manifest, source: { name: file, folder, text: "" }, document: 0, path: [], line: 1 };
};

const buildChart = async (chart: string, { namespace, kubernetes }: BuildOptions): Promise<BuiltManifests> => {
  const built: BuiltManifests = { manifests: [], faults: [] };
  const about = await readFile(join(chart, "Chart.yaml"), "utf8").catch(() => "");
  if (/^type: *["']?library\b/m.test(about)) return built;
  const name = basename(await realpath(chart)).toLowerCase();
  const release =
    name
      .replace(/[^a-z0-9-]/g, "-")
      .slice(0, longestRelease)
      .replace(/^-+|-+$/g, "") || "release";
  const version = `${kubernetes ?? newestKubernetes}.0`;
  const text = await runFirst(formatBuildCommand("chart", chart), chart, [
    [
      ...["helm", "template", "--include-crds", "--namespace", namespace, "--kube-version", version],
      ...["--", release, chart],
    ],
  ]);
  // Before each object is the template that it is from: the chart's name, and the path in the chart.
  for (const part of text.split(/^---\n(?=# Source: )/m)) {
    const [, path = ""] = /^# Source: [^/\n]*\/(.*)$/m.exec(part) ?? [];
    const file = normalize(join(chart, path));
    const source = { name: path !== "" && existsSync(file) ? file : chart, folder: dirname(chart), text: "" };
    const { manifests, faults } = parseManifests({ ...source, text: part }, true);
    // Lines of the object aren't those of the template.
    for (const manifest of manifests) built.manifests.push({ ...manifest, source, document: 0, path: [], line: 1 });
    for (const { sentence } of faults)
      built.faults.push({ file: chart, line: 1, sentence: `${sentence}, as helm makes it of ${source.name}` });
  }
  return built;
};

const longestRelease = 53;

/**
 * Runs the first program that is there, and returns its output. Why a program fails isn't repeated, because its message may
 * have a value of a Secret: only a file that it names is. `command` shows the message.
 */
const runFirst = async (command: string, folder: string, programs: readonly string[][]): Promise<string> => {
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

/** Returns the end of a sentence with the file, and the line, that a program names; empty if it names none that is there. */
const findNamedFile = (text: string, folder: string): string => {
  for (const [place, file = ""] of text.matchAll(/([\w./-]+\.(?:ya?ml|json|tpl|txt))(?::\d+)?/g)) {
    // helm begins with the name of the chart.
    const inside = file.slice(file.indexOf("/") + 1);
    for (const name of [file, inside])
      if (existsSync(join(folder, name))) return `, at ${join(folder, name)}${place.slice(file.length)}`;
  }
  return "";
};

const mostOutput = 64 * 1024 * 1024;
const longestRun = 120_000;

/** Nothing is fetched: git may use no protocol, and each request goes to a proxy that isn't there. */
const offline = {
  GIT_ALLOW_PROTOCOL: "none",
  HTTP_PROXY: "http://127.0.0.1:9",
  HTTPS_PROXY: "http://127.0.0.1:9",
  NO_PROXY: "",
  no_proxy: "",
};
