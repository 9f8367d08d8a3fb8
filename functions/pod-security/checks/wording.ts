import { type Context, contextOf, namesOf, type Subject } from "./check.ts";

// How upstream puts what checks find.

/** `"a", "b"`, whatever is in them. */
export const quoted = (texts: readonly string[]) => texts.map((text) => `"${text}"`).join(", ");

export const plural = (count: number, one: string, several = `${one}s`) => (count === 1 ? one : several);

/** `container "a"`, `containers "a", "b"`. */
export const listed = (noun: string, names: readonly string[]) => `${plural(names.length, noun)} ${quoted(names)}`;

/** Each once, in the order of their bytes. */
export const sorted = (texts: Iterable<string>): string[] =>
  [...new Set(texts)].sort((one, other) => Buffer.compare(Buffer.from(one), Buffer.from(other)));

/** Who sets something: `pod and container "a"`; an empty text where nobody does. */
export const settersOf = ({ spec, containers }: Subject, does: (context: Context) => boolean): string => {
  const names = namesOf(containers.filter((container) => does(contextOf(container))));
  return [
    ...(does(spec.securityContext ?? {}) ? ["pod"] : []),
    ...(names.length > 0 ? [listed("container", names)] : []),
  ].join(" and ");
};
