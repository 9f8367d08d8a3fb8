import { createLiveCapabilities } from "#lib/cluster/live-capabilities.ts";
import { createUnconnectedCapabilities } from "#lib/core/capabilities.ts";
import { createEndpoint } from "#lib/core/endpoint.ts";
import type { LimitRange, Namespace, Pod } from "#lib/kubernetes/core/v1.ts";
import type { StorageClass } from "#lib/kubernetes/storage/v1.ts";
import { get, list, type ObjectPlace } from "#lib/needs.ts";
import { type Rule, rule } from "#lib/rule.ts";
import type { ControlPlaneBinaries } from "../control-plane/binaries.ts";
import { bootCluster } from "../control-plane/cluster.ts";
import { createTestSigner } from "../parity/test-key.ts";
import { buildBenchEndpointConfig } from "./handlers.ts";
import { buildPodReview, createHttpRequestBuilder } from "./inputs/reviews.ts";
import { measureMilliseconds, measureRatiosInTurn, type RatioSummary, summarizeRatios } from "./ratios.ts";

/** The cost of reads in a review. Cached answers need no network, and parallel reads need one round trip together. */
export interface ClusterReadMeasurement {
  /** The ratio of a review whose three reads are cached to a review that reads nothing. */
  cachedOverNone: RatioSummary;
  /** The ratio of a review with three uncached reads in parallel to a review with one uncached read. */
  parallelOverSingle: RatioSummary;
  /** Milliseconds of a review that reads over an open connection. */
  read: number;
  /** Milliseconds of a review that reads over a new connection. */
  first: number;
}

const commonFields = { summary: "Labels pods.", match: [] };
const label = ({ metadata }: Pod, readValue: unknown) => {
  if (metadata) metadata.labels = { ...metadata.labels, seen: String(readValue) };
};

const ruleWithoutReads = rule({ ...commonFields, mutate: (pod: Pod) => label(pod, "default") });
/** With this `maxAge`, which is in seconds, no answer of the cluster is used twice. */
const uncached = { maxAge: 0 };
const createSingleReadRule = ({ maxAge }: { maxAge: number }) =>
  rule({
    ...commonFields,
    needs: { namespaces: get("namespaces", { maxAge }) },
    async mutate(pod: Pod, { namespaces }: { namespaces(place: ObjectPlace): Promise<Namespace | undefined> }) {
      label(pod, (await namespaces({ name: "default" }))?.metadata?.name);
    },
  });
const createTripleReadRule = ({ maxAge }: { maxAge: number }) =>
  rule({
    ...commonFields,
    needs: {
      namespaces: get("namespaces", { maxAge }),
      ranges: list("limitranges", { maxAge }),
      classes: list("storageclasses", { maxAge }),
    },
    async mutate(
      pod: Pod,
      asked: {
        namespaces(place: ObjectPlace): Promise<Namespace | undefined>;
        ranges(namespace: string): Promise<LimitRange[]>;
        classes(): Promise<StorageClass[]>;
      },
    ) {
      const objects = await Promise.all([
        asked.namespaces({ name: "default" }),
        asked.ranges("default"),
        asked.classes(),
      ]);
      label(pod, objects.length);
    },
  });

export const measureReviewsWithReads = async (
  binaries: ControlPlaneBinaries,
  rounds: number,
): Promise<ClusterReadMeasurement> => {
  await using running = new AsyncDisposableStack();
  const { server, ca, getToken, stop } = await bootCluster(binaries);
  running.defer(stop);
  const credentials = { token: getToken("admin") };
  const open = () => createLiveCapabilities({ bench: { server, ca, credentials } });
  const signer = createTestSigner(1);
  /** Returns a function that sends a review to a rule. */
  const openReview = (rule: Rule, openCapabilities = open()) => {
    const { answerRequest } = createEndpoint(rule, buildBenchEndpointConfig({ name: "bench", rule }), {
      publicKeys: signer.publicKey,
      openCapabilities,
      writeLogLine: () => {},
    });
    const request = createHttpRequestBuilder(`/${signer.segment("bench", 1)}/bench/mutate`, buildPodReview(5_000));
    return async () => {
      const { code, body } = await answerRequest(request());
      if (code !== 200) throw new Error(`no answer to measure: ${body}`);
    };
  };

  const [withoutReads, withCachedReads] = [
    openReview(ruleWithoutReads, createUnconnectedCapabilities),
    openReview(createTripleReadRule({ maxAge: 3600 })),
  ];
  const withSingleRead = openReview(createSingleReadRule(uncached));
  const withParallelReads = openReview(createTripleReadRule(uncached));
  // The functions are warmed up here, so the measurements have no warm-up rounds.
  for (const act of [withoutReads, withCachedReads]) await measureMilliseconds(act, 3000);
  for (const act of [withSingleRead, withParallelReads]) await measureMilliseconds(act, 100);
  const compare = async (baseline: () => Promise<void>, subject: () => Promise<void>, times: number) =>
    summarizeRatios(
      await measureRatiosInTurn(
        rounds,
        () => measureMilliseconds(baseline, times),
        () => measureMilliseconds(subject, times),
        { warmUpRounds: 0 },
      ),
    );
  const firstReads: number[] = [];
  for (let round = 0; round < Math.min(rounds, 20); round++)
    firstReads.push(await measureMilliseconds(openReview(createSingleReadRule(uncached))));
  return {
    cachedOverNone: await compare(withoutReads, withCachedReads, 200),
    parallelOverSingle: await compare(withSingleRead, withParallelReads, 10),
    read: (await measureMilliseconds(withSingleRead, 100)) / 100,
    first: summarizeRatios(firstReads).median,
  };
};
