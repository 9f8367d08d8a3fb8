import { describeStageIdentity } from "../../aws/identity.ts";
import { formatPage } from "../../catalogue/sources.ts";
import { formatTable } from "../../cli/command.ts";
import { formatPresentPlugins } from "../../project/present-plugins.ts";
import { describeGroupAdvice } from "../../project/serial-calls.ts";
import { describePlacements } from "../../webhooks/native-policies.ts";
import { buildCostTable, natDollars, prices, type StageCosts } from "./cost.ts";
import type { StageDifference } from "./differences.ts";
import { isUnchanged } from "./kept-functions.ts";
import { changesNothing, type DeploymentPlan } from "./plan.ts";

/** Formats a plan for a terminal, as `postern plan` and `postern deploy` print it. */
export const formatPlan = (plan: DeploymentPlan, costs: StageCosts): string => {
  const { identity, stack, parts, kept, warm, ledger, differences, rights, clusters, limits, notes } = plan;
  const lines: string[] = [describeStageIdentity(identity), "", "stack"];
  if (stack.isNew) lines.push(`  is new: ${stack.added.length} resources`);
  else if (isUnchanged(stack)) lines.push("  nothing to change");
  else
    for (const [sign, ids] of Object.entries({ "+": stack.added, "~": stack.changed, "-": stack.removed }))
      lines.push(...ids.map((id) => `  ${sign} ${id}`));
  if (ledger && ledger.changes.length > 0)
    lines.push("", "ledger", `  ~ table ${ledger.table}: ${ledger.changes.join(", ")}`);
  if (differences.length > 0) lines.push("", "changed in AWS", ...formatDifferences(differences));
  if (limits.length > 0) lines.push("", "limits", ...limits.map((sentence) => `  ! ${sentence}`));
  lines.push("", "rules");
  const changing = parts.filter(({ changes }) => changes.length > 0);
  for (const { part, known: state, changes, settings } of changing) {
    const live = state ? ` (live: version ${state.version})` : "";
    lines.push(`  ~ ${part.name}: ${changes.join(", ")}${live}`, ...settings.map((setting) => `      ${setting}`));
  }
  for (const rule of kept) lines.push(`  - ${rule}: is off now; its function stays for one release`);
  for (const { rule, changes } of warm) lines.push(...changes.map((change) => `  ~ ${rule}: ${change}`));
  for (const { part, known: state } of parts)
    if (state?.disarmed && state.disarmed.until > new Date()) {
      const cold = part.warm === undefined ? "" : ", without warm environments";
      lines.push(`  ! ${part.name}: disarmed until ${state.disarmed.until.toISOString()}${cold}`);
    }
  const unchanged = parts.length - changing.length;
  if (unchanged > 0) lines.push(`  ${unchanged} of ${parts.length} unchanged`);
  if (rights.added.length + rights.removed.length > 0)
    lines.push(
      "",
      "rights in AWS",
      ...rights.added.map((right) => `  + ${right}`),
      ...rights.removed.map((right) => `  - ${right}`),
    );
  const shownAdvice = new Set<string>();
  for (const { cluster, differences, unknown, policies, notes, waits, groupAdvice } of clusters) {
    lines.push("", `cluster ${cluster}`);
    if (unknown !== undefined) lines.push(`  ? ${unknown}`);
    else if (differences.length === 0) lines.push("  nothing to change");
    const waitNotes = waits === undefined ? [] : [waits]; // how long writes could wait for endpoints that hang
    const placed = describePlacements(policies).map((line) => `policies ${line}`); // where they are evaluated
    for (const line of [...differences.map((sentence) => `~ ${sentence}`), ...placed, ...notes, ...waitNotes])
      lines.push(`  ${line}`);
    // Advice on which rules to put into a group. Clusters with the same rules get the same advice: it is shown once.
    const advice = groupAdvice ? describeGroupAdvice(groupAdvice).map((line) => `  ${line}`) : [];
    if (!shownAdvice.has(advice.join())) lines.push(...advice);
    shownAdvice.add(advice.join());
  }
  lines.push(...formatCosts(costs));
  const present = formatPresentPlugins(plan.presentPlugins, (rule) => describeRuleCosts(rule, costs));
  if (present.length > 0) lines.push("", ...present);
  for (const note of notes) lines.push("", note);
  return `${lines.join("\n")}\n`;
};

/** Describes what a rule's function costs in all clusters. */
const describeRuleCosts = (rule: string, { rules }: StageCosts): string => {
  const cost = rules.find((other) => other.rule === rule);
  if (cost === undefined) return "its costs aren't known";
  const { million, reviews, month } = cost;
  const used = reviews > 0 ? `; ${Math.round(reviews)} of all clusters in the last 30 days: $${month.toFixed(2)}` : "";
  return `$${million.toFixed(2)} for a million reviews${used}`;
};

/** Returns lines about what differs in AWS from what was deployed. Each says how the difference can be repaired. */
export const formatDifferences = (differences: StageDifference[]): string[] =>
  differences.flatMap(({ sentence, command }) =>
    command === undefined
      ? [`  ~ ${sentence}; postern deploy repairs it`]
      : [`  ! ${sentence}; this repairs it:`, `      ${command}`],
  );

export const toDifferenceData = (differences: StageDifference[]): object[] =>
  differences.map(({ sentence, command }) => ({ sentence, ...(command !== undefined && { command }) }));

/** Returns lines about costs: a table by rule, the ledger, NAT gateways, and a table of estimated months. */
const formatCosts = ({ rules, months, ledgerMonth = 0, isInVpc }: StageCosts): string[] => {
  const formatDollars = (amount: number) => `$${amount.toFixed(2)}`;
  const rows = rules.map(({ rule, million, reviews, month }) => [
    rule,
    formatDollars(million),
    String(Math.round(reviews)),
    reviews > 0 ? formatDollars(month) : "-",
  ]);
  if (ledgerMonth > 0) rows.push(["the whole ledger", "-", "-", formatDollars(ledgerMonth)]);
  const sum = rules.reduce((all, { month }) => all + month, ledgerMonth);
  const formatIndented = (table: string[][]) =>
    formatTable(table.map(([first = "", ...others]) => [`  ${first}`, ...others])).trimEnd();
  const ledgers = rules.flatMap(({ rule, ledger }) => {
    // A use is for instance "a refusal $8.75".
    const uses = ledger?.map(({ review: kindOfReview, million }) => `${kindOfReview} ${formatDollars(million)}`);
    return uses
      ? [
          `  the ledger of ${rule} adds for a million reviews: ${uses.join(", ")}; more for reviews that store several or large values (${formatPage("background/ledger.md")})`,
        ]
      : [];
  });
  const nat = `  each NAT gateway that the functions in a VPC need adds ${formatDollars(natDollars)} a month and $${prices.vpc.natGigabyte} for each GB (${formatPage("how-to/vpc.md")})`;
  return [
    "",
    `estimated cost of reviews by API servers, without Postern's probes (prices of ${prices.region}, ${prices.date})`,
    formatIndented([["RULE", "A MILLION REVIEWS", "LAST 30 DAYS", "A MONTH"], ...rows]),
    ...(sum > 0 ? [`  total ${formatDollars(sum)} a month`] : []),
    ...ledgers,
    ...(isInVpc ? [nat] : []),
    "",
    "dollars a month if every rule reviews every write",
    formatIndented(buildCostTable(months)),
  ];
};

/**
 * Returns the plan as `postern plan -o json` prints it. `kept` are rules that are off but whose functions stay, `warm`
 * has the warm environments of rules, and `presentPlugins` the rules whose upstream plugin an API server runs.
 */
export const toPlanData = (plan: DeploymentPlan, costs: StageCosts): object => ({
  ...plan.identity,
  idle: changesNothing(plan),
  stack: plan.stack,
  rules: plan.parts.map(({ part, known: state, changes, settings }) => ({
    rule: part.name,
    changes,
    settings,
    live: state?.version ?? null,
    disarmedUntil: state?.disarmed?.until ?? null,
  })),
  kept: plan.kept,
  warm: plan.warm,
  ledger: plan.ledger ?? null,
  differences: toDifferenceData(plan.differences),
  rights: plan.rights,
  limits: plan.limits,
  clusters: plan.clusters.map(({ cluster, differences, hardened, unknown, policies, notes, waits, groupAdvice }) => ({
    cluster,
    differences,
    hardened,
    policies,
    notes,
    ...(waits !== undefined && { waits }),
    ...(groupAdvice !== undefined && { groupAdvice }),
    ...(unknown !== undefined && { unknown }),
  })),
  presentPlugins: plan.presentPlugins,
  costs: costs.rules,
  months: costs.months,
  ledgerMonth: costs.ledgerMonth ?? null,
  notes: plan.notes,
});
