import type { ResourceQuota } from "postern/kubernetes/core/v1";
import type { UpdateResult } from "postern/needs";
import type { Status } from "postern/review";
import type { QuotaDecision } from "./decision.ts";

/**
 * Writes the used amounts into the quotas, one after the other. If another update changed a quota first, the function
 * reads this quota and decides again. It doesn't charge the other quotas twice. A quota that was deleted needs no
 * charge. If `update` returns a refusal, the other quotas are still written, but nothing is decided again.
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
