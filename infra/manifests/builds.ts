import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtempDisposable, readFile, realpath, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, dirname, join, normalize, relative, resolve } from "node:path";
import { promisify } from "node:util";
import { getOwn, toMap } from "#lib/json.ts";
import { newestKubernetes } from "#lib/since.ts";
import { toSentence } from "../cli/complaint.ts";
import { toOneLine } from "../cli/terminal.ts";
import { type Manifest, type ManifestFault, parseManifests } from "./manifests.ts";
import type { BuiltParts, Kustomization } from "./parts.ts";

export interface BuildOptions {
  namespace: string;
  /** The minor that charts are made for; the newest without one. */
  kubernetes: string | undefined;
}

interface BuiltManifests {
  manifests: Manifest[];
  faults: ManifestFault[];
}

/** Lets kustomize or kubectl, and helm, make the manifests of kustomizations and charts. None of them may fetch anything. */
export const buildParts = async (
  { charts, kustomizations }: BuiltParts,
  options: BuildOptions,
): Promise<BuiltManifests> => {
  const built: BuiltManifests = { manifests: [], faults: [] };
  const take = async (folder: string, build: () => Promise<BuiltManifests>) => {
    const { manifests, faults } = await build().catch((error: unknown) => {
      const sentence = `can't be built: ${toOneLine(toSentence(error)).slice(0, longestMessage)}`;
      return { manifests: [], faults: [{ file: folder, line: 1, sentence }] };
    });
    for (const manifest of manifests) built.manifests.push(manifest);
    built.faults.push(...faults);
  };
  for (const kustomization of kustomizations) await take(kustomization.folder, () => buildKustomization(kustomization));
  for (const chart of charts) await take(chart, () => buildChart(chart, options));
  return built;
};

const longestMessage = 1000;

const originAnnotation = "config.kubernetes.io/origin";

const buildKustomization = async ({ folder, missing }: Kustomization): Promise<BuiltManifests> => {
  if (missing[0] !== undefined)
    throw new Error(`${missing[0]}, which isn't here; --build fetches nothing, and kustomize build ${folder} may`);
  // kustomize says where an object is from only if a kustomization asks for it.
  await using scratch = await mkdtempDisposable(join(await realpath(tmpdir()), "postern-build-"));
  const above = { resources: [relative(scratch.path, await realpath(folder))], buildMetadata: ["originAnnotations"] };
  await writeFile(join(scratch.path, "kustomization.yaml"), JSON.stringify(above));
  const text = await runFirst(["kustomize", "build", scratch.path], ["kubectl", "kustomize", scratch.path]);
  const { manifests, faults } = parseManifests({ name: folder, folder, text }, true);
  const sources = new Map<string, Promise<Manifest[]>>();
  return {
    faults,
    manifests: await Promise.all(
      manifests.map(async (manifest) => {
        const { path, configuredIn } = takeOrigin(manifest.object);
        const place = path ?? configuredIn;
        if (place === undefined) return manifest;
        const file = relative("", resolve(scratch.path, place));
        if (!sources.has(file)) sources.set(file, readSource(file, folder));
        return placeInSource(manifest, file, folder, (await sources.get(file)) ?? []);
      }),
    ),
  };
};

/** Takes the annotation with an object's origin out of the object. */
const takeOrigin = (object: Record<string, unknown>): { path?: string; configuredIn?: string } => {
  const annotations = toMap(toMap(object.metadata).annotations);
  const text = String(annotations[originAnnotation] ?? "");
  delete annotations[originAnnotation];
  if (Object.keys(annotations).length === 0) delete toMap(object.metadata).annotations;
  return Object.fromEntries([...text.matchAll(/^(path|configuredIn): (.*)$/gm)].map(([, key, value]) => [key, value]));
};

const readSource = async (file: string, folder: string): Promise<Manifest[]> => {
  const text = await readFile(file, "utf8").catch(() => "");
  return parseManifests({ name: file, folder, text }, true).manifests;
};

/** Places an object at the one of a source file that it was made from, or else at the beginning of the file. */
const placeInSource = (manifest: Manifest, file: string, folder: string, written: readonly Manifest[]): Manifest => {
  const { object } = manifest;
  const getName = ({ metadata }: Record<string, unknown>) => String(getOwn(metadata, "name") ?? "");
  const alike = written.filter((one) => one.object.apiVersion === object.apiVersion && one.object.kind === object.kind);
  const found =
    alike.find((one) => getName(one.object) === getName(object)) ??
    alike.find((one) => getName(object).includes(getName(one.object)));
  return found
    ? { ...found, object, written: found.object }
    : { ...manifest, source: { name: file, folder, text: "" }, document: 0, path: [], line: 1 };
};

const buildChart = async (chart: string, { namespace, kubernetes }: BuildOptions): Promise<BuiltManifests> => {
  const release = basename(await realpath(chart))
    .toLowerCase()
    .replace(/[^a-z0-9-]/g, "-")
    .slice(0, 53);
  const version = `${kubernetes ?? newestKubernetes}.0`;
  const text = await runFirst([
    ...["helm", "template", "--include-crds", "--namespace", namespace, "--kube-version", version],
    ...["--", release, chart],
  ]);
  const built: BuiltManifests = { manifests: [], faults: [] };
  // Before each object is the template that it is from: the chart's name, and the path in the chart.
  for (const part of text.split(/^---\n(?=# Source: )/m)) {
    const [, path = ""] = /^# Source: [^/\n]*\/(.*)$/m.exec(part) ?? [];
    const file = normalize(join(chart, path));
    const name = path !== "" && existsSync(file) ? file : chart;
    const { manifests, faults } = parseManifests({ name, folder: dirname(chart), text: part }, true);
    // Lines of the object aren't those of the template.
    const source = { name, folder: dirname(chart), text: "" };
    for (const manifest of manifests) built.manifests.push({ ...manifest, source, document: 0, path: [], line: 1 });
    built.faults.push(...faults.map((fault) => ({ ...fault, line: 1 })));
  }
  return built;
};

/** Runs the first program that is there, and returns its output. */
const runFirst = async (...commands: string[][]): Promise<string> => {
  for (const [program = "", ...words] of commands)
    try {
      const env = { ...process.env, ...offline };
      const { stdout } = await promisify(execFile)(program, words, { env, maxBuffer: mostOutput, timeout: longestRun });
      return stdout;
    } catch (error) {
      const { code, killed, stderr } = error as { code?: unknown; killed?: boolean; stderr?: string };
      if (code === "ENOENT") continue;
      if (killed) throw new Error(`${program} needs more than ${longestRun / 1000} seconds`);
      throw new Error(`${program} says: ${stderr?.trim() || toSentence(error)}`);
    }
  const names = commands.map(([program]) => program);
  throw new Error(`${names.join(" or ")} must be on the PATH for that`);
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
