/** The paths in objects of a kind at which a number of Pods and their template are. */
export interface PodGroup {
  /** The path to the Pod template; "" if the object itself is a Pod. In paths, `*` means each element of a list. */
  template: string;
  /** "spark": at this path is no Pod template, but the fields of the Spark operator for a driver or executors. */
  notation?: "spark";
  /**
   * The paths to numbers whose product is the number of Pods: for a JobSet, the number of Jobs and their parallelism.
   * An absent number counts as 1, and so does an empty list.
   */
  factors: readonly string[];
  /** The path to a lower bound of the first number of `factors`, such as `minReplicas` for replicas. */
  minimum?: string;
  /** The path to an upper bound of the last number of `factors`, such as a Job's `completions` for parallelism. */
  maximum?: string;
}

/** A condition of an object: at this path, it has one of these values. The value `undefined` means a missing field. */
export interface RequiredValue {
  path: string;
  values: readonly unknown[];
}

/** A kind whose objects are counted as workloads. */
export interface CountedKind {
  group: string;
  resource: string;
  kind: string;
  /** The parts of the object that make Pods, such as the head and the workers of a Ray cluster. */
  pods: readonly PodGroup[];
  /** True if an object without a Pod template is valid. Such an object makes no Pods. */
  mayHaveNoTemplate?: true;
  /** The path to the number that the scale subresource sets. */
  scale?: string;
  /** The object has no Pods if all of these conditions are true. */
  suspended?: readonly RequiredValue[];
  /** The path to a word in the status, and the words that mean that the object has ended. */
  phase?: { path: string; ended: readonly string[] };
  /** The object has ended if one of these conditions in its status is True. */
  conditions?: readonly string[];
  /** When the object has ended, its Pods end only if all of these conditions are true. */
  endsOnlyIf?: readonly RequiredValue[];
  /** Objects that the object controls are counted with it only if all of these conditions are true. */
  includesOwnedOnlyIf?: readonly RequiredValue[];
}

const isSuspended: readonly RequiredValue[] = [{ path: "spec.suspend", values: [true] }];

/** What Deployments and similar kinds share: one group of equal Pods, whose number the scale subresource sets. */
const replicated = {
  pods: [{ template: "spec.template", factors: ["spec.replicas"] }],
  scale: "spec.replicas",
};

/** Returns the group of Pods of a Job whose spec is at a path. `factors`: paths to more factors for their number. */
const createJobGroup = (spec: string, ...factors: string[]): PodGroup => ({
  template: `${spec}.template`,
  factors: [...factors, `${spec}.parallelism`],
  maximum: `${spec}.completions`,
});

/** Returns the members that all jobs of the Training Operator share. `specs` is the field with the replica specs. */
const createTrainingJob = (specs: string) => ({
  group: "kubeflow.org",
  pods: [{ template: `spec.${specs}.*.template`, factors: [`spec.${specs}.*.replicas`] }],
  scale: `spec.${specs}.Worker.replicas`,
  suspended: [{ path: "spec.runPolicy.suspend", values: [true] }],
  conditions: ["Succeeded", "Failed"],
  // With another policy, Pods of workers can continue to run after the job has ended.
  endsOnlyIf: [{ path: "spec.runPolicy.cleanPodPolicy", values: ["All", "Running"] }],
});

/**
 * Returns the groups of Pods of a Ray cluster whose spec is at a path: the head, which is one Pod, and groups of
 * workers, each with `replicas` × `numOfHosts` Pods, where `replicas` counts as at least `minReplicas`.
 */
const createRayGroups = (spec: string): PodGroup[] => [
  { template: `${spec}.headGroupSpec.template`, factors: [] },
  {
    template: `${spec}.workerGroupSpecs.*.template`,
    factors: [`${spec}.workerGroupSpecs.*.replicas`, `${spec}.workerGroupSpecs.*.numOfHosts`],
    minimum: `${spec}.workerGroupSpecs.*.minReplicas`,
  },
];

/** If all of these conditions are true, a RayJob deletes its RayCluster when the job is suspended or has ended. */
const deletesRayCluster: readonly RequiredValue[] = [
  { path: "spec.shutdownAfterJobFinishes", values: [true] },
  { path: "spec.ttlSecondsAfterFinished", values: [undefined, 0] },
  { path: "spec.deletionStrategy", values: [undefined] },
];

/** The kinds of workloads that quotas count, with the paths of their Pod templates and numbers of replicas. */
export const countedKinds: readonly CountedKind[] = [
  {
    group: "",
    resource: "pods",
    kind: "Pod",
    pods: [{ template: "", factors: [] }],
    phase: { path: "status.phase", ended: ["Succeeded", "Failed"] },
  },
  { group: "", resource: "replicationcontrollers", kind: "ReplicationController", ...replicated },
  { group: "apps", resource: "replicasets", kind: "ReplicaSet", ...replicated },
  { group: "apps", resource: "deployments", kind: "Deployment", ...replicated },
  { group: "apps", resource: "statefulsets", kind: "StatefulSet", ...replicated },
  {
    group: "batch",
    resource: "jobs",
    kind: "Job",
    pods: [createJobGroup("spec")],
    suspended: isSuspended,
    conditions: ["Complete", "Failed"],
  },
  {
    group: "batch",
    resource: "cronjobs",
    kind: "CronJob",
    pods: [createJobGroup("spec.jobTemplate.spec")],
    // With another policy, a run may begin while earlier runs have not ended.
    includesOwnedOnlyIf: [{ path: "spec.concurrencyPolicy", values: ["Forbid", "Replace"] }],
  },
  { resource: "mpijobs", kind: "MPIJob", ...createTrainingJob("mpiReplicaSpecs") },
  { resource: "pytorchjobs", kind: "PyTorchJob", ...createTrainingJob("pytorchReplicaSpecs") },
  { resource: "tfjobs", kind: "TFJob", ...createTrainingJob("tfReplicaSpecs") },
  {
    group: "batch.volcano.sh",
    resource: "jobs",
    kind: "Job",
    pods: [{ template: "spec.tasks.*.template", factors: ["spec.tasks.*.replicas"] }],
    phase: { path: "status.state.phase", ended: ["Completed", "Failed", "Terminated", "Aborted"] },
  },
  {
    group: "ray.io",
    resource: "rayclusters",
    kind: "RayCluster",
    pods: createRayGroups("spec"),
    suspended: isSuspended,
  },
  {
    group: "ray.io",
    resource: "rayjobs",
    kind: "RayJob",
    pods: [...createRayGroups("spec.rayClusterSpec"), { template: "spec.submitterPodTemplate", factors: [] }],
    // A RayJob may use a RayCluster that exists already.
    mayHaveNoTemplate: true,
    suspended: [...isSuspended, ...deletesRayCluster],
    phase: { path: "status.jobDeploymentStatus", ended: ["Complete", "Failed"] },
    endsOnlyIf: deletesRayCluster,
  },
  {
    group: "sparkoperator.k8s.io",
    resource: "sparkapplications",
    kind: "SparkApplication",
    pods: [
      { template: "spec.driver", notation: "spark", factors: [] },
      {
        template: "spec.executor",
        notation: "spark",
        factors: ["spec.executor.instances"],
        minimum: "spec.dynamicAllocation.maxExecutors",
      },
    ],
    suspended: isSuspended,
    phase: { path: "status.applicationState.state", ended: ["COMPLETED", "FAILED"] },
  },
  {
    group: "jobset.x-k8s.io",
    resource: "jobsets",
    kind: "JobSet",
    pods: [createJobGroup("spec.replicatedJobs.*.template.spec", "spec.replicatedJobs.*.replicas")],
    suspended: isSuspended,
    conditions: ["Completed", "Failed"],
  },
];
