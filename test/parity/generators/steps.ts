import fc, { type Arbitrary } from "fast-check";
import type { JsonMap } from "#lib/json.ts";
import { mergeWithDefaults } from "#lib/settings.ts";

export type RequestUser = "admin" | "jane" | "system:node:n1";

/** Sets the field at `path`, or removes it if there is no value; `-` is the end of a list. */
export interface FieldEdit {
  path: (string | number)[];
  value?: unknown;
}

/** Creates an object by a POST to the sequence's own resource, or to `otherResource`, such as `bindings`. */
type CreateRequest = { verb: "create"; subresource?: string; otherResource?: string; body: JsonMap };

/** One request about a sequence's object. The object's name is added when the request is sent. */
export type SequenceRequest = {
  user: RequestUser;
  dryRun: boolean;
} & (
  | CreateRequest
  /** Reads the stored object, and sends it back by PUT with these edits. */
  | { verb: "replace"; subresource?: string; edits: FieldEdit[] }
  | { verb: "patch"; subresource?: string; type: "json" | "merge" | "strategic-merge"; body: unknown }
  | { verb: "apply"; subresource?: string; manager: string; force: boolean; body: JsonMap }
  /** Deletes the stored object: with the object's grace period if `graceful`, otherwise at once. */
  | { verb: "delete"; graceful: boolean }
  | { verb: "deletecollection" }
  /** Reads the sequence's Namespace, or with `at` the list of this resource in the namespace. */
  | { verb: "look"; at?: string }
);

export type GeneratedKind = keyof typeof parityGeneratedKinds;

/** Kinds that only planned scenarios use, because randomly generated objects of these kinds would hardly be valid. */
export const scenarioOnlyKinds = {
  certificatesigningrequests: {
    apiVersion: "certificates.k8s.io/v1",
    kind: "CertificateSigningRequest",
    namespaced: false,
  },
  replicationcontrollers: { apiVersion: "v1", kind: "ReplicationController", namespaced: true },
  podtemplates: { apiVersion: "v1", kind: "PodTemplate", namespaced: true },
  daemonsets: { apiVersion: "apps/v1", kind: "DaemonSet", namespaced: true },
  replicasets: { apiVersion: "apps/v1", kind: "ReplicaSet", namespaced: true },
  cronjobs: { apiVersion: "batch/v1", kind: "CronJob", namespaced: true },
  clustertrustbundles: { apiVersion: "certificates.k8s.io/v1beta1", kind: "ClusterTrustBundle", namespaced: false },
  podcertificaterequests: {
    apiVersion: "certificates.k8s.io/v1beta1",
    kind: "PodCertificateRequest",
    namespaced: true,
  },
  events: { apiVersion: "v1", kind: "Event", namespaced: true },
  leases: { apiVersion: "coordination.k8s.io/v1", kind: "Lease", namespaced: true },
  csinodes: { apiVersion: "storage.k8s.io/v1", kind: "CSINode", namespaced: false },
  resourceslices: { apiVersion: "resource.k8s.io/v1", kind: "ResourceSlice", namespaced: false },
  serviceaccounts: { apiVersion: "v1", kind: "ServiceAccount", namespaced: true },
  counters: { apiVersion: "example.com/v1", kind: "Counter", namespaced: true },
  gadgets: { apiVersion: "example.com/v1", kind: "Gadget", namespaced: true },
  resourceclaims: { apiVersion: "resource.k8s.io/v1", kind: "ResourceClaim", namespaced: true },
} as const;

/** A ResourceQuota with its status, which the test writes because no quota controller runs. */
export interface SequenceQuota {
  spec: JsonMap;
  status: JsonMap;
}

/** Requests about one object, random or of a planned scenario. They are sent one after another. */
export interface RequestSequence {
  kind: GeneratedKind | keyof typeof scenarioOnlyKinds;
  /** The API version, if it differs from the usual one of the kind. */
  apiVersion?: string;
  /** The prefix that the object's name must have: for a ClusterTrustBundle, the name of its signer. */
  namePrefix?: string;
  /** The object's namespace; without it, the sequence uses its own namespace, which doesn't exist at first. */
  namespace?: string;
  /** The quotas of the sequence's own namespace, which is then created before the first request. */
  quotas?: SequenceQuota[];
  /** The name of an object that exists before and after the sequence, because all requests about it are dry runs. */
  existingObject?: string;
  /** Whether the API server generates the object's name. */
  generateName: boolean;
  steps: SequenceRequest[];
}

/** The kinds of objects that parity tests generate, with their apiVersions. */
export const parityGeneratedKinds = {
  pods: { apiVersion: "v1", kind: "Pod", namespaced: true },
  services: { apiVersion: "v1", kind: "Service", namespaced: true },
  configmaps: { apiVersion: "v1", kind: "ConfigMap", namespaced: true },
  persistentvolumeclaims: { apiVersion: "v1", kind: "PersistentVolumeClaim", namespaced: true },
  persistentvolumes: { apiVersion: "v1", kind: "PersistentVolume", namespaced: false },
  nodes: { apiVersion: "v1", kind: "Node", namespaced: false },
  volumeattributesclasses: { apiVersion: "storage.k8s.io/v1", kind: "VolumeAttributesClass", namespaced: false },
  deployments: { apiVersion: "apps/v1", kind: "Deployment", namespaced: true },
  statefulsets: { apiVersion: "apps/v1", kind: "StatefulSet", namespaced: true },
  ingresses: { apiVersion: "networking.k8s.io/v1", kind: "Ingress", namespaced: true },
  jobs: { apiVersion: "batch/v1", kind: "Job", namespaced: true },
  namespaces: { apiVersion: "v1", kind: "Namespace", namespaced: false },
  priorityclasses: { apiVersion: "scheduling.k8s.io/v1", kind: "PriorityClass", namespaced: false },
  podgroups: { apiVersion: "scheduling.k8s.io/v1alpha2", kind: "PodGroup", namespaced: true },
  localsubjectaccessreviews: {
    apiVersion: "authorization.k8s.io/v1",
    kind: "LocalSubjectAccessReview",
    namespaced: true,
  },
} as const;

/** A webhook that is called after all rules changes pods with this annotation. */
export const competingWebhookAnnotation = "parity.postern.dev/never-pull";

/** Generates a value, or undefined. With "in 1 of 5", one of five results is a value, and the others are undefined. */
export const addSometimes = <T>(
  arbitrary: Arbitrary<T>,
  frequency: `in ${number} of ${number}` = "in 1 of 2",
): Arbitrary<T | undefined> => {
  const [, present, all] = frequency.split(/in | of /).map(Number);
  return fc.oneof(
    { withCrossShrink: true },
    { weight: Number(all) - Number(present), arbitrary: fc.constant(undefined) },
    { weight: Number(present), arbitrary },
  );
};
/** Generates one of these values, each with the same probability. */
export const pickOne = <T>(...values: T[]) => fc.constantFrom(...values);

/** Generates objects in which each member may be missing. */
export const generatePartialObjects = (members: Record<string, Arbitrary<unknown>>): Arbitrary<JsonMap> =>
  fc.record(members, { requiredKeys: [] }).map(omitUndefinedMembers);
/** Generates objects with these members. A member whose generated value is undefined is left out. */
export const generateObjects = (members: Record<string, Arbitrary<unknown>>): Arbitrary<JsonMap> =>
  fc.record(members).map(omitUndefinedMembers);
export const omitUndefinedMembers = (fields: object): JsonMap =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
/** Makes each member absent in most generated objects. */
export const makeMembersRare = (members: Record<string, Arbitrary<unknown>>): Record<string, Arbitrary<unknown>> =>
  Object.fromEntries(Object.entries(members).map(([name, arbitrary]) => [name, addSometimes(arbitrary, "in 1 of 5")]));
export const buildList = <T>(arbitrary: Arbitrary<T>, maxLength = 2) => fc.array(arbitrary, { maxLength });

/** Generates an edit that sets the field at a path to a generated value; undefined removes the field. */
export const generateFieldEdit = (path: string, value: Arbitrary<unknown>): Arbitrary<FieldEdit> =>
  value.map((value) => ({
    path: path.split(".").map((part) => (/^\d+$/.test(part) ? Number(part) : part)),
    ...(value !== undefined && { value }),
  }));

/**
 * Returns edits as a patch of a type. The types `merge` and `strategic-merge` have the same patch: it contains the
 * changed element of a list with its name. A merge replaces the whole list by it, a strategic merge changes only this
 * element.
 */
export const toPatch = (type: "json" | "merge" | "strategic-merge", edits: FieldEdit[]): unknown => {
  if (type === "json")
    return edits.map(({ path, ...edit }) => {
      const pointer = path.map((part) => `/${String(part).replaceAll("~", "~0").replaceAll("/", "~1")}`).join("");
      if (!("value" in edit)) return { op: "remove", path: pointer };
      return { op: typeof path.at(-1) === "number" ? "replace" : "add", path: pointer, value: edit.value };
    });
  return buildMergePatch(edits);
};

/** Returns a merge patch with these edits. */
export const buildMergePatch = (edits: FieldEdit[]): JsonMap =>
  edits.reduce<JsonMap>((patch, edit) => mergeWithDefaults(patch, nestEdit(edit)) as JsonMap, {});

/**
 * For each list, the letter with which its elements' names begin. The generators name elements by position: `c0`, `c1`.
 */
const firstLetters: Record<string, string> = { containers: "c", initContainers: "i", volumes: "v" };

/**
 * Returns a merge patch with one edit. For a list in its path, the patch has only the changed element, or with the
 * index `-` a new one. A list in `firstLetters` is merged by name, so the changed element gets its name, such as `c0`.
 */
const nestEdit = ({ path: [first, ...rest], value = null }: FieldEdit): JsonMap => {
  if (first === undefined) return {};
  if (rest.length === 0) return { [first]: value };
  const [index, ...deeper] = rest;
  if (index === "-") return { [first]: [value] };
  if (typeof index !== "number") return { [first]: nestEdit({ path: rest, value }) };
  const letter = firstLetters[String(first)];
  const member = deeper.length > 0 ? nestEdit({ path: deeper, value }) : value;
  return { [first]: [letter ? { name: `${letter}${index}`, ...Object(member) } : member] };
};

type RequestOptions = { user: RequestUser; dryRun: boolean };
export const requestOptions: Arbitrary<RequestOptions> = fc.record({
  user: fc.oneof(
    { weight: 4, arbitrary: pickOne<RequestUser>("admin") },
    { weight: 1, arbitrary: pickOne<RequestUser>("jane", "system:node:n1") },
  ),
  dryRun: fc.oneof({ weight: 11, arbitrary: pickOne(false) }, { weight: 1, arbitrary: pickOne(true) }),
});

/** Generates the type of a patch. */
export const patchTypeGenerator = pickOne("json" as const, "merge" as const, "strategic-merge" as const);

/** Generates the last step of a sequence, which deletes its object or all objects. */
export const lastDeletionStep: Arbitrary<SequenceRequest> = fc
  .record({
    user: pickOne<RequestUser>("admin", "admin", "jane"),
    dryRun: pickOne(false, false, false, true),
    all: pickOne(false, false, false, true),
    graceful: pickOne(false, false, false, true),
  })
  .map(({ all, graceful, ...options }) =>
    all ? { ...options, verb: "deletecollection" } : { ...options, verb: "delete", graceful },
  );
