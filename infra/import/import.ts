// Translates flags and AdmissionConfiguration of a self-managed API server into a postern.yaml for another cluster.
import { join } from "node:path";
import type { SettingsMistake } from "#lib/settings.ts";
import { type CatalogueRule, readCatalogue } from "../catalogue/registry.ts";
import { posternCatalogue, resolveCatalogue } from "../catalogue/sources.ts";
import { listRulesAskingCluster } from "../config/connections.ts";
import { parseConfigDocument } from "../project/config-document.ts";
import { readConfigDocument } from "../project/project.ts";
import { decideAboutPlugins, type ImportSource, type PluginOutcome } from "./decisions.ts";
import { formatImportedConfig } from "./document.ts";
import type { ImportTarget } from "./targets.ts";

/** Returns the outcomes and the text of a valid postern.yaml. Its paths are relative to the working directory. */
export const importApiServer = async (
  source: ImportSource,
  target: ImportTarget,
): Promise<{ outcomes: PluginOutcome[]; text: string }> => {
  const catalogue = await readCatalogue([await resolveCatalogue(posternCatalogue)]);
  const outcomes = decideAboutPlugins(source, target, catalogue);
  /** Returns the text of postern.yaml. A comment in it lists the rules that read the cluster, `clusterReaders`. */
  const format = (clusterReaders: readonly CatalogueRule[]) =>
    formatImportedConfig(outcomes, target, catalogue, clusterReaders);
  // Settings decide which rules read the cluster, so the text without this comment is read first.
  const document = parseConfigDocument(format([]), "postern.yaml");
  /**
   * Throws for mistakes in a rule's settings at their lines in the plugin's configuration, which users can correct. The
   * first three keys of a path, such as `rules`, `pod-security` and `settings`, aren't in that configuration.
   */
  const complain = (mistakes: readonly SettingsMistake[]) => {
    for (const { plugin, rule } of outcomes) {
      const ruleMistakes = mistakes.filter(({ path }) => path[1] === rule);
      source.configurations
        .get(plugin)
        ?.complain(ruleMistakes.map((mistake) => ({ ...mistake, path: mistake.path.slice(3) })));
    }
    document.complain(mistakes); // Throws for mistakes outside of configurations, with their lines in postern.yaml.
  };
  const file = join(process.cwd(), "postern.yaml");
  const { clusters } = await readConfigDocument({ ...document, complain }, file, catalogue);
  // The text names no clusters. It is then read as if it had one with the name "local".
  const clusterReaders = listRulesAskingCluster(catalogue, clusters.get("local"));
  return { outcomes, text: format(clusterReaders) };
};
