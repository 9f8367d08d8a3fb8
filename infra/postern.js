#!/usr/bin/env node
import module from "node:module";
import { fileURLToPath } from "node:url";
import { lambdasNode, runNode } from "./node.js";

const { argv, execPath } = process;
// What was compiled once is loaded from there, which takes half the time; whom it starts finds it, too.
process.env.NODE_COMPILE_CACHE ||= fileURLToPath(new URL("../node_modules/.cache/postern", import.meta.url));
const command = new URL("main.ts", import.meta.url);
if (lambdasNode() === execPath) {
  module.enableCompileCache?.(process.env.NODE_COMPILE_CACHE);
  const { main } = await import(command.href);
  await main(argv.slice(2));
} else {
  // By the channel, the command notices when this process is killed.
  runNode([fileURLToPath(command), ...argv.slice(2)], ["inherit", "inherit", "inherit", "ipc"]);
}
