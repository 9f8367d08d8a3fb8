import type { AuthorizationAnswers } from "#lib/admission-policies/authorization.ts";
import type { Decide } from "#lib/cel/libraries/kubernetes/authorizer.ts";
import type { Budget } from "#lib/cel/program/program.ts";
import type {
  AdmissionRequest,
  GroupVersionKind,
  GroupVersionResource,
  KubernetesObject,
  Status,
} from "#lib/review.ts";
import type { Phase } from "#lib/rule.ts";
import type { ReadingStep } from "../defaults/typed-reading.ts";
import type { DefaultedWebhookEntry } from "./hooks.ts";

/** A request without the fields that differ from hook to hook. */
export type AdmissionAttributes = Omit<
  AdmissionRequest,
  "uid" | "requestKind" | "requestResource" | "requestSubResource"
>;

/** The AdmissionReview that the API server sends to a webhook. */
export interface ReviewToSend {
  kind: "AdmissionReview";
  apiVersion: string;
  request: AdmissionRequest;
}

/** The result of calling a hook: a body, a failure, or why there is none. */
export type HookCallResult =
  /** The response body as parsed JSON, not checked yet. */
  | { body: unknown }
  /** The webhook call failed. The text is what a real API server shows after `failed to call webhook: `. */
  | { failure: string }
  /** The hook's answer can't be determined, for the reason in this sentence. */
  | { unsupported: string };

/** What the imitated admission needs from the rest of the imitated API server. */
export interface ImitatedServerFunctions {
  /** The API server's minor of Kubernetes, such as 1.35; absent: the newest. */
  kubernetes?: string | undefined;
  findNamespace(name: string): KubernetesObject | undefined;
  /** Returns the other groups and versions under which the same objects are served. */
  equivalents(resource: GroupVersionResource): readonly GroupVersionResource[];
  convert(object: unknown, to: GroupVersionKind): unknown;
  /** The object as the client sent it; set only if the object of the request already has its defaults. */
  objectBeforeDefaults?: unknown;
  /** Returns an object with the API server's defaults. */
  addDefaults(object: unknown, step: ReadingStep): unknown;
  /** Returns an object with the API server's changes after mutating webhooks, for the trace. `store` makes more. */
  prepare(object: unknown): unknown;
  /**
   * Does all that the API server does after mutating webhooks to store an object: more changes than `prepare`, then
   * validation. Undefined if it isn't known how it does this for the request. Absent if objects aren't validated.
   */
  store?: ((attributes: AdmissionAttributes) => Promise<StoreResult | undefined>) | undefined;
  call(hook: DefaultedWebhookEntry, review: ReviewToSend): Promise<HookCallResult>;
  cel: CelEvaluator;
  /** What conditions ask the cluster's authorizer; without it, they are undecided. */
  authorizations?: AuthorizationAnswers | undefined;
}

/** The object that validating webhooks get, the refusal of an invalid one, or why neither is known. */
export interface StoreResult {
  object?: unknown;
  status?: Status;
  undecided?: string;
  warnings: readonly string[];
}

export interface CelEvaluator {
  /** Compiles a matchCondition for an API server of a minor version; without one, for the newest. */
  compile(expression: string, kubernetes?: string): CompiledCondition;
  /** Returns what all conditions of one webhook may cost together. */
  createBudget(): Budget;
}

export type CompiledCondition = (variables: MatchConditionVariables, budget: Budget) => MatchConditionResult;

interface MatchConditionVariables {
  object: unknown;
  oldObject: unknown;
  /** Returns the variable `request`, each time the same object. It is built when a condition first reads it. */
  readRequest(): Record<string, unknown>;
  /** Answers what the condition asks the authorizer; without it, the result of such a condition is `unsupported`. */
  decide?: Decide | undefined;
}

/**
 * The result of a matchCondition. `error` is the API server's error. `exhausted` is its error when all conditions of
 * a webhook cost too much together: it evaluates no further one. `unsupported` says why the result is unknown here.
 */
type MatchConditionResult = { holds: boolean } | { error: string } | { exhausted: string } | { unsupported: string };

/** What happened to one webhook or plugin during the admission of a request. */
export interface HookTraceStep {
  hook: string;
  configuration: string;
  /** Set for a compiled-in plugin. */
  isPlugin?: true;
  /** The policy that a plugin evaluated. */
  policy?: string;
  phase: Phase;
  /** 0 for the first call of a hook, 1 for its reinvocation. */
  round: 0 | 1;
  /** The hook's position among all mutating hooks, or among the validating hooks that match. */
  index: number;
  outcome: "called" | "skipped" | "can't say";
  why?: string;
  request?: AdmissionRequest;
  allowed?: boolean;
  /** The refusal that the client gets, also for a failure that refuses the request. */
  status?: Status;
  /** The API server's error text, if the webhook gave no valid response. */
  failure?: string;
  /** True if the request continued in spite of the webhook's failure, because of failurePolicy Ignore. */
  ignored?: boolean;
  patch?: unknown[];
  /** The object before and after the patch, in the version that the hook asked for. */
  before?: unknown;
  after?: unknown;
  warnings: string[];
}

/** The result of the imitated admission of one request, and how it came about. */
export interface AdmissionTrace {
  allowed: boolean;
  status?: Status;
  /** All refusals; `status` is the first. A client of a real API server gets the refusal that comes first. */
  refusals: Status[];
  /** The object after all mutating webhooks and policies. */
  object: unknown;
  /** The object that the API server would store, if that is known. */
  stored?: unknown;
  warnings: string[];
  /** The warnings of API validation. */
  validationWarnings: readonly string[];
  /** The audit annotations; an audit log has those with patches only from level Request on. */
  audit: Record<string, string>;
  steps: HookTraceStep[];
  /** What could not be decided, in sentences; the other members are right only if none of these would change them. */
  undecided: string[];
}
