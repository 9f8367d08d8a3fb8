// Runs the version of Node.js that Lambda uses: `node infra/node.js --test`. Every Node.js from version 20 on can run
// this file and postern.js; all other files need Node.js 24.
import { spawn } from "node:child_process";
import { existsSync, realpathSync } from "node:fs";
import { createRequire } from "node:module";
import { constants } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const { arch, argv, execPath, platform, report, stderr, versions } = process;
const nodePackage = `node-${platform === "win32" ? "win" : platform}-${arch}`;

/** Returns the path of the Node.js that npm installed in this checkout or project; undefined if there is none. */
const findInstalledNode = () => {
  // The npm packages of Node.js for Linux need glibc.
  if (platform === "linux" && report.getReport().header.glibcVersionRuntime === undefined) return undefined;
  // pnpm stores this package outside the project. The project's packages are found from the path in `argv[1]`.
  for (const from of [import.meta.url, argv[1]])
    try {
      const folder = createRequire(from).resolve(`${nodePackage}/package.json`);
      const file = join(folder, `../bin/node${platform === "win32" ? ".exe" : ""}`);
      if (existsSync(file)) return realpathSync(file);
    } catch {
      // It isn't installed there.
    }
  return undefined;
};

/** The path of the program: main.ts in a checkout, main.js in the installed package. */
export const mainFile = ["main.ts", "main.js"]
  .map((name) => fileURLToPath(new URL(name, import.meta.url)))
  .find(existsSync);

/**
 * Returns the path of the Node.js to run. In a checkout, this is the one that npm installed. The installed package can
 * also use the present one if it is new enough.
 */
export const findLambdaNode = () => {
  const isNewEnough = Number(versions.node.split(".")[0]) >= 24;
  if (isNewEnough && mainFile?.endsWith(".js")) return execPath;
  return findInstalledNode() ?? (isNewEnough ? execPath : undefined);
};

/** Runs Node.js with these arguments. Forwards signals to it, and exits with its exit code. */
export const runNode = (args, stdio = "inherit") => {
  const node = findLambdaNode();
  if (node === undefined) {
    stderr.write(
      `Postern needs Node 24, and this is Node ${versions.node}: install Node 24, or, if npm has it for this machine, run npm install --save-dev ${nodePackage}@24\n`,
    );
    process.exitCode = 2;
    return;
  }
  const child = spawn(node, args, { stdio });
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
  child.on("error", (error) => {
    stderr.write(`${node} does not start: ${error.message}\n`);
    process.exitCode = 2;
  });
  child.on("exit", (code, signal) => {
    process.exitCode = code ?? 128 + (constants.signals[signal] ?? 0);
  });
};

if (argv[1] === fileURLToPath(import.meta.url)) runNode(argv.slice(2));
