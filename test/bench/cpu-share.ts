import { mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/** The memory in MB with which a function has one core. */
export const wholeCoreMemory = 1769;
/** The period of the limit, in microseconds. In each period, a process may use its fraction of the time. */
const period = 20_000;

/** Limits processes to the fraction of a core that Lambda gives a function once it has started. */
export interface CpuShare extends Disposable {
  limit(pid: number): void;
}

/**
 * Creates a control group with the CPU time of a function with `memory` MB. Returns undefined if this process can't
 * create one: only root on Linux can, and only if the controller `cpu` is on.
 */
export const createCpuShare = (memory: number): CpuShare | undefined => {
  const quota = Math.round((period * memory) / wholeCoreMemory);
  const versions = [
    ["/sys/fs/cgroup/cpu", { "cpu.cfs_period_us": period, "cpu.cfs_quota_us": quota }],
    ["/sys/fs/cgroup", { "cpu.max": `${quota} ${period}` }],
  ] as const;
  for (const [root, limits] of versions) {
    const group = join(root, `postern-bench-${process.pid}`);
    try {
      mkdirSync(group);
    } catch {
      continue;
    }
    const remove = () => rmdirSync(group);
    try {
      for (const [file, value] of Object.entries(limits))
        writeFileSync(join(group, file), String(value), { flag: "r+" });
    } catch {
      remove();
      continue;
    }
    return { limit: (pid) => writeFileSync(join(group, "cgroup.procs"), String(pid)), [Symbol.dispose]: remove };
  }
  return undefined;
};

/** Returns the CPU time of a process's threads in milliseconds; NaN if the system doesn't report it. */
export const readCpuMilliseconds = (pid: number): number => {
  try {
    const threads = readdirSync(`/proc/${pid}/task`);
    const times = threads.map((thread) => readFileSync(`/proc/${pid}/task/${thread}/schedstat`, "utf8").split(" ")[0]);
    return times.reduce((sum, time) => sum + Number(time), 0) / 1e6;
  } catch {
    return Number.NaN;
  }
};
