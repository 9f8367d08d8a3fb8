import { evaluateRule } from "#lib/core/evaluation.ts";
import { getErrorMessage } from "#lib/failure.ts";
import { createMemoryLedger, type Ledger } from "#lib/ledger.ts";
import type { Capabilities } from "#lib/needs.ts";
import type { AdmissionRequest } from "#lib/review.ts";
import type { Kept } from "../../../functions/workload-quota/reservations.ts";
import type { WorkloadQuotaSettings } from "../../../functions/workload-quota/settings.ts";
import type { ChainOptions } from "./object-evaluation.ts";

export const workloadQuotaName = "workload-quota";

/** More than all objects use together. */
const unlimited = "1e30";

/** Later than any review here, so that a reservation is never read again. */
const lastDate = new Date(8.64e15);

/** What the objects of one cluster have of the quotas of workload-quota. */
export type QuotaUse = NonNullable<Awaited<ReturnType<typeof createQuotaUse>>>;

/** Returns undefined if the rule is off in the cluster. `isStateKnown` says that all existing objects are known. */
export const createQuotaUse = async (
  { catalogue, cluster: [cluster, { rules, kubernetes }], clusters = [cluster] }: ChainOptions,
  isStateKnown: boolean,
  note: (sentence: string) => void,
) => {
  const listed = catalogue.find(({ name }) => name === workloadQuotaName);
  const setup = rules.get(workloadQuotaName);
  if (!listed || !setup || setup.mode === "off") return undefined;
  const { listCharged, undoCount, toStored } = await import("../../../functions/workload-quota/ledger-values.ts");
  // The rule's checkSettings has checked them.
  const { quotas, controllers, ...rest } = setup.settings as WorkloadQuotaSettings;
  const ledger = createMemoryLedger();
  const existing = new Set<string>();
  /** What isn't known of quotas, by their names. */
  const unknown = new Map<string, string>();
  for (const { name, clusters: covered = clusters, users, groups } of quotas) {
    const others = covered.filter((one) => one !== cluster);
    if (!isStateKnown) unknown.set(name, `what quota ${name} has in use`);
    else if (others.length > 0) unknown.set(name, `what quota ${name} has in use in ${others.join(", ")}`);
    if (!users && !groups) continue;
    const sentence = `what quota ${name} has in use`;
    note(`${sentence} isn't known, because objects don't say which user created them`);
    if (isStateKnown) unknown.set(name, sentence);
  }
  const unlimitedQuotas = quotas.map(({ hard, ...quota }) => {
    const amounts = Object.fromEntries(Object.keys(hard).map((key) => [key, unlimited]));
    return { ...quota, warnAt: undefined, unseen: "100%", hard: amounts };
  });
  const settings = { ...rest, controllers, quotas: unlimitedQuotas };
  const context = { name: workloadQuotaName, mode: "enforce" as const, settings, kubernetes, now: lastDate };
  // A controller has created what a counted object controls. No other object depends on the user.
  const userInfo = { username: controllers.users[0] ?? "", groups: controllers.groups };

  /** Returns room for an object that exists and isn't counted, such as a Pod of a Deployment, because it needs none. */
  const reserveForExisting = (object: string, name: string) => {
    const quota = quotas.find((one) => one.name === name);
    if (!quota || quota.users || quota.groups || !existing.has(object)) return undefined;
    return Object.fromEntries(Object.keys(quota.hard).map((key) => [key, unlimited]));
  };
  return {
    /** Counts objects by the requests that create them, whatever the quotas have left. */
    count: async (
      creations: Iterable<AdmissionRequest> | AsyncIterable<AdmissionRequest>,
      openCapabilities: (tell: (sentence: string) => void) => Capabilities,
    ): Promise<void> => {
      for await (const creation of creations) {
        const tell = (sentence: string) =>
          note(
            `what ${creation.kind.kind} ${creation.namespace}/${creation.name} uses of quotas isn't known: ${sentence}`,
          );
        try {
          const capabilities = { ...openCapabilities(tell), ledger: () => ledger };
          const request = { ...creation, userInfo };
          const { outcome } = await evaluateRule(listed.rule, "validate", request, { ...context, capabilities });
          if (outcome.status) tell(outcome.status.message);
          else existing.add(toObjectPath(creation));
        } catch (error) {
          tell(getErrorMessage(error));
        }
      }
    },
    /** Makes every charge undecided, because not all objects were counted. */
    giveUp: (sentence: string) => {
      for (const { name } of quotas) unknown.set(name, sentence);
    },
    /**
     * Returns capabilities of a review in which the rule has this ledger. Calls `tell` with what isn't known of a quota
     * that is charged. With the request of an object that was counted, it is the ledger without that object, and keeps
     * nothing.
     */
    replaceLedger: (
      capabilities: Capabilities,
      tell: (sentence: string) => void,
      counted: CountedObject | undefined,
    ): Capabilities => {
      const change: Ledger["change"] = async <T>(
        keys: readonly string[],
        change: (kept: readonly (T | undefined)[]) => readonly (T | undefined)[],
      ) => {
        let result: readonly (T | undefined)[] = [];
        let charged: string[] = [];
        await ledger.change<T>(keys, (kept) => {
          // The casts are safe: the ledger only has values of this rule.
          const before = kept as readonly (Kept | undefined)[];
          const object = counted && toObjectPath(counted);
          const given = object ? undoCount(keys, before, object, (quota) => reserveForExisting(object, quota)) : before;
          const after = change(given as T[]) as readonly (Kept | undefined)[];
          result = after as T[];
          charged = listCharged(keys, after, given);
          return object ? kept : (after.map(toStored) as T[]);
        });
        for (const quota of charged) {
          const sentence = unknown.get(quota);
          if (sentence !== undefined) tell(sentence);
        }
        return result;
      };
      return {
        ...capabilities,
        ledger: (rule, reach) => (rule === workloadQuotaName ? { change } : capabilities.ledger(rule, reach)),
      };
    },
  };
};

type CountedObject = Pick<AdmissionRequest, "resource" | "namespace" | "name">;

const toObjectPath = ({ resource: { group, resource }, namespace, name }: CountedObject): string =>
  [group, resource, namespace, name].join("/");
