import { isMap, isSame, type JsonMap, toList, toMap } from "../json.ts";
import { findPolicyFaults } from "./checks/faults.ts";
import { listPolicyCueScripts } from "./checks/located-values.ts";
import { isTooDeep } from "./checks/shape-checks.ts";
import { renderConditionAsCue } from "./rendered-cue/conditions.ts";
import { renderTemplateAsCue } from "./rendered-cue/templates.ts";
import { findScriptFault } from "./scripts.ts";
import type { KinitirasPolicy } from "./types.ts";

/**
 * Returns why a policy is refused: all its faults, or without faults the first script that doesn't compile. Without
 * `cue`, scripts are turned off: a policy with a script is refused. A `renderedCue` isn't compiled if it
 * equals Postern's own rendering of the template.
 */
export const findPolicyRefusal = async (
  policy: unknown,
  cue: ((source: string) => Promise<string>) | undefined,
): Promise<string | undefined> => {
  const faults = findPolicyFaults(policy);
  if (faults.length > 0) return faults.join("; ");
  const ownRenderings = new Set(renderTemplates(policy).map(({ rendered }) => rendered));
  for (const { at, what } of listPolicyCueScripts(policy as KinitirasPolicy)) {
    if (ownRenderings.has(what)) continue;
    const fault = cue && (await findScriptFault(what, cue));
    if (fault !== undefined) return `${at} does not compile: ${fault}`;
    // If scripts are turned off, a `cue` is refused. A `renderedCue` is allowed, because it never runs.
    if (!cue && at.endsWith(".cue")) return `${at} is a script, and scripts are turned off here`;
  }
};

/**
 * Sets fields that a policy's author may leave out: `affectMode` of conditions, and `renderedCue`. It changes nothing
 * if the policy is nested too deeply, or if an update doesn't change its `spec`.
 */
export const completePolicy = (policy: unknown, before?: unknown): void => {
  if (isTooDeep(policy) || isUnchanged(policy, before)) return;
  for (const condition of listRules(policy, "validateRules").map(getCondition))
    if (isMap(condition) && (condition.affectMode ?? "") === "") Reflect.set(condition, "affectMode", "reject");
  // If a template can't be rendered, a `renderedCue` belongs to an older template. It is deleted, because it misleads.
  for (const { holder, rendered } of renderTemplates(policy))
    if (rendered === undefined) Reflect.deleteProperty(holder, "renderedCue");
    else if (holder.renderedCue !== rendered) Reflect.set(holder, "renderedCue", rendered);
};

const listRules = (policy: unknown, field: string): JsonMap[] => toList(toMap(toMap(policy).spec)[field]).filter(isMap);

const getCondition = (rule: JsonMap): unknown => toMap(rule.template).condition;

/** Renders the templates of a policy as CUE, each with the map in which `renderedCue` is stored (`holder`). */
const renderTemplates = (policy: unknown) => {
  let remaining = maxRenderedLength;
  const limitSize = (rendered: string | undefined) => {
    if (rendered === undefined || remaining < rendered.length) return undefined;
    remaining -= rendered.length;
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

/** The most characters of all `renderedCue` fields of a policy. With more, the policy could be too large for etcd. */
const maxRenderedLength = 256 * 1024;

/** Returns the rendered CUE of a template; undefined if the value is no valid template. */
const tryRender = <T>(template: unknown, render: (template: T) => string): string | undefined => {
  try {
    // `render` gets a plain copy. The template may be a Proxy, through which changes of the policy are recorded, and
    // which structuredClone can't copy. `render` throws if the value is no template.
    return render(JSON.parse(JSON.stringify(template)) as T);
  } catch {
    return undefined;
  }
};

const isUnchanged = (policy: unknown, before: unknown): boolean =>
  isMap(policy) && isMap(before) && isSame(policy.spec, before.spec);
