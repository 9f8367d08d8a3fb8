// Makes the npm packages in dist/packages/. `npm run pack` runs this file. The package postern contains the compiled
// files of lib, infra and functions. package-manifest.ts makes its package.json.
import { execFile } from "node:child_process";
import { cp, glob, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { basename, dirname, join, relative, sep } from "node:path";
import { promisify } from "node:util";
import { packageRoot } from "../cli/roots.ts";
import { bundlePage } from "../console/page-files.ts";
import { findModule } from "../kubernetes/find-module.ts";
import { readModule } from "../kubernetes/module-files.ts";
import { bundleAwsClients } from "./aws-clients.ts";
import { writeLicenses } from "./licenses.ts";
import {
  buildCreatePackageManifest,
  buildModulePackageManifest,
  buildPackageManifest,
  modulePackageName,
} from "./package-manifest.ts";
import { adaptPages } from "./pages.ts";

const run = promisify(execFile);

/**
 * Files that aren't in the package: the code that makes the packages and the module of Kubernetes' handlers, and the
 * sources of the console's page. The package contains the page as a bundle.
 */
const checkoutOnly = [
  "infra/package",
  "infra/create",
  "infra/console/page",
  "infra/kubernetes/build",
  "infra/kubernetes/module",
];
/** The templates of new rules. They aren't compiled, because users write rules in TypeScript. */
const templates = "infra/commands/new";
/** Files and folders outside lib, infra and functions that are copied into the package. */
const copiedPaths = ["LICENSE", "README.md", "CHANGELOG.md", "SECURITY.md", "docs", "serverless.yml"];

/**
 * Writes the packages of a release as `NAME-VERSION.tgz` into a folder. Returns their paths. If the WebAssembly
 * module of Kubernetes' handlers wasn't built, its package isn't written, and the package postern doesn't depend on it.
 */
export const packPackages = async (folder: string): Promise<string[]> => {
  await mkdir(folder, { recursive: true });
  const [manifest, module] = [await readCheckoutManifest(), await openModule()];
  return Promise.all([
    packFiles(folder, (draft) => writePackage(draft, module?.version)),
    packFiles(folder, (draft) => writeCreatePackage(draft, { postern: manifest.version })),
    ...(module === undefined ? [] : [packFiles(folder, (draft) => writeModulePackage(draft, module))]),
  ]);
};

/**
 * Writes the packages for use without a registry. The package create-postern contains the other packages as files, and
 * a new project installs these files. If a project named the packages, npm would install them from the registry.
 */
const packUnpublishedPackages = async (folder: string): Promise<string[]> => {
  await mkdir(folder, { recursive: true });
  const module = await openModule();
  const packed: Record<string, string> = { postern: await packFiles(folder, writePackage) };
  if (module === undefined) process.stderr.write(`packs no ${modulePackageName}: npm run kubernetes builds it first\n`);
  else packed[modulePackageName] = await packFiles(folder, (draft) => writeModulePackage(draft, module));
  const files = Object.entries(packed).map(([name, file]) => [name, `file:./${basename(file)}`]);
  const create = await packFiles(folder, async (draft) => {
    await writeCreatePackage(draft, Object.fromEntries(files));
    for (const file of Object.values(packed)) await cp(file, join(draft, "template/packages", basename(file)));
  });
  return [...Object.values(packed), create];
};

/** Returns the folder of the module of Kubernetes' handlers and its version; undefined if the module wasn't built. */
const openModule = async () => {
  const folder = await findModule();
  return folder === undefined ? undefined : { folder, version: (await readModule(folder)).version };
};

const readCheckoutManifest = async () => JSON.parse(await readFile(join(packageRoot, "package.json"), "utf8"));

const writeManifest = (folder: string, manifest: object): Promise<void> =>
  writeFile(join(folder, "package.json"), `${JSON.stringify(manifest, null, 2)}\n`);

/** Packs the files that a function writes into an empty folder. Returns the path of the tarball. */
const packFiles = async (folder: string, writeFiles: (draft: string) => Promise<void>): Promise<string> => {
  const draft = await mkdtemp(join(folder, ".draft-"));
  try {
    await writeFiles(draft);
    return await packFolder(draft, folder);
  } finally {
    await rm(draft, { recursive: true, force: true });
  }
};

/** Writes the files of the package create-postern into an empty folder. New projects will install `packages`. */
const writeCreatePackage = async (folder: string, packages: Record<string, string>): Promise<void> => {
  await writeManifest(folder, buildCreatePackageManifest(await readCheckoutManifest(), packages));
  for (const [file, from] of Object.entries(createPackageFiles))
    await cp(join(packageRoot, from), join(folder, file), { recursive: true });
  await adaptPathsInYaml(folder, ["template/github.yml"]);
};

/** Writes the npm package with Kubernetes' own request handlers, compiled to WebAssembly, into an empty folder. */
const writeModulePackage = async (folder: string, module: { folder: string; version: string }): Promise<void> => {
  await cp(module.folder, folder, { recursive: true });
  await cp(join(packageRoot, "LICENSE"), join(folder, "LICENSE"));
  await writeManifest(folder, buildModulePackageManifest(await readCheckoutManifest(), module.version));
};

/** The files of the package create-postern, each with its path in this checkout. */
const createPackageFiles = {
  LICENSE: "LICENSE",
  "create.js": "infra/create/create.js",
  "template/rule": `${templates}/validate`,
  "template/github.yml": "infra/pipelines/github.yml",
};

/** Writes the package postern into an empty folder. It depends on the given version of postern-kubernetes, if any. */
const writePackage = async (folder: string, posternKubernetesVersion?: string): Promise<void> => {
  await Promise.all([compile(folder), copyData(folder), bundlePackages(folder)]);
  const pages = await Array.fromAsync(glob("**/*.md", { cwd: folder }));
  await adaptPages(
    folder,
    pages.map((page) => page.split(sep).join("/")).filter((page) => !page.startsWith(`${templates}/`)),
  );
  // This overwrites a copy of the checkout's package.json: the compiler writes it, because infra imports the file.
  await writeManifest(folder, buildPackageManifest(await readCheckoutManifest(), posternKubernetesVersion));
};

/**
 * Bundles the AWS clients and the console's page with the packages that they use, so that users don't install these.
 * Returns the paths of the bundled packages, as in package-lock.json.
 */
export const bundlePackages = async (folder: string): Promise<string[]> => {
  const clients = await bundleAwsClients(join(folder, "infra/aws/clients"));
  const page = join(folder, "infra/console/bundle");
  return [...clients, ...(await writeLicenses(page, (await bundlePage(page, { write: true })).metafile))];
};

/** Runs `npm pack` on a folder. Returns the path of the tarball. */
const packFolder = async (folder: string, to: string): Promise<string> => {
  const { stdout } = await run("npm", ["pack", "--json", "--pack-destination", to], { cwd: folder });
  return join(to, JSON.parse(stdout)[0].filename);
};

const isCheckoutOnly = (file: string) => checkoutOnly.some((path) => file === path || file.startsWith(`${path}/`));
const isTest = (file: string) => /\.test\.(ts|yaml)$/.test(file);

/** Compiles the TypeScript files of the package into a folder. */
const compile = async (outDir: string): Promise<void> => {
  const files = (await listFiles()).filter((file) => file.endsWith(".ts") && !file.startsWith(`${templates}/`));
  const config = {
    extends: join(packageRoot, "tsconfig.json"),
    compilerOptions: {
      noEmit: false,
      declaration: true,
      rewriteRelativeImportExtensions: true,
      rootDir: packageRoot,
      outDir,
      typeRoots: [join(packageRoot, "node_modules/@types")],
    },
    include: [],
    files: files.map((file) => join(packageRoot, file)),
  };
  const file = join(outDir, "tsconfig.json");
  await writeFile(file, JSON.stringify(config));
  const compiler = join(packageRoot, "node_modules/typescript/bin/tsc");
  // The compiler reports an error (TS2877) for each import of "#lib/FILE.ts", because it doesn't know that package.json
  // maps these to .js. It writes all files anyway. `npm run check` finds real errors.
  await run(process.execPath, [compiler, "-p", file]).catch(({ code, stdout }) => {
    const faults = String(stdout)
      .split("\n")
      .filter((line) => line !== "" && !line.includes("TS2877"));
    if (code === undefined || faults.length > 0) throw new Error(`the package does not compile: ${faults[0]}`);
  });
  await rm(file);
};

/** Copies to `folder` the files that need no compilation. In some YAML files, changes paths to those of a project. */
const copyData = async (folder: string): Promise<void> => {
  const files = (await listFiles()).filter((file) => !file.endsWith(".ts") || file.startsWith(`${templates}/`));
  for (const file of [...files, ...copiedPaths]) {
    await mkdir(dirname(join(folder, file)), { recursive: true });
    await cp(join(packageRoot, file), join(folder, file), { recursive: true });
  }
  await adaptPathsInYaml(
    folder,
    [...files, ...copiedPaths].filter((file) => /^(infra\/(pipelines|aws\/iam)\/.*|serverless)\.yml$/.test(file)),
  );
};

/** Changes paths in YAML files: `infra/postern.js` becomes `node_modules/postern/infra/postern.js`, as in a project. */
const adaptPathsInYaml = async (folder: string, files: string[]): Promise<void> => {
  for (const file of files) {
    const text = await readFile(join(folder, file), "utf8");
    await writeFile(join(folder, file), text.replaceAll(/\binfra\//g, "node_modules/postern/infra/"));
  }
};

/** Returns the files of lib, infra and functions that the package contains. */
const listFiles = async (): Promise<string[]> => {
  const files: string[] = [];
  for await (const entry of glob("{lib,infra,functions}/**", { cwd: packageRoot, withFileTypes: true }))
    if (entry.isFile()) files.push(relative(packageRoot, join(entry.parentPath, entry.name)).split(sep).join("/"));
  return files.filter((file) => !isCheckoutOnly(file) && !isTest(file)).sort();
};

if (import.meta.main) {
  const folder = join(packageRoot, "dist/packages");
  await rm(folder, { recursive: true, force: true });
  for (const file of await packUnpublishedPackages(folder)) process.stdout.write(`${file}\n`);
}
