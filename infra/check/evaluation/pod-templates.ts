import { getOwn, isMap } from "#lib/json.ts";
import type { KubernetesObject } from "#lib/review.ts";
import type { Path } from "../manifests/manifests.ts";

/** `at` is the path of the Pod template; `controller` creates the Pods. */
interface Maker {
  at: Path;
  controller: string;
}

const inSpec = ["spec", "template"];
const makers: Record<string, Maker> = {
  "apps/v1 Deployment": { at: inSpec, controller: "replicaset-controller" },
  "apps/v1 ReplicaSet": { at: inSpec, controller: "replicaset-controller" },
  "apps/v1 StatefulSet": { at: inSpec, controller: "statefulset-controller" },
  "apps/v1 DaemonSet": { at: inSpec, controller: "daemon-set-controller" },
  "batch/v1 Job": { at: inSpec, controller: "job-controller" },
  "batch/v1 CronJob": { at: ["spec", "jobTemplate", ...inSpec], controller: "job-controller" },
  "v1 ReplicationController": { at: inSpec, controller: "replication-controller" },
};

export const isWorkload = ({ apiVersion, kind }: { apiVersion?: unknown; kind?: unknown }): boolean =>
  Object.hasOwn(makers, `${apiVersion} ${kind}`);

export const hasWorkloads = (apiVersion: string): boolean =>
  Object.keys(makers).some((word) => word.startsWith(`${apiVersion} `));

export interface Made {
  pod: KubernetesObject;
  at: Path;
  user: { username: string; groups: string[] };
}

/** Returns the Pod that a workload's controller would create; undefined if the object has no Pod template. */
export const buildPod = (workload: KubernetesObject): Made | undefined => {
  const { apiVersion, kind, metadata: { name = "", namespace } = {} } = workload;
  const word = `${apiVersion} ${kind}`;
  const maker = Object.hasOwn(makers, word) ? makers[word] : undefined;
  const template = maker?.at.reduce<unknown>(getOwn, workload);
  if (maker === undefined || !isMap(template)) return undefined;
  const given = isMap(template.metadata) ? template.metadata : {};
  const { labels, annotations, finalizers } = given;
  const named = kind === "StatefulSet" ? { name: `${name}-0` } : { generateName: `${name}-` };
  const metadata = {
    ...named,
    ...(namespace !== undefined && { namespace }),
    ...(isMap(labels) && { labels }),
    ...(isMap(annotations) && { annotations }),
    ...(Array.isArray(finalizers) && { finalizers }),
  };
  const pod = { apiVersion: "v1", kind: "Pod", metadata, spec: template.spec ?? {} };
  return {
    // The metadata was checked with the workload; rules check the rest.
    pod: structuredClone(pod) as KubernetesObject,
    at: maker.at,
    user: {
      username: `system:serviceaccount:kube-system:${maker.controller}`,
      groups: ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"],
    },
  };
};
