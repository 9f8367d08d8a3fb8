import { writeSync } from "node:fs";

/** What a process has used when it ends. */
export interface ProcessUsage {
  /** Of CPU time, on all its threads. */
  seconds: number;
  /** In bytes. */
  memory: number;
}

// Loaded before a program, it reports on a pipe of its own what the program used, with what the program adds by `say`.
const pipe = 3;

process.on("exit", () => {
  const { userCPUTime, systemCPUTime, maxRSS } = process.resourceUsage();
  const used: ProcessUsage = { seconds: (userCPUTime + systemCPUTime) / 1e6, memory: maxRSS * 1024 };
  if (!process.exitCode || process.exitCode === 1) writeSync(pipe, JSON.stringify({ ...used, ...addition }));
});

let addition: object = {};

/** Has the meter say this as well. */
export const addToReport = (more: object): void => {
  addition = more;
};
