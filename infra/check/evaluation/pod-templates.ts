import { getOwn, isMap, isSame, type JsonMap, toList, toMap } from "#lib/json.ts";
import type { KubernetesObject } from "#lib/review.ts";
import type { FieldPath } from "../../manifests/manifests.ts";

/** A kind that creates Pods. */
interface WorkloadKind {
  templatePath: FieldPath;
  /** The name of the controller that creates the Pods, and of its ServiceAccount. */
  controller: string;
  /** The kind that owns the Pods; by default the kind itself. */
  owner?: { apiVersion: string; kind: string };
}

const inSpec = ["spec", "template"];
/** The kinds that create Pods, by their apiVersions and names. */
const workloadKinds: Record<string, WorkloadKind> = {
  "apps/v1 Deployment": {
    templatePath: inSpec,
    controller: "replicaset-controller",
    owner: { apiVersion: "apps/v1", kind: "ReplicaSet" },
  },
  "apps/v1 ReplicaSet": { templatePath: inSpec, controller: "replicaset-controller" },
  "apps/v1 StatefulSet": { templatePath: inSpec, controller: "statefulset-controller" },
  "apps/v1 DaemonSet": { templatePath: inSpec, controller: "daemon-set-controller" },
  "batch/v1 Job": { templatePath: inSpec, controller: "job-controller" },
  "batch/v1 CronJob": {
    templatePath: ["spec", "jobTemplate", ...inSpec],
    controller: "job-controller",
    owner: { apiVersion: "batch/v1", kind: "Job" },
  },
  "v1 ReplicationController": { templatePath: inSpec, controller: "replication-controller" },
};

/** The uid of an owner that doesn't exist yet. */
const unknownUid = "00000000-0000-0000-0000-000000000000";

export const isWorkload = ({ apiVersion, kind }: { apiVersion?: unknown; kind?: unknown }): boolean =>
  Object.hasOwn(workloadKinds, `${apiVersion} ${kind}`);

/** Reports whether an apiVersion has built-in kinds that create Pods. */
export const hasBuiltInWorkloadKinds = (apiVersion: string): boolean =>
  Object.keys(workloadKinds).some((key) => key.startsWith(`${apiVersion} `));

/**
 * Returns the Pod that a workload's controller would create, the path of its template, and the controller's user;
 * undefined if the object has no Pod template.
 */
export const buildPod = (workload: KubernetesObject) => {
  const { apiVersion, kind, metadata: { name = "", namespace } = {} } = workload;
  const key = `${apiVersion} ${kind}`;
  const workloadKind = Object.hasOwn(workloadKinds, key) ? workloadKinds[key] : undefined;
  const template = workloadKind?.templatePath.reduce<unknown>(getOwn, workload);
  if (workloadKind === undefined || !isMap(template)) return undefined;
  const ownMetadata = isMap(template.metadata) ? template.metadata : {};
  const { labels, annotations, finalizers } = ownMetadata;
  const isStateful = kind === "StatefulSet";
  const podName = isStateful ? { name: `${name}-0` } : { generateName: `${name}-` };
  const owner = workloadKind.owner ?? { apiVersion, kind };
  const metadata = {
    ...podName,
    ownerReferences: [{ ...owner, name, uid: unknownUid, controller: true }],
    ...(namespace !== undefined && { namespace }),
    ...(isMap(labels) && { labels }),
    ...(isMap(annotations) && { annotations }),
    ...(Array.isArray(finalizers) && { finalizers }),
  };
  const spec = isStateful ? addClaimVolumes(workload, toMap(template.spec)) : (template.spec ?? {});
  const pod = { apiVersion: "v1", kind: "Pod", metadata, spec };
  return {
    // The cast is safe: the template's metadata was checked with the workload, and rules accept any other content.
    pod: pod as KubernetesObject,
    templatePath: workloadKind.templatePath,
    user: {
      username: `system:serviceaccount:kube-system:${workloadKind.controller}`,
      groups: ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"],
    },
  };
};

/**
 * Returns the spec of a StatefulSet's first Pod: for each volumeClaimTemplate, it has a volume with the Pod's claim. The
 * template's own volumes come first, so that their indexes stay.
 */
const addClaimVolumes = (set: KubernetesObject, spec: JsonMap): JsonMap => {
  const names = toList(getOwn(getOwn(set, "spec"), "volumeClaimTemplates")).map((claim) =>
    getOwn(getOwn(claim, "metadata"), "name"),
  );
  const own = toList(spec.volumes).filter((volume) => !names.includes(getOwn(volume, "name")));
  const claimed = names.map((name) => {
    return { name, persistentVolumeClaim: { claimName: `${name}-${set.metadata?.name}-0` } };
  });
  return names.length === 0 ? spec : { ...spec, volumes: [...own, ...claimed] };
};

/** The fields of all kinds of workloads that say how many Pods there are. */
interface WorkloadSpec {
  paused?: boolean;
  suspend?: boolean;
  replicas?: number;
  parallelism?: number;
  completions?: number | null;
}

/** Returns how many Pods a workload has at a time; undefined if that depends on more than the object. */
const countPods = ({ kind, spec }: KubernetesObject & { spec?: WorkloadSpec | null }): number | undefined => {
  const { paused, suspend, replicas, parallelism, completions } = spec ?? {};
  if (kind !== "Job") {
    // A paused Deployment creates no Pods from its template, and doesn't say how many older Pods it keeps.
    return paused !== true && Number.isSafeInteger(replicas) ? replicas : undefined;
  }
  if (suspend === true) return 0;
  if (parallelism === undefined) return undefined;
  // A Job with more completions replaces Pods that have ended, which some quotas still count.
  const replacesEndedPods = (completions ?? 0) > parallelism;
  const count = Math.min(parallelism, completions ?? parallelism);
  return !replacesEndedPods && Number.isSafeInteger(count) ? count : undefined;
};

/**
 * Returns how many Pods a controller creates after a workload was created or, if there is an old one, changed;
 * undefined if that isn't known.
 */
export const countNewPods = (workload: KubernetesObject, old?: KubernetesObject | null): number | undefined => {
  if (!old) return countPods(workload);
  if (isSame(getOwn(workload, "spec"), getOwn(old, "spec"))) return 0;
  const [now, before] = [countPods(workload), countPods(old)];
  const [template, oldTemplate] = [workload, old].map((object) => getOwn(getOwn(object, "spec"), "template"));
  if (now === undefined || before === undefined || !isSame(template, oldTemplate)) return undefined;
  return Math.max(0, now - before);
};

/** Reports whether all Pods of a stored workload exist, by its status; false if its status doesn't say that. */
export const hasAllPods = (
  workload: KubernetesObject & { status?: { replicas?: number; updatedReplicas?: number } },
): boolean => {
  const { replicas = 0, updatedReplicas = 0 } = workload.status ?? {};
  // The status of these kinds says how many Pods have the current template. Other Pods will be replaced.
  const reportsUpdatedPods = ["Deployment", "StatefulSet"].includes(workload.kind ?? "");
  const present = reportsUpdatedPods ? Math.min(replicas, updatedReplicas) : replicas;
  const wanted = countPods(workload);
  return workload.kind !== "Job" && wanted !== undefined && present >= wanted;
};
