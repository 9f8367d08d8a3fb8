import { goQuoted } from "postern/objects/go-quoted";
import type { Range } from "./policy.ts";

/** What a policy has against a pod, told one by one: most callers only want to know whether there is anything. */
export type Offences = Generator<string, void, undefined>;

export const invalid = (path: string, shown: string, detail = "") =>
  `${path}: Invalid value: ${shown}${detail && `: ${detail}`}`;
export const forbiddenAt = (path: string, detail: string) => `${path}: Forbidden: ${detail}`;

// Values, as Kubernetes 1.15 shows them.

/** A list of Go, which knows one without elements from none. */
export const shownList = (type: string, elements: readonly (string | number)[] | undefined) =>
  elements ? `[]${type}{${elements.map(shownElement).join(", ")}}` : `[]${type}(nil)`;
const shownElement = (element: string | number) => (typeof element === "string" ? goQuoted(element) : `${element}`);

export const shownRanges = (ranges: readonly Range[] = []) =>
  `[${ranges.map(({ min, max }) => `{${min} ${max}}`).join(" ")}]`;
