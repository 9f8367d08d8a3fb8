import { isDeepStrictEqual } from "node:util";
import type { Mode } from "#lib/decide.ts";
import { isMap, own } from "#lib/json.ts";
import type { Case } from "#lib/recording/recording.ts";
import type { Review } from "#lib/review.ts";
import type { Phase } from "#lib/rule.ts";
import { merge } from "#lib/settings.ts";
import { phaseOf } from "../catalogue/cases.ts";
import { type Answer, madeIn, recordedIn } from "./answers.ts";

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

/** How a rule is set up in one cluster, in one version; or why it isn't asked there, or why nobody can say. */
type Standing = { mode: Mode; settings: object } | { absent: string } | { fault: string };

/** Whether a share is that of a group with this rule in it. */
const hasMember = (share: unknown, rule: string): boolean => own(own(share, "alone"), rule) !== undefined;

/** The function that is asked for a rule: a group mutates in the place of its members, all else is the rule's own. */
export const findPart = (shares: ReadonlyMap<string, unknown>, rule: string, phase: Phase): string | undefined => {
  const group = phase === "mutate" ? [...shares].find(([, share]) => hasMember(share, rule)) : undefined;
  return group?.[0] ?? (shares.has(rule) ? rule : undefined);
};

const modes: unknown[] = ["enforce", "warn", "audit"];

/** What a version's share of postern.yaml, a rule's or its group's, says of a rule in a cluster. */
export const standingIn = (
  share: unknown,
  rule: string,
  named: string | undefined,
  variant: string | undefined,
): Standing => {
  const clusters = own(share, "clusters");
  const names = isMap(clusters) ? Object.keys(clusters) : [];
  const cluster = named ?? (names.length === 1 ? names[0] : undefined);
  if (cluster === undefined) return { fault: `--cluster must say in which cluster it is asked: ${names.join(", ")}` };
  const found = own(clusters, cluster);
  if (found === undefined) return { absent: `has no cluster "${cluster}"; it has ${names.join(", ")}` };
  const isGrouped = hasMember(share, rule);
  const setup = isGrouped ? own(own(found, "settings"), rule) : found;
  const [mode, settings] = [own(setup, "mode"), own(setup, "settings")];
  if (mode === "off" || own(found, "mode") === "off") return { absent: `has it off in ${cluster}` };
  if (!modes.includes(mode) || !isMap(settings)) return { fault: `its settings in ${cluster} can't be read` };
  // One of the three, as was just seen.
  const standing = { mode: mode as Mode, settings };
  if (variant === undefined) return standing;

  const usual = own(own(share, "variants"), variant);
  const its = own(own(found, "variants") ?? own(share, "variants"), variant);
  if (its === undefined) return { absent: `has no variant ${variant} of it` };
  const together = merge(settings, its);
  // Whoever sends settings gets what the variant changes of the rule's own on top.
  if (!isDeepStrictEqual(merge(together, usual), together))
    return { fault: `the settings that variant ${variant} has in ${cluster} can't be sent` };
  return { ...standing, settings: together };
};
