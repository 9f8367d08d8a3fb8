// How long a write could wait for webhook entries whose endpoints hang. The API server calls mutating entries one by one,
// within a limit of 34 s, and validating entries all at once.
import { toResourceKey } from "#lib/request-match.ts";
import type { Operation } from "#lib/review.ts";
import type { RequestMatch } from "#lib/rule.ts";
import { coversResource, vitalResources } from "./vital-resources.ts";

export interface TimedEntry {
  webhook: {
    name: string;
    rules: readonly RequestMatch[];
    timeoutSeconds: number;
    reinvocationPolicy?: "IfNeeded" | "Never";
  };
  /** The API server calls at most one of the entries with the same value for a request. */
  oneOf: string;
  /** The exempt resources, as `group/resource/subresource`. */
  exemptResources: readonly string[];
}

export interface TimedEntries {
  mutating: readonly TimedEntry[];
  validating: readonly TimedEntry[];
}

export interface LongWait {
  kind: WriteKind;
  seconds: number;
  /** Describes the wait, its entries and the limit. */
  sentence: string;
  mutating: readonly TimedEntry[];
}

/** Whether a write keeps a control plane alive. */
type WriteKind = "vital" | "other";

/** The most seconds that a write may wait. */
const mostSeconds: Record<WriteKind, number> = { vital: 4, other: 20 };

const operations = ["CREATE", "UPDATE", "DELETE", "CONNECT"] satisfies Operation[];

/** Writes whose waits are shown, by the resource's group and path. */
const usualWrites: readonly [group: string, path: string][] = [
  ["coordination.k8s.io", "leases"],
  ["", "nodes/status"],
  ["", "pods/status"],
  ["", "events"],
  ["", "pods"],
  ["", "pods/binding"],
  ["", "serviceaccounts/token"],
  ["apps", "deployments"],
  ["", "configmaps"],
  ["", "namespaces"],
];

/** Returns the longest waits that aren't safe: at most one for vital resources, and one for others. */
export const findLongWaits = (entries: TimedEntries): LongWait[] => {
  const longest = new Map<WriteKind, Wait>();
  for (const [group, path] of listResources(entries)) {
    const kind = isVital(group, path) ? "vital" : "other";
    for (const operation of operations) {
      const wait = findWait(entries, group, path, operation);
      if (wait.seconds > (longest.get(kind)?.seconds ?? mostSeconds[kind])) longest.set(kind, wait);
    }
  }
  return [...longest].map(([kind, wait]) => ({
    kind,
    seconds: wait.seconds,
    sentence: describeWait(kind, wait),
    mutating: wait.mutating,
  }));
};

const isVital = (group: string, path: string) =>
  vitalResources.some((vital) => vital.group === group && vital.path === path);

const describeWait = (kind: WriteKind, { seconds, path, operation, mutating, validating }: Wait): string => {
  const names = [...mutating, ...validating].map(({ webhook }) => webhook.name.replace(/\.postern\.dev$/, ""));
  const write = `${operation === "UPDATE" ? "an" : "a"} ${operation} of ${path}`;
  // A rule may have an entry in each phase.
  const called = names.length > 10 ? `${names.length} entries` : [...new Set(names)].join(", ");
  const sentence = `${write} could wait ${seconds} s for ${called}, more than the ${mostSeconds[kind]} s that are safe`;
  if (kind === "other") return sentence;
  return `${sentence}: ${path === "leases" ? "leader election gives up after 5 s" : "the control plane depends on it"}`;
};

/** Describes how long the usual writes could wait, each with its slowest operation. */
export const describeUsualWaits = (entries: TimedEntries): string => {
  const waits = usualWrites.map(([group, path]) => {
    const seconds = operations.map((operation) => findWait(entries, group, path, operation).seconds);
    return { path, seconds: Math.max(...seconds) };
  });
  const shown = waits.filter(({ path, seconds }) => path === "leases" || seconds > 0);
  return `if endpoints hang, writes wait at most: ${shown.map(({ path, seconds }) => `${path} ${seconds} s`).join(", ")}`;
};

interface Wait extends TimedEntries {
  seconds: number;
  path: string;
  operation: Operation;
}

/** Returns how long a request could wait, and for which entries; of the validating ones, for the slowest. */
const findWait = (entries: TimedEntries, group: string, path: string, operation: Operation): Wait => {
  const isCalled = ({ webhook, exemptResources }: TimedEntry) =>
    !exemptResources.includes(toResourceKey(group, path)) &&
    webhook.rules.some(
      (match) =>
        coversResource(match, group, path) &&
        ["*", operation].some((wanted) => match.operations.some((own) => own === wanted)),
    );
  const mutating = entries.mutating.filter(isCalled);
  const [slowest] = entries.validating
    .filter(isCalled)
    .sort((one, other) => other.webhook.timeoutSeconds - one.webhook.timeoutSeconds);
  // Of entries of which one is called, the longest timeout counts.
  const turns = Map.groupBy(mutating, ({ oneOf }) => oneOf).values();
  const calls = turns
    .map((some) => ({
      seconds: Math.max(...some.map(({ webhook }) => webhook.timeoutSeconds)),
      isRepeatable: some.some(({ webhook }) => webhook.reinvocationPolicy === "IfNeeded"),
    }))
    .toArray();
  // If a later endpoint is slow, but answers with a change, the earlier ones are called again. For other writes, the API
  // server's own limit has room for that.
  const repeated = isVital(group, path) ? calls.slice(0, -1).filter(({ isRepeatable }) => isRepeatable) : [];
  const inTurn = [...calls, ...repeated].reduce((sum, call) => sum + call.seconds, 0);
  const seconds = inTurn + (slowest?.webhook.timeoutSeconds ?? 0);
  return { seconds, path, operation, mutating, validating: slowest ? [slowest] : [] };
};

/**
 * Lists resources of every kind that the entries tell apart, by group and path; usual ones come first. A path has an
 * asterisk where no entry names the resource or the subresource.
 */
const listResources = ({ mutating, validating }: TimedEntries): [group: string, path: string][] => {
  const rows = [...mutating, ...validating].flatMap(({ webhook }) => webhook.rules);
  const known = [...usualWrites, ...vitalResources.map(({ group, path }): [string, string] => [group, path])];
  const combined = [...new Set(rows.flatMap(({ apiGroups }) => apiGroups))].flatMap((group) => {
    const paths = rows
      .filter(({ apiGroups }) => apiGroups.includes(group) || apiGroups.includes("*"))
      .flatMap(({ resources }) => resources.map((path) => path.split("/")));
    const names = [...new Set(paths.map(([name = ""]) => name))];
    const subs = [...new Set(["", ...paths.flatMap(([, sub]) => sub ?? [])])];
    return names.flatMap((name) => subs.map((sub): [string, string] => [group, sub === "" ? name : `${name}/${sub}`]));
  });
  return [...known, ...combined];
};
