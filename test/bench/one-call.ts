import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import type { Pod } from "#lib/kubernetes/core/v1.ts";
import type { CachedGoProgram } from "../../infra/kubernetes/build/go-programs.ts";
import type { ControlPlaneBinaries } from "../control-plane/binaries.ts";
import { createTokenClient } from "../control-plane/client.ts";
import type { WebhookManifests } from "../parity/rule-server.ts";
import {
  type BenchPodCreator,
  measurePodCreateRoutes,
  openBenchPodCreator,
  type PodCreateBenchResults,
  type PodCreateRoute,
} from "./creates.ts";
import { buildPodReview } from "./inputs/reviews.ts";
import { startBenchPostern, startGoWebhook, startMinimalWebhook } from "./processes/processes.ts";

/**
 * Measures the time that a call of default-toleration-seconds adds to a create. The compared webhooks are Postern, a
 * minimal program for Node, and a program with controller-runtime.
 */
export const compareWebhookCallTimes = async (
  binaries: ControlPlaneBinaries,
  goWebhook: CachedGoProgram | undefined,
  folder: string,
  rounds: number,
): Promise<PodCreateBenchResults> => {
  await using running = new AsyncDisposableStack();
  const config = join(folder, "added.yaml");
  await writeFile(config, `rules: { ${rule}: { failurePolicy: Fail } }\n`);
  const bare = running.use(await startMinimalWebhook(folder));
  const postern = running.use(await startBenchPostern(folder, config));
  // Each measured route has its own server, so that the server's CPU time belongs to one route.
  const registered = running.use(await startBenchPostern(folder, config));
  const go = goWebhook && running.use(await startGoWebhook(goWebhook.program, folder));
  const podCreator = running.use(await openBenchPodCreator(binaries));
  const entry = postern.manifests[rule] ?? [];

  const none: PodCreateRoute = { what: "no webhook", namespace: "none" };
  await podCreator.openNamespace(none.namespace, [], (pod) => !isTolerant(pod));
  /** Registers the webhooks of a route and warms them up. */
  const openRoute = async (route: PodCreateRoute, manifests: WebhookManifests): Promise<PodCreateRoute> => {
    await podCreator.openNamespace(route.namespace, manifests, isTolerant);
    for (const { clientConfig } of manifests.flatMap(({ webhooks }) => webhooks))
      await warmUp(clientConfig, rounds * 10);
    return route;
  };
  const byHand = await openRoute(
    { what: "node:https by hand", namespace: "by-hand", server: bare },
    deleteConditions(entry, bare.url),
  );
  const ours = await openRoute({ what: "Postern", namespace: "postern", server: postern }, deleteConditions(entry));
  const asRegistered = await openRoute(
    { what: "Postern, with its matchConditions", namespace: "registered", server: registered },
    registered.manifests[rule] ?? [],
  );
  const inGo =
    goWebhook &&
    go &&
    (await openRoute(
      { what: `controller-runtime ${goWebhook.version}`, namespace: "controller-runtime", server: go },
      deleteConditions(entry, go.url),
    ));

  const called = [byHand, ours, ...(inGo ? [inGo] : []), asRegistered];
  await requireEqualPods(podCreator, called);
  const { measured, compareRoutes } = await measurePodCreateRoutes(podCreator, [none, ...called], rounds);
  return {
    measured,
    comparisons: [
      compareRoutes("Postern over node:https by hand", ours, byHand, { limit: 1.15 }),
      ...(inGo ? [compareRoutes("Postern over controller-runtime", ours, inGo, { limit: 0.65 })] : []),
    ],
  };
};

const rule = "default-toleration-seconds";

const isTolerant = ({ spec }: Pod) => spec?.tolerations?.length === 2;

/**
 * Returns Postern's webhook entries for the server at a URL, without their matchConditions. With them, each measured
 * time would include the time of their evaluation, and the compared servers would look more alike than they are.
 */
const deleteConditions = (manifests: WebhookManifests, url?: string): WebhookManifests =>
  manifests.map((manifest) => ({
    ...manifest,
    webhooks: manifest.webhooks.map(({ matchConditions: _, clientConfig, ...entry }) => ({
      ...entry,
      clientConfig: { ...clientConfig, ...(url && { url }) },
    })),
  }));

/** Throws if the servers change a pod differently, because then their times can't be compared. */
const requireEqualPods = async (podCreator: BenchPodCreator, routes: PodCreateRoute[]) => {
  const stored = await Promise.all(
    routes.map(async ({ what, namespace }) => ({
      what,
      pod: toComparablePod(await podCreator.createAndRead(namespace)),
    })),
  );
  const differing = stored.find(({ pod }) => !isDeepStrictEqual(pod, stored[0]?.pod));
  if (differing) throw new Error(`${stored[0]?.what} and ${differing.what} don't make the same of a pod`);
};

/** Returns a pod without fields that differ even between equal pods, such as the uid. */
const toComparablePod = (pod: Pod): unknown => {
  const differing = ["uid", "resourceVersion", "creationTimestamp", "namespace", "time"];
  return JSON.parse(JSON.stringify(pod, (key, value) => (differing.includes(key) ? undefined : value)));
};

type Address = WebhookManifests[number]["webhooks"][number]["clientConfig"];

/** Sends reviews to a webhook, so that its code is compiled, as in a server that has run for some time. */
const warmUp = async ({ url, caBundle = "" }: Address, reviews: number): Promise<void> => {
  const { client, close } = createTokenClient(url, Buffer.from(caBundle, "base64").toString(), "");
  const body = JSON.parse(buildPodReview(5_000));
  let remaining = reviews;
  const sendWhileLeft = async () => {
    for (; remaining > 0; remaining--) {
      const { code } = await client({ method: "POST", path: "", body });
      if (code !== 200) throw new Error(`${url} answers ${code}`);
    }
  };
  await Promise.all(Array.from({ length: 8 }, sendWhileLeft)).finally(close);
};
