import type { InspectedCluster } from "#lib/rule.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import type { ClusterConfig } from "../config/config.ts";
import { listRulesAskingCluster } from "../config/connections.ts";

/** Returns the rules of a cluster whose webhook entries depend on objects in the cluster, such as policies. */
export const findRulesInspectingCluster = (catalogue: CatalogueRule[], cluster: ClusterConfig): CatalogueRule[] =>
  listRulesAskingCluster(catalogue, cluster).filter(({ rule }) => rule.inspectForSettings !== undefined);

/** The config of a cluster after its inspection, and notes for the user. */
export interface InspectedClusterConfig {
  cluster: ClusterConfig;
  notes: string[];
}

/**
 * Calls `inspectForSettings` of a cluster's rules, which adds objects in the cluster to their settings. Opens the
 * cluster only if a rule has this function.
 */
export const inspectClusterForSettings = async (
  catalogue: CatalogueRule[],
  cluster: ClusterConfig,
  open: () => Promise<InspectedCluster>,
): Promise<InspectedClusterConfig> => {
  const inspecting = findRulesInspectingCluster(catalogue, cluster);
  if (inspecting.length === 0) return { cluster, notes: [] };
  const inspected = await open();
  const rules = new Map(cluster.rules);
  const notes: string[] = [];
  for (const { name, rule } of inspecting) {
    const setup = cluster.rules.get(name);
    const found = setup && (await rule.inspectForSettings?.(setup.settings, inspected));
    if (setup === undefined || found === undefined) continue;
    rules.set(name, { ...setup, settings: found.settings });
    notes.push(...found.notes.map((note) => `${name}: ${note}`));
  }
  return { cluster: { ...cluster, rules }, notes };
};
