// Since 1.22: a container must drop all capabilities, and may add only NET_BIND_SERVICE.
// Field: securityContext.capabilities.drop of each container. Allowed: lists that contain ALL.
// Field: securityContext.capabilities.add of each container. Allowed: unset, NET_BIND_SERVICE.
// Since 1.25, pods with spec.os.name=windows are exempt.

import { capabilitiesBaseline, describeAddedCapabilities } from "../baseline/capabilities.ts";
import {
  buildContainersCheck,
  formatQuotedNames,
  type PodSecurityCheck,
  type PodSecurityCheckFunction,
  skipWindowsPods,
} from "../check-builders.ts";

const unrestricted = "unrestricted capabilities";
// The second argument returns the missing or forbidden capabilities of a container: none if it passes the check.
const checkDropped = buildContainersCheck(
  unrestricted,
  (_, { capabilities }) => (capabilities?.drop?.includes("ALL") ? [] : ["ALL"]),
  (names) => `${formatQuotedNames("container", names)} must set securityContext.capabilities.drop=["ALL"]`,
);
const checkAdded = buildContainersCheck(
  unrestricted,
  (_, { capabilities }) => (capabilities?.add ?? []).filter((capability) => capability !== "NET_BIND_SERVICE"),
  describeAddedCapabilities,
);
const checkCapabilities: PodSecurityCheckFunction = (subject) => {
  const found = [checkDropped, checkAdded].flatMap((check) => check(subject)?.detail ?? []);
  if (found.length > 0) return { reason: unrestricted, detail: found.join("; ") };
};
export const capabilitiesRestricted: PodSecurityCheck = {
  level: "restricted",
  since: { "1.22": checkCapabilities, "1.25": skipWindowsPods(checkCapabilities) },
  insteadOf: capabilitiesBaseline,
};
