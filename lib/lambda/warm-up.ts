import type { MiddyfiedHandler } from "@middy/core";
import type { Context } from "aws-lambda";
import type { EndpointConfig, EndpointHost } from "../core/endpoint.ts";
import type { formatLogLine } from "../core/log-line.ts";
import type { Rule } from "../rule.ts";

/** What a warm-up needs of a function. */
export interface StartingFunction {
  rules: Record<string, Rule>;
  config: Pick<EndpointConfig, "rule"> & { clusters: object };
  readConnections?(): object;
  /** What the handler's endpoint gets. Its log is replaced during the warm-up. */
  host: EndpointHost & { formatLogLine: typeof formatLogLine };
  handler: MiddyfiedHandler;
}

/** The most milliseconds that clusters and evaluations are waited for. A function has ten seconds to start. */
const longest = 500;
/** The most clusters that are asked: each of a few gets its connection. For others, the code is warm. */
const mostClusters = 3;

/**
 * Does what a first review would do, but without effects: refuses a wrong key, evaluates a made-up Pod without reads, and
 * asks clusters and the ledger's table something harmless. Lambda gives a function a whole core while it starts, and then a
 * share by its memory: with 256 MB a seventh. So what is loaded, compiled and connected here makes the first answer faster.
 * No failure matters.
 */
export const warmUp = async (starting: StartingFunction): Promise<void> => {
  const { rules, config, readConnections = () => ({}), host, handler } = starting;
  const { openCapabilities, writeLogLine, formatLogLine } = host;
  const cluster = Object.keys(config.clusters)[0] ?? "any";
  const asked = Object.keys(readConnections()).slice(0, mostClusters);
  const connecting = asked.map((name) => openCapabilities?.(name, longest).discover(alwaysServed));
  const keeping = Object.entries(rules).map(([name, { needs = {} }]) =>
    Object.values(needs).some(({ verb }) => verb === "ledger")
      ? openCapabilities?.(cluster, longest)
          .ledger(name)
          .change([alwaysServed], (kept) => kept)
      : undefined,
  );
  // Rejections are handled from here on.
  const answers = Promise.allSettled([Promise.any(connecting), ...keeping]);
  host.writeLogLine = (report) => void formatLogLine(report, "", 0);
  // The cast is safe: the handler reads nothing else of the context.
  const context = { getRemainingTimeInMillis: () => longest } as Context;
  await handler(buildHttpEvent(`/${cluster}.${"A".repeat(86)}/${config.rule}/validate`), context);
  for (const phase of ["mutate", "validate"] as const)
    if (Object.values(rules).some((rule) => rule[phase]))
      await handler({ phase, cluster, review: buildReview(), needs: {} }, context);
  host.writeLogLine = writeLogLine;
  await answers;
};

/** The API group that every API server serves, and lets every client discover. Its list of kinds is short. */
const alwaysServed = "authorization.k8s.io/v1";

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
