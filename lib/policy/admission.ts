import { isSame } from "../objects/same.ts";
import { scriptsIn } from "./checks/places.ts";
import { faultsOf } from "./checks/policy.ts";
import { isMap, isTooDeep, own } from "./checks/shape.ts";
import type { Condition, OverrideTemplate, Policy } from "./kinds.ts";
import { faultOfScript } from "./scripts.ts";

/** What templates are in CUE, for whoever reads a policy. */
export interface Renderings {
  renderedOverride(template: OverrideTemplate): string;
  renderedCondition(condition: Condition): string;
}

/**
 * Why a policy is refused: all that is wrong with it; if nothing is, the first of its scripts that doesn't compile.
 * Without CUE, where no script ever runs, having one is wrong. What an update leaves as it was is not judged anew.
 */
export const refusalOf = async (
  policy: unknown,
  cue: ((source: string) => Promise<string>) | undefined,
  before?: unknown,
): Promise<string | undefined> => {
  if (isUnchanged(policy, before)) return undefined;
  const faults = faultsOf(policy);
  if (faults.length > 0) return faults.join("; ");
  // It has no faults.
  for (const { at, what } of scriptsIn(policy as Policy)) {
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
  for (const rule of rulesOf(policy, "overrideRules")) {
    const overriders = own(rule, "overriders");
    if (isMap(overriders)) rewrite(overriders, own(overriders, "template"), render.renderedOverride);
  }
  for (const rule of rulesOf(policy, "validateRules")) {
    const template = own(rule, "template");
    const condition = isMap(template) ? own(template, "condition") : undefined;
    if (isMap(condition) && [undefined, "", null].some((empty) => own(condition, "affectMode") === empty))
      Reflect.set(condition, "affectMode", "reject");
    rewrite(rule, template === undefined ? undefined : (condition ?? null), render.renderedCondition);
  }
};

const rulesOf = (policy: unknown, field: string) => {
  const spec = isMap(policy) ? own(policy, "spec") : undefined;
  const rules = isMap(spec) ? own(spec, field) : undefined;
  return Array.isArray(rules) ? rules.filter(isMap) : [];
};

/** A rendering never outlives its template, and none is better than one of something else. */
const rewrite = <T>(holder: Readonly<Record<string, unknown>>, template: unknown, render: (template: T) => string) => {
  const rendered = template === undefined ? undefined : attempted(template, render);
  if (rendered !== undefined) {
    if (own(holder, "renderedCue") !== rendered) Reflect.set(holder, "renderedCue", rendered);
  } else if (Object.hasOwn(holder, "renderedCue")) Reflect.deleteProperty(holder, "renderedCue");
};

const attempted = <T>(template: unknown, render: (template: T) => string): string | undefined => {
  try {
    // A draft answers as the object it stands for, but can't be cloned; whether it is a template shows in rendering it.
    return render(JSON.parse(JSON.stringify(template)) as T);
  } catch {
    return undefined;
  }
};

const isUnchanged = (policy: unknown, before: unknown): boolean =>
  isMap(policy) &&
  isMap(before) &&
  !isTooDeep(policy) &&
  !isTooDeep(before) &&
  isSame(own(policy, "spec"), own(before, "spec"));
