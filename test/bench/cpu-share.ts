import { mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/** The memory in MB with which a function has one core. */
export const wholeCoreMemory = 1769;
/** The period in microseconds in which a process may use its share. */
const period = 20_000;

/** The share of a core that Lambda gives a function once it has started. */
export interface CpuShare extends Disposable {
  limit(pid: number): void;
}

/**
 * Makes a control group with the CPU time of a function with so much memory. Returns undefined where this process may not
 * make one: on Linux, only root may, and the controller `cpu` must be on.
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

/** Returns the CPU time that the threads of a process have used, in milliseconds; NaN where Linux doesn't count it. */
export const readCpuMilliseconds = (pid: number): number => {
  try {
    const threads = readdirSync(`/proc/${pid}/task`);
    const times = threads.map((thread) => readFileSync(`/proc/${pid}/task/${thread}/schedstat`, "utf8").split(" ")[0]);
    return times.reduce((sum, time) => sum + Number(time), 0) / 1e6;
  } catch {
    return Number.NaN;
  }
};
