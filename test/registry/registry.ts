import { execFile } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { findFreePort, startProgram, waitForAnswer } from "../control-plane/process.ts";

// A registry on this machine, and the package managers of users. `npm run aws` installs them in the versions that
// package-lock.json pins; the npm is the one on PATH.

const run = promisify(execFile);
const modules = fileURLToPath(new URL("node_modules/", import.meta.url));
const programs = {
  verdaccio: join(modules, "verdaccio/bin/verdaccio"),
  pnpm: join(modules, "pnpm/bin/pnpm.mjs"),
  yarn: join(modules, "@yarnpkg/cli-dist/bin/yarn.js"),
};

/** Returns why the registry or a package manager can't be used; undefined if all of them can be used. */
export const findMissingNpmRegistry = (): string | undefined => {
  const { packages } = JSON.parse(readFileSync(new URL("package-lock.json", import.meta.url), "utf8"));
  for (const name of ["verdaccio", "pnpm", "@yarnpkg/cli-dist"]) {
    const { version: wanted } = packages[`node_modules/${name}`];
    const file = join(modules, name, "package.json");
    const found = existsSync(file) ? JSON.parse(readFileSync(file, "utf8")).version : undefined;
    if (found === undefined) return `${name} ${wanted} is not here: npm run aws installs it`;
    if (found !== wanted) return `${name} ${found} is here and ${wanted} is wanted: npm run aws installs it`;
  }
  return undefined;
};

export interface Registry {
  /** The environment of a user with this registry, an empty home folder and Node 24. */
  env: Record<string, string>;
  publish(tarball: string): Promise<void>;
  stop(): Promise<void>;
}

/**
 * Starts a registry for the packages that tests publish. The registry fetches all other packages from the registry that
 * npm is configured for.
 */
export const startRegistry = async (): Promise<Registry> => {
  const folder = await mkdtemp(join(tmpdir(), "postern-registry-"));
  const { stdout } = await run("npm", ["config", "get", "registry"]);
  const openToAll = { access: "$all", publish: "$all" };
  const config = {
    storage: join(folder, "storage"),
    uplinks: { upstream: { url: stdout.trim(), timeout: "120s", maxage: "1h" } },
    packages: {
      postern: openToAll,
      "create-postern": openToAll,
      "postern-kubernetes": openToAll,
      "**": { access: "$all", proxy: "upstream" },
    },
    // The module of Kubernetes' handlers is larger than the default limit.
    max_body_size: "100mb",
    log: { type: "stdout", format: "json", level: "error" },
  };
  await writeFile(join(folder, "config.yaml"), JSON.stringify(config));
  const port = await findFreePort();
  const url = `http://127.0.0.1:${port}`;
  const words = [programs.verdaccio, "--config", join(folder, "config.yaml"), "--listen", `127.0.0.1:${port}`];
  const server = startProgram(process.execPath, words);
  await waitForAnswer(`${url}/-/ping`, server);
  // npm publishes only with a token, and this registry accepts any.
  await writeFile(join(folder, ".npmrc"), `registry=${url}/\n//127.0.0.1:${port}/:_authToken=any\n`);
  const env = {
    PATH: [dirname(process.execPath), process.env.PATH ?? ""].join(delimiter),
    HOME: folder,
    CI: "true",
    YARN_NPM_REGISTRY_SERVER: url,
    YARN_UNSAFE_HTTP_WHITELIST: "127.0.0.1",
    YARN_ENABLE_IMMUTABLE_INSTALLS: "false",
    YARN_ENABLE_TELEMETRY: "false",
    // Yarn and pnpm refuse packages that were published only now.
    YARN_NPM_MINIMAL_AGE_GATE: "0",
  };
  return {
    env,
    publish: async (tarball) => {
      await run("npm", ["publish", tarball, "--tag", "latest"], { cwd: folder, env });
    },
    stop: async () => {
      await server.stop();
      await rm(folder, { recursive: true, force: true });
    },
  };
};

/** Returns the command and first arguments of a package manager. */
export const findPackageManager = (name: "npm" | "pnpm" | "yarn"): [string, ...string[]] =>
  name === "npm" ? ["npm"] : [process.execPath, programs[name]];
