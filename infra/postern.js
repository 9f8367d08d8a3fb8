#!/usr/bin/env node
import { fileURLToPath } from "node:url";
import { lambdasNode, runNode } from "./node.js";

const { argv, execPath } = process;
if (lambdasNode() === execPath) {
  const { main } = await import("./command.ts");
  await main(argv.slice(2));
} else {
  runNode([fileURLToPath(import.meta.url), ...argv.slice(2)]);
}
