import type { StageIdentity } from "../../aws/identity.ts";
import { hasSameContent, type WarmVersion } from "../../aws/lambda-functions.ts";
import type { StackTemplate } from "../../aws/stack.ts";
import type { AwsStage } from "../../aws/stage.ts";
import { runInParallel } from "../../cli/progress.ts";
import type { PresentPlugin } from "../../project/present-plugins.ts";
import { compareSetups } from "../../project/setup-differences.ts";
import type { ClusterPlan } from "../clusters/cluster-plan.ts";
import { type FunctionState, readFunctionState } from "../clusters/disarm.ts";
import type { LedgerPlan } from "../stage/ledger-table.ts";
import type { PackagedRule } from "../versions/package.ts";
import { listReleasedVersions, type Release } from "../versions/releases.ts";
import type { StageDifference } from "./differences.ts";
import { listDifferentSettings } from "./function-settings.ts";
import { isUnchanged, type StackDifferences } from "./kept-functions.ts";

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
  identity: StageIdentity;
  stack: StackDifferences;
  template: StackTemplate;
  parts: RuleChangePlan[];
  /** The names of rules that are not turned on any more; their functions stay for one more release. */
  kept: string[];
  /** The rules that have warm environments, or had some. */
  warm: WarmRulePlan[];
  /** The table with the ledger; undefined if no rule keeps one. */
  ledger?: LedgerPlan | undefined;
  /** What was changed in AWS by hand. */
  differences: StageDifference[];
  rights: { added: string[]; removed: string[] };
  clusters: ClusterPlan[];
  /** The rules whose plugin an API server has on itself. */
  presentPlugins: PresentPlugin[];
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
    async (rule) => {
      const released = listReleasedVersions(all, rule);
      return [rule, await readFunctionState(stage.functions, rule, released, { mayLackAlias: true })] as const;
    },
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
      ...listDifferentSettings(state.ruleVersion, part.wanted),
    ];
    const changes = isSame ? (before ? [] : ["not tested yet"]) : reasons.length > 0 ? reasons : ["code"];
    const trial = Object.keys(state.live.weights).length > 0 ? ["an abandoned canary"] : [];
    return { part, known: state, changes: [...changes, ...trial], settings };
  });

/** Reports whether a deployment would change nothing, neither in AWS nor in clusters. */
export const changesNothing = ({ stack, parts, warm, ledger, differences, clusters }: DeploymentPlan): boolean =>
  isUnchanged(stack) &&
  differences.every(({ repair }) => repair === undefined) &&
  (ledger?.changes ?? []).length === 0 &&
  [...parts, ...warm].every(({ changes }) => changes.length === 0) &&
  clusters.every(({ differences, unknown }) => differences.length === 0 && unknown === undefined);
