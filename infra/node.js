// Runs the Node that Lambda runs: `node infra/node.js --test`. One of two files that any Node from 20 on can read.
import { spawn } from "node:child_process";
import { existsSync, realpathSync } from "node:fs";
import { constants } from "node:os";
import { fileURLToPath } from "node:url";

const { arch, argv, execPath, platform, report, stderr, versions } = process;

/** Returns the path of the Node that npm installed with the project, else of the running Node if it is new enough. */
export const findLambdaNode = () => {
  const name = `node-${platform === "win32" ? "win" : platform}-${arch}`;
  const file = `../node_modules/${name}/bin/node${platform === "win32" ? ".exe" : ""}`;
  const installed = fileURLToPath(new URL(file, import.meta.url));
  // npm's packages of Node for Linux need glibc.
  const runs = platform !== "linux" || report.getReport().header.glibcVersionRuntime !== undefined;
  if (runs && existsSync(installed)) return realpathSync(installed);
  return Number(versions.node.split(".")[0]) >= 24 ? execPath : undefined;
};

/** Runs Node with these arguments. It gets the signals of this process, and sets the exit code. */
export const runNode = (args, stdio = "inherit") => {
  const node = findLambdaNode();
  if (node === undefined) {
    stderr.write(
      `Postern needs Node 24 here, and this is ${versions.node}: run npm ci first, or install Node 24 where npm has none (Apple silicon, musl).\n`,
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
