import { certificateScenarios } from "./certificates.ts";
import { nodeScenarios } from "./nodes.ts";
import { podSecurityScenarios } from "./pod-security.ts";
import { classScenarios } from "./scenarios/classes.ts";
import { namespaceScenarios } from "./scenarios/namespaces.ts";
import { requestScenarios } from "./scenarios/requests.ts";
import { schedulingScenarios } from "./scenarios/scheduling.ts";
import type { Scenario } from "./scenarios/steps.ts";

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
