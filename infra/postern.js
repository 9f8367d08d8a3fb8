#!/usr/bin/env node
import module from "node:module";
import { fileURLToPath } from "node:url";
import { findLambdaNode, runNode } from "./node.js";

const { argv, execPath } = process;
// Node's compile cache halves the time to start. Child processes use the same cache.
process.env.NODE_COMPILE_CACHE ||= fileURLToPath(new URL("../node_modules/.cache/postern", import.meta.url));
const command = new URL("main.ts", import.meta.url);
if (findLambdaNode() === execPath) {
  module.enableCompileCache?.(process.env.NODE_COMPILE_CACHE);
  const { runCommandLine } = await import(command.href);
  await runCommandLine(argv.slice(2));
} else {
  // The IPC channel shows the child process when this process is killed.
  runNode([fileURLToPath(command), ...argv.slice(2)], ["inherit", "inherit", "inherit", "ipc"]);
}
