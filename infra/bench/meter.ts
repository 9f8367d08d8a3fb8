import { writeSync } from "node:fs";

/** What a process has used when it ends. */
export interface Used {
  /** Of CPU time, on all its threads. */
  seconds: number;
  /** In bytes. */
  memory: number;
}

// Loaded before a program, it reports on a pipe of its own what the program used, with what the program adds by `say`.
const pipe = 3;

process.on("exit", () => {
  const { userCPUTime, systemCPUTime, maxRSS } = process.resourceUsage();
  const used: Used = { seconds: (userCPUTime + systemCPUTime) / 1e6, memory: maxRSS * 1024 };
  if (!process.exitCode || process.exitCode === 1) writeSync(pipe, JSON.stringify({ ...used, ...said }));
});

let said: object = {};

/** Has the meter say this as well. */
export const say = (more: object): void => {
  said = more;
};
