import { createHash } from "node:crypto";
import { access, constants, copyFile, glob, mkdir, mkdtemp, readFile, rename, rm, writeFile } from "node:fs/promises";
import { dirname, join, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { build, type Plugin } from "esbuild";
import { locateOrUnpackCueFiles } from "#lib/cue/cue-files.ts";
import { Complaint } from "../cli/complaint.ts";
import { distFolder } from "./build.ts";
import { writeClientTypeDeclarations } from "./client-types.ts";

export const clientFolder = join(distFolder, "client");

const root = fileURLToPath(new URL("../..", import.meta.url));

const entries = { index: "lib/client/client.ts", policies: "lib/client/policy-functions.ts" };

/**
 * Builds the client package (plain JavaScript, types and CUE), unless its sources are the same as at the last build.
 */
export const buildClientPackage = async (folder = clientFolder): Promise<void> => {
  const { version } = JSON.parse(await readFile(join(root, "package.json"), "utf8"));
  const rules = (await findFiles("functions/*/rule.ts")).map((file) => ({ file, name: file.split(sep)[1] ?? "" }));
  const sources = await hashOf(version);
  const before = await readFile(join(folder, "package.json"), "utf8").catch(() => "{}");
  if (JSON.parse(before).sources === sources) return;

  await mkdir(dirname(folder), { recursive: true });
  const draft = await mkdtemp(join(dirname(folder), ".client-"));
  try {
    await Promise.all([
      writeCode(draft, rules),
      writeClientTypeDeclarations(join(draft, "types"), entries),
      writeCue(draft),
    ]);
    for (const [file, from] of Object.entries(texts)) if (await exists(from)) await copyFile(from, join(draft, file));
    const manifest = { ...about, version, sources };
    await writeFile(join(draft, "package.json"), `${JSON.stringify(manifest, null, 2)}\n`);
    await rm(folder, { recursive: true, force: true });
    // Another process may build the same sources at the same time.
    await rename(draft, folder).catch(async (error) => {
      await rm(draft, { recursive: true, force: true });
      if (!(await exists(folder))) throw error;
    });
  } catch (error) {
    await rm(draft, { recursive: true, force: true });
    throw error;
  }
};

/** License and README files. CUE's files come from cue-wasm, the types of Kubernetes kinds from kubernetes-types. */
const texts: Record<string, string> = {
  LICENSE: join(root, "LICENSE"),
  "LICENSE-cue-wasm": join(root, "node_modules/cue-wasm/LICENSE"),
  "README.md": join(root, "lib/client/README.md"),
};

const exists = (file: string) =>
  access(file).then(
    () => true,
    () => false,
  );

const about = {
  name: "postern-client",
  description: "Kubernetes admission rules and policies, applied to a program's own writes before they leave it",
  license: "Apache-2.0",
  type: "module",
  engines: { node: ">=22" },
  sideEffects: false,
  exports: {
    ".": { types: "./types/index.d.ts", default: "./index.js" },
    "./policies": { types: "./types/policies.d.ts", default: "./policies.js" },
    "./rules/*": { types: "./types/rule.d.ts", default: "./rules/*.js" },
  },
};

const findFiles = async (pattern: string): Promise<string[]> => {
  const files: string[] = [];
  for await (const file of glob(pattern, { cwd: root })) if (!file.endsWith(".test.ts")) files.push(file);
  return files.sort();
};

const hashOf = async (version: string): Promise<string> => {
  const patterns = [
    "lib/**/*.ts",
    "functions/**/*.ts",
    "lib/client/README.md",
    "infra/build/client*.ts",
    "LICENSE",
    "package-lock.json",
  ];
  const files = (await Promise.all(patterns.map(findFiles))).flat();
  const hash = createHash("sha256").update(version);
  for (const file of files) hash.update(`${file}\0`).update(await readFile(join(root, file)));
  return hash.digest("base64url");
};

const writeCode = async (folder: string, rules: { file: string; name: string }[]): Promise<void> => {
  const common = {
    ...{ absWorkingDir: root, bundle: true, write: true },
    ...({ platform: "node", target: "node22", legalComments: "none", logLevel: "silent" } as const),
  };
  const offered = Object.entries(entries).map(([name, file]) => ({ in: join(root, file), out: name }));
  const catalogue = rules.map(({ file, name }) => ({ in: join(root, file), out: `rules/${name}` }));
  await Promise.all([
    build({
      ...common,
      ...{ entryPoints: [...offered, ...catalogue], outdir: folder },
      ...{ splitting: true, minifySyntax: true, plugins: [cueHere] },
      format: "esm",
    }),
    build({
      ...common,
      entryPoints: [join(root, "lib/cue/worker.ts")],
      outfile: join(folder, cue.worker),
      format: "cjs",
    }),
  ]).catch((failure: Error) => {
    throw new Complaint(`the client's package can't be bundled: ${failure.message}`);
  });
};

const cue = { worker: "cue-worker.cjs", wasm: "cue.wasm", glue: "cue-glue.cjs" };

/**
 * An esbuild plugin: code finds CUE's files beside itself or a program's bundle. A bundle without these files
 * takes them from the installed package.
 */
const cueHere: Plugin = {
  name: "cue-here",
  setup({ onLoad }) {
    onLoad({ filter: /[\\/]lib[\\/]cue[\\/]cue-files\.ts$/ }, () => ({
      contents: `import { existsSync } from "node:fs";
        import { createRequire } from "node:module";
        import { dirname, join } from "node:path";
        import { fileURLToPath } from "node:url";
        const names = ${JSON.stringify(cue)};
        const installed = (from) => {
          try {
            return dirname(createRequire(join(from, "index.js")).resolve("${about.name}"));
          } catch {
            return from;
          }
        };
        export const locateOrUnpackCueFiles = async () => {
          // import.meta is empty in a CommonJS bundle.
          const { url } = import.meta;
          const home = url ? dirname(fileURLToPath(url)) : __dirname;
          const isIn = (folder) => Object.values(names).every((name) => existsSync(join(folder, name)));
          const folder = [home, installed(home)].find(isIn);
          if (folder === undefined)
            throw new Error("${cue.worker}, ${cue.wasm} and ${cue.glue} of ${about.name} must be in " + home);
          return Object.fromEntries(Object.entries(names).map(([what, name]) => [what, join(folder, name)]));
        };`,
    }));
  },
};

const writeCue = async (folder: string): Promise<void> => {
  const { wasm, glue } = await locateOrUnpackCueFiles();
  await copyFile(wasm, join(folder, cue.wasm), constants.COPYFILE_FICLONE);
  await copyFile(glue, join(folder, cue.glue));
};
