import { requireList, requireMap } from "../json.ts";
import { createDraft, applyPatch as patched } from "../patch.ts";
import type { KubernetesObject, Patch } from "../review.ts";
import { applyOrigins } from "./overriders/origins.ts";
import { patchWith } from "./overriders/plaintext.ts";
import { applyTemplate, referenceOf } from "./overriders/templates.ts";
import { blamed, rulesOf } from "./policy-failures.ts";
import { type Book, bookOf, overriding } from "./policy-index.ts";
import { resolve } from "./references/references.ts";
import { patchesOf } from "./scripts.ts";
import { targets } from "./selectors.ts";
import type { OverridePolicy, OverrideRule, Policy, Reach, Subject } from "./types.ts";

/** The parts of a rule, in the order in which they are applied. */
export type Source = "template" | "cue" | "plaintext" | "origin";

/** A rule that ran for a request. `sources` are its parts that changed the object. */
export interface Applied {
  policy: OverridePolicy;
  rule: number;
  sources: Source[];
}

/**
 * Applies the override policies that concern a request to its object, in place. If this throws, don't use the object:
 * it may be partly changed. Requests that delete an object or connect to it change nothing.
 */
export const override = async (book: Book, subject: Subject, reach: Reach): Promise<Applied[]> => {
  if (subject.operation === "DELETE" || subject.operation === "CONNECT") return [];
  const concerned = overriding(book, subject);
  const applied = await appliedOf(concerned.filter(isOfCluster), subject, reach);
  // Changes by ClusterOverridePolicies may decide which OverridePolicies select the object.
  const isChanged = applied.some(({ sources }) => sources.length > 0);
  const then = (isChanged ? overriding(book, subject) : concerned).filter((policy) => !isOfCluster(policy));
  return [...applied, ...(await appliedOf(then, subject, reach))];
};

export interface Application extends Subject {
  policies: readonly Policy[];
  reach: Reach;
}

/** Applies policies to a copy of an object. Returns the result, the patch that leads to it and the rules that ran. */
export const applyPolicies = async ({
  policies,
  reach,
  ...subject
}: Application): Promise<{ object: KubernetesObject; patch: Patch; applied: Applied[] }> => {
  const { value, changes } = createDraft(subject.object);
  const applied = await override(bookOf(policies), { ...subject, object: value }, reach);
  const patch = changes();
  // override keeps kind and metadata valid, so the result is still a KubernetesObject.
  return { object: patched(subject.object, patch) as KubernetesObject, patch, applied };
};

const isOfCluster = ({ kind }: OverridePolicy) => kind === "ClusterOverridePolicy";

const appliedOf = async (policies: OverridePolicy[], subject: Subject, reach: Reach): Promise<Applied[]> => {
  const applied: Applied[] = [];
  for (const policy of policies)
    for (const [index, rule] of rulesOf(policy, "overrideRules").entries())
      if (targets(rule.targetOperations, subject.operation))
        try {
          applied.push({ policy, rule: index, sources: await changesOf(rule, subject, reach) });
        } catch (error) {
          throw blamed(policy, "overrideRules", index, error);
        }
  return applied;
};

const changesOf = async ({ overriders }: OverrideRule, subject: Subject, reach: Reach): Promise<Source[]> => {
  requireMap(overriders, "overriders");
  const { object, dryRun = false } = subject;
  const { template, cue, plaintext, origin } = overriders ?? {};
  const sources: Source[] = [];
  if (requireMap(template, "template") && template) {
    const reference = referenceOf(template);
    const referenced = reference && (await resolve(reference, subject, reach));
    if (applyTemplate(object, template, referenced)) sources.push("template");
  }
  if (cue) {
    if (typeof cue !== "string") throw new Error("cue must be a text");
    if (patchWith(object, await patchesOf(cue, object, reach, { dryRun }))) sources.push("cue");
  }
  if (requireList(plaintext, "plaintext") && patchWith(object, plaintext ?? [])) sources.push("plaintext");
  if (requireList(origin, "origin") && applyOrigins(object, origin ?? [])) sources.push("origin");
  return sources;
};
