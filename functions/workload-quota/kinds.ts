/** Where the objects of a kind say how many Pods they make, and from which template. */
export interface PodGroup {
  /** The path to the Pod template; "" if the object itself is a Pod. In all paths, `*` stands for each element. */
  template: string;
  /** "spark": instead of a Pod template, there are the fields that the Spark operator has for a driver or executors. */
  notation?: "spark";
  /** The paths to numbers of Pods, which are multiplied. A number that is absent counts as 1. */
  replicas: readonly string[];
  /** The path to a number that replaces the first of `replicas` if it is larger. */
  minimum?: string;
  /** The path to a number that replaces the last of `replicas` if it is smaller. */
  maximum?: string;
}

/** The values of which an object must have one at a path; `undefined` stands for none. */
export interface RequiredValue {
  path: string;
  values: readonly unknown[];
}

/** A kind whose objects are counted as workloads. */
export interface CountedKind {
  group: string;
  resource: string;
  kind: string;
  groups: readonly PodGroup[];
  /** True if an object without any of the templates is valid, and makes no Pods. */
  mayHaveNoTemplate?: true;
  /** The path to the number that the scale subresource sets. */
  scale?: string;
  /** With all of these values, the object has no Pods. */
  suspended?: readonly RequiredValue[];
  /** The path to a word of the status, and its values once the object has ended. */
  phase?: { path: string; ended: readonly string[] };
  /** The conditions of the status of which one is True once the object has ended. */
  conditions?: readonly string[];
  /** Without all of these values, Pods stay when the object has ended. */
  endsIf?: readonly RequiredValue[];
  /** Without all of these values, the object may control more than it is counted with. */
  ownsIf?: readonly RequiredValue[];
}

const isSuspended: readonly RequiredValue[] = [{ path: "spec.suspend", values: [true] }];

const replicated = {
  groups: [{ template: "spec.template", replicas: ["spec.replicas"] }],
  scale: "spec.replicas",
};

/** Returns the group of a Job whose spec is at a path. Other numbers may multiply its Pods. */
const createJobGroup = (spec: string, ...replicas: string[]): PodGroup => {
  return {
    template: `${spec}.template`,
    replicas: [...replicas, `${spec}.parallelism`],
    maximum: `${spec}.completions`,
  };
};

/** Returns what the jobs of the Training Operator have in common, by the name of their replica specs. */
const createTrainingJob = (specs: string) => {
  return {
    group: "kubeflow.org",
    groups: [{ template: `spec.${specs}.*.template`, replicas: [`spec.${specs}.*.replicas`] }],
    scale: `spec.${specs}.Worker.replicas`,
    suspended: [{ path: "spec.runPolicy.suspend", values: [true] }],
    conditions: ["Succeeded", "Failed"],
    // By default, workers run on.
    endsIf: [{ path: "spec.runPolicy.cleanPodPolicy", values: ["All", "Running"] }],
  };
};

/** Returns the groups of a Ray cluster whose spec is at a path. */
const createRayGroups = (spec: string): PodGroup[] => [
  { template: `${spec}.headGroupSpec.template`, replicas: [] },
  {
    template: `${spec}.workerGroupSpecs.*.template`,
    replicas: [`${spec}.workerGroupSpecs.*.replicas`, `${spec}.workerGroupSpecs.*.numOfHosts`],
    minimum: `${spec}.workerGroupSpecs.*.minReplicas`,
  },
];

/** With all of these values, a RayJob deletes its RayCluster when it is suspended or has ended. */
const deletesRayCluster: readonly RequiredValue[] = [
  { path: "spec.shutdownAfterJobFinishes", values: [true] },
  { path: "spec.ttlSecondsAfterFinished", values: [undefined, 0] },
  { path: "spec.deletionStrategy", values: [undefined] },
];

export const countedKinds: readonly CountedKind[] = [
  {
    group: "",
    resource: "pods",
    kind: "Pod",
    groups: [{ template: "", replicas: [] }],
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
    groups: [createJobGroup("spec")],
    suspended: isSuspended,
    conditions: ["Complete", "Failed"],
  },
  {
    group: "batch",
    resource: "cronjobs",
    kind: "CronJob",
    groups: [createJobGroup("spec.jobTemplate.spec")],
    // By default, a run may begin while others have not ended.
    ownsIf: [{ path: "spec.concurrencyPolicy", values: ["Forbid", "Replace"] }],
  },
  { resource: "mpijobs", kind: "MPIJob", ...createTrainingJob("mpiReplicaSpecs") },
  { resource: "pytorchjobs", kind: "PyTorchJob", ...createTrainingJob("pytorchReplicaSpecs") },
  { resource: "tfjobs", kind: "TFJob", ...createTrainingJob("tfReplicaSpecs") },
  {
    group: "batch.volcano.sh",
    resource: "jobs",
    kind: "Job",
    groups: [{ template: "spec.tasks.*.template", replicas: ["spec.tasks.*.replicas"] }],
    phase: { path: "status.state.phase", ended: ["Completed", "Failed", "Terminated", "Aborted"] },
  },
  {
    group: "ray.io",
    resource: "rayclusters",
    kind: "RayCluster",
    groups: createRayGroups("spec"),
    suspended: isSuspended,
  },
  {
    group: "ray.io",
    resource: "rayjobs",
    kind: "RayJob",
    groups: [...createRayGroups("spec.rayClusterSpec"), { template: "spec.submitterPodTemplate", replicas: [] }],
    // A RayJob may use a RayCluster that exists already.
    mayHaveNoTemplate: true,
    suspended: [...isSuspended, ...deletesRayCluster],
    phase: { path: "status.jobDeploymentStatus", ended: ["Complete", "Failed"] },
    endsIf: deletesRayCluster,
  },
  {
    group: "sparkoperator.k8s.io",
    resource: "sparkapplications",
    kind: "SparkApplication",
    groups: [
      { template: "spec.driver", notation: "spark", replicas: [] },
      {
        template: "spec.executor",
        notation: "spark",
        replicas: ["spec.executor.instances"],
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
    groups: [createJobGroup("spec.replicatedJobs.*.template.spec", "spec.replicatedJobs.*.replicas")],
    suspended: isSuspended,
    conditions: ["Completed", "Failed"],
  },
];
