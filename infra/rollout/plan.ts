import { isDeepStrictEqual } from "node:util";
import { isMap } from "#lib/json.ts";
import { isAsWanted } from "../aws/functions.ts";
import type { Template } from "../aws/stack.ts";
import type { Stage } from "../aws/stage.ts";
import { runInParallel } from "../cli/progress.ts";
import type { ClusterPlan } from "./cluster-plan.ts";
import { type Known, readStanding } from "./disarm.ts";
import type { Part } from "./package.ts";
import { type Release, releasedVersions } from "./releases.ts";
import { isUnchanged, type StackChange } from "./stack-plan.ts";

export interface PartPlan {
  part: Part;
  /** Undefined if the rule has no function yet. */
  known: Known | undefined;
  /** Words such as new, code or settings; empty if the rule is as wanted. */
  changes: string[];
  settings: string[];
}

export interface Plan {
  stage: string;
  stack: StackChange;
  template: Template;
  parts: PartPlan[];
  /** Rules that are off now; their functions stay for one more release. */
  kept: string[];
  rights: { added: string[]; removed: string[] };
  clusters: ClusterPlan[];
  notes: string[];
}

export const standings = async (stage: Stage, rules: string[], all: Release[]): Promise<Map<string, Known>> => {
  const there = new Set(await stage.functions.rules());
  const found = await runInParallel(
    5,
    rules.filter((rule) => there.has(rule)),
    async (rule) => [rule, await readStanding(stage.functions, rule, releasedVersions(all, rule))] as const,
  );
  return new Map(found);
};

export const planParts = (parts: Part[], states: ReadonlyMap<string, Known>, all: Release[]): PartPlan[] =>
  parts.map((part) => {
    const state = states.get(part.name);
    if (state === undefined) return { part, known: state, changes: ["new"], settings: [] };
    const before = all.find(({ rules }) => rules[part.name]?.version === state.whole.version)?.rules[part.name];
    const settings = before ? differencesIn(before.share.clusters, part.share.clusters) : [];
    const isSame = isAsWanted(state.whole, part.wanted);
    const reasons = [
      ...(before && before.logic !== part.logic ? ["code"] : []),
      ...(settings.length > 0 ? ["settings"] : []),
      ...(isDeepStrictEqual(state.whole.environment, { ...part.wanted.environment }) ? [] : ["keys"]),
      ...(state.whole.memorySize === part.wanted.memorySize && state.whole.timeout === part.wanted.timeout
        ? []
        : ["sizing"]),
    ];
    const changes = isSame ? (before ? [] : ["not proven yet"]) : reasons.length > 0 ? reasons : ["code"];
    const trial = Object.keys(state.live.weights).length > 0 ? ["a trial that nobody watches any more"] : [];
    return { part, known: state, changes: [...changes, ...trial], settings };
  });

/** Returns lines such as `prod-eu.settings.minimum: 2 → 3`. */
const differencesIn = (before: unknown, after: unknown, path: string[] = []): string[] => {
  if (isDeepStrictEqual(before, after)) return [];
  if (isMap(before) && isMap(after))
    return [...new Set([...Object.keys(before), ...Object.keys(after)])].flatMap((key) =>
      differencesIn(Reflect.get(before, key), Reflect.get(after, key), [...path, key]),
    );
  return [`${path.join(".")}: ${shown(before)} → ${shown(after)}`];
};

const shown = (value: unknown): string => {
  const text = JSON.stringify(value) ?? "nothing";
  return text.length > 60 ? `${text.slice(0, 57)}…` : text;
};

export const isIdle = ({ stack, parts, clusters }: Plan): boolean =>
  isUnchanged(stack) &&
  parts.every(({ changes }) => changes.length === 0) &&
  clusters.every(({ differences, unknown }) => differences.length === 0 && unknown === undefined);
