// This file counts the webhook calls that a write waits for in series, and finds a group of rules that reduces them.
// The API server calls mutating entries one after the other, and then all validating entries in parallel.
import { readFile } from "node:fs/promises";
import { parse } from "yaml";
import { runAdmissionChain } from "#infra/apiserver/admission/admit.ts";
import { celEvaluator } from "#infra/apiserver/admission/conditions.ts";
import { parseWebhookConfigurations } from "#infra/apiserver/admission/hooks.ts";
import type { ImitatedServerFunctions } from "#infra/apiserver/admission/types.ts";
import { getOwn } from "#lib/json.ts";
import type { KubernetesObject, UserInfo } from "#lib/review.ts";
import { fillDefaults, prepareForStorage } from "../apiserver/defaults/defaults.ts";
import { buildKindIndex } from "../apiserver/kinds/kinds.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import type { ClusterConfig, RuleGroup } from "../config/config.ts";
import { buildUncheckedConfigurations, formatEntryName, getRuleNameOfEntry } from "../webhooks/configurations.ts";
import { groupCompatibleRules } from "../webhooks/groups.ts";
import { createListedEndpoint, listServedRulesAndGroups } from "./served.ts";

/** A suggested group, and the usual writes that would wait for fewer calls with it. */
export interface GroupAdvice {
  group: { name: string; members: string[] };
  /** The numbers of calls in series without and with (`grouped`) the group. The write that saves most comes first. */
  writes: { write: string; calls: number; grouped: number }[];
}

/** The calls for one of the usual writes. */
interface WriteCalls {
  write: string;
  /** The number of calls in series: all validating calls count as one, because they are made at the same time. */
  calls: number;
  /** The rules and groups of the mutating entries that are called. */
  calledMutatorNames: string[];
}

/**
 * Returns the group that would save most calls for usual writes in `cluster`; undefined if no group saves calls. The
 * other `clusters` have the same groups, so the group must be possible in them, too.
 */
export const findGroupSavingMostCalls = async (
  catalogue: CatalogueRule[],
  cluster: ClusterConfig,
  clusters: Iterable<ClusterConfig> = [],
): Promise<GroupAdvice | undefined> => {
  const before = await countSerialCalls(catalogue, cluster);
  const candidates = before.flatMap((write) => listCandidates(write, catalogue, cluster, [cluster, ...clusters]));
  // Several writes may suggest the same group.
  const distinct = new Map(candidates.map((group) => [group.members.map(({ name }) => name).join(), group]));
  const advices: GroupAdvice[] = [];
  for (const group of distinct.values()) {
    const groups = [...cluster.groups.filter(({ name }) => name !== group.name), group];
    const after = await countSerialCalls(catalogue, { ...cluster, groups });
    const writes = before
      .map(({ write, calls }, index) => ({ write, calls, grouped: after[index]?.calls ?? calls }))
      .filter(({ calls, grouped }) => grouped < calls)
      .sort((left, right) => countSaved([right]) - countSaved([left]));
    if (writes.length > 0)
      advices.push({ group: { name: group.name, members: group.members.map(({ name }) => name) }, writes });
  }
  return advices.sort((left, right) => countSaved(right.writes) - countSaved(left.writes))[0];
};

const countSaved = (writes: GroupAdvice["writes"]) =>
  writes.reduce((sum, { calls, grouped }) => sum + calls - grouped, 0);

/** Describes a suggested group: a line for each of at most three writes, and the line for postern.yaml. */
export const describeGroupAdvice = ({ group: { name, members }, writes }: GroupAdvice): string[] => [
  ...writes.slice(0, 3).map(({ write, calls, grouped }, index, shown) => {
    const end = index === shown.length - 1 ? ":" : "";
    return `${calls} calls in series for ${write}; the group ${name} makes it ${grouped}${end}`;
  }),
  `  groups: { ${name}: [${members.join(", ")}] }`,
];

/** Returns groups that would save calls for a write: new groups, and groups of postern.yaml with more members. */
const listCandidates = (
  { calledMutatorNames }: WriteCalls,
  catalogue: CatalogueRule[],
  { groups }: ClusterConfig,
  clusters: readonly ClusterConfig[],
): RuleGroup[] => {
  const calledGroups = groups.filter(({ name }) => calledMutatorNames.includes(name));
  const currentMembers = calledGroups.map(({ members }) => members);
  const rules = catalogue.filter(({ name }) => calledMutatorNames.includes(name));
  return groupCompatibleRules(rules, clusters, currentMembers).flatMap((set, index) => {
    // The first sets are those of `currentMembers`, in this order, with the added members.
    if (set.length <= (currentMembers[index]?.length ?? 1)) return [];
    const name = calledGroups[index]?.name ?? chooseName([...catalogue, ...groups]);
    return [{ name, members: catalogue.filter((listed) => set.includes(listed)) }];
  });
};

const chooseName = (taken: readonly { name: string }[], number = 1): string => {
  const name = number === 1 ? "mutators" : `mutators-${number}`;
  return taken.some((other) => other.name === name) ? chooseName(taken, number + 1) : name;
};

/**
 * Counts the calls for each usual write in a cluster, by imitating an API server. Rules that need nothing
 * but the request are evaluated, because their changes may lead to more calls. Other rules are assumed to admit the
 * object without a change.
 */
export const countSerialCalls = async (catalogue: CatalogueRule[], cluster: ClusterConfig): Promise<WriteCalls[]> => {
  const { kubernetes } = cluster;
  const hooks = parseWebhookConfigurations(buildUncheckedConfigurations(catalogue, cluster), kubernetes);
  const { equivalents, convert, of: findKind } = buildKindIndex([], kubernetes);
  const context: ImitatedServerFunctions = {
    kubernetes,
    findNamespace: (name) => ({ metadata: { name } }),
    equivalents,
    convert,
    addDefaults: (object, step) => fillDefaults(object as KubernetesObject, kubernetes, step).object,
    prepare: (object) => prepareForStorage(object as KubernetesObject, kubernetes),
    call: createRuleCaller(catalogue, cluster),
    cel: celEvaluator,
  };
  const counted: WriteCalls[] = [];
  for (const { write, user: userInfo = person, object } of usualWrites) {
    const found = findKind(object.apiVersion ?? "", object.kind ?? "");
    if (found === undefined) continue;
    const { kind, resource } = found;
    // The only object without a namespace is a Namespace: its own name is the namespace of the request.
    const { name = "", namespace = name } = object.metadata ?? {};
    const options = { kind: "CreateOptions", apiVersion: "meta.k8s.io/v1" };
    const request = { kind, resource, name, namespace, operation: "CREATE" as const, userInfo, dryRun: false, options };
    const { steps } = await runAdmissionChain({ ...request, object, oldObject: null }, hooks, context);
    // An entry with a condition that only the cluster's authorizer can evaluate counts as called.
    const called = steps.filter(({ outcome }) => outcome !== "skipped");
    const calledMutatorNames = called.flatMap(({ phase, hook }) =>
      phase === "mutate" ? [getRuleNameOfEntry({ name: hook }) ?? ""] : [],
    );
    // All validating entries are called at the same time, so they count as one call.
    const validatingCalls = called.length > calledMutatorNames.length ? 1 : 0;
    counted.push({ write, calls: calledMutatorNames.length + validatingCalls, calledMutatorNames });
  }
  return counted;
};

/**
 * Returns a function that evaluates, in this process, rules without `needs` (such as reads of a cluster). For other
 * rules, validating phases and refused requests, it admits the object: all later entries are then called and counted.
 */
const createRuleCaller = (catalogue: CatalogueRule[], cluster: ClusterConfig): ImitatedServerFunctions["call"] => {
  const pure = catalogue.filter(({ rule }) => !rule.needs);
  const groups = cluster.groups
    .map(({ name, members }) => ({ name, members: members.filter((listed) => pure.includes(listed)) }))
    .filter(({ members }) => members.length > 0);
  const config = { rules: cluster.rules, clusters: new Map([["local", cluster]]), groups };
  const endpoints = new Map(
    listServedRulesAndGroups(config, pure).map((listed) => [
      listed.name,
      createListedEndpoint(config, listed, { publicKeys: "", writeLogLine: () => {} }),
    ]),
  );
  return async ({ name, phase }, review) => {
    const rule = getRuleNameOfEntry({ name }) ?? "";
    // An entry's name is RULE.postern.dev, or VARIANT.RULE.postern.dev for a variant of a rule.
    const variant = name === formatEntryName(rule) ? undefined : name.split(".")[0];
    const evaluation = { phase, variant, cluster: "local", review, deadline: Date.now() + 10_000 };
    const answer = phase === "mutate" ? await endpoints.get(rule)?.evaluateReview(evaluation) : undefined;
    if (getOwn(getOwn(answer?.response, "response"), "allowed") === true) return { body: answer?.response };
    const { apiVersion, kind, request } = review;
    return { body: { apiVersion, kind, response: { uid: request.uid, allowed: true } } };
  };
};

const person: UserInfo = { username: "jane", groups: ["system:authenticated"] };

/** Typical writes to a cluster, for which webhook calls are counted. `write` is a text such as "a Deployment". */
export const usualWrites: { write: string; user?: UserInfo; object: KubernetesObject }[] = parse(
  await readFile(new URL("usual-writes.yaml", import.meta.url), "utf8"),
  { merge: true },
);
