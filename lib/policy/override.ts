import { listOf, mapOf } from "../json.ts";
import { blamed, rulesOf } from "./blame.ts";
import type { OverridePolicy, OverrideRule, Reach, Subject } from "./kinds.ts";
import { applyOrigins } from "./overriders/origins.ts";
import { patchWith } from "./overriders/plaintext.ts";
import { applyTemplate, referenceOf } from "./overriders/templates.ts";
import { type Book, overriding } from "./policy-index.ts";
import { resolve } from "./references/references.ts";
import { patchesOf } from "./scripts.ts";
import { targets } from "./selectors.ts";

/** What a rule may consist of, in the order in which it is done. */
export type Source = "template" | "cue" | "plaintext" | "origin";

/** A rule that was for a request, and what of it changed the object. */
export interface Applied {
  policy: OverridePolicy;
  /** Its index. */
  rule: number;
  sources: Source[];
}

/**
 * Does to the object of a request, in place, what all policies say that concern it. Where one fails, all fail: nothing of
 * the object may be used then. What is deleted or connected to is nobody's to change.
 */
export const override = async (book: Book, subject: Subject, reach: Reach): Promise<Applied[]> => {
  if (subject.operation === "DELETE" || subject.operation === "CONNECT") return [];
  const concerned = overriding(book, subject);
  const applied = await appliedOf(concerned.filter(isOfCluster), subject, reach);
  // Those of the cluster may have changed which of a namespace concern the object.
  const isChanged = applied.some(({ sources }) => sources.length > 0);
  const then = (isChanged ? overriding(book, subject) : concerned).filter((policy) => !isOfCluster(policy));
  return [...applied, ...(await appliedOf(then, subject, reach))];
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

/** The sources of a rule that changed something. */
const changesOf = async ({ overriders }: OverrideRule, subject: Subject, reach: Reach): Promise<Source[]> => {
  mapOf(overriders, "overriders");
  const { object, dryRun = false } = subject;
  const { template, cue, plaintext, origin } = overriders ?? {};
  const sources: Source[] = [];
  if (mapOf(template, "template") && template) {
    const reference = referenceOf(template);
    const referenced = reference && (await resolve(reference, subject, reach));
    if (applyTemplate(object, template, referenced)) sources.push("template");
  }
  if (cue) {
    if (typeof cue !== "string") throw new Error("cue must be a text");
    if (patchWith(object, await patchesOf(cue, object, reach, { dryRun }))) sources.push("cue");
  }
  if (listOf(plaintext, "plaintext") && patchWith(object, plaintext ?? [])) sources.push("plaintext");
  if (listOf(origin, "origin") && applyOrigins(object, origin ?? [])) sources.push("origin");
  return sources;
};
