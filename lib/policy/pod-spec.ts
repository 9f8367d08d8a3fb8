import type { KubernetesObject } from "../review.ts";
import { type Json, lookUp, mapOf } from "./tree.ts";

const ofTemplate = ["spec", "template", "spec"];

/** By group and kind, in whatever version. */
const places: ReadonlyMap<string, string[]> = new Map([
  ["/Pod", ["spec"]],
  ["/ReplicationController", ofTemplate],
  ["apps/Deployment", ofTemplate],
  ["apps/ReplicaSet", ofTemplate],
  ["apps/StatefulSet", ofTemplate],
  ["apps/DaemonSet", ofTemplate],
  ["batch/Job", ofTemplate],
  ["batch/CronJob", ["spec", "jobTemplate", ...ofTemplate]],
]);

/** The pod spec of a pod, or of the pods that an object makes; undefined where there is none. */
export const podSpecOf = (object: KubernetesObject): Json | undefined => {
  const [group, version] = String(object.apiVersion).split("/");
  const place = places.get(`${version === undefined ? "" : group}/${object.kind}`);
  return place && mapOf(lookUp(object, place)?.value, place.join("."));
};
