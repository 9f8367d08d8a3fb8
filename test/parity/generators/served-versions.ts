import { isMap } from "#lib/json.ts";
import { type Since, selectSince } from "#lib/since.ts";
import { parityGeneratedKinds, type RequestSequence, scenarioOnlyKinds } from "./steps.ts";

const group = "admissionregistration.k8s.io";
const mutatingPolicies = { "1.0": `${group}/v1alpha1`, "1.34": `${group}/v1beta1`, "1.36": `${group}/v1` };
/** The API versions of kinds whose version depends on the minor. Minors before the first entry don't serve the kind. */
const servedVersions: Record<string, Since<string>> = {
  MutatingAdmissionPolicy: mutatingPolicies,
  MutatingAdmissionPolicyBinding: mutatingPolicies,
  VolumeAttributesClass: { "1.0": "storage.k8s.io/v1beta1", "1.34": "storage.k8s.io/v1" },
  DeviceClass: { "1.34": "resource.k8s.io/v1" },
  ResourceClaim: { "1.34": "resource.k8s.io/v1" },
  ResourceSlice: { "1.0": "resource.k8s.io/v1beta2", "1.34": "resource.k8s.io/v1" },
  PodCertificateRequest: { "1.34": "certificates.k8s.io/v1alpha1", "1.35": "certificates.k8s.io/v1beta1" },
  PodGroup: { "1.36": "scheduling.k8s.io/v1alpha2", "1.37": "scheduling.k8s.io/v1beta1" },
  Workload: { "1.36": "scheduling.k8s.io/v1alpha2", "1.37": "scheduling.k8s.io/v1beta1" },
};

/** Returns the value that applies to a minor of Kubernetes; undefined if the minor is older than the first value. */
export const selectNewest = <T>(since: Since<T>, minor: string): T | undefined =>
  Object.values(selectSince(since, minor)).at(-1);

/** Returns the API version in which a minor serves a kind; undefined if it doesn't. */
export const getServedVersion = (kind: string, apiVersion: string, minor: string): string | undefined => {
  const versions = servedVersions[kind];
  return versions === undefined ? apiVersion : selectNewest(versions, minor);
};

/** Returns a sequence with the API versions that a minor serves; undefined if the minor doesn't serve its kind. */
export const toServedVersions = (sequence: RequestSequence, minor: string): RequestSequence | undefined => {
  const { kind, apiVersion: usual } = { ...parityGeneratedKinds, ...scenarioOnlyKinds }[sequence.kind];
  const apiVersion = getServedVersion(kind, usual, minor);
  if (apiVersion === undefined) return undefined;
  if (apiVersion === usual) return sequence;
  const changeBody = (body: unknown): unknown =>
    isMap(body) && body.kind === kind && body.apiVersion === usual ? { ...body, apiVersion } : body;
  const steps = sequence.steps.map((step) =>
    "body" in step ? ({ ...step, body: changeBody(step.body) } as typeof step) : step,
  );
  return { ...sequence, apiVersion, steps };
};
