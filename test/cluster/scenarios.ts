import { certificateScenarios } from "../../infra/parity/control-plane/certificates.ts";
import { nodeScenarios } from "../../infra/parity/nodes.ts";
import { podSecurityScenarios } from "../../infra/parity/pod-security.ts";
import type { Scenario } from "../../infra/parity/steps.ts";
import { classScenarios } from "./scenarios/classes.ts";
import { namespaceScenarios } from "./scenarios/namespaces.ts";
import { requestScenarios } from "./scenarios/requests.ts";
import { schedulingScenarios } from "./scenarios/scheduling.ts";

/** For each port, what its plugin's outcomes depend on. AlwaysDeny leaves nothing to compare others by: its cases do. */
export const scenarios: Record<string, Scenario[]> = {
  ...requestScenarios,
  ...namespaceScenarios,
  ...classScenarios,
  ...schedulingScenarios,
  ...certificateScenarios,
  ...nodeScenarios,
  ...podSecurityScenarios,
};
