import type { Context } from "aws-lambda";
import type { LimitRange, Namespace, Pod } from "kubernetes-types/core/v1.d.ts";
import type { StorageClass } from "kubernetes-types/storage/v1.d.ts";
import { worlds } from "#lib/cluster/live.ts";
import { endpoint, type Share } from "#lib/endpoint.ts";
import { get, list, unconnected } from "#lib/needs.ts";
import { type Rule, rule } from "#lib/rule.ts";
import type { Binaries } from "../parity/control-plane/binaries.ts";
import { bootCluster } from "../parity/control-plane/cluster.ts";
import { signing } from "../parity/signing.ts";
import { type Ratio, ratioOf } from "./ratios.ts";
import { eventOf, reviewOfPod } from "./reviews.ts";
import { together } from "./together.ts";

/** What reading adds to a review: nothing over the wire where it is remembered, one round trip where it is not. */
export interface Reads {
  /** A review that finds all in memory, over one that reads nothing. */
  warm: Ratio;
  /** Three reads side by side, each over the wire, over one. */
  sideBySide: Ratio;
  /** Milliseconds of a review that reads over a connection that is open, and over one that isn't. */
  read: number;
  first: number;
}

const names = { summary: "Labels pods.", match: [] };
const label = ({ metadata }: Pod, seen: unknown) => {
  if (metadata) metadata.labels = { ...metadata.labels, seen: String(seen) };
};

const without = rule({ ...names, mutate: (pod: Pod) => label(pod, "default") });
const one = (maxAge: number) =>
  rule({
    ...names,
    needs: { namespaces: get("namespaces", { maxAge }) },
    async mutate(pod: Pod, { namespaces }: { namespaces(name: string): Promise<Namespace | undefined> }) {
      label(pod, (await namespaces("default"))?.metadata?.name);
    },
  });
const three = (maxAge: number) =>
  rule({
    ...names,
    needs: {
      namespaces: get("namespaces", { maxAge }),
      ranges: list("limitranges", { maxAge }),
      classes: list("storageclasses", { maxAge }),
    },
    async mutate(
      pod: Pod,
      asked: {
        namespaces(name: string): Promise<Namespace | undefined>;
        ranges(namespace: string): Promise<LimitRange[]>;
        classes(): Promise<StorageClass[]>;
      },
    ) {
      const found = await Promise.all([asked.namespaces("default"), asked.ranges("default"), asked.classes()]);
      label(pod, found.length);
    },
  });

export const readLatency = (binaries: Binaries, rounds: number): Promise<Reads> =>
  together(async (keep) => {
    const { server, ca, tokenOf } = await keep(bootCluster(binaries));
    const credentials = { token: tokenOf("admin") };
    const open = () => worlds({ bench: { server, ca, credentials } });
    const signer = signing(1);
    const asked = (rule: Rule, world = open()) => {
      const share: Share = {
        rule: "bench",
        clusters: { bench: { keyVersions: [1], mode: "enforce", settings: {} } },
      };
      const handler = endpoint(rule, share, { publicKeys: signer.publicKey, world, journal: () => {} });
      const event = eventOf(`/${signer.segment("bench", 1)}/bench/mutate`, reviewOfPod(5_000));
      return async () => {
        const { statusCode, body } = (await handler(event, {} as Context)) as { statusCode: number; body: string };
        if (statusCode !== 200) throw new Error(`no answer to measure: ${body}`);
      };
    };

    const [plain, warm] = [asked(without, unconnected), asked(three(3600))];
    const [single, several] = [asked(one(0)), asked(three(0))];
    for (const act of [plain, warm]) await lasting(act, 3000);
    for (const act of [single, several]) await lasting(act, 100);
    const pairs = async (first: () => Promise<void>, second: () => Promise<void>, times: number) => {
      const ratios: number[] = [];
      for (let round = 0; round < rounds; round++) {
        // Who goes first is swapped from round to round.
        const isSwapped = round % 2 === 1;
        const [a, b] = [
          await lasting(isSwapped ? second : first, times),
          await lasting(isSwapped ? first : second, times),
        ];
        ratios.push(isSwapped ? a / b : b / a);
      }
      return ratioOf(ratios);
    };
    const fresh: number[] = [];
    for (let round = 0; round < Math.min(rounds, 20); round++) fresh.push(await lasting(asked(one(0)), 1));
    return {
      warm: await pairs(plain, warm, 200),
      sideBySide: await pairs(single, several, 10),
      read: (await lasting(single, 100)) / 100,
      first: ratioOf(fresh).median,
    };
  });

/** Milliseconds. */
const lasting = async (act: () => Promise<void>, times: number): Promise<number> => {
  const start = performance.now();
  for (let time = 0; time < times; time++) await act();
  return performance.now() - start;
};
