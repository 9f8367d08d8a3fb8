import type { Capabilities } from "postern/kubernetes/core/v1";
import { quoteAsGo } from "postern/objects/go/quoted";
import { describeInvalid, formatGoSlice, type PodSecurityPolicyOffences } from "./offence.ts";
import type { PodSecurityPolicyObject } from "./policy.ts";

/** Returns a container's capabilities with a policy's default capabilities, sorted; undefined if nothing changes. */
export const fillContainerCapabilities = (
  { spec: { defaultAddCapabilities = [], requiredDropCapabilities = [] } }: PodSecurityPolicyObject,
  { add = [], drop = [] }: Capabilities = {},
): Capabilities | undefined => {
  const added = new Set([...add, ...defaultAddCapabilities.filter((capability) => !drop.includes(capability))]);
  const dropped = new Set([...drop, ...requiredDropCapabilities]);
  if (added.size === new Set(add).size && dropped.size === new Set(drop).size) return undefined;
  return {
    ...(added.size > 0 && { add: [...added].sort() }),
    ...(dropped.size > 0 && { drop: [...dropped].sort() }),
  };
};

/** Lists the capabilities that a container adds or keeps although the policy forbids this. */
export function* listCapabilityOffences(
  { spec }: PodSecurityPolicyObject,
  chosen: Capabilities | undefined,
  path: string,
): PodSecurityPolicyOffences {
  const { defaultAddCapabilities = [], requiredDropCapabilities = [], allowedCapabilities = [] } = spec;
  if (chosen === undefined || allowedCapabilities.includes("*")) return;

  const addable = new Set([...defaultAddCapabilities, ...allowedCapabilities]);
  for (const capability of chosen.add ?? [])
    if (!addable.has(capability))
      yield describeInvalid(`${path}.add`, quoteAsGo(capability), "capability may not be added");
  const dropped = new Set(chosen.drop);
  for (const capability of requiredDropCapabilities)
    if (!dropped.has(capability)) {
      const printed = formatGoSlice("core.Capability", chosen.drop);
      yield describeInvalid(`${path}.drop`, printed, `${capability} is required to be dropped but was not found`);
    }
}
