// A container may add only capabilities that container runtimes give by default.
// Field: securityContext.capabilities.add of each container. Allowed: unset, and the names in defaultCapabilities.

import { buildContainersCheck, formatQuotedNames, type PodSecurityCheck, quoteAll } from "../check-builders.ts";

const defaultCapabilities = new Set(
  (
    "AUDIT_WRITE CHOWN DAC_OVERRIDE FOWNER FSETID KILL MKNOD NET_BIND_SERVICE SETFCAP SETGID SETPCAP SETUID " +
    "SYS_CHROOT"
  ).split(" "),
);
/** Returns upstream's sentence about containers (`names`) that add forbidden capabilities (`added`). */
export const describeAddedCapabilities = (names: string[], added: string[]) =>
  `${formatQuotedNames("container", names)} must not include ${quoteAll(added)} in securityContext.capabilities.add`;

/** Containers may add only the default capabilities. */
export const capabilitiesBaseline: PodSecurityCheck = {
  level: "baseline",
  since: {
    "1.0": buildContainersCheck(
      "non-default capabilities",
      (_, { capabilities }) => (capabilities?.add ?? []).filter((capability) => !defaultCapabilities.has(capability)),
      describeAddedCapabilities,
    ),
  },
};
