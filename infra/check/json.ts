import type { Judged } from "./judge.ts";
import { differenceIn } from "./text.ts";

/** What became of one object, for programs. */
export const jsonOf = (judged: Judged): object => {
  const { subject, checked, audit, steps } = judged;
  const asked = steps
    .filter(({ outcome }) => outcome !== "skipped")
    .map(({ hook, configuration, phase, round, outcome, why, allowed, failure }) => {
      return { hook, configuration, phase, round, outcome, why, allowed, failure };
    });
  return {
    ...checked,
    ...(subject.made && { madeBy: subject.made.by }),
    audit,
    hooks: asked,
    difference: differenceIn(judged),
  };
};
