// This file computes how long a write could wait for webhook entries whose endpoints don't answer. The API server calls
// mutating entries one after the other, for at most 34 s in all. It calls validating entries in parallel.
import { toResourceKey } from "#lib/request-match.ts";
import type { Operation } from "#lib/review.ts";
import type { RequestMatch } from "#lib/rule.ts";
import { coversResource, vitalResources } from "./vital-resources.ts";

/** What is known of a webhook entry to compute waits. */
export interface EntryWithTimeout {
  webhook: {
    name: string;
    rules: readonly RequestMatch[];
    timeoutSeconds: number;
    reinvocationPolicy?: "IfNeeded" | "Never";
  };
  /** Of all entries with the same value here, the API server calls at most one for a request. */
  exclusiveGroup: string;
  /** The resources for which the entry isn't called, as `group/resource/subresource`. */
  exemptResources: readonly string[];
}

/** The webhook entries of a cluster by phase, with what is needed to compute how long a write could wait for them. */
export interface EntriesByPhase {
  mutating: readonly EntryWithTimeout[];
  validating: readonly EntryWithTimeout[];
}

/** A write that would wait for webhooks longer than is safe. */
export interface LongWait {
  kind: WriteKind;
  seconds: number;
  /** Describes the wait, its entries and the limit. */
  sentence: string;
  /** The mutating entries that the write waits for. */
  mutating: readonly EntryWithTimeout[];
}

/** "vital" if the control plane doesn't work without the write, for instance the renewal of a lease. */
type WriteKind = "vital" | "other";

/** A longer wait, in seconds, is not safe. */
const mostSeconds: Record<WriteKind, number> = { vital: 4, other: 20 };

const operations = ["CREATE", "UPDATE", "DELETE", "CONNECT"] satisfies Operation[];

/** The resources for which reports show how long a write waits for webhooks. */
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

/** Finds waits that are too long. Returns at most two: the longest for vital resources, and the longest for others. */
export const findLongWaits = (entries: EntriesByPhase): LongWait[] => {
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

/** Returns for instance "a CREATE of pods could wait 20 s for …, more than the 10 s that are safe". */
const describeWait = (kind: WriteKind, { seconds, path, operation, mutating, validating }: Wait): string => {
  const names = [...mutating, ...validating].map(({ webhook }) => webhook.name.replace(/\.postern\.dev$/, ""));
  const write = `${operation === "UPDATE" ? "an" : "a"} ${operation} of ${path}`;
  // A rule that mutates and validates has two entries, so its name is there twice.
  const called = names.length > 10 ? `${names.length} entries` : [...new Set(names)].join(", ");
  const sentence = `${write} could wait ${seconds} s for ${called}, more than the ${mostSeconds[kind]} s that are safe`;
  if (kind === "other") return sentence;
  return `${sentence}: ${path === "leases" ? "leader election gives up after 5 s" : "the control plane depends on it"}`;
};

/** Describes how long usual writes could wait: for each resource, the longest wait of all operations. */
export const describeUsualWaits = (entries: EntriesByPhase): string => {
  const waits = usualWrites.map(([group, path]) => {
    const seconds = operations.map((operation) => findWait(entries, group, path, operation).seconds);
    return { path, seconds: Math.max(...seconds) };
  });
  // Leases are always shown, because nodes and leaders fail first if their writes wait.
  const shown = waits.filter(({ path, seconds }) => path === "leases" || seconds > 0);
  return `if endpoints hang, writes wait at most: ${shown.map(({ path, seconds }) => `${path} ${seconds} s`).join(", ")}`;
};

/** A write, and how long it could wait for which entries. */
interface Wait extends EntriesByPhase {
  seconds: number;
  path: string;
  operation: Operation;
}

/** Returns how long a write could wait, and for which entries: all mutating ones, and the slowest validating one. */
const findWait = (entries: EntriesByPhase, group: string, path: string, operation: Operation): Wait => {
  const isCalled = ({ webhook, exemptResources }: EntryWithTimeout) =>
    !exemptResources.includes(toResourceKey(group, path)) &&
    webhook.rules.some(
      (match) =>
        coversResource(match, group, path) &&
        match.operations.some((matched) => matched === "*" || matched === operation),
    );
  const mutating = entries.mutating.filter(isCalled);
  const [slowest] = entries.validating
    .filter(isCalled)
    .sort((left, right) => right.webhook.timeoutSeconds - left.webhook.timeoutSeconds);
  // Only one entry of an exclusive group is called. It may be the one with the longest timeout.
  const calls = [...Map.groupBy(mutating, ({ exclusiveGroup }) => exclusiveGroup).values()].map((alternatives) => ({
    seconds: Math.max(...alternatives.map(({ webhook }) => webhook.timeoutSeconds)),
    isRepeatable: alternatives.some(({ webhook }) => webhook.reinvocationPolicy === "IfNeeded"),
  }));
  // If a later entry's endpoint changes the object, the API server calls earlier entries again. These calls count only
  // for vital writes. Other writes may wait 20 s for first calls: 14 s of the API server's 34 s are left for repeats.
  const repeated = isVital(group, path) ? calls.slice(0, -1).filter(({ isRepeatable }) => isRepeatable) : [];
  const mutatingSeconds = [...calls, ...repeated].reduce((sum, call) => sum + call.seconds, 0);
  const seconds = mutatingSeconds + (slowest?.webhook.timeoutSeconds ?? 0);
  return { seconds, path, operation, mutating, validating: slowest ? [slowest] : [] };
};

/**
 * Lists resources such as ["apps", "deployments/scale"] whose writes may wait for webhooks for different times: usual
 * ones first, then vital ones, then those that the rules of webhook entries name. A rule's asterisk stays: `pods/*`.
 */
const listResources = ({ mutating, validating }: EntriesByPhase): [group: string, path: string][] => {
  const rules = [...mutating, ...validating].flatMap(({ webhook }) => webhook.rules);
  const usualAndVital = [...usualWrites, ...vitalResources.map(({ group, path }): [string, string] => [group, path])];
  const ofEntries = [...new Set(rules.flatMap(({ apiGroups }) => apiGroups))].flatMap((group) => {
    const paths = rules
      .filter(({ apiGroups }) => apiGroups.includes(group) || apiGroups.includes("*"))
      .flatMap(({ resources }) => resources.map((path) => path.split("/")));
    const names = [...new Set(paths.map(([name = ""]) => name))];
    const subresources = [
      ...new Set(["", ...paths.flatMap(([, subresource]) => (subresource ? `/${subresource}` : []))]),
    ];
    // Each name gets each subresource: rules for `pods/*` and `*/scale` both match `pods/scale`, which neither names.
    return names.flatMap((name) =>
      subresources.map((subresource): [string, string] => [group, `${name}${subresource}`]),
    );
  });
  return [...usualAndVital, ...ofEntries];
};
