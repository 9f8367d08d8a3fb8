import fc from "fast-check";
import type { Case } from "#lib/recording/recording.ts";
import { createCasePerturber } from "../infra/testing/case-generators.ts";

/** Generates cases like the given ones: one of them with up to five changes, which createCasePerturber makes. */
export const perturbCases = (cases: Case[]): fc.Arbitrary<Case> => {
  const perturb = createCasePerturber(cases);
  const change = fc.record({
    randomForMember: fc.nat(),
    randomForValue: fc.nat(),
    deletesMember: fc.boolean(),
    changesOldObject: fc.boolean(),
  });
  return fc
    .tuple(fc.constantFrom(...cases), fc.array(change, { minLength: 1, maxLength: 5 }))
    .map(([entry, changes]) => perturb(entry, changes));
};
