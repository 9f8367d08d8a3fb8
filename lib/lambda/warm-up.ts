import type { MiddyfiedHandler } from "@middy/core";
import type { Context } from "aws-lambda";
import type { EndpointConfig, EndpointHost } from "../core/endpoint.ts";
import type { formatLogLine } from "../core/log-line.ts";
import type { Rule } from "../rule.ts";

/** The parts of a function that a warm-up uses. */
export interface StartingFunction {
  rules: Record<string, Rule>;
  config: Pick<EndpointConfig, "rule"> & { clusters: object };
  /** Returns the connections to clusters by their names; absent if no rule asks a cluster. */
  readConnections?(): object;
  /** The functions that the handler's endpoint calls. During the warm-up, `writeLogLine` is replaced. */
  host: EndpointHost & { formatLogLine: typeof formatLogLine };
  handler: MiddyfiedHandler;
}

/** How many milliseconds a warm-up waits at most for clusters and evaluations. A function has ten seconds to start. */
const maxMilliseconds = 500;
/** How many clusters at most are asked, so that connections to them exist. Further clusters share the warm code. */
const maxClusters = 3;

/**
 * Does the work of a first review, without effects: it rejects a wrong key, evaluates an invented Pod without reads,
 * and sends a harmless request to some clusters and to the ledger's table. While a function starts, Lambda gives it a
 * whole core; afterwards, it gives a part that depends on the memory: a seventh with 256 MB. The first answer is
 * faster, because the warm-up has loaded, compiled and connected things. Failures are ignored.
 */
export const warmUp = async (starting: StartingFunction): Promise<void> => {
  const { rules, config, readConnections = () => ({}), host, handler } = starting;
  const { openCapabilities, writeLogLine, formatLogLine } = host;
  const cluster = Object.keys(config.clusters)[0] ?? "any";
  const clustersToAsk = Object.keys(readConnections()).slice(0, maxClusters);
  const discoveries = clustersToAsk.map((name) =>
    openCapabilities?.(name, maxMilliseconds).discover(alwaysServedGroup),
  );
  // The key may be any text: a change that returns the stored value writes nothing.
  const ledgerReads = Object.entries(rules).map(([name, { needs = {} }]) =>
    Object.values(needs).some(({ verb }) => verb === "ledger")
      ? openCapabilities?.(cluster, maxMilliseconds)
          .ledger(name)
          .change([alwaysServedGroup], (stored) => stored)
      : undefined,
  );
  // The first answer of a cluster is enough: then the code for requests is loaded and compiled. The reads of the ledger
  // are all awaited. allSettled handles rejections from here on.
  const answers = Promise.allSettled([Promise.any(discoveries), ...ledgerReads]);
  host.writeLogLine = (report) => void formatLogLine(report, "", 0);
  // The cast is safe: the handler reads nothing else of the context.
  const context = { getRemainingTimeInMillis: () => maxMilliseconds } as Context;
  // 86 characters have the form of a key, but are no valid signature.
  await handler(buildHttpEvent(`/${cluster}.${"A".repeat(86)}/${config.rule}/validate`), context);
  for (const phase of ["mutate", "validate"] as const)
    if (Object.values(rules).some((rule) => rule[phase]))
      await handler({ phase, cluster, review: buildReview(), needs: {} }, context);
  host.writeLogLine = writeLogLine;
  await answers;
};

/** An API group that each API server serves, and that each client may discover. Its list of kinds is short. */
const alwaysServedGroup = "authorization.k8s.io/v1";

/** Returns the event of an HTTP request to this path, as API Gateway sends it. */
const buildHttpEvent = (path: string) => ({
  version: "2.0",
  rawPath: path,
  headers: { "content-type": "application/json" },
  queryStringParameters: { timeout: "1s" },
  requestContext: { http: { method: "POST", path } },
  body: "{}",
  isBase64Encoded: false,
});

/** Returns a review of a Pod. It is a dry run, so that nothing records it. */
const buildReview = () => {
  const pods = { group: "", version: "v1", resource: "pods" };
  const kind = { group: "", version: "v1", kind: "Pod" };
  const metadata = { name: "any", namespace: "any", labels: { app: "any" } };
  const resources = { requests: { cpu: "1", memory: "1Mi" }, limits: { cpu: "1", memory: "1Mi" } };
  const containers = [{ name: "any", image: "any", resources }];
  const userInfo = { username: "any", groups: ["any"] };
  const request = {
    uid: "any",
    kind,
    resource: pods,
    requestKind: kind,
    requestResource: pods,
    name: "any",
    namespace: "any",
    operation: "CREATE",
    userInfo,
    object: { apiVersion: "v1", kind: "Pod", metadata, spec: { containers } },
    oldObject: null,
    dryRun: true,
  };
  return { apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview", request };
};
