import type { Random } from "../../infra/testing/random.ts";
import type { TestClusterRequest } from "../control-plane/client.ts";
import type { Amounts, StoredObject } from "./stored-history.ts";

// Chooses random writes of Deployments and MPIJobs.

/** The paths of the collections, by group and resource. */
export const collections = {
  "apps/deployments": "/apis/apps/v1/deployments",
  "kubeflow.org/mpijobs": "/apis/kubeflow.org/v2beta1/mpijobs",
};
export const resources = Object.keys(collections) as (keyof typeof collections)[];

/** The annotation of an object that states the number of the last request that wrote the object. */
export const requestAnnotation = "test.example.com/request";

/** The definition of the custom kind MPIJob, whose subresource `scale` sets the number of workers. */
export const mpiJobCrd = {
  apiVersion: "apiextensions.k8s.io/v1",
  kind: "CustomResourceDefinition",
  metadata: { name: "mpijobs.kubeflow.org" },
  spec: {
    group: "kubeflow.org",
    names: { kind: "MPIJob", plural: "mpijobs", singular: "mpijob", listKind: "MPIJobList" },
    scope: "Namespaced",
    versions: [
      {
        name: "v2beta1",
        served: true,
        storage: true,
        schema: { openAPIV3Schema: { type: "object", "x-kubernetes-preserve-unknown-fields": true } },
        subresources: {
          status: {},
          scale: {
            specReplicasPath: ".spec.mpiReplicaSpecs.Worker.replicas",
            statusReplicasPath: ".status.replicas",
          },
        },
      },
    ],
  },
};

interface Template {
  metadata?: object;
  spec: { containers: { name: string; image: string; resources?: { requests?: Record<string, string> } }[] };
}
interface DeploymentSpec {
  replicas: number;
  template: Template;
}
interface MpiJobSpec {
  runPolicy: { suspend: boolean; cleanPodPolicy: "All" | "None" };
  mpiReplicaSpecs: Record<"Launcher" | "Worker", DeploymentSpec>;
}
interface Workload extends StoredObject {
  spec: DeploymentSpec | MpiJobSpec;
}

const isJob = (spec: object): spec is MpiJobSpec => "mpiReplicaSpecs" in spec;
/**
 * Reports whether a job has succeeded and its Pods are deleted. With the cleanPodPolicy None, the Pods stay, and quotas
 * count them.
 */
const hasEnded = (spec: MpiJobSpec, { status }: Pick<StoredObject, "status">) =>
  spec.runPolicy.cleanPodPolicy === "All" && (status?.conditions?.some(({ type }) => type === "Succeeded") ?? false);
/**
 * Returns the part of a spec whose replicas the subresource `scale` sets: a Deployment's spec, or an MPIJob's workers.
 */
const getScaled = (spec: Workload["spec"]): DeploymentSpec => (isJob(spec) ? spec.mpiReplicaSpecs.Worker : spec);

/** Returns the amounts that an object uses, by their names in quotas. `object` is GROUP/RESOURCE/NAMESPACE/NAME. */
export const measureWorkload = (
  object: string,
  stored: Pick<StoredObject, "spec" | "status"> & { metadata?: object },
): Amounts => {
  const [group, resource] = object.split("/");
  const count = { [`count/${resource}.${group}`]: 1 };
  // An object that is being deleted uses no amounts here: the objects that it controls are counted separately.
  if ("deletionTimestamp" in (stored.metadata ?? {})) return count;
  // Every stored object comes from `chooseWrite`, so it is a Workload with one container.
  const { spec } = stored as Workload;
  if (isJob(spec) && (spec.runPolicy.suspend || hasEnded(spec, stored))) return count;
  const { replicas, template } = getScaled(spec);
  const requests = Object.entries(template.spec.containers[0]?.resources?.requests ?? {});
  const amounts = requests.map(([name, amount]) => [`requests.${name}`, replicas * Number(amount)]);
  // An MPIJob has one more Pod than workers: its launcher.
  const launchers = isJob(spec) ? 1 : 0;
  return { ...count, ...Object.fromEntries(amounts), pods: replicas + launchers };
};

export interface Write {
  /** `succeed` ends a job, `restart` undoes this, and `release` removes the finalizers of a deleted object. */
  what: "create" | "replace" | "patch" | "scale" | "succeed" | "restart" | "delete" | "release";
  request: TestClusterRequest;
  /** The amounts that the object uses if the API server stores the write. */
  wanted: Amounts;
}

/**
 * Returns a random write of an object (GROUP/RESOURCE/NAMESPACE/NAME) with this stored state. After it, the object uses
 * `wanted` of its quotas (pods, CPUs, GPUs): more if `isUpward` is true, otherwise less. `number` identifies the write.
 */
export const chooseWrite = (
  random: Random,
  object: string,
  stored: StoredObject | undefined,
  isUpward: boolean,
  number: string,
): Write => {
  const [group, resource, namespace = "", name = ""] = object.split("/");
  const collection = collections[`${group}/${resource}` as keyof typeof collections];
  const namespaceCollection = collection.replace(/\w+$/, `namespaces/${namespace}/$&`);
  const path = `${namespaceCollection}/${name}`;
  const contentType = "application/merge-patch+json";
  const annotations = { [requestAnnotation]: number };
  const replicas = random.drawBelow(9);
  if (stored === undefined) {
    const metadata = { name, namespace, annotations, ...(random.decide(0.1) && { finalizers: [`${group}/wait`] }) };
    const spec = resource === "mpijobs" ? buildMpiJobSpec(random, replicas) : buildDeploymentSpec(random, replicas);
    const apiVersion = collection.slice("/apis/".length, collection.lastIndexOf("/"));
    const body = { apiVersion, kind: resource === "mpijobs" ? "MPIJob" : "Deployment", metadata, spec };
    const request: TestClusterRequest = { method: "POST", path: namespaceCollection, body };
    return { what: "create", request, wanted: measureWorkload(object, body) };
  }
  if (stored.metadata.deletionTimestamp !== undefined) {
    const body = { metadata: { finalizers: null, annotations } };
    return { what: "release", request: { method: "PATCH", path, body, contentType }, wanted: {} };
  }
  if (!isUpward && random.decide(0.4)) return { what: "delete", request: { method: "DELETE", path }, wanted: {} };
  const next = structuredClone(stored) as Workload;
  const { spec } = next;
  if (isJob(spec) && !isUpward && random.decide(0.2)) {
    const body = { status: { conditions: [{ type: "Succeeded", status: "True" }] } };
    return { what: "succeed", request: { method: "PATCH", path: `${path}/status`, body, contentType }, wanted: {} };
  }
  if (isJob(spec) && hasEnded(spec, stored) && isUpward && random.decide(0.5)) {
    const request = { method: "PATCH", path: `${path}/status`, body: { status: null }, contentType } as const;
    return { what: "restart", request, wanted: measureWorkload(object, { spec }) };
  }
  const scaled = getScaled(spec);
  scaled.replicas = Math.max(0, scaled.replicas + (isUpward ? 1 : -1) * (1 + random.drawBelow(4)));
  const getWanted = () => measureWorkload(object, next);
  if (random.decide(0.4)) {
    const body = { spec: { replicas: scaled.replicas } };
    const request = { method: "PATCH", path: `${path}/scale`, body, contentType } as const;
    return { what: "scale", request, wanted: getWanted() };
  }
  if (isJob(spec) && random.decide(0.3)) spec.runPolicy.suspend = !isUpward;
  else if (random.decide(0.3)) scaled.template = buildTemplate(random.pick(["1", "2"]), isJob(spec));
  Object.assign(next.metadata, { annotations });
  if (random.decide(0.5)) return { what: "replace", request: { method: "PUT", path, body: next }, wanted: getWanted() };
  const body = { metadata: { annotations }, spec };
  return { what: "patch", request: { method: "PATCH", path, body, contentType }, wanted: getWanted() };
};

const buildTemplate = (cpu: string, hasGpu: boolean): Template => {
  const requests = { cpu, ...(hasGpu && { "nvidia.com/gpu": "1" }) };
  const resources = { requests, ...(hasGpu && { limits: { "nvidia.com/gpu": "1" } }) };
  const metadata = { labels: { app: "test" } };
  return { metadata, spec: { containers: [{ name: "c", image: "c", resources }] } };
};
const buildDeploymentSpec = (random: Random, replicas: number) => ({
  replicas,
  selector: { matchLabels: { app: "test" } },
  template: buildTemplate(random.pick(["1", "2"]), false),
});
const buildMpiJobSpec = (random: Random, replicas: number): MpiJobSpec => ({
  runPolicy: { suspend: random.decide(0.2), cleanPodPolicy: random.decide(0.8) ? "All" : "None" },
  mpiReplicaSpecs: {
    Launcher: { replicas: 1, template: { spec: { containers: [{ name: "c", image: "c" }] } } },
    Worker: { replicas, template: buildTemplate(random.pick(["1", "2"]), true) },
  },
});
