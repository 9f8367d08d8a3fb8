import { isMap, isSame, type JsonMap, toList, toMap } from "../json.ts";
import { findPolicyFaults } from "./checks/faults.ts";
import { listPolicyCueScripts } from "./checks/located-values.ts";
import { isTooDeep } from "./checks/shape-checks.ts";
import { renderConditionAsCue } from "./rendered-cue/conditions.ts";
import { renderTemplateAsCue } from "./rendered-cue/templates.ts";
import { findScriptFault } from "./scripts.ts";
import type { KinitirasPolicy } from "./types.ts";

/**
 * Returns why a policy is refused: all its faults or, if it has none, the first script that doesn't compile. Without
 * `cue`, scripts never run, so a policy that has one is refused. A `renderedCue` that equals our own rendering is known
 * to compile.
 */
export const findPolicyRefusal = async (
  policy: unknown,
  cue: ((source: string) => Promise<string>) | undefined,
): Promise<string | undefined> => {
  const faults = findPolicyFaults(policy);
  if (faults.length > 0) return faults.join("; ");
  const known = new Set(renderTemplates(policy).map(({ rendered }) => rendered));
  for (const { at, what } of listPolicyCueScripts(policy as KinitirasPolicy)) {
    if (known.has(what)) continue;
    const fault = cue && (await findScriptFault(what, cue));
    if (fault !== undefined) return `${at} does not compile: ${fault}`;
    // Where scripts are turned off, a policy with a `cue` is refused. A `renderedCue` never runs, so it is allowed.
    if (!cue && at.endsWith(".cue")) return `${at} is a script, and scripts are turned off here`;
  }
};

/**
 * Sets, in a draft of a policy, the fields that its author may leave out: `affectMode` of conditions, and
 * `renderedCue`. A policy that is nested too deeply, or whose `spec` an update leaves as it was, stays unchanged.
 */
export const completePolicy = (policy: unknown, before?: unknown): void => {
  if (isTooDeep(policy) || isUnchanged(policy, before)) return;
  for (const condition of listRules(policy, "validateRules").map(getCondition))
    if (isMap(condition) && (condition.affectMode ?? "") === "") Reflect.set(condition, "affectMode", "reject");
  // A renderedCue without a rendering is left from an older template, so it is deleted: readers would be misled.
  for (const { holder, rendered } of renderTemplates(policy))
    if (rendered === undefined) Reflect.deleteProperty(holder, "renderedCue");
    else if (holder.renderedCue !== rendered) Reflect.set(holder, "renderedCue", rendered);
};

const listRules = (policy: unknown, field: string): JsonMap[] => toList(toMap(toMap(policy).spec)[field]).filter(isMap);

const getCondition = (rule: JsonMap): unknown => toMap(rule.template).condition;

const renderTemplates = (policy: unknown) => {
  let left = longestRenderings;
  const limitSize = (rendered: string | undefined) => {
    if (rendered === undefined || left < rendered.length) return undefined;
    left -= rendered.length;
    return rendered;
  };
  return [
    ...listRules(policy, "overrideRules")
      .map(({ overriders }) => overriders)
      .filter(isMap)
      .map((holder) => ({ holder, rendered: limitSize(tryRender(holder.template, renderTemplateAsCue)) })),
    ...listRules(policy, "validateRules").map((holder) => {
      return { holder, rendered: limitSize(tryRender(getCondition(holder), renderConditionAsCue)) };
    }),
  ];
};

/** The most characters of all `renderedCue` fields of a policy together; more could make it too large for etcd. */
const longestRenderings = 256 * 1024;

const tryRender = <T>(template: unknown, render: (template: T) => string): string | undefined => {
  try {
    // The template is copied by JSON: it may be a draft (a Proxy), which structuredClone can't copy. Rendering throws
    // if the value is no template.
    return render(JSON.parse(JSON.stringify(template)) as T);
  } catch {
    return undefined;
  }
};

const isUnchanged = (policy: unknown, before: unknown): boolean =>
  isMap(policy) && isMap(before) && isSame(policy.spec, before.spec);
