import type {
  QuotaShare,
  QuotaState,
  RecountState,
  ValueReader,
} from "../../../functions/workload-quota/ledger-values.ts";
import type { Quota, WorkloadQuotaSettings } from "../../../functions/workload-quota/settings.ts";
import type { AwsStage } from "../../aws/stage.ts";
import { formatTable } from "../../cli/command.ts";
import { runInParallel } from "../../cli/progress.ts";
import type { PosternConfig } from "../../config/config.ts";

const quotaRule = "workload-quota";

/** What `postern status` shows about the rule workload-quota: its quotas, and the recounts of each cluster. */
interface QuotasHealth {
  quotas: ({ quota: string } & QuotaState)[];
  recounts: ({ cluster: string } & RecountState)[];
}

/**
 * Reads from the stage's ledger how much of each quota in postern.yaml is used, and by which clusters. Returns
 * undefined if postern.yaml has no quota. It reads 64 values for each pair of a quota and a cluster.
 */
export const readQuotas = async (
  { ledger }: Pick<AwsStage, "ledger">,
  config: PosternConfig,
  now: number,
): Promise<QuotasHealth | undefined> => {
  const quotasByName = listQuotas(config);
  if (quotasByName.size === 0) return undefined;
  // The file is imported only here, because a catalogue without workload-quota doesn't have it.
  const { readQuota, readRecounts, readShare } = await import("../../../functions/workload-quota/ledger-values.ts");
  const read: ValueReader = async (keys) => {
    const values = await ledger.readValues(keys.map((key) => `${quotaRule}//${key}`));
    return keys.map((key) => values.get(`${quotaRule}//${key}`));
  };
  const quotas: QuotasHealth["quotas"] = [];
  for (const [quota, { hard, covers }] of quotasByName) {
    const shares = await runInParallel(
      5,
      [...covers],
      async (cluster): Promise<[string, QuotaShare]> => [cluster, await readShare(read, quota, cluster)],
    );
    quotas.push({ quota, ...(await readQuota(read, { name: quota, hard }, Object.fromEntries(shares), now)) });
  }
  const counted = [...new Set([...quotasByName.values()].flatMap(({ covers }) => [...covers]))];
  const recounts = await readRecounts(read, counted);
  return { quotas, recounts: recounts.map((state, index) => ({ cluster: String(counted[index]), ...state })) };
};

/** Returns the quotas of all clusters by name, with the clusters that each covers. */
const listQuotas = ({ clusters }: PosternConfig) => {
  const found = new Map<string, { hard: Quota["hard"]; covers: Set<string> }>();
  for (const [cluster, { rules }] of clusters) {
    const setup = rules.get(quotaRule);
    if (!setup || setup.mode === "off") continue;
    // The cast is safe: the rule's checkSettings has checked the settings.
    const { quotas } = setup.settings as WorkloadQuotaSettings;
    for (const { name, clusters: covered = [cluster], hard } of quotas) {
      const quota = found.get(name) ?? { hard, covers: new Set() };
      if (covered.includes(cluster)) quota.covers.add(cluster);
      found.set(name, quota);
    }
  }
  return found;
};

/** Returns the table of quotas with their use in each cluster, and a line for each cluster's recount. */
export const formatQuotas = ({ quotas, recounts }: QuotasHealth): string => {
  const rows = quotas.flatMap(({ quota, hard, clusters, ...total }) => {
    const resources = new Set([hard, total.used, total.reserved].flatMap(Object.keys));
    return [...resources].flatMap((name) => [
      [quota, name, "", total.used[name] ?? "0", total.reserved[name] ?? "0", hard[name] ?? "-"],
      ...Object.entries(clusters)
        .filter(([, { used, reserved }]) => used[name] || reserved[name])
        .map(([cluster, { used, reserved }]) => ["", "", cluster, used[name] ?? "0", reserved[name] ?? "0"]),
    ]);
  });
  const lines = recounts.map(({ cluster, completed, faults }) => {
    const state = completed ? `complete at ${completed}` : "never complete";
    return `recount of ${cluster}: ${[state, ...faults].join("; ")}\n`;
  });
  return `\n${formatTable([["QUOTA", "RESOURCE", "CLUSTER", "USED", "RESERVED", "HARD"], ...rows])}${lines.join("")}`;
};
