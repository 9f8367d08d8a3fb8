// What a bundle has in the place of modules of lib that its rule doesn't need (bundle.ts), by the names that other modules
// import. The functions look into what they are given and do nothing, so that esbuild leaves out their calls, too; it does
// so with constants that stand before all else.

/** Of lib/patch.ts, where a rule only validates. */
export const draft = undefined;
/** Of lib/cue/engine.ts, where a rule runs no scripts. */
export const evaluate = undefined;
/** Of lib/recorded-answers.ts and lib/recording/notes.ts, where a rule asks nothing. */
export const recorded = undefined;
export const noting = undefined;
export const questionOf = undefined;
/** Of lib/needs.ts, where a rule asks nothing and nothing is recorded. */
export const unconnected = undefined;

export function inTime(answer: unknown) {
  return answer;
}
export function timeLeft() {}
export function answersFor() {}
export function reconsidered() {}
export function worldFor() {}

/** Of lib/recorded-answers.ts. */
export function recordedFor() {}

/** Of lib/variant.ts, where a rule has no variants. */
export function variantOf() {}
