import { invalid, type Offences, shownRanges } from "./offence.ts";
import { isWithin, type Policy } from "./policy.ts";

/** As whom a container runs: what it says itself, or its pod. */
interface Runs {
  runAsUser?: number | undefined;
  runAsNonRoot?: boolean | undefined;
}

export const userFor = ({ spec: { runAsUser } }: Policy, { runAsUser: chosen, runAsNonRoot }: Runs): Runs => {
  if (chosen !== undefined) return {};
  if (runAsUser.rule === "MustRunAs") return { runAsUser: runAsUser.ranges?.[0]?.min };
  return runAsUser.rule === "MustRunAsNonRoot" && runAsNonRoot === undefined ? { runAsNonRoot: true } : {};
};

/** What is left once it is filled in. */
export function* userOffences(
  { spec: { runAsUser: demanded } }: Policy,
  { runAsUser, runAsNonRoot }: Runs,
  path: string,
): Offences {
  if (demanded.rule === "MustRunAs" && runAsUser !== undefined && !isWithin(runAsUser, demanded.ranges))
    yield invalid(`${path}.runAsUser`, `${runAsUser}`, `must be in the ranges: ${shownRanges(demanded.ranges)}`);
  if (demanded.rule !== "MustRunAsNonRoot") return;
  if (runAsNonRoot === false) yield invalid(`${path}.runAsNonRoot`, "false", "must be true");
  else if (runAsUser === 0) yield invalid(`${path}.runAsUser`, "0", "running with the root UID is forbidden");
}
