import type { Affinity, ResourceRequirements, Toleration, TopologySpreadConstraint } from "../kubernetes/core/v1.ts";
import type { LabelSelector } from "../objects/selection.ts";
import type { KubernetesObject, Operation } from "../review.ts";

/** The API group of the kinds of kinitiras policies, such as OverridePolicy. */
export const policyGroup = "policy.kcloudlabs.io";

interface PolicyObject extends KubernetesObject {
  metadata: { name: string; namespace?: string };
}

/** A policy that changes objects. An OverridePolicy changes only objects in its own namespace. */
export interface OverridePolicy extends PolicyObject {
  kind: "OverridePolicy" | "ClusterOverridePolicy";
  spec: { resourceSelectors?: ResourceSelector[]; overrideRules: OverrideRule[] };
}

/** A policy that refuses objects. */
export interface ValidatePolicy extends PolicyObject {
  kind: "ClusterValidatePolicy";
  spec: { resourceSelectors?: ResourceSelector[]; validateRules: ValidatePolicyRule[] };
}

/** A policy of kinitiras, a policy engine for Kubernetes. */
export type KinitirasPolicy = OverridePolicy | ValidatePolicy;

/** Selects objects. A policy applies to an object that any of its selectors matches. */
export interface ResourceSelector {
  apiVersion: string;
  kind: string;
  namespace?: string;
  name?: string;
  labelSelector?: LabelSelector;
  fieldSelector?: KinitirasFieldSelector;
}

/** An expression has its list of values in `value`, as in kinitiras' CRD, or in `values`, as in its documentation. */
interface KinitirasFieldSelector {
  matchFields?: Record<string, string>;
  matchExpressions?: { field: string; operator: string; value?: string[]; values?: string[] }[];
}

/** A rule of an override policy. Its overriders are applied in this order: template, cue, plaintext, origin. */
export interface OverrideRule {
  targetOperations?: string[];
  overriders: {
    template?: OverrideTemplate;
    /** The template, rendered as CUE for people who read the policy. It is never evaluated. */
    renderedCue?: string;
    cue?: string;
    plaintext?: PolicyPatchOperation[];
    origin?: OriginOverrider[];
  };
}

/** A rule of a validate policy. First `template` is evaluated, then `cue`, never `renderedCue`: the template as CUE. */
export interface ValidatePolicyRule {
  targetOperations?: string[];
  template?: { type: "condition"; condition: PolicyCondition };
  renderedCue?: string;
  cue?: string;
}

/** A JSON patch operation that a policy contains. A missing `value` counts as null. */
export interface PolicyPatchOperation {
  op: string;
  path: string;
  value?: unknown;
}

/** A template of an override rule. `type` names the part of the object that the template changes. */
export interface OverrideTemplate {
  type: "annotations" | "labels" | "resources" | "resourcesOversell" | "tolerations" | "affinity";
  operation: "add" | "replace" | "remove";
  /** The key of the annotation or label that the template adds, replaces or removes. */
  path?: string;
  value?: PolicyConstant;
  valueRef?: ValueReference;
  resources?: ResourceRequirements;
  resourcesOversell?: { cpuFactor?: string; memoryFactor?: string; diskFactor?: string };
  tolerations?: Toleration[];
  affinity?: Affinity;
}

/** The types of origin overriders: of the elements of the list `origin` in an override rule. */
export const originOverriderTypes = [
  "annotations",
  "labels",
  "nodeSelector",
  "hostNetwork",
  "schedulerName",
  "resourceRequirements",
  "resourceOversell",
  "affinity",
  "tolerations",
  "topologySpreadConstraints",
] as const;

/** An overrider without CUE. `type` names the part of the object that it changes. */
export interface OriginOverrider {
  type: (typeof originOverriderTypes)[number];
  /** Optional if `replace` is true, or if the type supports only `replace`. */
  operation?: "add" | "replace" | "remove";
  replace?: boolean;
  /** The index of the container. */
  containerCount?: number;
  annotations?: Record<string, string>;
  labels?: Record<string, string>;
  nodeSelector?: Record<string, string>;
  hostNetwork?: boolean;
  schedulerName?: string;
  resourceRequirements?: ResourceRequirements;
  resourcesOversell?: { requests?: Record<string, string>; limits?: Record<string, string> };
  affinity?: Affinity;
  tolerations?: Toleration[];
  topologySpreadConstraints?: TopologySpreadConstraint[];
}

/** Reports whether origin overriders of a type allow only the operation `replace`. */
export const allowsOnlyReplaceOperation = (type: OriginOverrider["type"]): boolean =>
  !["annotations", "labels", "nodeSelector", "tolerations"].includes(type);

/** A constant. Of its fields, in this order, the first that is set counts. An empty list or map counts as not set. */
export interface PolicyConstant {
  string?: string;
  integer?: number;
  float?: string;
  boolean?: boolean;
  stringSlice?: string[];
  integerSlice?: number[];
  floatSlice?: string[];
  stringMap?: Record<string, string>;
}

/** A reference to a value in an object of the request, in another object or in an HTTP response. */
export interface ValueReference {
  from: "current" | "old" | "k8s" | "owner" | "http";
  path: string;
  k8s?: ResourceSelector;
  http?: HttpReference;
}

/** An HTTP request whose response has the value of a reference. */
export interface HttpReference {
  url: string;
  method?: string;
  header?: Record<string, string>;
  params?: Record<string, string>;
  body?: unknown;
  auth?: HttpReferenceAuth;
}

/**
 * How an HTTP reference authenticates: with a token of the policy, with a token that it requests from `authUrl`, or
 * else with a credential of the setting http.credentials.
 */
export interface HttpReferenceAuth {
  /** A token that is always sent. If it is set, the other fields are ignored. */
  staticToken?: string;
  /** The user and the password with which a token is requested from `authUrl`. */
  username?: string;
  password?: string;
  authUrl?: string;
  /** A token that is sent until the time `expireAt`. Kinitiras writes the last token from `authUrl` here. */
  token?: string;
  /** How long a token from `authUrl` is valid, such as `1h`, if the response doesn't say when it expires. */
  expireDuration?: string;
  expireAt?: string;
}

/** Compares the value at `dataRef` with the constant `value` or the value at `valueRef`. */
export interface PolicyCondition {
  /** What happens to the request if the comparison holds. */
  affectMode?: "reject" | "allow";
  cond: "Equal" | "NotEqual" | "Exist" | "NotExist" | "In" | "NotIn" | "Gt" | "Gte" | "Lt" | "Lte";
  dataRef?: ValueReference;
  valueRef?: ValueReference;
  value?: PolicyConstant;
  /** A calculation with the second value, before it is compared: `*` and 2 compare with twice the value. */
  valueProcess?: { operation: string; operationWith?: number | string };
  message?: string;
}

/** The request for which policies are evaluated. On DELETE, `object` is the deleted object; `oldObject` is absent. */
export interface PolicyRequest {
  operation: Operation;
  object: KubernetesObject;
  oldObject?: KubernetesObject;
  /** The request's namespace. An object may still be without metadata.namespace when it is created. */
  namespace?: string;
  dryRun?: boolean;
}

/** The functions with which policies ask a cluster, HTTP services and CUE. They have no other way. */
export interface PolicyCapabilities {
  /**
   * Rejects if the cluster doesn't serve a kind. Called if the placeholders of a reference have no value: no object is
   * read then, but a kind that isn't served must still be an error. Without this function, the kind isn't checked.
   */
  requireKind?(apiVersion: string, kind: string): Promise<unknown>;
  /** Reads one object. Resolves to undefined if it doesn't exist. Rejects if the cluster doesn't serve its kind. */
  get(apiVersion: string, kind: string, name: string, namespace?: string): Promise<KubernetesObject | undefined>;
  /**
   * Finds the first object with matching labels, in the order of namespace and name. Without `namespace`, searches all
   * namespaces.
   */
  findFirst(
    apiVersion: string,
    kind: string,
    labels: LabelSelector,
    namespace?: string,
  ): Promise<KubernetesObject | undefined>;
  /** Sends the request that a reference describes. Its placeholders must have been filled. */
  fetchReference(request: HttpReference): Promise<HttpReferenceResponse>;
  /** Sends the HTTP request that a CUE script describes, and resolves to the JSON object in the response. */
  sendScriptRequest(request: ScriptHttpRequest): Promise<Record<string, unknown>>;
  /** Evaluates CUE to JSON. Rejects with CUE's own message if there is no value. */
  evaluateCue(source: string): Promise<string>;
}

/** The response to an HTTP request that a policy's reference describes. The reference's value is taken from it. */
export interface HttpReferenceResponse {
  body: Record<string, unknown>;
  header: Record<string, string[]>;
  trailer: Record<string, string[]>;
}

/** An HTTP request that a CUE script describes. */
export interface ScriptHttpRequest {
  method: string;
  url: string;
  request?: {
    body?: string | undefined;
    bodyIsBytes?: boolean;
    header?: Record<string, string> | undefined;
    trailer?: Record<string, string> | undefined;
  };
  tls_config?: { ca: string; client_crt?: string | undefined; client_key?: string | undefined } | undefined;
}

/** Returns a policy's `namespace/name`, or only the name of a cluster-scoped policy, for errors and metrics. */
export const getPolicyName = ({ metadata: { name, namespace } }: KinitirasPolicy): string =>
  namespace === undefined ? name : `${namespace}/${name}`;

/** Returns the object's namespace; if it has none, the request's namespace; for a Namespace object, undefined. */
export const resolveNamespace = ({ object, namespace }: PolicyRequest): string | undefined => {
  if (object.apiVersion === "v1" && object.kind === "Namespace") return undefined;
  return object.metadata?.namespace || namespace || undefined;
};
