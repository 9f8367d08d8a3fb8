import type { HookCallResult, ReviewToSend } from "#infra/apiserver/admission/types.ts";
import type { Endpoint, EndpointHost } from "#lib/core/endpoint.ts";
import { exactJson, mayHaveBigints } from "#lib/exact-json.ts";
import { getOwn, isObject } from "#lib/json.ts";
import type { Capabilities } from "#lib/needs.ts";
import type { AdmissionRequest, KubernetesObject } from "#lib/review.ts";
import type { Phase } from "#lib/rule.ts";
import type { Assumption, Tell, UncertaintyScope } from "./assumptions.ts";
import { hideUnknownFields } from "./unknown-fields.ts";

/** What a request doesn't say of its object: how the object uses quotas, and what is assumed for it. */
export interface ReviewSubject {
  /** For a Pod of a workload: how many such Pods are created; undefined if that isn't known. */
  podOfWorkload?: { newPods: number | undefined } | undefined;
  /** The object, with its status, that the cluster already has and its quotas count; absent for a new object. */
  stored?: KubernetesObject | undefined;
  /** What is assumed for the object so far. */
  assumed?: Assumption[] | undefined;
  /** True for the request of a recorded review, which has what an API server fills in. */
  isRecorded?: boolean | undefined;
}

/**
 * The endpoint of a rule, which check calls in this process: for a webhook entry of the rule, or in place of the
 * compiled-in plugin that the rule reimplements.
 */
export interface EndpointTarget {
  phase: Phase;
  variant: string | undefined;
  /** True if the rule gets integers above 2^53 with all digits; for other rules, they are rounded. */
  needsExactIntegers: boolean;
  /** True for a plugin whose decision never depends on fields that only the API server fills in. */
  needsNoServerFields?: boolean;
  /**
   * Opens the endpoint for one review, and the capabilities through which the rule asks the cluster. `tell` gets a
   * sentence for each answer that isn't known.
   */
  open(
    tell: Tell,
    request: AdmissionRequest,
    subject: ReviewSubject,
  ): { endpoint: Endpoint; capabilities: Capabilities | undefined };
}

/** The host of endpoints in this process: no URL leads to them, and no log is written. */
export const checkHost: EndpointHost = { publicKeys: "", writeLogLine: () => {} };

/** The time limit of one review, in milliseconds. */
export const reviewTime = 30_000;

/** Calls a rule or a plugin for the object of a request. Adds the assumptions of its answer to `subject.assumed`. */
export const callEndpoint = async (
  { phase, variant, needsExactIntegers, needsNoServerFields, open }: EndpointTarget,
  cluster: string,
  review: ReviewToSend,
  subject: ReviewSubject,
): Promise<HookCallResult> => {
  const { object, oldObject, options } = review.request;
  const unknown: { sentence: string; scope: UncertaintyScope | undefined }[] = [];
  const tell: Tell = (sentence, scope) => void unknown.push({ sentence, scope });
  const { endpoint, capabilities } = open(tell, review.request, subject);
  // A function parses JSON to numbers, which round integers above 2^53. Only these members of a request have integers.
  const readable = !needsExactIntegers && hasBigInteger([object, oldObject, options]) ? roundIntegers(review) : review;
  const { assumed = [], isRecorded = false } = subject;
  // If a rule reads a field that an API server fills in, its answer is uncertain. If a mutating rule reads a field that
  // all objects have, such as managedFields, the answer stays certain: the rule may only copy the object, to change the
  // copy. But the rule for MutatingAdmissionPolicies, the only mutating rule that needs exact integers, copies nothing.
  const circumstances = { phase, mayCopyObject: phase === "mutate" && !needsExactIntegers, assumed };
  const request =
    needsNoServerFields || isRecorded ? readable.request : hideUnknownFields(readable.request, circumstances, tell);
  const { response, status } = await endpoint.evaluateReview({
    phase,
    variant,
    cluster,
    review: { ...readable, request },
    capabilities,
    deadline: Date.now() + reviewTime,
  });
  const outcome = getOwn(getOwn(response, "response"), "allowed") === false ? "refused" : "admitted";
  // Something unknown without a scope makes any outcome uncertain; with a scope, only the scope's `uncertainOutcome`.
  const doubt = unknown.find(({ scope }) => scope === undefined || scope.uncertainOutcome === outcome);
  assumed.push(...unknown.flatMap(({ scope }) => scope?.assumed ?? []));
  // A failure of Postern (`status`) makes the object undecided, so that failurePolicy Ignore can't hide the failure.
  const sentence = doubt?.sentence ?? status?.message;
  return sentence === undefined ? { body: response } : { unsupported: sentence };
};

/** Whether Kubernetes objects have bigints. Each object is searched once, because every rule gets the same objects. */
const searchedObjects = new WeakMap<object, boolean>();

/** Reports whether a value contains a bigint. Results for Kubernetes objects are cached. */
const hasBigInteger = (value: unknown): boolean => {
  if (!mayHaveBigints()) return false;
  if (!isObject(value)) return typeof value === "bigint";
  // To remember parts of an object would take longer than to look again, and much memory.
  const isKubernetesObject = Object.hasOwn(value, "metadata");
  const found =
    (isKubernetesObject ? searchedObjects.get(value) : undefined) ?? Object.values(value).some(hasBigInteger);
  if (isKubernetesObject) searchedObjects.set(value, found);
  return found;
};

/** Returns a value without bigints, for rules without `exactIntegers`: integers are rounded, as `JSON.parse` does. */
export const roundIntegers = <T>(value: T): T =>
  hasBigInteger(value) ? (JSON.parse(exactJson.stringify(value)) as T) : value;
