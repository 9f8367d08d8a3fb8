import { execFile } from "node:child_process";
import { cpSync } from "node:fs";
import { mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import type { TestCluster } from "./control-plane/cluster.ts";

/** The output and exit code of a program. */
export interface ProgramOutput {
  code: number;
  stdout: string;
  stderr: string;
}

/** A checkout of the project in a folder of its own, with a catalogue of its own. */
export interface Checkout {
  folder: string;
  /** Writes a file and returns its path. */
  write(path: string, text: string): Promise<string>;
  /** Writes the folder of a rule into the folder `catalogue`, by default `functions`. */
  rule(name: string, rule: string, cases: string, catalogue?: string): Promise<void>;
  /** Imports one of the checkout's own modules, which uses the checkout's dist/ and .serverless/. */
  load<T>(path: string): Promise<T>;
  /** Runs postern of the checkout at the command line. */
  postern(env: Record<string, string>, ...words: string[]): Promise<ProgramOutput>;
  remove(): Promise<void>;
}

const root = fileURLToPath(new URL("..", import.meta.url));
const cache = join(root, "node_modules/.cache/postern");
/** Variables for a program with an environment of its own: the folder where Node and osls keep what they compiled. */
export const cacheVariables = { NODE_COMPILE_CACHE: cache, SLS_SCHEMA_CACHE_BASE_DIR: cache };

/** Opens a checkout with these rules of the catalogue, and no others. */
export const openCheckout = async (rules: string[] = []): Promise<Checkout> => {
  const folder = await mkdtemp(join(tmpdir(), "postern-checkout-"));
  // cpSync, because the function cp, which returns a promise, takes fourteen times as long.
  for (const path of ["infra", "lib", "serverless.yml", "package.json", ...rules.map((rule) => `functions/${rule}`)])
    cpSync(join(root, path), join(folder, path), { recursive: true });
  await symlink(join(root, "node_modules"), join(folder, "node_modules"));
  await mkdir(join(folder, "functions"), { recursive: true });
  // All checkouts share a portable compile cache. It finds a module by the module's path relative to the cache, so each
  // checkout has a link to the cache in the same place.
  await mkdir(cache, { recursive: true });
  const cacheLink = join(folder, ".compiled");
  await symlink(cache, cacheLink);
  const write = async (path: string, text: string) => {
    const file = join(folder, path);
    await mkdir(dirname(file), { recursive: true });
    await writeFile(file, text);
    return file;
  };
  return {
    folder,
    write,
    rule: async (name, rule, cases, catalogue = "functions") => {
      await write(`${catalogue}/${name}/rule.ts`, rule);
      await write(`${catalogue}/${name}/cases.yaml`, cases);
      await write(`${catalogue}/${name}/README.md`, `# ${name}\n`);
    },
    load: (path) => import(pathToFileURL(join(folder, path)).href),
    postern: (env, ...words) => {
      const compileCache = { ...cacheVariables, NODE_COMPILE_CACHE: cacheLink, NODE_COMPILE_CACHE_PORTABLE: "1" };
      const variables = { PATH: process.env.PATH ?? "", HOME: folder, CI: "true", ...compileCache, ...env };
      return runProgram([join(folder, "infra/main.ts"), ...words], { cwd: folder, env: variables });
    },
    remove: () => rm(folder, { recursive: true, force: true }),
  };
};

/** Runs a program with this Node until it ends. */
export const runProgram = (
  words: string[],
  options: { cwd?: string; env: NodeJS.ProcessEnv; timeout?: number },
): Promise<ProgramOutput> =>
  new Promise((resolve) => {
    execFile(process.execPath, words, { maxBuffer: 64 * 1024 * 1024, ...options }, (error, stdout, stderr) =>
      resolve({ code: error ? Number(error.code) : 0, stdout, stderr }),
    );
  });

/** Returns a kubeconfig with a context and a user's token for each cluster; the first context is the current one. */
export const buildKubeconfig = (
  clusters: Record<string, Pick<TestCluster, "server" | "ca" | "getToken">>,
  user = "admin",
) => {
  const entries = Object.entries(clusters);
  return JSON.stringify({
    apiVersion: "v1",
    kind: "Config",
    "current-context": entries[0]?.[0],
    contexts: entries.map(([name]) => ({ name, context: { cluster: name, user: name } })),
    clusters: entries.map(([name, { server, ca }]) => ({
      name,
      cluster: { server, "certificate-authority-data": Buffer.from(ca).toString("base64") },
    })),
    users: entries.map(([name, { getToken }]) => ({ name, user: { token: getToken(user) } })),
  });
};
