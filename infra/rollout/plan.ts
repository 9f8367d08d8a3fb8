import { isDeepStrictEqual } from "node:util";
import { type EndpointConfig, findClusterSetup } from "#lib/endpoint.ts";
import { isMap } from "#lib/json.ts";
import { hasSameContent, type WarmVersion } from "../aws/lambda-functions.ts";
import type { StackTemplate } from "../aws/stack.ts";
import type { AwsStage } from "../aws/stage.ts";
import { runInParallel } from "../cli/progress.ts";
import type { ClusterPlan } from "./cluster-plan.ts";
import { type FunctionState, readFunctionState } from "./disarm.ts";
import type { PackagedRule } from "./package.ts";
import { listReleasedVersions, type Release } from "./releases.ts";
import { isUnchanged, type StackDifferences } from "./stack-plan.ts";

/** What a deployment changes about one rule's function, and why. */
export interface RuleChangePlan {
  part: PackagedRule;
  /** The present state of the rule's function; undefined if the rule has no function yet. */
  known: FunctionState | undefined;
  /** The differences from the wanted state, in words such as new, code or settings; empty if there are none. */
  changes: string[];
  settings: string[];
}

/** The warm environments of one rule: what postern.yaml asks for, and what Lambda has. */
export interface WarmRulePlan {
  rule: string;
  /** The number that the rule's version must have; 0 if postern.yaml asks for none any more. */
  wanted: number;
  there: WarmVersion[];
  /** What the deployment changes about them; empty if nothing. */
  changes: string[];
}

export interface DeploymentPlan {
  stage: string;
  stack: StackDifferences;
  template: StackTemplate;
  parts: RuleChangePlan[];
  /** The names of rules that are not turned on any more; their functions stay for one more release. */
  kept: string[];
  /** The rules that have warm environments, or had some. */
  warm: WarmRulePlan[];
  rights: { added: string[]; removed: string[] };
  clusters: ClusterPlan[];
  /** A sentence for each limit of AWS that the deployment would exceed. */
  limits: string[];
  notes: string[];
}

/** Reads the state of each rule's function: its alias, its versions, and whether it is disarmed. */
export const readFunctionStates = async (
  stage: AwsStage,
  rules: string[],
  all: Release[],
): Promise<Map<string, FunctionState>> => {
  const there = new Set(await stage.functions.listRules());
  const found = await runInParallel(
    5,
    rules.filter((rule) => there.has(rule)),
    async (rule) => [rule, await readFunctionState(stage.functions, rule, listReleasedVersions(all, rule))] as const,
  );
  return new Map(found);
};

export const planRuleChanges = (
  parts: PackagedRule[],
  states: ReadonlyMap<string, FunctionState>,
  all: Release[],
  clusters: readonly string[],
): RuleChangePlan[] =>
  parts.map((part) => {
    const state = states.get(part.name);
    if (state === undefined) return { part, known: state, changes: ["new"], settings: [] };
    const before = all.find(({ rules }) => rules[part.name]?.version === state.ruleVersion.version)?.rules[part.name];
    const settings = before ? compareSetups(before.share, part.config, clusters) : [];
    const isSame = hasSameContent(state.ruleVersion, part.wanted);
    const reasons = [
      ...(before && before.logic !== part.logic ? ["code"] : []),
      ...(settings.length > 0 ? ["settings"] : []),
      ...(isDeepStrictEqual(state.ruleVersion.environment, { ...part.wanted.environment }) ? [] : ["keys"]),
      ...(state.ruleVersion.memorySize === part.wanted.memorySize && state.ruleVersion.timeout === part.wanted.timeout
        ? []
        : ["sizing"]),
      ...(state.ruleVersion.placement.logGroup === part.wanted.placement.logGroup ? [] : ["log group"]),
      ...(isDeepStrictEqual(state.ruleVersion.placement.network, part.wanted.placement.network) ? [] : ["network"]),
    ];
    const changes = isSame ? (before ? [] : ["not tested yet"]) : reasons.length > 0 ? reasons : ["code"];
    const trial = Object.keys(state.live.weights).length > 0 ? ["an abandoned canary"] : [];
    return { part, known: state, changes: [...changes, ...trial], settings };
  });

/** Returns a line for each changed setting and the clusters where it changes, such as `a.settings.minimum: 2 → 3`. */
const compareSetups = (before: EndpointConfig, after: EndpointConfig, clusters: readonly string[]): string[] => {
  const names = [...new Set([...Object.keys(before.clusters), ...Object.keys(after.clusters), ...clusters])];
  const compared = new Map<unknown, Map<unknown, string[]>>();
  // Many clusters have the same setups, which are compared once.
  const compareOnce = (name: string): string[] => {
    const [old, fresh] = [findClusterSetup(before, name), findClusterSetup(after, name)];
    const known = compared.get(old) ?? new Map<unknown, string[]>();
    const lines = known.get(fresh) ?? compareSettings(old, fresh);
    compared.set(old, known.set(fresh, lines));
    return lines;
  };
  const where = Map.groupBy(
    names.flatMap((name) => compareOnce(name).map((line) => ({ name, line }))),
    ({ line }) => line,
  );
  return [...where].map(([line, places]) => {
    const all = places.map(({ name }) => name);
    const shown = all.length > 3 ? [...all.slice(0, 2), `${all.length - 2} others`] : all;
    // A line without a path is about a cluster as a whole.
    return `${shown.join(", ")}${line.startsWith(":") ? "" : "."}${line}`;
  });
};

/** Returns a line for each changed setting, such as `settings.minimum: 2 → 3`. */
const compareSettings = (before: unknown, after: unknown, path: string[] = []): string[] => {
  if (isDeepStrictEqual(before, after)) return [];
  if (isMap(before) && isMap(after))
    return [...new Set([...Object.keys(before), ...Object.keys(after)])].flatMap((key) =>
      compareSettings(Reflect.get(before, key), Reflect.get(after, key), [...path, key]),
    );
  return [`${path.join(".")}: ${formatSetting(before)} → ${formatSetting(after)}`];
};

const formatSetting = (value: unknown): string => {
  const text = JSON.stringify(value) ?? "nothing";
  return text.length > 60 ? `${text.slice(0, 57)}…` : text;
};

/** Reports whether a deployment would change nothing, neither in AWS nor in clusters. */
export const changesNothing = ({ stack, parts, warm, clusters }: DeploymentPlan): boolean =>
  isUnchanged(stack) &&
  [...parts, ...warm].every(({ changes }) => changes.length === 0) &&
  clusters.every(({ differences, unknown }) => differences.length === 0 && unknown === undefined);
