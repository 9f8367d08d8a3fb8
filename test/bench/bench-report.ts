import { formatTable } from "../../infra/cli/command.ts";
import type { CheckMeasurement } from "./checks.ts";
import type { PodCreateBenchResults } from "./creates.ts";
import type { FleetMeasurement } from "./fleet.ts";
import type { LedgerMeasurement } from "./ledger.ts";
import type { QuotaMeasurement } from "./quotas.ts";
import { type BenchResult, computeWeightedQuantiles, type RatioSummary } from "./ratios.ts";
import type { ClusterReadMeasurement } from "./reads.ts";
import { countAllCalls, type TraceKindMeasurement, type TraceMeasurement, type TraceWayMeasurement } from "./trace.ts";
import type { ValidatorMeasurement } from "./validators.ts";

/** Returns a table of measured ratios. */
export const describeBenchResults = (title: string, results: BenchResult[]): string => {
  const names = Object.keys(results.find(({ parts }) => parts)?.parts ?? {});
  const rows = results.map(({ what, ratio, limit, parts, kilobytes }) => [
    what,
    describeRatio(ratio, { limit }),
    ...names.map((name) => describePart(parts?.[name])),
    ...(kilobytes
      ? [`${kilobytes.bundle.toFixed(1)} KB${describeLimit(kilobytes.bundle, { limit: kilobytes.limit, digits: 1 })}`]
      : []),
  ]);
  const heads = [title, "RATIO", ...names.map((name) => name.toUpperCase())];
  return formatTable([[...heads, ...(results.some(({ kilobytes }) => kilobytes) ? ["BUNDLE"] : [])], ...rows]);
};

const describePart = (part: Required<BenchResult>["parts"][string] | undefined): string =>
  part ? `${part.ratio.median.toFixed(2)} (${part.milliseconds.toFixed(0)} ms)` : "";

/** Returns two tables: the times of creates, and ratios of the times that webhooks add. */
export const describeLatency = (title: string, { measured, comparisons }: PodCreateBenchResults): string => {
  /** True if the measured creates differ in how many mutating rules they pass. */
  const isChain = measured.some(({ mutators }) => mutators !== undefined);
  const rows = measured.map(({ what, create, added, mutators, cpu }) => [
    what,
    ...[create.p50, create.p99, added?.p50, added?.p99].map(formatMilliseconds),
    formatMilliseconds(isChain ? added && mutators && added.p50 / mutators : cpu),
  ]);
  const heads = ["CREATE P50", "P99", "ADDED P50", "P99", isChain ? "FOR EACH" : "CPU"];
  const ratios = comparisons.map(({ what, added, cpu, limit }) => [
    what,
    describeRatio(added, { limit }),
    ...(isChain ? [] : [cpu?.toFixed(2)]),
  ]);
  const compared = ["COMPARED", "ADDED", ...(isChain ? [] : ["CPU"])];
  return `${formatTable([[title, ...heads], ...rows])}\n${formatTable([compared, ...ratios])}`;
};

/** Returns a table of ratios: how reads of a cluster prolong a review. `remembered`: from a cache; `none`: no reads. */
export const formatReadMeasurement = (
  title: string,
  { cachedOverNone, parallelOverSingle, read, first }: ClusterReadMeasurement,
): string =>
  formatTable([
    [title, "RATIO"],
    ["three reads, remembered, over none", describeRatio(cachedOverNone, { limit: 1.5 })],
    [`three reads in parallel, over one (${read.toFixed(2)} ms)`, describeRatio(parallelOverSingle)],
    ["the first read of an environment, over a later one", (first / read).toFixed(2)],
  ]);

/** Returns a table of check's costs. `withoutPods` is without plugins and the Pods that workloads would create. */
export const formatCheckMeasurement = ({
  manifests,
  bytes,
  seconds,
  memory,
  ratioToCheckWithoutPlugins,
  ratioToYamlPackage,
  ratioToOwnReader,
}: CheckMeasurement): string => {
  const formatMegabytes = (amount: number) => `${(amount / 1e6).toFixed(1)} MB`;
  const { check, withoutPlugins, withoutPods, yamlPackageReading, ownReading, rules } = seconds;
  return formatTable([
    [`CHECK, ${manifests} manifests of ${formatMegabytes(bytes)}`, "RATIO"],
    [
      "CPU of check with the default plugins, divided by CPU of check without plugins",
      describeRatio(ratioToCheckWithoutPlugins, { limit: 2 }),
    ],
    [
      "CPU of check without plugins and Pods of workloads, divided by CPU of the yaml package plus CPU of the rules",
      describeRatio(ratioToYamlPackage, { limit: 1.5 }),
    ],
    [
      "CPU of check without plugins and Pods of workloads, divided by CPU of check's own reader plus CPU of the rules",
      describeRatio(ratioToOwnReader),
    ],
    [
      "CPU of check: with plugins, without plugins, without plugins and Pods of workloads",
      [check, withoutPlugins, withoutPods].map((time) => `${time.toFixed(2)} s`).join(", "),
    ],
    [
      "CPU: reading with the yaml package, reading with check's own reader, the rules",
      [yamlPackageReading, ownReading, rules].map((time) => `${time.toFixed(2)} s`).join(", "),
    ],
    ["memory at most", `${formatMegabytes(memory)}${describeLimit(memory / 1e6, { limit: 400, digits: 1 })}`],
  ]);
};

/** Returns a table of the faulty files that `check` and other tools find, and of the time and memory that they use. */
export const formatValidatorMeasurement = ({
  kubernetes,
  seed,
  files,
  refusedByApiServer,
  rows,
}: ValidatorMeasurement): string => {
  const title = `FINDINGS, ${files} files, Kubernetes ${kubernetes} refuses ${refusedByApiServer} (seed ${seed})`;
  const cells = rows.map(({ name, found, wrong, cpu, wall, memory }) => [
    name,
    `${found} (${((100 * found) / refusedByApiServer).toFixed(1)} %)`,
    String(wrong),
    `${cpu.toFixed(1)} s`,
    `${wall.toFixed(1)} s`,
    `${(memory / 1e6).toFixed(0)} MB`,
  ]);
  return formatTable([[title, "FOUND", "WRONG", "CPU", "TIME", "MEMORY"], ...cells]);
};

/**
 * Returns two tables: the cost of commands for a fleet, also relative to the smallest fleet, and the sizes of releases.
 */
export const formatFleetMeasurement = ({ rules, steps, releases }: FleetMeasurement): string => {
  const rows = steps.map(({ clusters, step, wall, usage }) => {
    const [first] = steps.filter((other) => other.step === step);
    const growth = first && usage.seconds / clusters / (first.usage.seconds / first.clusters);
    return [
      `${clusters} clusters: ${step}`,
      growth?.toFixed(2),
      `${usage.seconds.toFixed(1)} s`,
      `${wall.toFixed(1)} s`,
      `${(usage.memory / 1e6).toFixed(0)} MB`,
    ];
  });
  const sizes = releases.map(({ clusters, bytes }) => [
    `${clusters} clusters: a release`,
    `${Math.round(bytes / 1e3)} kB`,
  ]);
  const heads = ["CPU FOR EACH CLUSTER, OVER THE FIRST", "CPU", "TIME", "MEMORY"];
  return `${formatTable([[`FLEET, ${rules} rules`, ...heads], ...rows])}\n${formatTable([["STORED", "SIZE"], ...sizes])}`;
};

/**
 * Returns two tables: the time that a ledger adds to a review, and the answers to events for one bucket of a rate
 * limit, for each rate at which they were sent. The bucket admits LIMIT events a second.
 */
export const formatLedgerMeasurement = ({ times, rates }: Exclude<LedgerMeasurement, { missing: string }>): string => {
  const rows = times.map(({ what, p50, p99 }) => [what, formatMilliseconds(p50), formatMilliseconds(p99)]);
  const heads = ["LIMIT", "ADMITTED", "REFUSED", "FAILED", "READS", "WRITES", "THROTTLED", "P50", "P99"];
  const rateRows = rates.map(({ rate, qps, admitted, refused, failed, reads, writes, throttled, p50, p99 }) => [
    ...[`${rate} a second`, `${qps} a second`, ...[admitted, refused, failed].map(String)],
    ...[reads, writes].map((calls) => `${calls.toFixed(0)} a second`),
    ...[`${throttled}`, formatMilliseconds(p50), formatMilliseconds(p99)],
  ]);
  const rateTable = formatTable([["EVENTS SENT TO ONE BUCKET", ...heads], ...rateRows]);
  return `${formatTable([["LEDGER", "P50", "P99"], ...rows])}\n${rateTable}`;
};

/** Returns two tables: the results of charges of one or more quotas at each rate, and a review's cost in DynamoDB. */
export const formatQuotaMeasurement = ({ rates, units }: Exclude<QuotaMeasurement, { missing: string }>): string => {
  const heads = ["ADMITTED", "REFUSED", "FAILED", "P50", "P99", "CALLS FOR EACH", "CONFLICTS", "THROTTLED"];
  const rateRows = rates.map(({ rate, quotas, admitted, refused, failed, p50, p99, calls, conflicts, throttled }) => [
    `${rate} a second${quotas > 1 ? `, in ${quotas} quotas` : ""}`,
    ...[admitted, refused, failed].map(String),
    ...[p50, p99].map(formatMilliseconds),
    ...[calls.toFixed(1), `${conflicts}`, `${throttled}`],
  ]);
  const costs = units.map(({ what, read, write, dollars }) => [what, `${read}`, `${write}`, `$${dollars.toFixed(2)}`]);
  const costHeads = ["READ UNITS", "WRITE UNITS", "COST OF A MILLION REVIEWS"];
  const costTable = formatTable([["REVIEW", ...costHeads], ...costs]);
  return `${formatTable([["CHARGES OF ONE QUOTA", ...heads], ...rateRows])}\n${costTable}`;
};

/**
 * Returns tables of the costs of all writes, of the calls for a Pod, and of each kind of write, by way to call the
 * rules.
 */
export const formatTraceMeasurement = ({ title, ways }: TraceMeasurement): string => {
  // Only ways that call Postern have dollars.
  const ours = ways.filter(({ dollars }) => dollars);
  const findChanged = ({ writeKinds }: TraceWayMeasurement) => writeKinds.find(({ changes }) => changes !== undefined);
  const rows = ours.map((way) => {
    const average = (value: (kind: TraceKindMeasurement) => number) =>
      way.writeKinds.reduce((total, kind) => total + kind.share * value(kind), 0);
    const calling = 100 * average((kind) => (countAllCalls(kind) > 0 ? 1 : 0));
    const { mutatingRounds = 0, rounds = 0 } = findChanged(way) ?? {};
    const callsAfterOwnChange = average(({ repeatedCalls }) => repeatedCalls.afterOwnChange);
    return [
      way.what,
      average(countAllCalls).toFixed(3),
      `${calling.toFixed(1)} %${describeLimit(calling, { limit: 5, digits: 1 })}`,
      `${mutatingRounds.toFixed(2)}${describeLimit(mutatingRounds, { limit: 1.3, digits: 2 })}`,
      rounds.toFixed(2),
      `${callsAfterOwnChange.toFixed(3)}${describeLimit(callsAfterOwnChange, { limit: 0, digits: 3 })}`,
      ...[way.dollars?.url, way.dollars?.http].map((dollars) => `$${dollars?.toFixed(3)}`),
    ];
  });
  const heads = [
    "CALLS A WRITE",
    "WRITES THAT CALL",
    "MUTATING ROUNDS FOR THREE CHANGES",
    "ALL ROUNDS",
    "CALLS AFTER OWN CHANGE",
    "COST OF A MILLION WRITES, FUNCTION URL",
    "HTTP API",
  ];
  const listCalls = (way: TraceWayMeasurement, phase: string) =>
    Object.entries(findChanged(way)?.calls ?? {}).flatMap(([called, count]) =>
      called.endsWith(` ${phase}`) ? [`${called.slice(0, -phase.length - 1)} ${count.toFixed(1)}`] : [],
    );
  const pods = ours.map((way) => [
    way.what,
    ...["mutate", "validate"].map((phase) => listCalls(way, phase).join(", ")),
  ]);

  const delays = Object.keys(ways[0]?.writeKinds[0]?.added ?? {}).map(Number);
  const formatAdded = (kinds: TraceKindMeasurement[]) =>
    delays.map((delay) => {
      const times = kinds.flatMap(({ share, added: { [delay]: times = [] } }) =>
        times.map((time) => [time, share / times.length] as const),
      );
      return computeWeightedQuantiles(times, [0.5, 0.99, 0.999])
        .map((time) => time.toFixed(1))
        .join(" / ");
    });
  const added = delays.map((delay) => `ADDED AT ${delay} MS: P50 / P99 / P99.9`);
  const tables = ways.map(({ what, writeKinds, dollars }, index) => {
    const shownKinds = writeKinds.filter((kind) => index === 0 || !ways[0]?.writeKinds.includes(kind));
    const formatKind = (kind: TraceKindMeasurement) => [
      kind.what,
      `${(100 * kind.share).toFixed(2)} %`,
      ...(dollars ? [countAllCalls(kind).toFixed(1), kind.rounds.toFixed(1)] : ["", ""]),
      ...formatAdded([kind]),
    ];
    return formatTable([
      [what.toUpperCase(), "SHARE", "CALLS", "ROUNDS", ...added],
      ...(dollars ? [["all writes", "", "", "", ...formatAdded(writeKinds)]] : []),
      ...shownKinds.map(formatKind),
    ]);
  });
  return [
    formatTable([[title, ...heads], ...rows]),
    formatTable([["A POD THAT NEEDS THREE CHANGES", "MUTATING CALLS", "VALIDATING CALLS"], ...pods]),
    ...tables,
  ].join("\n");
};

/** Describes a ratio, and whether its median is within the largest allowed value, if there is one. */
const describeRatio = ({ median, p10, p90 }: RatioSummary, { limit }: { limit?: number | undefined } = {}) =>
  `${median.toFixed(2)} (${p10.toFixed(2)}–${p90.toFixed(2)})${describeLimit(median, { limit, digits: 2 })}`;

/** Says whether a measured value, rounded to `digits`, is within its limit: ", within 1.5" or ", above 1.5". */
const describeLimit = (value: number, { limit, digits }: { limit: number | undefined; digits: number }): string => {
  if (limit === undefined) return "";
  return Number(value.toFixed(digits)) <= limit ? `, within ${limit}` : `, above ${limit}`;
};

const formatMilliseconds = (value: number | undefined) => (value === undefined ? "" : `${value.toFixed(2)} ms`);

/** Returns the lines that explain the numbers. "Its median ratio": one webhook's added time divided by another's. */
export const explainBenchTables = (hasCreates: boolean) =>
  [
    "A ratio is a median, with the 10th and 90th percentiles in brackets. On a busy machine, these are further apart.",
    ...(hasCreates
      ? [
          "A create is of a pod of 5 KB, a dry run, one at a time. Added is the difference to the create without a webhook in",
          "the same round; limits apply to its median ratio. CPU is the webhook's own, for a review, and has no limit.",
        ]
      : []),
  ].join("\n");
