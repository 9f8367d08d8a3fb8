import { writeSync } from "node:fs";

/** The resources that a process has used when it ends. */
export interface ProcessUsage {
  /** Seconds of CPU time of all threads. */
  seconds: number;
  /** The peak memory of the process, in bytes. */
  memory: number;
}

// This module is loaded before a program. It reports the used resources on a pipe of its own, together with what the
// program adds by `setBenchReportFields`.
const pipe = 3;

process.on("exit", () => {
  const { userCPUTime, systemCPUTime, maxRSS } = process.resourceUsage();
  const used: ProcessUsage = { seconds: (userCPUTime + systemCPUTime) / 1e6, memory: maxRSS * 1024 };
  if (!process.exitCode || process.exitCode === 1) writeSync(pipe, JSON.stringify({ ...used, ...addition }));
});

let addition: object = {};

/** Sets the fields that the report gets in addition; a later call replaces them. */
export const setBenchReportFields = (more: object): void => {
  addition = more;
};
