import { quoteAsGo } from "postern/objects/go/quoted";
import type { IdRange } from "./policy.ts";

/**
 * Sentences about parts of a pod that a PodSecurityPolicy forbids. This is a generator, because most callers only need
 * to know whether there is at least one offence.
 */
export type PodSecurityPolicyOffences = Generator<string, void, undefined>;

export const describeInvalid = (path: string, value: string, detail = "") =>
  `${path}: Invalid value: ${value}${detail && `: ${detail}`}`;
export const describeForbidden = (path: string, detail: string) => `${path}: Forbidden: ${detail}`;

// The functions below print values in refusals as the PodSecurityPolicy plugin of Kubernetes 1.15 prints Go values.

/** Prints a Go slice; an empty slice differs from nil. */
export const formatGoSlice = (type: string, elements: readonly (string | number)[] | undefined) =>
  elements ? `[]${type}{${elements.map(printGoElement).join(", ")}}` : `[]${type}(nil)`;
const printGoElement = (element: string | number) => (typeof element === "string" ? quoteAsGo(element) : `${element}`);

export const printIdRangesAsGo = (ranges: readonly IdRange[] = []) =>
  `[${ranges.map(({ min, max }) => `{${min} ${max}}`).join(" ")}]`;
