import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import type { ObjectCheckResult } from "../infra/check/evaluation/object-evaluation.ts";
import type { CheckSummary } from "../infra/check/reports/check-report.ts";

const program = fileURLToPath(new URL("../infra/postern.js", import.meta.url));

/** The exit code, the output and the memory of a command. */
export interface AuditOutput {
  code: number | null;
  stdout: string;
  stderr: string;
  /** The peak of its memory in MiB; 0 on systems without /proc. */
  peak: number;
}

/**
 * Runs `npx postern check --live …` in a folder until it ends, with `words` as further arguments. Without --plugins in
 * `words`, check evaluates no plugins: no controller of the test cluster creates the service accounts that they need.
 */
export const runAudit = async (
  folder: string,
  words: string[],
  nodeOptions: string[] = [],
  onStart = (_pid: number) => {},
): Promise<AuditOutput> => {
  const { NODE_TEST_CONTEXT: _, ...env } = process.env;
  const plugins = words.some((word) => word.startsWith("--plugins")) ? [] : ["--plugins", "none"];
  const options = ["--live", "--config", "postern.yaml", ...plugins];
  const child = spawn(process.execPath, [...nodeOptions, program, "check", ...options, ...words], { cwd: folder, env });
  onStart(child.pid ?? 0);
  const ended = { stdout: "", stderr: "", peak: 0 };
  child.stdout.on("data", (chunk) => {
    ended.stdout += chunk;
  });
  child.stderr.on("data", (chunk) => {
    ended.stderr += chunk;
  });
  const measureMemory = async () => {
    const status = await readFile(`/proc/${child.pid}/status`, "utf8").catch(() => "");
    ended.peak = Math.max(ended.peak, Number(/VmHWM:\s+(\d+) kB/.exec(status)?.[1] ?? 0) / 1024);
  };
  const timer = setInterval(measureMemory, 100);
  const [code] = await once(child, "close");
  clearInterval(timer);
  return { code, ...ended };
};

/** The JSON output of a command. */
interface AuditReport {
  objects: (ObjectCheckResult & { difference: unknown; madeBy?: string })[];
  summary: CheckSummary;
  faults: { apiVersion: string; kind: string; sentence: string }[];
  notes: string[];
}

/** Runs a command and parses its JSON output. */
export const runJsonAudit = async (folder: string, words: string[]): Promise<AuditOutput & AuditReport> => {
  const ended = await runAudit(folder, [...words, "-o", "json"]);
  assert.notEqual(ended.stdout, "", ended.stderr);
  return { ...ended, ...JSON.parse(ended.stdout) };
};

/** Prints a postern.yaml with these rules, and one cluster of the kubeconfig beside it. */
export const printConfig = (rules: string) =>
  `rules:\n${rules}clusters:\n  c: { connect: { kubeconfig: kubeconfig } }\n`;
