import type { DefaultedWebhookEntry } from "#infra/apiserver/admission/hooks.ts";
import type {
  AdmissionAttributes,
  CelEvaluator,
  HookCallResult,
  HookTraceStep,
  ReviewToSend,
} from "#infra/apiserver/admission/types.ts";
import type { AuthorizationAnswers } from "#lib/admission-policies/authorization.ts";
import type { KubernetesObject, Operation, UserInfo } from "#lib/review.ts";
import type { KindIndex } from "../../apiserver/kinds/kinds.ts";
import type { CatalogueRule } from "../../catalogue/registry.ts";
import type { ClusterConfig } from "../../config/config.ts";
import type { FieldPath, Manifest } from "../../manifests/manifests.ts";
import type { Assumption } from "./assumptions.ts";
import type { ReviewSubject } from "./endpoint-calls.ts";
import type { ExistingObjects } from "./existing-objects.ts";
import type { RequestHandlers } from "./kubernetes-handlers.ts";
import type { AdmissionChain } from "./plugins.ts";
import type { UncertainUse } from "./quotas.ts";
import type { UnevaluatedAdmissionPolicyMatcher } from "./unevaluated.ts";

/** A request of a check, and the manifest that it came from. */
export interface EvaluatedRequestAndManifest extends Omit<ReviewSubject, "podOfWorkload"> {
  attributes: AdmissionAttributes;
  manifest: Manifest;
  /** The object as a client sends it, before the API server decodes it. */
  sent?: KubernetesObject;
  /** Set for a Pod that a workload would create: the workload, the path of its Pod template, and the number of Pods. */
  podOfWorkload?: {
    workload: NonNullable<ObjectCheckResult["madeBy"]>;
    templatePath: FieldPath;
  } & NonNullable<ReviewSubject["podOfWorkload"]>;
}

/** The options that a check of manifests and a check of a cluster have in common. */
export interface ChainOptions {
  catalogue: CatalogueRule[];
  cluster: [name: string, ClusterConfig];
  /** All clusters of postern.yaml; by default, there is no other. */
  clusters?: readonly string[];
  /** True if rules that guard security fail closed, as in the output of `postern manifests --harden`. */
  harden: boolean;
  /** Paths of files with the webhook configurations of other programs. */
  webhooks: readonly string[];
  /** The hosts that may be called: by foreign webhooks and, in a check of a cluster, by rules. */
  hosts: readonly string[];
  /** Compiled-in plugins to turn on and, with a hyphen before the name, off. */
  plugins: readonly string[];
  user: UserInfo;
  /** True if the Pods that workloads would create are evaluated, too. */
  alsoPods: boolean;
}

export type FieldValidation = "strict" | "warn" | "ignore";

export interface CheckRequestOptions {
  operation: Operation;
  user: UserInfo;
  /** The namespace of manifests that name none. */
  namespace: string;
}

/** The evaluation of one object: its result, the steps that led to it, and the object before and after. */
export interface ObjectEvaluation {
  /** The manifest, and the attributes of its request; they are absent if the verdict was known without a request. */
  subject: Pick<EvaluatedRequestAndManifest, "manifest" | "podOfWorkload"> &
    Partial<Pick<EvaluatedRequestAndManifest, "attributes">>;
  checked: ObjectCheckResult;
  audit: Record<string, string>;
  steps: HookTraceStep[];
  before: unknown;
  after: unknown;
  /** The object as an API server would store it; absent if Kubernetes' own request handlers weren't called for it. */
  stored?: unknown;
}

/** The cluster that objects are evaluated in: its kinds, objects, webhooks and user. */
export interface ObjectEvaluationEnvironment {
  /** The cluster's minor of Kubernetes, if it is known. */
  kubernetes: string | undefined;
  kinds: KindIndex;
  existing: Pick<ExistingObjects, "find" | "put" | "remove">;
  /** The webhooks and the compiled-in plugins, in the order of their calls. */
  chain: AdmissionChain;
  /** Kubernetes' own handlers; absent if objects aren't validated. */
  handlers?: RequestHandlers | undefined;
  call(hook: DefaultedWebhookEntry, review: ReviewToSend, subject: ReviewSubject): Promise<HookCallResult>;
  cel: CelEvaluator;
  /** Opens the cluster's authorizer for the evaluation of one object. */
  openAuthorizations?: (() => AuthorizationAnswers) | undefined;
  /** Returns a hook's name for reports. If a hook calls several rules, it is the rule that `message` begins with. */
  getHookName(hook: string, message?: string): string;
  findSuggestion(rule: string, step: HookTraceStep, at: FieldPath): Promise<string | undefined>;
  /** The options of all requests. Without an operation, an object is updated if it exists, and otherwise created. */
  requestOptions: Omit<CheckRequestOptions, "operation"> & { operation: CheckRequestOptions["operation"] | undefined };
  /** The objects of --old, which updates start from, by `toObjectKey`. */
  old: ReadonlyMap<string, KubernetesObject>;
  /** True if the Pods that workloads would create are evaluated, too. */
  alsoPods: boolean;
  /** True if all existing objects are known; otherwise, namespaces that objects name are assumed to exist. */
  isStateKnown: boolean;
  /** Finds the cluster's admission policies that match a request, but can't be evaluated by the check. */
  unevaluatedPolicies: UnevaluatedAdmissionPolicyMatcher;
  /** What isn't known of the use of quotas. */
  uncertainUse: UncertainUse;
  /** The end of a sentence in reports: where to see the labels of a namespace that the check doesn't know. */
  namespaceHint: string;
  noteMissingNamespace(namespace: string): void;
  /** What becomes of an object with fields that its kind doesn't have, as for kubectl. */
  validate: FieldValidation;
  /** Gets an object whose kind isn't known, and that no rule can be about. */
  noteUndefinedKind?(object: Record<string, unknown>): void;
  /** Gets each assumption about the cluster. Absent if none may be made: results that need one are then undecided. */
  noteAssumption?(assumption: Assumption): void;
}

/** The outcome of `postern check` for one object; every report is made from it. */
export interface ObjectCheckResult {
  /** The file as the user named it, such as `k8s/web.yaml`; `-` is standard input, undefined means no file. */
  file?: string;
  /** The line where the object begins, counted from 1. */
  line?: number;
  apiVersion: string;
  kind: string;
  namespace?: string;
  /** The object's name or generateName; empty if there is neither. */
  name: string;
  /** The uid of an object that was read from a cluster; absent for an object of a manifest. */
  uid?: string;
  /** The kind and name of what controls an object of a cluster, without the part of the name that a controller made. */
  owner?: string;
  /** The workload that would create this Pod, in the same namespace; absent for all other objects. */
  madeBy?: Pick<ObjectCheckResult, "apiVersion" | "kind" | "name" | "uid">;
  verdict: CheckVerdict;
  /** True if no webhook entry can match the object, and its kind is unknown. */
  noRule?: true;
  denials: Denial[];
  warnings: RuleWarning[];
  changes: ObjectChangeByRule[];
  /** A sentence for each thing that can't be determined here. */
  undecided: string[];
  /** Rules that allowed the object without a change. */
  passed: string[];
  /** Rules that an exception exempts the object from, with its end, owner and reason; absent if there are none. */
  exempt?: RuleWarning[];
  /** A sentence for each thing that is assumed of the cluster. */
  assumed: string[];
}

/** The empty lists of a check result without findings. */
export const noFindings = { denials: [], warnings: [], changes: [], undecided: [], passed: [], assumed: [] };

/** Denied takes precedence over undecided, undecided over changed and allowed. */
export type CheckVerdict = "allowed" | "changed" | "denied" | "undecided";

/** A refusal of a request, as reports show it. */
export interface Denial {
  /** The name of what denied the request: a rule, a foreign webhook, or a policy and its rule. */
  rule: string;
  /** The webhook's message, without the words that the API server puts before it. */
  message: string;
  code?: number;
  reason?: string;
  /** The position in the manifest file of the field that was refused; without one, the position of the object. */
  line?: number;
  column?: number;
  suggestion?: string;
}

interface RuleWarning {
  rule: string;
  text: string;
}

/** The JSON patch by which a rule, a webhook or a policy of the cluster changed the object. */
interface ObjectChangeByRule {
  rule: string;
  patch: readonly object[];
}

/** Returns the object that a report shows: the evaluated one or, for a Pod that a workload would create, the workload. */
export const getReportedObject = (
  result: ObjectCheckResult,
): Pick<ObjectCheckResult, "apiVersion" | "kind" | "name" | "uid"> => result.madeBy ?? result;

/** Names an object for readers, for instance `Pod shop/web` or `Deployment shop/web (its Pods)`. */
export const formatObjectName = (result: ObjectCheckResult): string => {
  const { kind, name } = getReportedObject(result);
  const place = result.namespace ? `${result.namespace}/` : "";
  return `${kind} ${place}${name || "without a name"}${result.madeBy ? " (its Pods)" : ""}`;
};
