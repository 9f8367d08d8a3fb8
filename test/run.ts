import { globSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { run } from "node:test";
import { spec } from "node:test/reporters";
import { fileURLToPath, pathToFileURL } from "node:url";
import { inspect } from "node:util";
import { listLeftOut } from "./choices.ts";

// Runs tests by tier or by file: `node infra/node.js test/run.ts unit lib/core/patch.test.ts`. The output ends with
// a list of what was skipped, and why.

/** The files of each tier. The longest ones run first, so that no core waits for one at the end. */
const tiers: Record<string, string> = {
  /** These tests need moto, a simulated AWS account, or Lambda's runtime client; some also need an API server. */
  aws: "test/aws/*.test.ts",
  /** These tests need a real API server. */
  cluster: "test/cluster/*.test.ts",
  /** These tests start servers and commands on this machine, and need only `npm ci`. */
  local: "test/{bench,cel,control-plane,generate,local,parity}/**/*.test.ts",
  /** These tests start no server, and no process for each case. Those of several files run in one process. */
  unit: "{lib,infra,functions}/**/*.test.ts,test/*.test.ts",
};

interface Skipped {
  name: string;
  reason: string;
}

const cwd = fileURLToPath(new URL("..", import.meta.url));
const words = process.argv.slice(2);
const chosen = Object.keys(tiers).filter((tier) => words.includes(tier) || words.includes("all"));
// The folder for files that one test file writes and others use.
const shared = mkdtempSync(join(tmpdir(), "postern-shared-"));
process.env.POSTERN_SHARED = shared;
process.on("exit", () => rmSync(shared, { recursive: true, force: true }));
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => process.exit(1));

const commaOutsideBraces = /,(?![^{]*})/;
const listFiles = (tier: string) => globSync((tiers[tier] ?? "").split(commaOutsideBraces), { cwd }).sort();
/** Writes files that import the unit tests, because most of them take less time than the start of a process. */
const groupUnitTests = (): string[] => {
  const imports = listFiles("unit").map((file) => `await import(${JSON.stringify(pathToFileURL(join(cwd, file)))});\n`);
  const groups = 8;
  return Array.from({ length: groups }, (_, group) => {
    const file = join(shared, `unit-${group + 1}.test.js`);
    writeFileSync(file, imports.filter((_, index) => index % groups === group).join(""));
    return file;
  });
};
// All processes use the same seed, so that one number repeats a run.
process.env.POSTERN_SEED ||= String(Math.floor(Math.random() * 1_000_000_000));
// Of some slow tests, a run of all tests has only a part, which the seed chooses.
const leftOut = words.includes("all") ? listLeftOut(Number(process.env.POSTERN_SEED)) : [];
const files = [
  ...chosen.flatMap((tier) => (tier === "unit" ? groupUnitTests() : listFiles(tier))),
  ...words.filter((word) => word !== "all" && !Object.hasOwn(tiers, word)),
].filter((file) => !leftOut.includes(file));
if (files.length === 0) throw new Error(`run.ts takes all, ${Object.keys(tiers).join(", ")} and test files`);

// In a run of all tests, some suites do only a part of their work.
if (words.includes("all")) process.env.POSTERN_PARTS = "1";
// Commands read the kubeconfigs of this variable where no option and no setting names one.
delete process.env.KUBECONFIG;
// Hundreds of processes load the same modules.
process.env.NODE_COMPILE_CACHE ||= fileURLToPath(new URL("../node_modules/.cache/postern", import.meta.url));
// Each Go program, such as kube-apiserver, would use all cores, and work more for that; the other files need the cores.
process.env.GOMAXPROCS ||= "1";
// With rare garbage collection, TypeScript's compiler works a sixth less.
process.env.GOGC ||= "400";
const skipped: Skipped[] = [];
const failed: string[] = [];
const events = run({
  cwd,
  files,
  // At most five, and up to three for each core: suites also wait, for servers and for time to pass.
  concurrency: Math.min(5, 3 * availableParallelism()),
  execArgv: ["--import", new URL("seed.ts", import.meta.url).href],
});
events.on("test:pass", ({ name, skip }) => {
  if (skip !== undefined) skipped.push({ name, reason: skip === true ? "no reason is given" : String(skip) });
});
events.on("test:fail", ({ name, todo, details }) => {
  if (todo === undefined) process.exitCode = 1;
  // The error of a suite (`subtestsFailed`) has only the number of failed tests, so it isn't reported.
  const { cause = details.error, failureType } = details.error as { cause?: unknown; failureType?: string };
  if (failureType !== "subtestsFailed") failed.push(`${name}\n    ${inspect(cause).split("\n", 12).join("\n    ")}`);
});
events.on("end", () => process.nextTick(report));
events.compose(spec).pipe(process.stdout);

/** Prints the skipped tests by reason, those that failed, and the seed of the run. */
const report = () => {
  const byReason = Map.groupBy(skipped, ({ reason }) => reason);
  if (skipped.length > 0) process.stdout.write(`\nSkipped:\n`);
  for (const [reason, tests] of byReason)
    process.stdout.write(`- ${reason}\n${tests.map(({ name }) => `    ${name}\n`).join("")}`);
  if (leftOut.length > 0) process.stdout.write(`\nOther seeds also run ${leftOut.join(", ")}.\n`);
  for (const text of failed) process.stdout.write(`\nFailed: ${text}\n`);
  process.stdout.write(`\nPOSTERN_SEED=${process.env.POSTERN_SEED} repeats this run.\n`);
};
