import type { ObjectMeta } from "kubernetes-types/meta/v1.d.ts";

/** The newest of the classes that one of these annotations marks as the default; of several as new, the first by name. */
export const defaultClass = <Class extends { metadata?: ObjectMeta }>(
  classes: readonly Class[],
  marks: readonly string[],
): Class | undefined => {
  const marked = classes.filter(({ metadata }) => marks.some((mark) => metadata?.annotations?.[mark] === "true"));
  const [newest] = marked.sort((one, other) => compare(born(other), born(one)) || compare(nameOf(one), nameOf(other)));
  return newest;
};

/** In seconds, always as long: earlier is less. */
const born = ({ metadata }: { metadata?: ObjectMeta }) => metadata?.creationTimestamp ?? "";
const nameOf = ({ metadata }: { metadata?: ObjectMeta }) => metadata?.name ?? "";
const compare = (one: string, other: string) => (one < other ? -1 : one > other ? 1 : 0);
