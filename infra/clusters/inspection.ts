import type { InspectedCluster } from "#lib/rule.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import type { ClusterConfig } from "../config/config.ts";
import { listRulesAskingCluster } from "../config/connections.ts";

/** Returns the rules whose webhook entries also depend on objects of the cluster, such as its policies. */
export const findRulesInspectingCluster = (catalogue: CatalogueRule[], cluster: ClusterConfig): CatalogueRule[] =>
  listRulesAskingCluster(catalogue, cluster).filter(({ rule }) => rule.inspectForSettings !== undefined);

/** A cluster with the settings that the inspection found. */
export interface InspectedClusterConfig {
  cluster: ClusterConfig;
  notes: string[];
}

/**
 * Runs inspectForSettings of a cluster's rules, which extends their settings by objects of the cluster. Opens the
 * cluster only if a rule has that function.
 */
export const inspectClusterForSettings = async (
  catalogue: CatalogueRule[],
  cluster: ClusterConfig,
  open: () => Promise<InspectedCluster>,
): Promise<InspectedClusterConfig> => {
  const some = findRulesInspectingCluster(catalogue, cluster);
  if (some.length === 0) return { cluster, notes: [] };
  const inspected = await open();
  const rules = new Map(cluster.rules);
  const notes: string[] = [];
  for (const { name, rule } of some) {
    const setup = cluster.rules.get(name);
    const found = setup && (await rule.inspectForSettings?.(setup.settings, inspected));
    if (setup === undefined || found === undefined) continue;
    rules.set(name, { ...setup, settings: found.settings });
    notes.push(...found.notes.map((note) => `${name}: ${note}`));
  }
  return { cluster: { ...cluster, rules }, notes };
};
