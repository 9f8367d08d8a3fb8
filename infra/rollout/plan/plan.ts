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
  /** The rule, with the function that was built for it. */
  part: PackagedRule;
  /** The present state of the rule's function; undefined if the rule has no function yet. */
  known: FunctionState | undefined;
  /** What the deployment changes, in words such as "new", "code" or "settings". */
  changes: string[];
  /** A line for each setting in postern.yaml that has changed. */
  settings: string[];
}

/** The warm environments of one rule: the number in postern.yaml, and those that Lambda has. */
export interface WarmRulePlan {
  rule: string;
  /** The number in postern.yaml; 0 if it names none any more. */
  wanted: number;
  /** The versions of the function that have warm environments now. */
  there: WarmVersion[];
  /** A sentence for each change that the deployment makes. */
  changes: string[];
}

/** What a deployment would change in AWS and in clusters. */
export interface DeploymentPlan {
  identity: StageIdentity;
  stack: StackDifferences;
  template: StackTemplate;
  /** What changes in each rule's function; unchanged rules are in the list, too. */
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
  /** The rules whose upstream plugin is enabled in a cluster's API server. */
  presentPlugins: PresentPlugin[];
  /** A sentence for each limit of AWS that the deployment would exceed. */
  limits: string[];
  notes: string[];
}

/** Reads the state of each rule's function: its alias, its versions, and whether it is disarmed (allows everything). */
export const readFunctionStates = async (
  stage: AwsStage,
  rules: string[],
  releases: Release[],
): Promise<Map<string, FunctionState>> => {
  const deployedRules = new Set(await stage.functions.listRules());
  const states = await runInParallel(
    5,
    rules.filter((rule) => deployedRules.has(rule)),
    async (rule) => {
      const released = listReleasedVersions(releases, rule);
      return [rule, await readFunctionState(stage.functions, rule, released, { mayLackAlias: true })] as const;
    },
  );
  return new Map(states);
};

/** Compares each rule's built function with the present one. `all` are the releases, and `clusters` all clusters. */
export const planRuleChanges = (
  packagedRules: PackagedRule[],
  states: ReadonlyMap<string, FunctionState>,
  all: Release[],
  clusters: readonly string[],
): RuleChangePlan[] =>
  packagedRules.map((part) => {
    const state = states.get(part.name);
    if (state === undefined) return { part, known: state, changes: ["new"], settings: [] };
    const release = all.find(({ rules }) => rules[part.name]?.version === state.ruleVersion.version);
    const released = release?.rules[part.name];
    const releasedConfig = released?.share; // Stored releases call the rule config `share`.
    const settings = releasedConfig ? compareSetups(releasedConfig, part.config, clusters) : [];
    const changes: string[] = [];
    if (hasSameContent(state.ruleVersion, part.wanted)) {
      // No release has this version, so it may not have passed its cases: a deployment may have stopped before them.
      if (released === undefined) changes.push("not tested yet");
    } else {
      if (released && released.logic !== part.logic) changes.push("code");
      if (settings.length > 0) changes.push("settings");
      changes.push(...listDifferentSettings(state.ruleVersion, part.wanted));
      // The content differs, and these comparisons have found nothing else.
      if (changes.length === 0) changes.push("code");
    }
    // Weights at the alias are those of a canary that a command has started and not ended.
    if (Object.keys(state.live.weights).length > 0) changes.push("an abandoned canary");
    return { part, known: state, changes, settings };
  });

/** Reports whether a deployment would change nothing, neither in AWS nor in clusters. */
export const changesNothing = ({ stack, parts, warm, ledger, differences, clusters }: DeploymentPlan): boolean =>
  isUnchanged(stack) &&
  differences.every(({ repair }) => repair === undefined) &&
  (ledger?.changes ?? []).length === 0 &&
  [...parts, ...warm].every(({ changes }) => changes.length === 0) &&
  clusters.every(({ differences, unknown }) => differences.length === 0 && unknown === undefined);
