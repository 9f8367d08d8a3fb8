import { isSame, type Json, listOf, lookUp, mapOf, own, put } from "../../json.ts";
import type { KubernetesObject } from "../../review.ts";

const ofTemplate = ["spec", "template", "spec"];

/** By kind, whatever the group: others than Kubernetes' own have their pods in the same place, too. */
const places: ReadonlyMap<unknown, string[]> = new Map([
  ["Pod", ["spec"]],
  ["ReplicationController", ofTemplate],
  ["Deployment", ofTemplate],
  ["ReplicaSet", ofTemplate],
  ["StatefulSet", ofTemplate],
  ["DaemonSet", ofTemplate],
  ["Job", ofTemplate],
  ["CronJob", ["spec", "jobTemplate", ...ofTemplate]],
]);

/** The pod spec of a pod, or of the pods that an object makes; undefined where there is none. */
export const podSpecOf = (object: KubernetesObject): Json | undefined => {
  const place = places.get(object.kind);
  return place && mapOf(lookUp(object, place)?.value, place.join("."));
};

/** Puts each of what is given in front of a list in turn, but for those that are there; says whether there were others. */
export const insert = (parent: Json, key: string, given: readonly unknown[]): boolean => {
  const present = listOf(own(parent, key), key) ?? [];
  const fresh: unknown[] = [];
  for (const term of given)
    if (![fresh, present].some((list) => list.some((other) => isSame(other, term)))) fresh.push(term);
  return fresh.length > 0 && put(parent, key, [...fresh.reverse(), ...present]);
};
