import { invalid, type Offences, shownList, shownRanges } from "./offence.ts";
import { type GroupRule, isWithin } from "./policy.ts";

export const groupFor = ({ rule, ranges }: GroupRule = { rule: "RunAsAny" }): number | undefined =>
  rule === "MustRunAs" ? ranges?.[0]?.min : undefined;

export function* groupOffences(
  { rule, ranges }: GroupRule = { rule: "RunAsAny" },
  groups: readonly number[] | undefined,
  path: string,
): Offences {
  if (rule === "RunAsAny") return;
  const shown = shownList("int64", groups);
  if (rule === "MustRunAs" && !groups?.length)
    yield invalid(path, shown, "unable to validate empty groups against required ranges");
  for (const group of groups ?? [])
    if (!isWithin(group, ranges))
      yield invalid(path, shown, `group ${group} must be in the ranges: ${shownRanges(ranges)}`);
}
