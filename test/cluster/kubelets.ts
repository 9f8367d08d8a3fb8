import { setTimeout as wait } from "node:timers/promises";
import type { Pod } from "#lib/kubernetes/core/v1.ts";
import { createTokenClient, type TestClusterClient, type TestClusterRequest } from "../control-plane/client.ts";
import type { TestCluster } from "../control-plane/cluster.ts";

/** How often a kubelet renews its lease and writes the status of its Node, in milliseconds. */
const heartbeat = 10_000;

const listNodes = (count: number) => Array.from({ length: count }, (_, index) => `node-${index + 1}`);

/** Returns the users of kubelets, with their groups, for a test cluster. */
export const buildKubeletUsers = (count: number): Record<string, string[]> =>
  Object.fromEntries(listNodes(count).map((node) => [`system:node:${node}`, ["system:nodes"]]));

/** Imitates kubelets: they register Nodes, send heartbeats, and write that the Pods on these Nodes run or are gone. */
export const startKubelets = async (cluster: TestCluster, count: number) => {
  const clients = new Map(
    listNodes(count).map((node) => [
      node,
      createTokenClient(cluster.server, cluster.ca, cluster.getToken(`system:node:${node}`)),
    ]),
  );
  const stopping = new AbortController();
  const { signal } = stopping;
  const failures: string[] = [];
  /** Sends a request as the kubelet of a node, and records it if it fails. */
  const send = async (node: string, request: TestClusterRequest) => {
    const answer = await getClient(node)(request).catch((error: Error) => ({ code: 0, body: error }));
    // An answer 404 is no failure, because the Pod can have been deleted.
    if (signal.aborted || answer.code === 404 || (answer.code >= 200 && answer.code < 300)) return;
    failures.push(`${node}: ${request.method} ${request.path}: ${answer.code} ${answer.body.message}`);
  };
  const getClient = (node: string): TestClusterClient => {
    const client = clients.get(node);
    if (client === undefined) throw new Error(`there is no kubelet of ${node}`);
    return client.client;
  };

  /** Sends heartbeats of a node until the end. */
  const sendHeartbeats = async (node: string) => {
    await wait(Math.random() * heartbeat, undefined, { signal });
    for (;;) {
      const pause = wait(heartbeat, undefined, { signal });
      await Promise.all([send(node, buildLeaseRenewal(node)), send(node, buildNodeStatusPatch(node)), pause]);
    }
  };
  /** The paths of Pods about which a request is being sent. */
  const busyPaths = new Set<string>();
  /** Writes that a new Pod runs, and removes a Pod that is being deleted. */
  const updatePod = async ({ metadata, spec, status }: Pod) => {
    const path = `/api/v1/namespaces/${metadata?.namespace}/pods/${metadata?.name}`;
    const node = spec?.nodeName ?? "";
    const isDeleted = metadata?.deletionTimestamp !== undefined;
    if (!clients.has(node) || busyPaths.has(path) || !(isDeleted || status?.phase === "Pending")) return;
    busyPaths.add(path);
    const removal: TestClusterRequest = { method: "DELETE", path: `${path}?gracePeriodSeconds=0` };
    await send(node, isDeleted ? removal : buildPodStatusPatch(path));
    busyPaths.delete(path);
  };
  const updatePods = async () => {
    for (; ; await wait(500, undefined, { signal })) {
      const { body } = await cluster.admin({ method: "GET", path: "/api/v1/pods?fieldSelector=spec.nodeName!=" });
      for (const pod of Object(body.items ?? [])) updatePod(pod);
    }
  };

  await Promise.all(
    [...clients.keys()].map(async (node) => {
      for (const request of buildRegistration(node)) await send(node, request);
    }),
  );
  if (failures.length > 0) throw new Error(`kubelets could not register: ${failures.join("; ")}`);
  const loops = [...[...clients.keys()].map(sendHeartbeats), updatePods()].map((loop) =>
    loop.catch((error) => {
      if (!signal.aborted) failures.push(String(error));
    }),
  );
  return {
    /** The failed requests. A test may empty this list. */
    failures,
    getClient,
    stop: async () => {
      stopping.abort();
      for (const { close } of clients.values()) close();
      await Promise.all(loops);
    },
  };
};

const toLeasePath = (node: string) => `/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/${node}`;

/** Returns the requests by which a kubelet registers its Node and its lease. */
const buildRegistration = (name: string): TestClusterRequest[] => {
  const size = { cpu: "8", memory: "32Gi", pods: "110" };
  const node = {
    metadata: { name, labels: { "kubernetes.io/hostname": name } },
    status: { capacity: size, allocatable: size, conditions: [buildNodeReadyCondition()] },
  };
  const lease = { metadata: { name }, spec: { holderIdentity: name, leaseDurationSeconds: 40 } };
  return [
    { method: "POST", path: "/api/v1/nodes", body: node },
    { method: "POST", path: toLeasePath(name).replace(/\/[^/]+$/, ""), body: lease },
  ];
};

export const buildLeaseRenewal = (node: string): TestClusterRequest => ({
  method: "PATCH",
  path: toLeasePath(node),
  contentType: "application/merge-patch+json",
  body: { spec: { renewTime: new Date().toISOString().replace("Z", "000Z") } },
});

export const buildNodeStatusPatch = (node: string): TestClusterRequest =>
  buildStatusPatch(`/api/v1/nodes/${node}`, { conditions: [buildNodeReadyCondition()] });

export const buildPodStatusPatch = (path: string): TestClusterRequest =>
  buildStatusPatch(path, { phase: "Running", conditions: [buildReadyCondition("Started")] });

const buildStatusPatch = (path: string, status: object): TestClusterRequest => ({
  method: "PATCH",
  path: `${path}/status`,
  contentType: "application/strategic-merge-patch+json",
  body: { status },
});

const started = new Date().toISOString();
const buildReadyCondition = (reason: string) => {
  return { type: "Ready", status: "True", reason, lastTransitionTime: started };
};
/** Returns the condition Ready of a Node. Unlike that of a Pod, it has the time of the kubelet's last heartbeat. */
const buildNodeReadyCondition = () => {
  return { ...buildReadyCondition("KubeletReady"), lastHeartbeatTime: new Date().toISOString() };
};
