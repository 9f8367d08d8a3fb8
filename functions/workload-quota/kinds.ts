/** Where the objects of a kind say how many Pods they make, and from which template. */
export interface PodGroup {
  /** The path to the Pod template; "" if the object itself is a Pod. In all paths, `*` stands for each element. */
  template: string;
  /** The paths to numbers of Pods, which are multiplied. A number that is absent counts as 1. */
  replicas: readonly string[];
  /** The path to the most Pods that one of the last of `replicas` makes. */
  most?: string;
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
  /** The path to a flag; while it is true, the object has no Pods. */
  suspended?: string;
  /** The path to a word of the status, and its values once the object has no more Pods. */
  phase?: { path: string; ended: readonly string[] };
  /** The conditions of the status of which one is True once the object has no more Pods. */
  conditions?: readonly string[];
}

const replicated = {
  groups: [{ template: "spec.template", replicas: ["spec.replicas"] }],
  scale: "spec.replicas",
};

/** Returns what the jobs of the Training Operator have in common, by the name of their replica specs. */
const createTrainingJob = (specs: string) => {
  return {
    group: "kubeflow.org",
    groups: [{ template: `spec.${specs}.*.template`, replicas: [`spec.${specs}.*.replicas`] }],
    scale: `spec.${specs}.Worker.replicas`,
    suspended: "spec.runPolicy.suspend",
    conditions: ["Succeeded", "Failed"],
  };
};

/** Returns the groups of a Ray cluster whose spec is at a path. */
const createRayGroups = (spec: string): PodGroup[] => [
  { template: `${spec}.headGroupSpec.template`, replicas: [] },
  {
    template: `${spec}.workerGroupSpecs.*.template`,
    replicas: [`${spec}.workerGroupSpecs.*.replicas`, `${spec}.workerGroupSpecs.*.numOfHosts`],
  },
];

export const countedKinds: readonly CountedKind[] = [
  {
    group: "",
    resource: "pods",
    kind: "Pod",
    groups: [{ template: "", replicas: [] }],
    phase: { path: "status.phase", ended: ["Succeeded", "Failed"] },
  },
  { group: "apps", resource: "replicasets", kind: "ReplicaSet", ...replicated },
  { group: "apps", resource: "deployments", kind: "Deployment", ...replicated },
  { group: "apps", resource: "statefulsets", kind: "StatefulSet", ...replicated },
  {
    group: "batch",
    resource: "jobs",
    kind: "Job",
    groups: [{ template: "spec.template", replicas: ["spec.parallelism"], most: "spec.completions" }],
    suspended: "spec.suspend",
    conditions: ["Complete", "Failed"],
  },
  {
    group: "batch",
    resource: "cronjobs",
    kind: "CronJob",
    groups: [
      {
        template: "spec.jobTemplate.spec.template",
        replicas: ["spec.jobTemplate.spec.parallelism"],
        most: "spec.jobTemplate.spec.completions",
      },
    ],
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
    suspended: "spec.suspend",
  },
  {
    group: "ray.io",
    resource: "rayjobs",
    kind: "RayJob",
    groups: [...createRayGroups("spec.rayClusterSpec"), { template: "spec.submitterPodTemplate", replicas: [] }],
    // A RayJob may use a RayCluster that exists already.
    mayHaveNoTemplate: true,
    suspended: "spec.suspend",
    phase: { path: "status.jobDeploymentStatus", ended: ["Complete", "Failed"] },
  },
  {
    group: "jobset.x-k8s.io",
    resource: "jobsets",
    kind: "JobSet",
    groups: [
      {
        template: "spec.replicatedJobs.*.template.spec.template",
        replicas: ["spec.replicatedJobs.*.replicas", "spec.replicatedJobs.*.template.spec.parallelism"],
        most: "spec.replicatedJobs.*.template.spec.completions",
      },
    ],
    suspended: "spec.suspend",
    conditions: ["Completed", "Failed"],
  },
];

/** Reports whether the objects of a kind make Pods, which then aren't counted themselves. */
export const ownsPods = ({ groups }: CountedKind): boolean => groups.some(({ template }) => template !== "");
