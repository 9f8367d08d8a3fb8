#!/usr/bin/env node
import { fileURLToPath } from "node:url";
import { lambdasNode, runNode } from "./node.js";

const { argv, execPath } = process;
const command = new URL("command.ts", import.meta.url);
if (lambdasNode() === execPath) {
  const { main } = await import(command.href);
  await main(argv.slice(2));
} else {
  runNode([fileURLToPath(command), ...argv.slice(2)]);
}
