// A pod must not mount files of its node.
// Field: spec.volumes[*].hostPath. Allowed: unset.

import { formatQuotedNames, type PodSecurityCheck, type PodSecurityCheckFunction } from "../check-builders.ts";

const checkHostPaths: PodSecurityCheckFunction = ({ spec }) => {
  const names = (spec.volumes ?? []).filter(({ hostPath }) => hostPath).map(({ name = "" }) => name);
  if (names.length > 0) return { reason: "hostPath volumes", detail: formatQuotedNames("volume", names) };
};
export const hostPathVolumes: PodSecurityCheck = { level: "baseline", since: { "1.0": checkHostPaths } };
