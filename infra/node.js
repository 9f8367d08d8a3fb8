// Runs the Node that Lambda runs: `node infra/node.js --test`. One of two files that any Node from 20 on can read.
import { spawn } from "node:child_process";
import { existsSync, realpathSync } from "node:fs";
import { createRequire } from "node:module";
import { constants } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const { arch, argv, execPath, platform, report, stderr, versions } = process;
const nodePackage = `node-${platform === "win32" ? "win" : platform}-${arch}`;

/** Returns the path of the Node that npm installed in this checkout or project, if there is one. */
const findInstalledNode = () => {
  // npm's packages of Node for Linux need glibc.
  if (platform === "linux" && report.getReport().header.glibcVersionRuntime === undefined) return undefined;
  // pnpm keeps a package outside of the project, whose packages are found from the path that started this program.
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

/** The program: TypeScript in a checkout, JavaScript in the installed package. */
export const mainFile = ["main.ts", "main.js"]
  .map((name) => fileURLToPath(new URL(name, import.meta.url)))
  .find(existsSync);

/** Returns the path of the Node to run: in a checkout the Node that npm installed with it, else any that is new enough. */
export const findLambdaNode = () => {
  const isNewEnough = Number(versions.node.split(".")[0]) >= 24;
  if (isNewEnough && mainFile?.endsWith(".js")) return execPath;
  return findInstalledNode() ?? (isNewEnough ? execPath : undefined);
};

/** Runs Node with these arguments. It gets the signals of this process, and sets the exit code. */
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
