import type {
  Affinity,
  ResourceRequirements,
  Toleration,
  TopologySpreadConstraint,
} from "kubernetes-types/core/v1.d.ts";
import type { LabelSelector } from "../objects/selection.ts";
import type { KubernetesObject, Operation } from "../review.ts";

/** The group of the kinds that hold policies. */
export const policyGroup = "policy.kcloudlabs.io";

interface PolicyObject extends KubernetesObject {
  metadata: { name: string; namespace?: string };
}

/** Changes objects; one that isn't a cluster's, those of its own namespace alone. */
export interface OverridePolicy extends PolicyObject {
  kind: "OverridePolicy" | "ClusterOverridePolicy";
  spec: { resourceSelectors?: Selector[]; overrideRules: OverrideRule[] };
}

/** Refuses requests. */
export interface ValidatePolicy extends PolicyObject {
  kind: "ClusterValidatePolicy";
  spec: { resourceSelectors?: Selector[]; validateRules: ValidateRule[] };
}

export type Policy = OverridePolicy | ValidatePolicy;

/** Which objects a policy concerns: one that any of its selectors takes. */
export interface Selector {
  apiVersion: string;
  kind: string;
  namespace?: string;
  name?: string;
  labelSelector?: LabelSelector;
  fieldSelector?: FieldSelector;
}

export interface FieldSelector {
  matchFields?: Record<string, string>;
  matchExpressions?: { field: string; operator: string; value?: string[] }[];
}

/** In this order: template, cue, plaintext, origin. */
export interface OverrideRule {
  targetOperations?: string[];
  overriders: {
    template?: OverrideTemplate;
    /** What a template is in CUE, for whoever reads it; never evaluated here. */
    renderedCue?: string;
    cue?: string;
    plaintext?: PlaintextPatch[];
    origin?: OriginOverrider[];
  };
}

/** In this order: template, cue. */
export interface ValidateRule {
  targetOperations?: string[];
  template?: { type: "condition"; condition: Condition };
  renderedCue?: string;
  cue?: string;
}

export interface PlaintextPatch {
  path: string;
  op: "add" | "remove" | "replace";
  value?: unknown;
}

export interface OverrideTemplate {
  type: "annotations" | "labels" | "resources" | "resourcesOversell" | "tolerations" | "affinity";
  operation: "add" | "replace" | "remove";
  /** Of annotations and labels: the key. */
  path?: string;
  value?: Constant;
  valueRef?: Reference;
  resources?: ResourceRequirements;
  resourcesOversell?: { cpuFactor?: string; memoryFactor?: string; diskFactor?: string };
  tolerations?: Toleration[];
  affinity?: Affinity;
}

/** What overriders of `origin` may be of. */
export const originTypes = [
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

export interface OriginOverrider {
  type: (typeof originTypes)[number];
  /** May be left out where `replace` is set, and where the type takes nothing but `replace`. */
  operation?: "add" | "replace" | "remove";
  replace?: boolean;
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

/** The first that is set, in this order, is the value; an empty list or map is none. */
export interface Constant {
  string?: string;
  integer?: number;
  float?: string;
  boolean?: boolean;
  stringSlice?: string[];
  integerSlice?: number[];
  floatSlice?: string[];
  stringMap?: Record<string, string>;
}

/** A value that stands somewhere else. */
export interface Reference {
  from: "current" | "old" | "k8s" | "owner" | "http";
  path: string;
  k8s?: Selector;
  http?: HttpReference;
}

export interface HttpReference {
  url: string;
  method?: string;
  header?: Record<string, string>;
  params?: Record<string, string>;
  body?: unknown;
  auth?: HttpAuth;
}

export interface HttpAuth {
  staticToken?: string;
  username?: string;
  password?: string;
  authUrl?: string;
  token?: string;
  expireDuration?: string;
  expireAt?: string;
}

export interface Condition {
  affectMode?: "reject" | "allow";
  cond: "Equal" | "NotEqual" | "Exist" | "NotExist" | "In" | "NotIn" | "Gt" | "Gte" | "Lt" | "Lte";
  dataRef?: Reference;
  valueRef?: Reference;
  value?: Constant;
  valueProcess?: { operation: string; operationWith?: number | string };
  message?: string;
}

/** A request as policies see it. On DELETE the object is the one that goes, and there is no old one. */
export interface Subject {
  operation: Operation;
  object: KubernetesObject;
  oldObject?: KubernetesObject;
  /** The request's, which an object that is being created may not have yet. */
  namespace?: string;
  dryRun?: boolean;
}

/** What evaluating a policy may ask of the world; its references and scripts have no other way out. */
export interface Reach {
  /** Rejects where a kind isn't served. Without it, that shows only in what is read. */
  serves?(apiVersion: string, kind: string): Promise<unknown>;
  /** The object of that name; undefined where there is none. A kind that isn't served is an error. */
  get(apiVersion: string, kind: string, name: string, namespace?: string): Promise<KubernetesObject | undefined>;
  /** The first object, by namespace and name, whose labels a selector takes; of all namespaces where none is given. */
  first(
    apiVersion: string,
    kind: string,
    labels: LabelSelector,
    namespace?: string,
  ): Promise<KubernetesObject | undefined>;
  /** Sends a request that a template's reference describes, its placeholders filled. */
  fetch(request: HttpReference): Promise<Reply>;
  /** Sends a request that a script describes, and resolves to the JSON object it was answered with. */
  process(request: ProcessingRequest): Promise<Record<string, unknown>>;
  /** The value of a CUE text, as JSON; rejects with CUE's own message where it has none. */
  cue(source: string): Promise<string>;
}

/** What references with `from: http` resolve in. */
export interface Reply {
  body: Record<string, unknown>;
  header: Record<string, string[]>;
  trailer: Record<string, string[]>;
}

/** `processing.http` of a script. */
export interface ProcessingRequest {
  method: string;
  url: string;
  request?: { body?: string; bodyIsBytes?: boolean; header?: Record<string, string>; trailer?: Record<string, string> };
  tls_config?: { ca: string; client_crt?: string; client_key?: string };
}

/** How errors and metrics name a policy. */
export const nameOf = ({ metadata: { name, namespace } }: Policy): string =>
  namespace === undefined ? name : `${namespace}/${name}`;

/** Where an object is or will be: one that is being created may not say it yet. A Namespace is in none. */
export const namespaceOf = ({ object, namespace }: Subject): string | undefined => {
  if (object.apiVersion === "v1" && object.kind === "Namespace") return undefined;
  return object.metadata?.namespace || namespace || undefined;
};
