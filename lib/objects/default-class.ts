import type { ObjectMeta } from "../kubernetes/meta/v1.ts";

interface Class {
  metadata?: ObjectMeta;
}

/** Returns the newest class that an annotation marks as the default; of equally new ones, the first by name. */
export const findDefaultClass = (classes: readonly Class[], annotationKeys: readonly string[]): string | undefined => {
  const marked = classes.filter(({ metadata }) =>
    annotationKeys.some((mark) => metadata?.annotations?.[mark] === "true"),
  );
  const [newest] = marked.sort(
    (left, right) =>
      compare(getCreationTime(right), getCreationTime(left)) || compare(getClassName(left), getClassName(right)),
  );
  return newest && getClassName(newest);
};

/** Returns when a class was created, as text: timestamps have equal length, so that text order is time order. */
const getCreationTime = ({ metadata }: Class) => metadata?.creationTimestamp ?? "";
const getClassName = ({ metadata }: Class) => metadata?.name ?? "";
const compare = (left: string, right: string) => (left < right ? -1 : left > right ? 1 : 0);
