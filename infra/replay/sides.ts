import type { Review } from "#lib/review.ts";
import type { Phase } from "#lib/rule.ts";
import { type Case, phaseOf } from "../catalogue/cases.ts";
import { type Answer, madeIn, recordedIn } from "./answers.ts";
import { hasMember, type Standing, standingIn } from "./shares.ts";

/** A recorded review as it is sent again. */
export interface Played {
  entry: Case;
  rule: string;
  /** The one it is asked in; where a version has only one, it needn't be said. */
  cluster: string | undefined;
  review: Review;
  /** With the settings that it was recorded with, not with those of a version. */
  asRecorded: boolean;
}

/** One of the two that are compared. */
export interface Side {
  name: string;
  answer(played: Played): Promise<Answer>;
}

/** A function and its share of postern.yaml. */
export interface Part {
  name: string;
  share: unknown;
}

type Nothing = { absent: string } | { fault: string };

/** A version of the rules, wherever its functions run. */
export interface Version {
  name: string;
  /** The function that is asked for a rule: its own, or that of the group that it is in. */
  find(rule: string, phase: Phase): Promise<Part | Nothing>;
  invoke(part: Part, event: object): Promise<{ answer: unknown } | Nothing>;
}

/** What was answered when it was recorded. */
export const past: Side = { name: "recorded", answer: async ({ entry }) => recordedIn(entry) };

/** A version, asked by direct invocation, which no key and no cluster is needed for. */
export const sideOf = (version: Version): Side => ({
  name: version.name,
  answer: async (played) => {
    const { entry, rule, cluster, asRecorded, review } = played;
    const part = await version.find(rule, phaseOf(entry));
    if (!("share" in part)) return part;
    // With settings of its own, a case is asked even where the rule is off.
    const standing: Standing = asRecorded
      ? { mode: "enforce", settings: entry.settings ?? {} }
      : standingIn(part.share, rule, cluster, entry.variant);
    if (!("settings" in standing)) return standing;
    const member = hasMember(part.share, rule) ? rule : undefined;
    const said = await version.invoke(part, { ...eventFor(played), settings: standing.settings, member });
    if (!("answer" in said)) return said;
    const answer = madeIn(said.answer, entry, review.request.uid);
    return "made" in answer && !asRecorded ? { ...answer, mode: standing.mode } : answer;
  },
});

/**
 * The rule's own verdict is asked for: who names a cluster is told what that cluster's mode makes of it, and is counted
 * among its reviews.
 */
const eventFor = ({ entry, review }: Played): object => {
  const { version, request } = review;
  // A rule that needed nothing read nothing; a case that somebody wrote says all there is.
  const { variant, needs = entry.recorded ? { reads: [] } : {}, now } = entry;
  return {
    ...{ phase: phaseOf(entry), variant, needs, now },
    review: { kind: "AdmissionReview", apiVersion: `admission.k8s.io/${version}`, request },
  };
};
