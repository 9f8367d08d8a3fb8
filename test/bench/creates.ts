import type { Pod } from "#lib/kubernetes/core/v1.ts";
import type { ControlPlaneBinaries } from "../control-plane/binaries.ts";
import type { TestClusterResponse } from "../control-plane/client.ts";
import { bootCluster } from "../control-plane/cluster.ts";
import { createTestWebhookConfigurations, type WebhookManifests, waitUntil } from "../parity/rule-server.ts";
import { buildPodReview } from "./inputs/reviews.ts";
import type { MeasuredServer } from "./processes/processes.ts";
import { computeQuantiles, measureMilliseconds, type RatioSummary, summarizeRatios } from "./ratios.ts";

/** A measured way to create a pod. The pod's namespace and labels decide which webhooks the API server calls. */
export interface PodCreateRoute {
  what: string;
  namespace: string;
  labels?: Record<string, string>;
  /** The number of mutating rules for the pod: called one by one or as a group, or skipped by their matchConditions. */
  mutators?: number;
  /** The webhook's server, to measure its CPU time. Only one route may call it. */
  server?: MeasuredServer;
}

/** The median and the 99th percentile of the times of pod creates, in milliseconds. */
export interface CreateTimePercentiles {
  p50: number;
  p99: number;
}

/** The measured times of pod creates on one route: a way to create a pod, which decides the called webhooks. */
export interface PodCreateMeasurement {
  what: string;
  create: CreateTimePercentiles;
  /** The difference to a create without webhooks in the same round. */
  added?: CreateTimePercentiles;
  /** The number of mutating rules on the route, also if the API server skips their webhooks. */
  mutators?: number;
  /** Milliseconds of CPU time that the webhook's server uses for each review. */
  cpu?: number;
}

/** Compares two routes. A route is one way to create a pod: it decides which webhooks the API server calls. */
export interface PodCreateComparison {
  what: string;
  /** The ratio of the times that the webhooks of the two routes add to a create. */
  added: RatioSummary;
  /** The ratio of the CPU times of the webhooks' servers. */
  cpu?: number;
  /** The largest allowed value of `added`. */
  limit: number;
}

/** The measured times of all routes, and comparisons between some of them. */
export interface PodCreateBenchResults {
  measured: PodCreateMeasurement[];
  comparisons: PodCreateComparison[];
}

/** Boots an API server to create pods in. */
export const openBenchPodCreator = async (binaries: ControlPlaneBinaries) => {
  // The upstream plugin is off, because the measured webhooks add the same tolerations.
  const { admin, stop } = await bootCluster(binaries, { disable: ["DefaultTolerationSeconds"] });
  const getPodsPath = (namespace: string) => `/api/v1/namespaces/${namespace}/pods`;
  const create = async ({ namespace, labels }: Pick<PodCreateRoute, "namespace" | "labels">): Promise<Pod> =>
    toPod(await admin({ method: "POST", path: `${getPodsPath(namespace)}?dryRun=All`, body: buildPod(labels) }));
  return {
    create,
    [Symbol.asyncDispose]: stop,
    /** Creates a pod, returns it as the API server stores it, and deletes it. */
    createAndRead: async (namespace: string): Promise<Pod> => {
      const createdPod = toPod(await admin({ method: "POST", path: getPodsPath(namespace), body: buildPod() }));
      const path = `${getPodsPath(namespace)}/${createdPod.metadata?.name}`;
      const pod = toPod(await admin({ method: "GET", path }));
      toPod(await admin({ method: "DELETE", path: `${path}?gracePeriodSeconds=0` }));
      return pod;
    },
    /**
     * Creates a namespace, and registers webhooks that are called only for its pods. Creates pods until `isAsExpected`
     * returns true for one: then the API server calls the webhooks.
     */
    openNamespace: async (
      namespace: string,
      manifests: WebhookManifests,
      isAsExpected: (pod: Pod) => boolean,
    ): Promise<void> => {
      const body = { apiVersion: "v1", kind: "Namespace", metadata: { name: namespace } };
      const { code, body: answer } = await admin({ method: "POST", path: "/api/v1/namespaces", body });
      if (code !== 201) throw new Error(`the API server refuses the namespace ${namespace}: ${answer.message}`);
      await createTestWebhookConfigurations(admin, manifests.map(restrictToNamespace(namespace)));
      const failure = `the API server does not call the webhooks of ${namespace} as it should`;
      await waitUntil(failure, async () => isAsExpected(await create({ namespace })));
    },
  };
};

export type BenchPodCreator = Awaited<ReturnType<typeof openBenchPodCreator>>;

const toPod = ({ code, body }: TestClusterResponse): Pod => {
  if (code >= 300) throw new Error(`the API server refuses a pod to measure with: ${body.message}`);
  // The cast is safe: if the create succeeds, the body of the response is the pod.
  return body as Pod;
};

const restrictToNamespace =
  (namespace: string) =>
  ({ metadata, webhooks, ...rest }: WebhookManifests[number]): WebhookManifests[number] => {
    const namespaceSelector = { matchLabels: { "kubernetes.io/metadata.name": namespace } };
    return {
      ...rest,
      metadata: { ...metadata, name: `${namespace}.${metadata.name}` },
      webhooks: webhooks.map((entry) => ({ ...entry, namespaceSelector })),
    };
  };

/** Builds a pod of 5 KB, without the fields that only servers set. */
const buildPod = (labels: Record<string, string> = {}) => {
  const { metadata, spec } = pod;
  return { apiVersion: "v1", kind: "Pod", metadata: { ...metadata, labels: { ...metadata.labels, ...labels } }, spec };
};

const pod = (() => {
  const { metadata, spec } = JSON.parse(buildPodReview(5_000)).request.object;
  const { name, labels, annotations } = metadata;
  // `records` only makes the review larger; a pod has no such field.
  return { metadata: { name, labels, annotations }, spec: { ...spec, records: undefined } };
})();

/**
 * Creates a pod by every route in every round, so that noise affects all routes alike. The first route has no webhook.
 * The time that another route adds is the difference of its create to the first route's create in the same round.
 */
export const measurePodCreateRoutes = async (podCreator: BenchPodCreator, routes: PodCreateRoute[], rounds: number) => {
  // These creates warm up the API server and the webhooks. Their times aren't used.
  await createInTurn(podCreator, routes, Math.ceil(rounds / 2));
  const readCpu = () => Promise.all(routes.map(({ server }) => server?.cpu() ?? Number.NaN));
  const before = await readCpu();
  const times = await createInTurn(podCreator, routes, rounds);
  const after = await readCpu();

  const [without = []] = times;
  const listAddedTimes = (index: number) =>
    times[index]?.map((time, round) => time - (without[round] ?? Number.NaN)) ?? [];
  const computeCpu = (index: number) => ((after[index] ?? Number.NaN) - (before[index] ?? Number.NaN)) / rounds;
  const measured = routes.map(({ what, mutators, server }, index): PodCreateMeasurement => {
    return {
      what,
      create: computeTimes(times[index] ?? []),
      ...(index > 0 && { added: computeTimes(listAddedTimes(index)) }),
      ...(mutators !== undefined && { mutators }),
      ...(server && { cpu: computeCpu(index) }),
    };
  });
  /**
   * Compares the times that two routes add. The rounds are divided into short stretches, and each stretch gives a ratio
   * of two medians, because a machine's speed changes slowly.
   */
  const compareRoutes = (
    what: string,
    one: PodCreateRoute,
    other: PodCreateRoute,
    { limit }: Pick<PodCreateComparison, "limit">,
  ): PodCreateComparison => {
    const [index, otherIndex] = [routes.indexOf(one), routes.indexOf(other)];
    const [added, otherAdded] = [splitStretches(listAddedTimes(index)), splitStretches(listAddedTimes(otherIndex))];
    const ratios = added.map((values, number) => computeMedian(values) / computeMedian(otherAdded[number] ?? []));
    const cpu = one.server && other.server && computeCpu(index) / computeCpu(otherIndex);
    return { what, added: summarizeRatios(ratios), ...(cpu && { cpu }), limit };
  };
  return { measured, compareRoutes };
};

/** Returns the milliseconds of each create, by route and round. */
const createInTurn = async (
  { create }: BenchPodCreator,
  routes: PodCreateRoute[],
  rounds: number,
): Promise<number[][]> => {
  const times: number[][] = routes.map(() => []);
  for (let round = 0; round < rounds; round++)
    for (const index of shuffleIndexes(routes.length)) {
      const route = routes[index];
      if (route === undefined) continue;
      times[index]?.push(await measureMilliseconds(() => create(route)));
    }
  return times;
};

/**
 * Returns indexes in a random order. The order must vary, because a webhook may still collect garbage while the next
 * route is measured.
 */
const shuffleIndexes = (length: number): number[] =>
  Array.from({ length }, (_, index) => [Math.random(), index] as const)
    .sort(([one], [other]) => one - other)
    .map(([, index]) => index);

/** The number of rounds in a stretch. */
const stretchLength = 50;

const splitStretches = (values: number[]): number[][] =>
  Array.from({ length: Math.ceil(values.length / stretchLength) }, (_, index) =>
    values.slice(index * stretchLength, (index + 1) * stretchLength),
  );

const computeTimes = (values: number[]): CreateTimePercentiles => {
  const [p50 = Number.NaN, p99 = Number.NaN] = computeQuantiles(values, [0.5, 0.99]);
  return { p50, p99 };
};

const computeMedian = (values: number[]) => computeTimes(values).p50;
