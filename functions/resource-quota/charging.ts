import type { ResourceQuota } from "postern/kubernetes/core/v1";
import type { UpdateResult } from "postern/needs";
import type { Status } from "postern/review";
import type { QuotaDecision } from "./decision.ts";

/**
 * Writes what is used to the quotas, one after another. A quota that was changed meanwhile is read and decided on
 * again, without those that are written. A quota that is gone needs no charge. `update` ends the tries.
 */
export const writeCharges = async (
  charged: readonly ResourceQuota[],
  update: (quota: ResourceQuota) => Promise<UpdateResult>,
  read: () => Promise<ResourceQuota[]>,
  decide: (quotas: ResourceQuota[]) => Promise<QuotaDecision>,
): Promise<string | Status | undefined> => {
  const changed: (string | undefined)[] = [];
  let refused: Status | undefined;
  for (const quota of charged) {
    const result = await update(quota);
    if (result === "changed") changed.push(quota.metadata?.name);
    else if (result !== "updated") refused = result.refused;
  }
  if (refused || changed.length === 0) return refused;

  const decision = await decide((await read()).filter(({ metadata }) => changed.includes(metadata?.name)));
  return "refuse" in decision ? decision.refuse : writeCharges(decision.charged, update, read, decide);
};
