import type { Container, EphemeralContainer, Pod, SELinuxOptions } from "postern/kubernetes/core/v1";
import { quoteAsGo } from "postern/objects/go/quoted";
import { describeInvalid, formatGoSlice, type PodSecurityPolicyOffences, printIdRangesAsGo } from "./offence.ts";
import { isWithinRanges, type PodGroupIdRule, type PodSecurityPolicyObject } from "./policy.ts";

export type AnyContainer = Container | EphemeralContainer;

/** Returns a container's user, group and SELinux options, with the pod's values where the container sets none. */
export const getEffectiveSecurityContext = ({ spec }: Pod, { securityContext: ofContainer }: AnyContainer) => {
  const ofPod = spec?.securityContext;
  return {
    runAsUser: ofContainer?.runAsUser ?? ofPod?.runAsUser,
    runAsGroup: ofContainer?.runAsGroup ?? ofPod?.runAsGroup,
    runAsNonRoot: ofContainer?.runAsNonRoot ?? ofPod?.runAsNonRoot,
    seLinuxOptions: ofContainer?.seLinuxOptions ?? ofPod?.seLinuxOptions,
    hostProcess: ofContainer?.windowsOptions?.hostProcess ?? ofPod?.windowsOptions?.hostProcess,
  };
};

type EffectiveContext = ReturnType<typeof getEffectiveSecurityContext>;

/** Returns a policy's defaults for a container's `runAsUser` and `runAsNonRoot`; an empty object if there are none. */
export const chooseDefaultUser = (
  { spec: { runAsUser } }: PodSecurityPolicyObject,
  { runAsUser: chosen, runAsNonRoot }: Partial<EffectiveContext>,
): Partial<EffectiveContext> => {
  if (chosen !== undefined) return {};
  if (runAsUser.rule === "MustRunAs") return { runAsUser: runAsUser.ranges?.[0]?.min };
  return runAsUser.rule === "MustRunAsNonRoot" && runAsNonRoot === undefined ? { runAsNonRoot: true } : {};
};

/** Lists how a container's user breaks the policy. */
export function* listUserOffences(
  { spec: { runAsUser: demanded } }: PodSecurityPolicyObject,
  { runAsUser, runAsNonRoot }: EffectiveContext,
  path: string,
): PodSecurityPolicyOffences {
  if (demanded.rule === "MustRunAs" && runAsUser !== undefined && !isWithinRanges(runAsUser, demanded.ranges))
    yield describeInvalid(
      `${path}.runAsUser`,
      `${runAsUser}`,
      `must be in the ranges: ${printIdRangesAsGo(demanded.ranges)}`,
    );
  if (demanded.rule !== "MustRunAsNonRoot") return;
  if (runAsNonRoot === false) yield describeInvalid(`${path}.runAsNonRoot`, "false", "must be true");
  else if (runAsUser === 0) yield describeInvalid(`${path}.runAsUser`, "0", "running with the root UID is forbidden");
}

export const chooseDefaultGroupId = ({ rule, ranges }: PodGroupIdRule = { rule: "RunAsAny" }): number | undefined =>
  rule === "MustRunAs" ? ranges?.[0]?.min : undefined;

/** Lists the groups outside the ranges that a policy's rule for groups allows. */
export function* listGroupOffences(
  { rule, ranges }: PodGroupIdRule = { rule: "RunAsAny" },
  groups: readonly number[] | undefined,
  path: string,
): PodSecurityPolicyOffences {
  if (rule === "RunAsAny") return;
  const printed = formatGoSlice("int64", groups);
  if (rule === "MustRunAs" && !groups?.length)
    yield describeInvalid(path, printed, "unable to validate empty groups against required ranges");
  for (const group of groups ?? [])
    if (!isWithinRanges(group, ranges))
      yield describeInvalid(path, printed, `group ${group} must be in the ranges: ${printIdRangesAsGo(ranges)}`);
}

export const chooseDefaultSeLinuxOptions = ({
  spec: { seLinux },
}: PodSecurityPolicyObject): SELinuxOptions | undefined =>
  seLinux.rule === "MustRunAs" ? seLinux.seLinuxOptions : undefined;

/** Lists the SELinux options that differ from those that the policy demands. */
export function* listSeLinuxOffences(
  { spec: { seLinux } }: PodSecurityPolicyObject,
  options: SELinuxOptions | undefined,
  path: string,
): PodSecurityPolicyOffences {
  if (seLinux.rule === "RunAsAny" || options === undefined) return;

  for (const part of ["level", "role", "type", "user"] as const) {
    const [wanted = "", chosen = ""] = [seLinux.seLinuxOptions?.[part], options[part]];
    if (wanted !== chosen && !(part === "level" && isSameLevel(wanted, chosen)))
      yield describeInvalid(`${path}.${part}`, quoteAsGo(chosen), `must be ${wanted}`);
  }
}

/** Compares SELinux levels such as `s0:c1,c2`. The order of the categories doesn't matter: `s0:c2,c1` is the same. */
const isSameLevel = (left: string, right: string) =>
  left.includes(":") && sortCategories(left) === sortCategories(right);

const sortCategories = (level: string) => {
  const end = level.indexOf(":") + 1;
  return level.slice(0, end) + level.slice(end).split(",").sort().join();
};
