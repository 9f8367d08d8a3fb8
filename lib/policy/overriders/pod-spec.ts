import { type Json, lookUp, mapOf } from "../../json.ts";
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
