import { evaluateRule } from "#lib/evaluation.ts";
import { getErrorMessage } from "#lib/failure.ts";
import type { Capabilities } from "#lib/needs.ts";
import type { AdmissionRequest } from "#lib/review.ts";
import type { CatalogueRule } from "../../catalogue/registry.ts";
import type { ClusterConfig } from "../../config/config.ts";

const name = "workload-quota";

/** More than all objects use together. */
const unlimited = "1e30";

/** The settings of workload-quota as far as they matter here; `checkSettings` has checked them. */
interface QuotaSettings {
  quotas: { name: string; users?: unknown; groups?: unknown; hard: object }[];
  controllers: { users: string[]; groups: string[] };
}

/**
 * Charges the quotas of workload-quota with objects that exist, by the requests that create them, whatever the quotas
 * have left. Calls `note` with a sentence about each use that can't be known.
 */
export const chargeExistingWorkloads = async (
  catalogue: readonly CatalogueRule[],
  { rules, kubernetes }: ClusterConfig,
  creations: readonly AdmissionRequest[],
  openCapabilities: (tell: (sentence: string) => void) => Capabilities,
  note: (sentence: string) => void,
): Promise<void> => {
  const listed = catalogue.find((one) => one.name === name);
  const setup = rules.get(name);
  if (!listed || !setup || setup.mode === "off") return;
  const { quotas, controllers, ...rest } = setup.settings as QuotaSettings;
  for (const quota of quotas.filter(({ users, groups }) => users ?? groups))
    note(`what quota ${quota.name} has in use isn't known, because objects don't say which user created them`);
  const unlimitedQuotas = quotas.map(({ hard, ...quota }) => {
    return { ...quota, warnAt: undefined, hard: Object.fromEntries(Object.keys(hard).map((key) => [key, unlimited])) };
  });
  const settings = { ...rest, controllers, quotas: unlimitedQuotas };
  const context = { name, mode: "enforce" as const, settings, kubernetes, now: new Date() };
  // A controller has created what a counted object controls. No other object depends on the user.
  const userInfo = { username: controllers.users[0] ?? "", groups: controllers.groups };
  for (const creation of creations) {
    const tell = (sentence: string) =>
      note(`what ${creation.kind.kind} ${creation.namespace}/${creation.name} uses of quotas isn't known: ${sentence}`);
    const request = { ...creation, userInfo };
    try {
      const capabilities = openCapabilities(tell);
      const { outcome } = await evaluateRule(listed.rule, "validate", request, { ...context, capabilities });
      if (outcome.status) tell(outcome.status.message);
    } catch (error) {
      tell(getErrorMessage(error));
    }
  }
};
