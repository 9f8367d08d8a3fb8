import { isDeepStrictEqual } from "node:util";
import { isMap } from "#lib/json.ts";
import { isAsWanted } from "../aws/functions.ts";
import type { Template } from "../aws/stack.ts";
import type { Stage } from "../aws/stage.ts";
import { table } from "../cli/command.ts";
import { Complaint } from "../cli/complaint.ts";
import { inParallel } from "../cli/progress.ts";
import { costOfMillion } from "./cost.ts";
import { type Known, known } from "./disarm.ts";
import { rulesNamedIn } from "./entries.ts";
import {
  changeOf,
  isUnchanged,
  type Package,
  type Part,
  rightsIn,
  rulesIn,
  type StackChange,
  withKept,
} from "./package.ts";
import { type Release, releasedVersions } from "./releases.ts";
import type { ClusterPlan } from "./targets.ts";

/** What becomes of one rule. */
export interface PartPlan {
  part: Part;
  /** Of one that is there. */
  known: Known | undefined;
  /** In words: new, code, settings, …; empty where it is as wanted. */
  changes: string[];
  /** The settings that differ, each with where it stands. */
  settings: string[];
}

export interface Plan {
  stage: string;
  stack: StackChange;
  template: Template;
  parts: PartPlan[];
  /** Rules that are off now, and served for one release more. */
  kept: string[];
  rights: { added: string[]; removed: string[] };
  clusters: ClusterPlan[];
  notes: string[];
}

/** How the functions of these rules stand, as far as there are any. */
export const standings = async (stage: Stage, rules: string[], all: Release[]): Promise<Map<string, Known>> => {
  const there = new Set(await stage.functions.rules());
  const found = await inParallel(
    5,
    rules.filter((rule) => there.has(rule)),
    async (rule) => [rule, await known(stage.functions, rule, releasedVersions(all, rule))] as const,
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

/** `prod-eu.settings.minimum: 2 → 3` */
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

/** Rules that have functions and aren't on any more, as long as an entry names them, and one release longer. */
export const rulesToKeep = (stage: string, deployed: Template | undefined, parts: Part[], all: Release[]): string[] => {
  const [newest] = all;
  const named = Object.values(newest?.clusters ?? {}).flatMap(({ manifests }) => rulesNamedIn(manifests));
  return rulesIn(deployed, stage).filter(
    (rule) =>
      !parts.some(({ name }) => name === rule) && (named.includes(rule) || Object.hasOwn(newest?.rules ?? {}, rule)),
  );
};

/** Which of the two ways in a template has. */
export const doorIn = (template: Template | undefined): "http" | "url" =>
  template?.Resources.HttpApi === undefined ? "url" : "http";

/** The template with the rules that are kept; the stack as it is, if nothing but leftovers would go. */
export const planStack = (
  stage: string,
  { template, parts }: Package,
  deployed: Template | undefined,
  all: Release[],
  elsewhere: boolean,
): { template: Template; stack: StackChange; kept: string[] } => {
  const [before, after] = [doorIn(deployed), doorIn(template)];
  if (rulesIn(deployed, stage).length > 0 && before !== after)
    throw new Complaint(
      `stage ${stage} has the door ${before}, and serverless.yml says ${after}: clusters would call addresses that are gone; deploy another stage with it, and destroy this one`,
    );
  const kept = rulesToKeep(stage, deployed, parts, all);
  const whole = withKept(template, deployed, kept);
  const stack = changeOf(deployed, whole);
  const isCleaning = stack.removed.length > 0 && stack.added.length + stack.changed.length === 0 && !elsewhere;
  if (!isCleaning || deployed === undefined) return { template: whole, stack, kept };
  const leftovers = rulesIn(deployed, stage).filter((rule) => !parts.some(({ name }) => name === rule));
  const asItIs = withKept(template, deployed, leftovers);
  return { template: asItIs, stack: changeOf(deployed, asItIs), kept: leftovers };
};

export const planRights = (deployed: Template | undefined, template: Template): Plan["rights"] => {
  const [before, after] = [rightsIn(deployed), rightsIn(template)];
  return {
    added: after.filter((right) => !before.includes(right)),
    removed: before.filter((right) => !after.includes(right)),
  };
};

/** Whether there is nothing to do. */
export const isIdle = ({ stack, parts, clusters }: Plan): boolean =>
  isUnchanged(stack) &&
  parts.every(({ changes }) => changes.length === 0) &&
  clusters.every(({ differences, unknown }) => differences.length === 0 && unknown === undefined);

/** What a month of each rule costs, by what it had to do in the last one. */
export interface Cost {
  rule: string;
  /** Dollars. */
  million: number;
  reviews: number;
  month: number;
}

const days = 30;

export const planCosts = async (
  { functions, metrics }: Pick<Stage, "functions" | "metrics">,
  door: "http" | "url",
  parts: Part[],
  now = new Date(),
): Promise<Cost[]> => {
  const about = (name: string, metric: string) => ({
    ...{ namespace: "AWS/Lambda" as const, metric, stat: "Sum" as const },
    dimensions: { FunctionName: functions.nameOf(name) },
  });
  const questions = Object.fromEntries(
    parts.flatMap(({ name }) => [
      [`${name}/calls`, about(name, "Invocations")],
      [`${name}/time`, about(name, "Duration")],
    ]),
  );
  const since = new Date(now.getTime() - days * 24 * 3_600_000);
  // What is only an estimate must not keep anybody from deploying.
  const answers = await metrics.ask(questions, since, now).catch((): Record<string, number> => ({}));
  return parts.map(({ name, asks, wanted }) => {
    const reviews = answers[`${name}/calls`] ?? 0;
    const usual = asks ? 30 : 5;
    const milliseconds = reviews > 0 ? (answers[`${name}/time`] ?? 0) / reviews : usual;
    const million = costOfMillion({ door, memoryMegabytes: wanted.memorySize, milliseconds, asks });
    return { rule: name, million, reviews, month: (million * reviews) / 1e6 };
  });
};

/** A plan as people read it. */
export const planInWords = ({ stage, stack, parts, kept, rights, clusters, notes }: Plan, costs: Cost[]): string => {
  const lines: string[] = [`stage ${stage}`, "", "stack"];
  if (stack.isNew) lines.push(`  is new: ${stack.added.length} resources`);
  else if (isUnchanged(stack)) lines.push("  stays as it is");
  else
    for (const [sign, ids] of [
      ["+", stack.added] as const,
      ["~", stack.changed] as const,
      ["-", stack.removed] as const,
    ])
      for (const id of ids) lines.push(`  ${sign} ${id}`);
  lines.push("", "rules");
  const changing = parts.filter(({ changes }) => changes.length > 0);
  for (const { part, known: state, changes, settings } of changing) {
    const live = state ? ` (live: version ${state.version})` : "";
    lines.push(`  ~ ${part.name}: ${changes.join(", ")}${live}`, ...settings.map((one) => `      ${one}`));
  }
  for (const rule of kept) lines.push(`  - ${rule}: is off now; its function stays for one release`);
  for (const { part, known: state } of parts)
    if (state?.disarmed && state.disarmed.until > new Date())
      lines.push(`  ! ${part.name}: disarmed until ${state.disarmed.until.toISOString()}`);
  const same = parts.length - changing.length;
  if (same > 0) lines.push(`  ${same} of ${parts.length} ${same === 1 ? "stays as it is" : "stay as they are"}`);
  if (rights.added.length + rights.removed.length > 0)
    lines.push(
      "",
      "rights in AWS",
      ...rights.added.map((one) => `  + ${one}`),
      ...rights.removed.map((one) => `  - ${one}`),
    );
  for (const { cluster, differences, unknown, notes } of clusters) {
    lines.push("", `cluster ${cluster}`);
    if (unknown !== undefined) lines.push(`  ? ${unknown}`);
    else if (differences.length === 0) lines.push("  is as it shall be");
    for (const one of [...differences.map((one) => `~ ${one}`), ...notes]) lines.push(`  ${one}`);
  }
  const dollars = (amount: number) => `$${amount.toFixed(2)}`;
  const rows = costs.map(({ rule, million, reviews, month }) => [
    `  ${rule}`,
    dollars(million),
    String(Math.round(reviews)),
    reviews > 0 ? dollars(month) : "-",
  ]);
  const sum = costs.reduce((all, { month }) => all + month, 0);
  lines.push(
    "",
    "cost, roughly",
    table([["  RULE", "A MILLION REVIEWS", "LAST 30 DAYS", "A MONTH"], ...rows]).trimEnd(),
  );
  if (sum > 0) lines.push(`  together ${dollars(sum)} a month`);
  for (const note of notes) lines.push("", note);
  return `${lines.join("\n")}\n`;
};

/** The same for programs. */
export const planAsData = (plan: Plan, costs: Cost[]): object => ({
  stage: plan.stage,
  idle: isIdle(plan),
  stack: plan.stack,
  rules: plan.parts.map(({ part, known: state, changes, settings }) => ({
    ...{ rule: part.name, changes, settings },
    live: state?.version ?? null,
    disarmedUntil: state?.disarmed?.until ?? null,
  })),
  kept: plan.kept,
  rights: plan.rights,
  clusters: plan.clusters.map(({ cluster, differences, hardened, unknown, notes }) => ({
    ...{ cluster, differences, hardened, notes },
    ...(unknown !== undefined && { unknown }),
  })),
  costs,
  notes: plan.notes,
});
