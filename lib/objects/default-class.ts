import type { ObjectMeta } from "../kubernetes/meta/v1.ts";

interface Class {
  metadata?: ObjectMeta;
}

/**
 * Returns the name of the default class: of the classes with one of the annotations, the newest one, and of equally new
 * ones the first by name.
 */
export const findDefaultClass = (classes: readonly Class[], annotationKeys: readonly string[]): string | undefined => {
  const defaultClasses = classes.filter(({ metadata }) =>
    annotationKeys.some((key) => metadata?.annotations?.[key] === "true"),
  );
  const [newest] = defaultClasses.sort(
    (left, right) =>
      compare(getCreationTime(right), getCreationTime(left)) || compare(getClassName(left), getClassName(right)),
  );
  return newest && getClassName(newest);
};

/** Returns when a class was created. Timestamps have the same length, so they can be compared as texts. */
const getCreationTime = ({ metadata }: Class) => metadata?.creationTimestamp ?? "";
const getClassName = ({ metadata }: Class) => metadata?.name ?? "";
const compare = (left: string, right: string) => (left < right ? -1 : left > right ? 1 : 0);
