import { type Failure, toFailure } from "../failure.ts";
import type { Capabilities, Needs, OpenCapabilities } from "../needs.ts";
import type { ReconcileContext, Rule } from "../rule.ts";
import { bindNeeds } from "./capabilities.ts";
import { type EndpointConfig, findClusterSetup } from "./endpoint.ts";

/** Calls a rule's `reconcile` for one cluster. Returns what it finished, in a sentence for the log. */
export const reconcileCluster = async (
  rule: Rule,
  ruleName: string,
  capabilities: Capabilities,
  context: Pick<ReconcileContext<object, Needs>, "settings" | "readTime" | "until">,
): Promise<string | undefined> =>
  rule.reconcile?.({ ...bindNeeds(rule.needs ?? {}, capabilities, ruleName), ...context });

/**
 * Calls a rule's `reconcile` for one cluster after another, until `end`. For each cluster, reports what the rule
 * finished or why it failed. Times are in milliseconds since 1970.
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
  // In the last quarter of the time, no work begins, so that work that has begun can end.
  const lastBegin = end - (end - started) / 4;
  // The first cluster changes each minute, so that each cluster gets its turn even if one needs all the time.
  const first = Math.floor(started / 60_000) % Math.max(1, clusters.length);
  const orderedClusters = [...clusters.slice(first), ...clusters.slice(0, first)];
  for (const [index, cluster] of orderedClusters.entries()) {
    const { mode = "enforce", settings = rule.settings ?? {} } = findClusterSetup(config, cluster) ?? {};
    const now = Date.now();
    if (mode === "off" || now >= lastBegin) continue;
    // The clusters that are left get equal parts of the time that is left.
    const until = now + (lastBegin - now) / (orderedClusters.length - index);
    const capabilities = openCapabilities(cluster, end - now);
    const result = await reconcileCluster(rule, config.rule, capabilities, {
      settings,
      readTime: Date.now,
      until,
    }).catch(toFailure);
    if (result !== undefined) report(cluster, result);
  }
};
