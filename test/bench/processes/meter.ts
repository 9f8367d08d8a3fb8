import { writeSync } from "node:fs";

/** The resources that a process has used when it ends. */
export interface ProcessUsage {
  /** Seconds of CPU time of all threads. */
  seconds: number;
  /** The peak memory of the process, in bytes. */
  memory: number;
}

// This module is loaded before a program. When the program ends, the module writes the used resources to file
// descriptor 3, together with the fields that the program sets by `setBenchReportFields`.
const pipe = 3;

process.on("exit", () => {
  const { userCPUTime, systemCPUTime, maxRSS } = process.resourceUsage();
  const usage: ProcessUsage = { seconds: (userCPUTime + systemCPUTime) / 1e6, memory: maxRSS * 1024 };
  // A check in which rules refuse manifests ends with exit code 1. Higher exit codes mean a failure.
  if (!process.exitCode || process.exitCode === 1) writeSync(pipe, JSON.stringify({ ...usage, ...additionalFields }));
});

let additionalFields: object = {};

/** Sets additional fields of the report; a later call replaces them. */
export const setBenchReportFields = (fields: object): void => {
  additionalFields = fields;
};
