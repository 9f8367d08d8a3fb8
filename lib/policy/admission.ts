import { isMap, isSame, type Json, toList, toMap } from "../json.ts";
import { scriptsIn } from "./checks/places.ts";
import { faultsOf } from "./checks/policy.ts";
import { isTooDeep } from "./checks/shape.ts";
import type { Condition, OverrideTemplate, Policy } from "./kinds.ts";
import { faultOfScript } from "./scripts.ts";

/** What templates are in CUE, for whoever reads a policy. */
export interface Renderings {
  renderedOverride(template: OverrideTemplate): string;
  renderedCondition(condition: Condition): string;
}

/**
 * Why a policy is refused: all that is wrong with it; if nothing is, the first of its scripts that doesn't compile.
 * Without CUE, where no script ever runs, having one is wrong. What an update leaves as it was is not judged anew, and
 * renderings that are our own are known to compile.
 */
export const refusalOf = async (
  policy: unknown,
  cue: ((source: string) => Promise<string>) | undefined,
  before?: unknown,
  render?: Renderings,
): Promise<string | undefined> => {
  if (isUnchanged(policy, before)) return undefined;
  const faults = faultsOf(policy);
  if (faults.length > 0) return faults.join("; ");
  const known = new Set(render && renderingsIn(policy, render).map(({ rendered }) => rendered));
  // It has no faults.
  for (const { at, what } of scriptsIn(policy as Policy)) {
    if (known.has(what)) continue;
    const fault = cue && (await faultOfScript(what, cue));
    if (fault !== undefined) return `${at} does not compile: ${fault}`;
    // A rendering is there to be read.
    if (!cue && at.endsWith(".cue")) return `${at} is a script, and scripts are turned off here`;
  }
};

/**
 * Fills in, in a draft of a policy, what its author may leave out: what a condition's mode is, and what templates are in
 * CUE. A policy that is too wrong for it is left to be refused. What an update leaves as it was stays so.
 */
export const completed = (policy: unknown, render: Renderings, before?: unknown): void => {
  if (isTooDeep(policy) || isUnchanged(policy, before)) return;
  for (const condition of rulesOf(policy, "validateRules").map(conditionOf))
    if (isMap(condition) && (condition.affectMode ?? "") === "") Reflect.set(condition, "affectMode", "reject");
  // A rendering never outlives its template, and none is better than one of something else.
  for (const { holder, rendered } of renderingsIn(policy, render))
    if (rendered === undefined) Reflect.deleteProperty(holder, "renderedCue");
    else if (holder.renderedCue !== rendered) Reflect.set(holder, "renderedCue", rendered);
};

const rulesOf = (policy: unknown, field: string): Json[] => toList(toMap(toMap(policy).spec)[field]).filter(isMap);

const conditionOf = (rule: Json): unknown => toMap(rule.template).condition;

/** What holds the rendering of a template, or would, and what that is; undefined where there is none to render. */
const renderingsIn = (policy: unknown, { renderedOverride, renderedCondition }: Renderings) => {
  let left = longestRenderings;
  const fitting = (rendered: string | undefined) => {
    if (rendered === undefined || left < rendered.length) return undefined;
    left -= rendered.length;
    return rendered;
  };
  return [
    ...rulesOf(policy, "overrideRules")
      .map(({ overriders }) => overriders)
      .filter(isMap)
      .map((holder) => ({ holder, rendered: fitting(attempted(holder.template, renderedOverride)) })),
    ...rulesOf(policy, "validateRules").map((holder) => {
      return { holder, rendered: fitting(attempted(conditionOf(holder), renderedCondition)) };
    }),
  ];
};

/** Of one policy, in characters: with more, a policy that etcd can hold would become one that it can't. */
const longestRenderings = 256 * 1024;

const attempted = <T>(template: unknown, render: (template: T) => string): string | undefined => {
  try {
    // A draft answers as the object it stands for, but can't be cloned; whether it is a template shows in rendering it.
    return render(JSON.parse(JSON.stringify(template)) as T);
  } catch {
    return undefined;
  }
};

const isUnchanged = (policy: unknown, before: unknown): boolean =>
  isMap(policy) && isMap(before) && isSame(policy.spec, before.spec);
