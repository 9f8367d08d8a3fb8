import { goQuoted } from "postern/objects/go-quoted";
import type { Range } from "./policy.ts";

/** A generator, because most callers only need to know whether there is an offence. */
export type Offences = Generator<string, void, undefined>;

export const invalid = (path: string, shown: string, detail = "") =>
  `${path}: Invalid value: ${shown}${detail && `: ${detail}`}`;
export const forbiddenAt = (path: string, detail: string) => `${path}: Forbidden: ${detail}`;

// Prints values as Kubernetes 1.15 does.

/** Prints a Go slice; an empty slice differs from nil. */
export const shownList = (type: string, elements: readonly (string | number)[] | undefined) =>
  elements ? `[]${type}{${elements.map(shownElement).join(", ")}}` : `[]${type}(nil)`;
const shownElement = (element: string | number) => (typeof element === "string" ? goQuoted(element) : `${element}`);

export const shownRanges = (ranges: readonly Range[] = []) =>
  `[${ranges.map(({ min, max }) => `{${min} ${max}}`).join(" ")}]`;
