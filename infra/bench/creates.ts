import type { Pod } from "kubernetes-types/core/v1.d.ts";
import type { Binaries } from "../parity/control-plane/binaries.ts";
import type { Answer } from "../parity/control-plane/client.ts";
import { bootCluster } from "../parity/control-plane/cluster.ts";
import { type Manifests, register, until } from "../parity/rule-server.ts";
import type { Server } from "./processes.ts";
import { quantiles, type Ratio, ratioOf, timeOf } from "./ratios.ts";
import { reviewOfPod } from "./reviews.ts";

/** A way to create a pod. Its namespace says which webhooks are called, so that one API server has them all. */
export interface Route {
  what: string;
  namespace: string;
  labels?: Record<string, string>;
  /** How many mutators stand in the way. */
  mutators?: number;
  /** The one that is called, if its CPU time is asked for and no other route's calls add to it. */
  server?: Server;
}

/** Milliseconds: half of all, and all but one of a hundred, take no longer. */
export interface Times {
  p50: number;
  p99: number;
}

/** What a route was measured to take. */
export interface Measured {
  what: string;
  create: Times;
  /** Over the create without webhooks of the same round. */
  added?: Times;
  mutators?: number;
  /** Milliseconds of the server's CPU time for each review. */
  cpu?: number;
}

/** One route's added time over another's. */
export interface Comparison {
  what: string;
  added: Ratio;
  cpu?: number;
  /** The most that the added time's ratio may come to. */
  bar?: number;
}

/** The times of all routes, and how some compare. */
export interface Latency {
  measured: Measured[];
  comparisons: Comparison[];
}

/** Boots an API server to create pods in. */
export const openCreates = async (binaries: Binaries) => {
  // The measured servers do what this plugin would do.
  const { admin, stop } = await bootCluster(binaries, { disable: ["DefaultTolerationSeconds"] });
  const place = (namespace: string) => `/api/v1/namespaces/${namespace}/pods`;
  const create = async ({ namespace, labels }: Pick<Route, "namespace" | "labels">): Promise<Pod> =>
    podOf(await admin({ method: "POST", path: `${place(namespace)}?dryRun=All`, body: podWith(labels) }));
  return {
    create,
    [Symbol.asyncDispose]: stop,
    /** As the API server keeps it, for as long as it takes to look. */
    stored: async (namespace: string): Promise<Pod> => {
      const made = podOf(await admin({ method: "POST", path: place(namespace), body: podWith() }));
      const path = `${place(namespace)}/${made.metadata?.name}`;
      const pod = podOf(await admin({ method: "GET", path }));
      podOf(await admin({ method: "DELETE", path: `${path}?gracePeriodSeconds=0` }));
      return pod;
    },
    /** A namespace for whose pods, and no others, these webhooks are called; resolves once they are. */
    open: async (namespace: string, manifests: Manifests, called: (pod: Pod) => boolean): Promise<void> => {
      const body = { apiVersion: "v1", kind: "Namespace", metadata: { name: namespace } };
      const { code, body: said } = await admin({ method: "POST", path: "/api/v1/namespaces", body });
      if (code !== 201) throw new Error(`the API server refuses the namespace ${namespace}: ${said.message}`);
      await register(admin, manifests.map(onlyFor(namespace)));
      const otherwise = `the API server does not call the webhooks of ${namespace} as it should`;
      await until(otherwise, async () => called(await create({ namespace })));
    },
  };
};

export type Creates = Awaited<ReturnType<typeof openCreates>>;

const podOf = ({ code, body }: Answer): Pod => {
  if (code >= 300) throw new Error(`the API server refuses a pod to measure with: ${body.message}`);
  // What it answers to a pod, if it refuses nothing, is the pod.
  return body as Pod;
};

const onlyFor =
  (namespace: string) =>
  ({ metadata, webhooks, ...rest }: Manifests[number]): Manifests[number] => {
    const namespaceSelector = { matchLabels: { "kubernetes.io/metadata.name": namespace } };
    return {
      ...rest,
      metadata: { ...metadata, name: `${namespace}.${metadata.name}` },
      webhooks: webhooks.map((entry) => ({ ...entry, namespaceSelector })),
    };
  };

/** A pod of 5 KB, without what only servers know. */
const podWith = (labels: Record<string, string> = {}) => {
  const { metadata, spec } = pod;
  return { apiVersion: "v1", kind: "Pod", metadata: { ...metadata, labels: { ...metadata.labels, ...labels } }, spec };
};

const pod = (() => {
  const { metadata, spec } = JSON.parse(reviewOfPod(5_000)).request.object;
  const { name, labels, annotations } = metadata;
  return { metadata: { name, labels, annotations }, spec: { ...spec, records: undefined } };
})();

/**
 * Creates a pod by every route in every round, so that noise hits all alike. The first route has no webhook: what the
 * others add is the difference to it in the same round.
 */
export const measure = async (creates: Creates, routes: Route[], rounds: number) => {
  // The API server, too, needs a while to get going.
  await interleaved(creates, routes, Math.ceil(rounds / 2));
  const cpu = () => Promise.all(routes.map(({ server }) => server?.cpu() ?? Number.NaN));
  const before = await cpu();
  const times = await interleaved(creates, routes, rounds);
  const after = await cpu();

  const [without = []] = times;
  const addedBy = (index: number) => times[index]?.map((time, round) => time - (without[round] ?? Number.NaN)) ?? [];
  const used = (index: number) => ((after[index] ?? Number.NaN) - (before[index] ?? Number.NaN)) / rounds;
  const measured = routes.map(({ what, mutators, server }, index): Measured => {
    return {
      what,
      create: timesOf(times[index] ?? []),
      ...(index > 0 && { added: timesOf(addedBy(index)) }),
      ...(mutators !== undefined && { mutators }),
      ...(server && { cpu: used(index) }),
    };
  });
  /** Medians of many short stretches, for a machine's moods last. */
  const ratio = (what: string, one: Route, other: Route, bar?: number): Comparison => {
    const [mine, others] = [routes.indexOf(one), routes.indexOf(other)];
    const [added, over] = [stretches(addedBy(mine)), stretches(addedBy(others))];
    const ratios = added.map((values, index) => medianOf(values) / medianOf(over[index] ?? []));
    const cpu = one.server && other.server && used(mine) / used(others);
    return { what, added: ratioOf(ratios), ...(cpu && { cpu }), ...(bar && { bar }) };
  };
  return { measured, ratio };
};

/** Milliseconds of each create, by route and round. */
const interleaved = async ({ create }: Creates, routes: Route[], rounds: number): Promise<number[][]> => {
  const times: number[][] = routes.map(() => []);
  for (let round = 0; round < rounds; round++)
    for (const index of shuffled(routes.length)) {
      const route = routes[index];
      if (route === undefined) continue;
      times[index]?.push(await timeOf(() => create(route)));
    }
  return times;
};

/** A webhook still tidies up when the next one is called: which one that is must differ from round to round. */
const shuffled = (length: number): number[] =>
  Array.from({ length }, (_, index) => [Math.random(), index] as const)
    .sort(([one], [other]) => one - other)
    .map(([, index]) => index);

const stretch = 50;

const stretches = (values: number[]): number[][] =>
  Array.from({ length: Math.ceil(values.length / stretch) }, (_, index) =>
    values.slice(index * stretch, (index + 1) * stretch),
  );

const timesOf = (values: number[]): Times => {
  const [p50 = Number.NaN, p99 = Number.NaN] = quantiles(values, [0.5, 0.99]);
  return { p50, p99 };
};

const medianOf = (values: number[]) => timesOf(values).p50;
