import type { MiddyfiedHandler } from "@middy/core";
import type { Context } from "aws-lambda";
import { type EndpointConfig, findClusterSetup } from "../core/endpoint.ts";
import "../features.ts";
import type { OpenCapabilities } from "../needs.ts";
import { listPhases, type Rule } from "../rule.ts";

/** The most milliseconds that each part of a warm-up takes. A function has ten seconds to start. */
const longest = 500;
/** The most clusters that are asked. Each of a few clusters gets its connection; for others, the code is warm. */
const mostClusters = 3;

/**
 * Does what a first review would do, without its effects: refuses a wrong key, evaluates a made-up Pod without reads, and
 * asks clusters and the ledger's table something harmless. Lambda gives a function a whole core while it starts, and then a
 * share by its memory: with 256 MB a seventh. So what is loaded, compiled and connected here makes the first answer faster.
 * No failure matters.
 */
export const warmUp = async (
  handler: MiddyfiedHandler,
  rules: Record<string, Rule>,
  config: EndpointConfig,
  openCapabilities: OpenCapabilities | undefined,
  clusters: readonly string[],
): Promise<void> => {
  const isOn = (name: string) => findClusterSetup(config, name)?.mode !== "off";
  const cluster = Object.keys(config.clusters).find(isOn) ?? "any";
  // The cast is safe: the handler reads nothing else of the context.
  const context = { getRemainingTimeInMillis: () => longest } as Context;
  const phases = new Set(Object.values(rules).flatMap(listPhases));
  const reads = POSTERN_ASKS ? clusters.slice(0, mostClusters) : [];
  const connecting = reads.map((name) => openCapabilities?.(name, longest).discover(alwaysServed));
  const keeping = Object.entries(rules).flatMap(([name, { needs = {} }]) =>
    POSTERN_LEDGER && Object.values(needs).some(({ verb }) => verb === "ledger")
      ? [openCapabilities?.(cluster, longest).ledger(name).change([alwaysServed], (kept) => kept)]
      : [],
  );
  await handler(buildRequest(`/${cluster}.${"A".repeat(86)}/${config.rule}/validate`), context);
  for (const phase of phases) await handler({ phase, cluster, review: { ...buildReview() }, needs: {} }, context);
  await Promise.allSettled([Promise.any(connecting), ...keeping]);
};

/** The API group that every API server serves, and lets every client discover. Its list of kinds is short. */
const alwaysServed = "authorization.k8s.io/v1";

const buildRequest = (path: string) => ({
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
