import { getOwn, isSame, type JsonMap, lookUp, readListIfSet, readOptionalMap, setMemberToCopy } from "../../json.ts";
import type { KubernetesObject } from "../../review.ts";

const templatePath = ["spec", "template", "spec"];

/** The path of the pod spec, by kind. The API group doesn't matter: custom workload kinds use the same paths. */
const podSpecPaths: ReadonlyMap<unknown, string[]> = new Map([
  ["Pod", ["spec"]],
  ["ReplicationController", templatePath],
  ["Deployment", templatePath],
  ["ReplicaSet", templatePath],
  ["StatefulSet", templatePath],
  ["DaemonSet", templatePath],
  ["Job", templatePath],
  ["CronJob", ["spec", "jobTemplate", ...templatePath]],
]);

/** Returns the pod spec of a pod, or of the pods that an object creates; undefined if there is none. */
export const findPodSpec = (object: KubernetesObject): JsonMap | undefined => {
  const place = podSpecPaths.get(object.kind);
  return place && readOptionalMap(lookUp(object, place)?.value, place.join("."));
};

/** Prepends each element that a list lacks, one after another, so that the last one comes first. Reports any change. */
export const prependMissingElements = (parent: JsonMap, key: string, terms: readonly unknown[]): boolean => {
  const present = readListIfSet(getOwn(parent, key), key) ?? [];
  const missing: unknown[] = [];
  for (const term of terms) if (![...missing, ...present].some((element) => isSame(element, term))) missing.push(term);
  return missing.length > 0 && setMemberToCopy(parent, key, [...missing.reverse(), ...present]);
};
