// How many calls a write waits for one after the other, and the group that makes them fewer. The API server calls
// mutating entries in series, then all validating ones at the same time.
import { readFile } from "node:fs/promises";
import { parse } from "yaml";
import { celEvaluator } from "#infra/apiserver/admission/conditions.ts";
import { type DefaultedWebhookEntry, parseWebhookConfigurations } from "#infra/apiserver/admission/hooks.ts";
import { createConvertibleRequestObjects, type MatchContext, matchHook } from "#infra/apiserver/admission/matching.ts";
import type { AdmissionAttributes } from "#infra/apiserver/admission/types.ts";
import type { KubernetesObject, UserInfo } from "#lib/review.ts";
import { fillDefaults } from "../apiserver/defaults/defaults.ts";
import { buildKindIndex } from "../apiserver/kinds/kinds.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import type { ClusterConfig, RuleGroup } from "../config/config.ts";
import { buildUncheckedConfigurations, getRuleNameOfEntry } from "./configurations.ts";
import { groupCompatibleRules } from "./groups.ts";

/** A group that postern.yaml lacks, and the usual writes that would wait for fewer calls with it. */
export interface GroupAdvice {
  group: { name: string; members: string[] };
  /** The numbers of calls in series without and with the group. The write that saves most comes first. */
  writes: { write: string; calls: number; grouped: number }[];
}

/** The calls for one of the usual writes. */
interface WriteCalls {
  write: string;
  /** The number of calls in series: all validating calls count as one, because they are made at the same time. */
  calls: number;
  /** The rules and groups of the mutating entries that are called. */
  mutating: string[];
}

/** Returns the group that saves most calls of the usual writes and that all clusters can have; undefined if there is none. */
export const findBestGroup = (
  catalogue: CatalogueRule[],
  cluster: ClusterConfig,
  clusters: Iterable<ClusterConfig> = [],
): GroupAdvice | undefined => {
  const before = countSerialCalls(catalogue, cluster);
  const candidates = before.flatMap((write) => listCandidates(write, catalogue, cluster, [cluster, ...clusters]));
  const advice = new Map(candidates.map((group) => [group.members.join(), group])).values().map((group) => {
    const groups = [...cluster.groups.filter(({ name }) => name !== group.name), group];
    const after = countSerialCalls(catalogue, { ...cluster, groups });
    const writes = before
      .map(({ write, calls }, index) => ({ write, calls, grouped: after[index]?.calls ?? calls }))
      .filter(({ calls, grouped }) => grouped < calls)
      .sort((one, other) => countSaved([other]) - countSaved([one]));
    return { group: { name: group.name, members: group.members.map(({ name }) => name) }, writes };
  });
  return advice.toArray().sort((one, other) => countSaved(other.writes) - countSaved(one.writes))[0];
};

const countSaved = (writes: GroupAdvice["writes"]) =>
  writes.reduce((sum, { calls, grouped }) => sum + calls - grouped, 0);

/** Describes the advice in lines: at most three writes, and the group as it stands in postern.yaml. */
export const describeGroupAdvice = ({ group: { name, members }, writes }: GroupAdvice): string[] => [
  ...writes.slice(0, 3).map(({ write, calls, grouped }, index, shown) => {
    const end = index === shown.length - 1 ? ":" : "";
    return `${calls} calls in series for ${write}; the group ${name} makes it ${grouped}${end}`;
  }),
  "  groups:",
  `    ${name}: [${members.join(", ")}]`,
];

/** Returns the groups that could replace entries called for a write: new ones, or those of postern.yaml with more rules. */
const listCandidates = (
  { mutating }: WriteCalls,
  catalogue: CatalogueRule[],
  { groups }: ClusterConfig,
  clusters: readonly ClusterConfig[],
): RuleGroup[] => {
  const called = groups.filter(({ name }) => mutating.includes(name));
  const started = called.map(({ members }) => members);
  const rules = catalogue.filter(({ name }) => mutating.includes(name));
  return groupCompatibleRules(rules, clusters, started).flatMap((set, index) => {
    if (set.length <= (started[index]?.length ?? 1)) return [];
    const name = called[index]?.name ?? chooseName([...catalogue, ...groups]);
    return [{ name, members: catalogue.filter((listed) => set.includes(listed)) }];
  });
};

const chooseName = (taken: readonly { name: string }[], number = 1): string => {
  const name = number === 1 ? "mutators" : `mutators-${number}`;
  return taken.some((other) => other.name === name) ? chooseName(taken, number + 1) : name;
};

/** Counts the calls of each usual write in a cluster, without those that the API server repeats after a change. */
export const countSerialCalls = (catalogue: CatalogueRule[], cluster: ClusterConfig): WriteCalls[] => {
  const { kubernetes } = cluster;
  const hooks = parseWebhookConfigurations(buildUncheckedConfigurations(catalogue, cluster), kubernetes);
  const { equivalents, convert, of: findKind } = buildKindIndex([], kubernetes);
  const findNamespace = (name: string) => ({ metadata: { name } });
  const context: MatchContext = { kubernetes, findNamespace, equivalents, cel: celEvaluator };
  return usualWrites.flatMap(({ write, user = person, object }) => {
    const found = findKind(object.apiVersion ?? "", object.kind ?? "");
    if (found === undefined) return [];
    const { kind, resource } = found;
    const { name = "", namespace = name } = object.metadata ?? {};
    const attributes: AdmissionAttributes = {
      kind,
      resource,
      name,
      namespace,
      operation: "CREATE",
      userInfo: user,
      object: fillDefaults(object, kubernetes).object,
      oldObject: null,
      dryRun: false,
      options: { kind: "CreateOptions", apiVersion: "meta.k8s.io/v1" },
    };
    // An entry counts as called if only the cluster's authorizer could evaluate its condition.
    const isCalled = (hook: DefaultedWebhookEntry) =>
      !("skipped" in matchHook(hook, attributes, createConvertibleRequestObjects(attributes, convert), context));
    const mutating = hooks.mutating.filter(isCalled).map((hook) => getRuleNameOfEntry(hook) ?? "");
    return [{ write, calls: mutating.length + Number(hooks.validating.some(isCalled)), mutating }];
  });
};

const person: UserInfo = { username: "jane", groups: ["system:authenticated"] };

const usualWrites: { write: string; user?: UserInfo; object: KubernetesObject }[] = parse(
  await readFile(new URL("usual-writes.yaml", import.meta.url), "utf8"),
  { merge: true },
);
