import { evaluateRule } from "#lib/core/evaluation.ts";
import { getErrorMessage } from "#lib/failure.ts";
import { createMemoryLedger, type Ledger } from "#lib/ledger.ts";
import type { Capabilities } from "#lib/needs.ts";
import { canonicalizeQuantity, compareQuantities, requireQuantity, subtractQuantities } from "#lib/objects/quantity.ts";
import type { AdmissionRequest } from "#lib/review.ts";
import type { CatalogueRule } from "../../catalogue/registry.ts";
import type { ClusterConfig } from "../../config/config.ts";

export const workloadQuotaName = "workload-quota";

/** More than all objects use together. */
const unlimited = "1e30";

/** Later than any review here, so that a reservation is never read again. */
const lastDate = new Date(8.64e15);

/** The settings of workload-quota as far as they matter here; `checkSettings` has checked them. */
interface QuotaSettings {
  quotas: { name: string; clusters?: string[]; users?: unknown; groups?: unknown; hard: object }[];
  controllers: { users: string[]; groups: string[] };
}

type Amounts = Readonly<Record<string, string>>;

/** A value of the rule's ledger, as far as it matters here. */
interface Kept {
  used?: Amounts;
  /** By cluster, what the rule has not seen stored. So has each reservation, as `unseen`. */
  clusters?: object;
  objects?: Readonly<Record<string, { used: Amounts; unseen?: Amounts }>>;
}

/** What the objects of one cluster have of the quotas of workload-quota. */
export interface QuotaUse {
  /** Counts objects by the requests that create them, whatever the quotas have left. */
  count(
    creations: Iterable<AdmissionRequest> | AsyncIterable<AdmissionRequest>,
    openCapabilities: (tell: (sentence: string) => void) => Capabilities,
  ): Promise<void>;
  /** Makes every charge undecided, because not all objects were counted. */
  giveUp(sentence: string): void;
  /**
   * Returns capabilities of a review in which the rule has this ledger. Calls `tell` with what isn't known of a quota that
   * is charged. With the request of an object that was counted, it is the ledger without that object, and keeps nothing.
   */
  replaceLedger(
    capabilities: Capabilities,
    tell: (sentence: string) => void,
    counted?: Pick<AdmissionRequest, "resource" | "namespace" | "name">,
  ): Capabilities;
}

/** Returns undefined if the rule is off in the cluster. `clusters` are all of postern.yaml; `isStateKnown`: so is what exists. */
export const createQuotaUse = (
  catalogue: readonly CatalogueRule[],
  [cluster, { rules, kubernetes }]: readonly [name: string, config: ClusterConfig],
  clusters: readonly string[] = [cluster],
  isStateKnown: boolean,
  note: (sentence: string) => void,
): QuotaUse | undefined => {
  const listed = catalogue.find(({ name }) => name === workloadQuotaName);
  const setup = rules.get(workloadQuotaName);
  if (!listed || !setup || setup.mode === "off") return undefined;
  const { quotas, controllers, ...rest } = setup.settings as QuotaSettings;
  const ledger = createMemoryLedger();
  const existing = new Set<string>();
  /** What isn't known of quotas, by the keys of their sums. */
  const unknown = new Map<string, string>();
  for (const { name, clusters: covered = clusters, users, groups } of quotas) {
    const others = covered.filter((one) => one !== cluster);
    if (isStateKnown && others.length > 0)
      unknown.set(toSumKey(name), `what quota ${name} has in use in ${others.join(", ")}`);
    if (!users && !groups) continue;
    const sentence = `what quota ${name} has in use`;
    note(`${sentence} isn't known, because objects don't say which user created them`);
    if (isStateKnown) unknown.set(toSumKey(name), sentence);
  }
  const unlimitedQuotas = quotas.map(({ hard, ...quota }) => {
    const amounts = Object.fromEntries(Object.keys(hard).map((key) => [key, unlimited]));
    return { ...quota, warnAt: undefined, unseen: "100%", hard: amounts };
  });
  const settings = { ...rest, controllers, quotas: unlimitedQuotas };
  const context = { name: workloadQuotaName, mode: "enforce" as const, settings, kubernetes, now: lastDate };
  // A controller has created what a counted object controls. No other object depends on the user.
  const userInfo = { username: controllers.users[0] ?? "", groups: controllers.groups };

  /** Returns an object's reservation apart from the other values. */
  const takeOut = (keys: readonly string[], values: readonly (Kept | undefined)[], object: string) => {
    const own = new Map(
      values.flatMap((value, index) => {
        const reservation = value?.objects?.[object];
        return reservation ? [[readQuotaName(keys[index]), reservation.used] as const] : [];
      }),
    );
    return values.map((value, index) => {
      const quota = quotas.find(({ name }) => name === readQuotaName(keys[index]));
      const used = own.get(quota?.name);
      if (keys[index]?.startsWith("quota/")) return used ? { ...value, used: subtract(value?.used, used) } : value;
      const { [object]: _, ...objects } = value?.objects ?? {};
      // What exists and isn't counted, such as a Pod of a Deployment, needs no room.
      const isFree = !used && existing.has(object) && quota && !quota.users && !quota.groups;
      const free = { used: Object.fromEntries(Object.keys(quota?.hard ?? {}).map((name) => [name, unlimited])) };
      return { ...value, objects: isFree ? { ...objects, [object]: free } : objects };
    });
  };
  return {
    count: async (creations, openCapabilities) => {
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
    giveUp: (sentence) => {
      for (const { name } of quotas) unknown.set(toSumKey(name), sentence);
    },
    replaceLedger: (capabilities, tell, counted) => {
      const change: Ledger["change"] = async <T>(
        keys: readonly string[],
        change: (kept: readonly (T | undefined)[]) => readonly (T | undefined)[],
      ) => {
        let made: readonly (T | undefined)[] = [];
        let charged: string[] = [];
        await ledger.change<T>(keys, (kept) => {
          // The casts are safe: the ledger only has values of this rule.
          const given = counted ? (takeOut(keys, kept as readonly Kept[], toObjectPath(counted)) as T[]) : kept;
          made = change(given);
          charged = keys.filter((_, index) => isMore(made[index] as Kept, given[index] as Kept));
          return counted ? kept : ((made as readonly (Kept | undefined)[]).map(toStored) as T[]);
        });
        for (const key of charged) {
          const sentence = unknown.get(key);
          if (sentence !== undefined) tell(sentence);
        }
        return made;
      };
      return {
        ...capabilities,
        ledger: (rule, reach) => (rule === workloadQuotaName ? { change } : capabilities.ledger(rule, reach)),
      };
    },
  };
};

/** Returns a value in which everything has been seen stored: manifests count one after the other. */
const toStored = (kept: Kept | undefined): Kept | undefined => {
  if (!kept) return undefined;
  const { clusters: _, objects, ...rest } = kept;
  const seen = Object.entries(objects ?? {}).map(([object, { unseen: _, ...reservation }]) => [object, reservation]);
  return { ...rest, ...(objects && { objects: Object.fromEntries(seen) }) };
};

const toSumKey = (quota: string): string => `quota/${quota}`;

/** Returns the quota of a key such as `quota/NAME` or `part/NAME/0/CLUSTER`. */
const readQuotaName = (key = ""): string | undefined => key.split("/")[1];

const toObjectPath = ({
  resource: { group, resource },
  namespace,
  name,
}: Pick<AdmissionRequest, "resource" | "namespace" | "name">): string => [group, resource, namespace, name].join("/");

const subtract = (amounts: Amounts = {}, less: Amounts): Amounts =>
  Object.fromEntries(
    Object.entries(amounts).map(([name, amount]) => {
      const rest = subtractQuantities(requireQuantity(amount), requireQuantity(less[name] ?? "0"));
      return [name, canonicalizeQuantity(rest)];
    }),
  );

/** Reports whether a sum is larger than it was. */
const isMore = (now: Kept | undefined, before: Kept | undefined): boolean =>
  Object.entries(now?.used ?? {}).some(([name, amount]) => compareQuantities(amount, before?.used?.[name] ?? "0") > 0);
