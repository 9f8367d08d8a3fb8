import { createHash } from "node:crypto";
import { readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { brotliCompress, constants } from "node:zlib";
import { type ModuleManifest, manifestFile, moduleFiles } from "../module-files.ts";
import type { KubernetesRequest } from "../requests.ts";
import { findGoProgram, findOrBuildGoProgram, type GoProgram, runCommand } from "./go-programs.ts";
import { createImage } from "./image.ts";
import { formatLicenses, type GoPackage, licensesFile } from "./module-licenses.ts";
import { type RunGo, writeModuleSources } from "./module-sources.ts";

const sources = fileURLToPath(new URL("../module/", import.meta.url));
const builder = fileURLToPath(new URL("./", import.meta.url));

/** The module of Kubernetes' handlers, compressed, with the manifest that loaders read. */
const program: GoProgram = {
  sources,
  module: "k8s.io/kubernetes",
  name: "kubernetes-module",
  files: [manifestFile, ...Object.values(moduleFiles).map((name) => `${name}.br`), licensesFile],
  inputs: [
    ...["go-programs", "image", "module-licenses", "module-program", "module-sources"].map((name) =>
      join(builder, `${name}.ts`),
    ),
    ...["instance", "wasi", "requests"].map((name) => join(builder, "..", `${name}.ts`)),
  ],
  build: (folder, version) => build(folder, version),
};

/** Returns the folder of the module that was built before; undefined if there is none of these sources. */
export const findBuiltModule = async (): Promise<string | undefined> => (await findGoProgram(program))?.folder;

/** Builds the module, unless it was built before; the first time takes ten minutes on two cores. */
export const buildModule = () => findOrBuildGoProgram(program);

const build = async (folder: string, version: string): Promise<void> => {
  const toolchain = await readToolchain();
  const environment = ["GOOS=wasip1", "GOARCH=wasm", `GOTOOLCHAIN=${toolchain}`];
  const go = (cwd: string, ...args: string[]) => runCommand(cwd, "env", ...environment, "go", ...args);
  const overlay = await writeModuleSources(sources, folder, go);
  const source = join(folder, "source");
  const [major, minor] = version.split(".");
  const stamp = Object.entries({ gitVersion: `v${version}`, gitMajor: major, gitMinor: minor });
  const flags = stamp.map(([key, value]) => `-X k8s.io/component-base/version.${key}=${value}`).join(" ");
  const wasm = join(folder, "module.wasm");
  const options = [
    "-trimpath",
    "-buildvcs=false",
    "-overlay",
    overlay,
    "-buildmode=c-shared",
    "-ldflags",
    `-s -w ${flags}`,
  ];
  await go(source, "build", ...options, "-o", wasm, ".");
  const packages = await listGoPackages(source, go);
  const image = await createImage(await readFile(wasm), firstRequests);
  const manifest: ModuleManifest = {
    kubernetes: version,
    go: toolchain,
    modules: Object.fromEntries(packages.map(({ module, version }) => [module, version])),
    files: {},
  };
  for (const [part, name] of Object.entries(moduleFiles)) {
    const contents = image[part as keyof typeof image];
    const sha256 = createHash("sha256").update(contents).digest("hex");
    manifest.files[name] = { sha256, bytes: contents.length };
    await writeFile(join(folder, `${name}.br`), await compress(contents));
  }
  await writeFile(join(folder, manifestFile), `${JSON.stringify(manifest, null, 2)}\n`);
  const root = (await go(source, "env", "GOROOT")).trim();
  const standard = { module: "Go", version: toolchain.replace("go", ""), root, folder: root };
  await writeFile(join(folder, licensesFile), await formatLicenses([standard, ...packages]));
  for (const name of await readdir(folder))
    if (!program.files.includes(name)) await rm(join(folder, name), { recursive: true, force: true });
};

/** Returns the packages that are compiled in, except those of Go and of this folder, by the names of their modules. */
const listGoPackages = async (source: string, go: RunGo): Promise<GoPackage[]> => {
  // A module that is replaced by another version has that one, and one that is edited keeps its own.
  const version = "{{or (and .Module.Replace .Module.Replace.Version) .Module.Version}}";
  const format = `{{if .Module}}{{.Module.Path}}\t${version}\t{{.Module.Dir}}\t{{.Dir}}{{end}}`;
  const lines = (await go(source, "list", "-deps", "-f", format, ".")).split("\n").sort();
  return lines.flatMap((line) => {
    const [module = "", version = "", root = "", folder = ""] = line.split("\t");
    return version === "" ? [] : [{ module, version, root, folder }];
  });
};

/** Returns the version of Go in go.mod. Other versions would give other bytes. */
const readToolchain = async (): Promise<string> => {
  const [, toolchain] = /^toolchain (\S+)$/m.exec(await readFile(join(sources, "go.mod"), "utf8")) ?? [];
  if (toolchain === undefined) throw new Error(`${sources}go.mod has no toolchain`);
  return toolchain;
};

const compress = (contents: Buffer): Promise<Buffer> =>
  promisify(brotliCompress)(contents, {
    params: {
      [constants.BROTLI_PARAM_QUALITY]: 9,
      [constants.BROTLI_PARAM_LGWIN]: constants.BROTLI_MAX_WINDOW_BITS,
      [constants.BROTLI_PARAM_SIZE_HINT]: contents.length,
    },
  });

const firstObjects = [
  {
    apiVersion: "apps/v1",
    kind: "Deployment",
    metadata: { name: "first" },
    spec: {
      selector: { matchLabels: { app: "first" } },
      template: { metadata: { labels: { app: "first" } }, spec: { containers: [{ name: "first", image: "first:1" }] } },
    },
  },
  {
    apiVersion: "v1",
    kind: "Service",
    metadata: { name: "first" },
    spec: { selector: { app: "first" }, ports: [{ port: 80 }] },
  },
];

/** What the module does once before it becomes an image, so that it is ready for objects such as these. */
const firstRequests: readonly KubernetesRequest[] = firstObjects.flatMap((object) =>
  (["admission", undefined] as const).map((until) => ({
    verb: "create",
    ...(until && { until }),
    apiVersion: object.apiVersion,
    kind: object.kind,
    namespace: "default",
    fieldValidation: "Strict",
    object: JSON.stringify(object),
  })),
);
