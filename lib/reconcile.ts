import type { Context } from "aws-lambda";
import { bindNeeds } from "./capabilities.ts";
import { type EndpointConfig, findClusterSetup } from "./endpoint.ts";
import { toFailure } from "./failure.ts";
import { isMap } from "./json.ts";
import type { Capabilities, Needs, OpenCapabilities } from "./needs.ts";
import type { ReconcileContext, Rule } from "./rule.ts";

/** What came of a rule's work for one cluster: what it has finished, or why it failed. */
export interface ReconcileReport {
  rule: string;
  cluster: string;
  version: string;
  done?: string;
  error?: Error;
}

interface ReconcileHost {
  openCapabilities?: OpenCapabilities | undefined;
  /** Lists the clusters that can be read. */
  listClusters(): string[];
  report(report: ReconcileReport): void;
}

/** The event by which a schedule calls a function. No event that AWS makes of an HTTP request has this member. */
export const reconcileEvent = { reconcile: true };

/** The most milliseconds of one call, and those at its end in which no further work begins. */
const longest = 58_000;
const reserve = 15_000;

/** Calls a rule's `reconcile` for one cluster. */
export const reconcileCluster = async (
  rule: Rule,
  name: string,
  capabilities: Capabilities,
  { settings, readTime, until }: Pick<ReconcileContext<object, Needs>, "settings" | "readTime" | "until">,
): Promise<string | undefined> =>
  rule.reconcile?.({ ...bindNeeds(rule.needs ?? {}, capabilities, name), settings, readTime, until });

/** Makes a handler also do a rule's work that no review asks for, in one cluster after the other. */
export const createReconcileHandler = (
  rule: Rule,
  config: EndpointConfig,
  { openCapabilities, listClusters, report }: ReconcileHost,
  handle: (event: unknown, context: Context) => Promise<unknown>,
) => {
  const reconcile = async (cluster: string, until: number, end: number): Promise<string | undefined> => {
    const { mode = "enforce", settings = rule.settings ?? {} } = findClusterSetup(config, cluster) ?? {};
    const capabilities = openCapabilities?.(cluster, end - Date.now());
    if (mode === "off" || !capabilities) return undefined;
    return reconcileCluster(rule, config.rule, capabilities, { settings, readTime: Date.now, until });
  };
  return async (event: unknown, context: Context): Promise<unknown> => {
    if (!isMap(event) || event.reconcile !== true) return handle(event, context);
    const started = Date.now();
    const end = started + Math.min(context.getRemainingTimeInMillis?.() ?? longest, longest);
    const clusters = listClusters();
    // Each minute, another cluster is the first, so that each gets its turn although others need all the time.
    const first = Math.floor(started / 60_000) % Math.max(1, clusters.length);
    const turns = [...clusters.slice(first), ...clusters.slice(0, first)];
    for (const [index, cluster] of turns.entries()) {
      const left = end - reserve - Date.now();
      if (left <= 0) break;
      const about = { rule: config.rule, cluster, version: context.functionVersion };
      await reconcile(cluster, Date.now() + left / (turns.length - index), end).then(
        (done) => done !== undefined && report({ ...about, done }),
        (thrown) => report({ ...about, error: toFailure(thrown) }),
      );
    }
    return {};
  };
};
