import type { SELinuxOptions } from "kubernetes-types/core/v1.d.ts";
import { invalid, type Offences, quoted } from "./offence.ts";
import type { Policy } from "./policy.ts";

export const seLinuxFor = ({ spec: { seLinux } }: Policy): SELinuxOptions | undefined =>
  seLinux.rule === "MustRunAs" ? seLinux.seLinuxOptions : undefined;

export function* seLinuxOffences(
  { spec: { seLinux } }: Policy,
  options: SELinuxOptions | undefined,
  path: string,
): Offences {
  if (seLinux.rule === "RunAsAny" || options === undefined) return;

  for (const part of ["level", "role", "type", "user"] as const) {
    const [wanted = "", chosen = ""] = [seLinux.seLinuxOptions?.[part], options[part]];
    if (wanted !== chosen && !(part === "level" && isSameLevel(wanted, chosen)))
      yield invalid(`${path}.${part}`, quoted(chosen), `must be ${wanted}`);
  }
}

/** In `s0:c1,c2` the order of categories is of no matter. */
const isSameLevel = (one: string, other: string) => one.includes(":") && sorted(one) === sorted(other);

const sorted = (level: string) => {
  const end = level.indexOf(":") + 1;
  return level.slice(0, end) + level.slice(end).split(",").sort().join();
};
