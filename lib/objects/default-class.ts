import type { ObjectMeta } from "kubernetes-types/meta/v1.d.ts";

interface Class {
  metadata?: ObjectMeta;
}

/** The name of the newest class that one of these annotations marks as the default; of several as new, the first by name. */
export const findDefaultClass = (classes: readonly Class[], marks: readonly string[]): string | undefined => {
  const marked = classes.filter(({ metadata }) => marks.some((mark) => metadata?.annotations?.[mark] === "true"));
  const [newest] = marked.sort((one, other) => compare(born(other), born(one)) || compare(nameOf(one), nameOf(other)));
  return newest && nameOf(newest);
};

/** In seconds, always as long: earlier is less. */
const born = ({ metadata }: Class) => metadata?.creationTimestamp ?? "";
const nameOf = ({ metadata }: Class) => metadata?.name ?? "";
const compare = (one: string, other: string) => (one < other ? -1 : one > other ? 1 : 0);
