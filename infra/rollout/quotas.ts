import {
  addQuantities,
  canonicalizeQuantity,
  compareQuantities,
  requireQuantity,
  subtractQuantities,
  zeroQuantity,
} from "#lib/objects/quantity.ts";
import type { AwsStage } from "../aws/stage.ts";
import { formatTable } from "../cli/command.ts";
import { runInParallel } from "../cli/progress.ts";
import type { PosternConfig } from "../config/config.ts";

const rule = "workload-quota";

type Amounts = Readonly<Record<string, string>>;

/** What objects have of a quota: `used` was seen stored, and `reserved` was charged or released and not seen since. */
export interface QuotaShare {
  used: Amounts;
  reserved: Amounts;
}

/** What `postern status` shows of a quota of workload-quota. */
export interface QuotaHealth extends QuotaShare {
  quota: string;
  hard: Amounts;
  /** What the clusters of postern.yaml have. Others, such as a removed one, only count in `reserved`. */
  clusters: Record<string, QuotaShare>;
}

/** When a cluster was last counted as a whole. */
export interface RecountHealth {
  cluster: string;
  completed: string | null;
  /** What the last recount could not read or write. */
  faults: readonly string[];
}

export interface QuotasHealth {
  quotas: QuotaHealth[];
  recounts: RecountHealth[];
}

/** A value of the rule's ledger. functions/workload-quota/reservations.ts and recount.ts write it. */
interface Kept {
  used?: Amounts;
  hards?: readonly { hard: Readonly<Record<string, string | number>>; until: number }[];
  objects?: Readonly<Record<string, { used: Amounts; phase: string }>>;
  completed?: number;
  last?: { faults: readonly string[] };
}

/** The number of values with the reservations of one quota in one cluster. */
const partCount = 64;

/**
 * Reads the quotas of workload-quota in postern.yaml from the stage's ledger, and what these clusters have of each;
 * undefined if there are none. For each quota and cluster, it reads 64 values.
 */
export const readQuotas = async (
  { ledger }: Pick<AwsStage, "ledger">,
  config: PosternConfig,
  now: number,
): Promise<QuotasHealth | undefined> => {
  const listed = listQuotas(config);
  if (listed.size === 0) return undefined;
  const read = async (keys: readonly string[]): Promise<(Kept | undefined)[]> => {
    const values = await ledger.readValues(keys.map((key) => `${rule}//${key}`));
    // The cast is safe: only functions of the rule write values under its name.
    return keys.map((key) => values.get(`${rule}//${key}`) as Kept | undefined);
  };
  const quotas: QuotaHealth[] = [];
  for (const [quota, { hard, covers }] of listed) {
    const [scope] = await read([`quota/${quota}`]);
    const shares = await runInParallel(5, [...covers], async (cluster): Promise<[string, QuotaShare]> => {
      const parts = await read(Array.from({ length: partCount }, (_, part) => `part/${quota}/${part}/${cluster}`));
      const reservations = parts.flatMap((part) => Object.values(part?.objects ?? {}));
      const addAll = (isSeen: boolean) =>
        reservations.filter(({ phase }) => (phase === "seen") === isSeen).reduce((sum, { used }) => add(sum, used), {});
      return [cluster, { used: addAll(true), reserved: addAll(false) }];
    });
    const used = shares.reduce((sum, [, share]) => add(sum, share.used), {});
    const inForce = (scope?.hards ?? []).filter(({ until }) => now < until);
    quotas.push({
      quota,
      hard: findSmallest(inForce.length > 0 ? inForce.map((one) => one.hard) : [hard]),
      used,
      reserved: add(scope?.used ?? {}, used, subtractQuantities),
      clusters: Object.fromEntries(shares),
    });
  }
  const counted = [...new Set([...listed.values()].flatMap(({ covers }) => [...covers]))];
  const recounts = await read(counted.map((cluster) => `recount/${cluster}`));
  return {
    quotas,
    recounts: counted.map((cluster, index) => {
      const { completed, last } = recounts[index] ?? {};
      return { cluster, completed: completed ? new Date(completed).toISOString() : null, faults: last?.faults ?? [] };
    }),
  };
};

/** Returns the quotas of all clusters by name, with the clusters that each covers. */
const listQuotas = ({ clusters }: PosternConfig) => {
  const found = new Map<string, { hard: Amounts; covers: Set<string> }>();
  for (const [cluster, { rules }] of clusters) {
    const setup = rules.get(rule);
    if (!setup || setup.mode === "off") continue;
    // The rule's checkSettings has checked them.
    const { quotas } = setup.settings as { quotas: { name: string; clusters?: string[]; hard: Amounts }[] };
    for (const { name, clusters: covered = [cluster], hard } of quotas) {
      const quota = found.get(name) ?? { hard, covers: new Set() };
      if (covered.includes(cluster)) quota.covers.add(cluster);
      found.set(name, quota);
    }
  }
  return found;
};

/** Combines amounts name by name: sums unless said otherwise. What comes to nothing is left out. */
const add = (left: Amounts, right: Amounts, combine = addQuantities): Amounts =>
  Object.fromEntries(
    [...new Set([left, right].flatMap(Object.keys))].flatMap((name) => {
      const [one, other] = [left, right].map((amounts) => requireQuantity(amounts[name] ?? "0"));
      const sum = combine(one ?? zeroQuantity, other ?? zeroQuantity);
      return sum.nanos === 0n ? [] : [[name, canonicalizeQuantity(sum)]];
    }),
  );

/** Returns the smallest amount of each name: while two versions of a rule are live, the smaller one counts. */
const findSmallest = (all: readonly Readonly<Record<string, string | number>>[]): Amounts => {
  const smallest: Record<string, string> = {};
  for (const [name, amount] of all.flatMap(Object.entries)) {
    const present = smallest[name];
    if (present === undefined || compareQuantities(String(amount), present) < 0) smallest[name] = String(amount);
  }
  return smallest;
};

export const formatQuotas = ({ quotas, recounts }: QuotasHealth): string => {
  const rows = quotas.flatMap(({ quota, hard, clusters, ...all }) =>
    [...new Set([hard, all.used, all.reserved].flatMap(Object.keys))].flatMap((name) => [
      [quota, name, "", all.used[name] ?? "0", all.reserved[name] ?? "0", hard[name] ?? "-"],
      ...Object.entries(clusters).flatMap(([cluster, { used, reserved }]) =>
        used[name] || reserved[name] ? [["", "", cluster, used[name] ?? "0", reserved[name] ?? "0"]] : [],
      ),
    ]),
  );
  const lines = recounts.map(({ cluster, completed, faults }) => {
    const state = completed ? `complete at ${completed}` : "never complete";
    return `recount of ${cluster}: ${[state, ...faults].join("; ")}\n`;
  });
  return `\n${formatTable([["QUOTA", "RESOURCE", "CLUSTER", "USED", "RESERVED", "HARD"], ...rows])}${lines.join("")}`;
};
