// Stands in for modules of lib that a rule doesn't need (see bundle.ts), with the names that other modules import. The
// functions have no effects, so that esbuild drops their calls; it drops uses of constants if these come first in the
// file.

/** For lib/patch.ts, if a rule only validates. */
export const createDraft = undefined;
/** For lib/cue/engine.ts, if a rule runs no scripts. */
export const evaluate = undefined;
/** For lib/recorded-answers.ts and lib/recording/notes.ts, if a rule has no needs. */
export const recorded = undefined;
export const noting = undefined;
export const questionOf = undefined;
/** For lib/needs.ts, if a rule has no needs and isn't recorded. */
export const createUnconnectedCapabilities = undefined;

export function rejectWhenLate(answer: unknown) {
  return answer;
}
export function computeTimeLeft() {}
export function bindNeeds() {}
export function reevaluateRefusal() {}
export function chooseCapabilities() {}

/** For lib/recorded-answers.ts. */
export function recordedFor() {}

/** For lib/variant.ts, if a rule has no variants. */
export function findVariantSettings() {}
