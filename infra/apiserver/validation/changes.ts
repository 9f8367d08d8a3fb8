import { mergeSince, type Since } from "#lib/since.ts";

/** What differs between minors of Kubernetes in what validation checks and says. */
interface ValidationTraits {
  /** Whether a bad value is shown as JSON, instead of as Go writes it. */
  showsJson: boolean;
  /** Whether texts have "item" and "byte" beside "items" and "bytes". */
  hasSingularForms: boolean;
  /** Whether the greatest length of label keys and values is counted in bytes, instead of in characters. */
  countsBytes: boolean;
  /** Whether the refusal of a rule in CEL shows a scalar, instead of its type. */
  showsScalars: boolean;
  /** Whether the formats of numbers are known. */
  hasNumberFormats: boolean;
}

const traits: Since<Partial<ValidationTraits>> = {
  "1.34": { showsJson: true, hasSingularForms: true },
  "1.35": { countsBytes: true, showsScalars: true },
  "1.36": { hasNumberFormats: true },
};

const byMinor = new Map<string | undefined, Partial<ValidationTraits>>();

/** Returns how validation is done in a minor of Kubernetes, or in the newest. */
export const selectTraits = (kubernetes: string | undefined): Partial<ValidationTraits> => {
  const selected = byMinor.get(kubernetes) ?? mergeSince(traits, kubernetes);
  byMinor.set(kubernetes, selected);
  return selected;
};
