import { type Failure, toFailure } from "../failure.ts";
import type { Capabilities, Needs, OpenCapabilities } from "../needs.ts";
import type { ReconcileContext, Rule } from "../rule.ts";
import { bindNeeds } from "./capabilities.ts";
import { type EndpointConfig, findClusterSetup } from "./endpoint.ts";

/** Calls a rule's `reconcile` for one cluster. */
export const reconcileCluster = async (
  rule: Rule,
  name: string,
  capabilities: Capabilities,
  context: Pick<ReconcileContext<object, Needs>, "settings" | "readTime" | "until">,
): Promise<string | undefined> => rule.reconcile?.({ ...bindNeeds(rule.needs ?? {}, capabilities, name), ...context });

/**
 * Calls a rule's `reconcile` for one cluster after the other, until the end, and reports what it finished or why it
 * failed. Times are in milliseconds since 1970.
 */
export const reconcileClusters = async (
  rule: Rule,
  config: EndpointConfig,
  clusters: readonly string[],
  openCapabilities: OpenCapabilities,
  end: number,
  report: (cluster: string, result: string | Failure) => void,
): Promise<void> => {
  const started = Date.now();
  // In the last quarter, no work begins, so that what has begun can end.
  const last = end - (end - started) / 4;
  // Each minute another cluster is the first, so that each gets its turn although others need all the time.
  const first = Math.floor(started / 60_000) % Math.max(1, clusters.length);
  const turns = [...clusters.slice(first), ...clusters.slice(0, first)];
  for (const [index, cluster] of turns.entries()) {
    const { mode = "enforce", settings = rule.settings ?? {} } = findClusterSetup(config, cluster) ?? {};
    const now = Date.now();
    if (mode === "off" || now >= last) continue;
    const until = now + (last - now) / (turns.length - index);
    const capabilities = openCapabilities(cluster, end - now);
    const result = await reconcileCluster(rule, config.rule, capabilities, {
      settings,
      readTime: Date.now,
      until,
    }).catch(toFailure);
    if (result !== undefined) report(cluster, result);
  }
};
