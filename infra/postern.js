#!/usr/bin/env node
import module from "node:module";
import { fileURLToPath, pathToFileURL } from "node:url";
import { findLambdaNode, mainFile, runNode } from "./node.js";

const { argv, execPath } = process;
// The compile cache of Node.js halves the time to start. Child processes use the same cache.
const nodeModules = mainFile.endsWith(".ts") ? "../node_modules/" : "../../";
process.env.NODE_COMPILE_CACHE ||= fileURLToPath(new URL(`${nodeModules}.cache/postern`, import.meta.url));
if (findLambdaNode() === execPath) {
  module.enableCompileCache?.(process.env.NODE_COMPILE_CACHE);
  const { runCommandLine } = await import(pathToFileURL(mainFile).href);
  await runCommandLine(argv.slice(2));
} else {
  // When this process is killed, its IPC channel closes, and the child process ends, too.
  runNode([mainFile, ...argv.slice(2)], ["inherit", "inherit", "inherit", "ipc"]);
}
