import { toMap } from "postern/json";
import { requireQuantity } from "postern/objects/quantity";
import { formatGroupResource } from "postern/refusals";
import type { AdmissionRequest } from "postern/review";
import { createDeviceClaimEvaluator, type DeviceReads } from "./device-claims.ts";
import type { Evaluator } from "./evaluator.ts";
import { createPodEvaluator, isTerminating } from "./pods.ts";
import { serviceEvaluator } from "./services.ts";
import type { QuotaGates } from "./versions.ts";
import { createVolumeClaimEvaluator } from "./volume-claims.ts";

/** Resources that quotas never count: those that upstream excludes, and Namespaces. */
const uncounted: ReadonlySet<string> = new Set([
  "bindings",
  "componentstatuses",
  "events",
  "events.events.k8s.io",
  "namespaces",
  "tokenreviews.authentication.k8s.io",
  "selfsubjectreviews.authentication.k8s.io",
  "subjectaccessreviews.authorization.k8s.io",
  "selfsubjectaccessreviews.authorization.k8s.io",
  "localsubjectaccessreviews.authorization.k8s.io",
  "selfsubjectrulesreviews.authorization.k8s.io",
]);

/** Reports whether a request can change the used amounts of a quota. */
export const mayChangeUsage = (request: AdmissionRequest, gates: QuotaGates): boolean => {
  const { namespace, operation, subResource = "" } = request;
  const resource = formatGroupResource(request.resource);
  if (!namespace || uncounted.has(resource)) return false;
  if (operation === "CREATE") return subResource === "";
  if (operation !== "UPDATE") return false;
  if (resource === "pods")
    return subResource === ""
      ? isTerminating(toMap(request.object)) !== isTerminating(toMap(request.oldObject))
      : subResource === "resize";
  if (resource === "persistentvolumeclaims") return subResource === "" || subResource === "status";
  const isUpdateCounted = resource === "services" || (resource === deviceClaims && gates.countsDevices);
  return isUpdateCounted && subResource === "";
};

const deviceClaims = "resourceclaims.resource.k8s.io";

/** Returns the evaluator of a request's resource. */
export const chooseEvaluator = async (
  request: AdmissionRequest,
  now: Date,
  gates: QuotaGates,
  reads: DeviceReads,
): Promise<Evaluator<object>> => {
  const resource = formatGroupResource(request.resource);
  if (resource === "pods") return createPodEvaluator(now, gates);
  if (resource === "services") return serviceEvaluator;
  if (resource === "persistentvolumeclaims") return createVolumeClaimEvaluator(gates);
  if (resource === deviceClaims && gates.countsDevices) return createDeviceClaimEvaluator(request, now, gates, reads);
  return createCountEvaluator(resource);
};

/** Resources that a quota can also limit by their plain name, such as `secrets` beside `count/secrets`. */
const limitedByPlainName: readonly string[] = ["configmaps", "resourcequotas", "replicationcontrollers", "secrets"];

const createCountEvaluator = (resource: string): Evaluator<object> => {
  const countedNames = [`count/${resource}`, ...(limitedByPlainName.includes(resource) ? [resource] : [])];
  const used = new Map(countedNames.map((name) => [name, requireQuantity("1")]));
  return { selectNames: (names) => names.filter((name) => countedNames.includes(name)), measure: () => used };
};
