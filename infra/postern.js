#!/usr/bin/env node
// The one file that any Node can read: it sees to it that the rest runs on the Node that Lambda runs.
import { argv, exit, stderr, versions } from "node:process";

if (Number(versions.node.split(".")[0]) < 24) {
  stderr.write(`Postern needs Node 24 or newer, and this is ${versions.node}: run it by npm or npx after npm ci, or install Node 24.\n`);
  exit(2);
}
const { main } = await import("./command.ts");
await main(argv.slice(2));
