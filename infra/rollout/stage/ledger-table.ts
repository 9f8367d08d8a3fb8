import type { AwsStage } from "../../aws/stage.ts";
import type { Progress } from "../../cli/progress.ts";
import type { LiveRuleState } from "../clusters/disarm.ts";
import type { PackagedRule } from "../versions/package.ts";

/** What a deployment changes about the DynamoDB table with the ledger of a stage. */
export interface LedgerPlan {
  table: string;
  /** What must be changed, in words; empty if the table is complete. */
  changes: string[];
}

/**
 * Compares the table with what it must be. Returns undefined if no rule keeps a ledger: the stage then needs no table,
 * and an existing table stays.
 */
export const planLedger = async (
  { ledger }: Pick<AwsStage, "ledger">,
  parts: Pick<PackagedRule, "wanted">[],
): Promise<LedgerPlan | undefined> => {
  if (parts.every(({ wanted }) => wanted.environment.POSTERN_LEDGER === undefined)) return undefined;
  const faults = await ledger.readFaults();
  const hasTable = faults !== undefined;
  return { table: ledger.name, changes: hasTable ? faults : ["new"] };
};

/** Creates the table, or corrects its settings. It does so before the stack, so no live function lacks its table. */
export const completeLedger = async (
  { ledger }: Pick<AwsStage, "ledger">,
  plan: LedgerPlan | undefined,
  progress: Progress,
): Promise<void> => {
  if (plan === undefined || plan.changes.length === 0) return;
  await progress.step("ledger", async () => {
    await ledger.complete();
    return `the table ${ledger.name} is ready`;
  });
};

/** What `postern status` shows of the ledger. */
interface LedgerHealth {
  table: string;
  /** The rules whose live versions keep values in the table. */
  rules: string[];
  /** What is wrong with the table, in sentences. */
  faults: string[];
}

/** Checks the table for `postern status`. Returns undefined if no live version of a rule keeps a ledger. */
export const checkLedger = async (
  { ledger }: Pick<AwsStage, "ledger">,
  states: readonly LiveRuleState[],
): Promise<LedgerHealth | undefined> => {
  const rules = states.filter(({ keepsLedger }) => keepsLedger).map(({ rule }) => rule);
  if (rules.length === 0) return undefined;
  const faults = (await ledger.readFaults()) ?? ["it doesn't exist"];
  return { table: ledger.name, rules, faults };
};

export const formatLedgerHealth = ({ table, rules, faults }: LedgerHealth): string => {
  const state = faults.length === 0 ? "complete" : [...faults, "postern deploy corrects that"].join("; ");
  return `\nledger: table ${table}, for ${rules.join(", ")}: ${state}\n`;
};
