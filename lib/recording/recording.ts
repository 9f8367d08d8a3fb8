import type { RuleDecision, RuleEvaluationContext } from "../core/evaluation.ts";
import { isObject } from "../json.ts";
import type { AdmissionRequest, KubernetesObject, Operation, Status, UserInfo } from "../review.ts";
import type { Phase, Rule } from "../rule.ts";
import type { RecordedCapabilityAnswers } from "./recorded-answers.ts";

/** An evaluation of a rule, from which a recording is made. */
export interface RecordedEvaluation {
  rule: Rule;
  phase: Phase;
  request: AdmissionRequest;
  context: RuleEvaluationContext;
  /** The answers to the questions that the rule asked; undefined if the rule has no needs. */
  needs?: RecordedCapabilityAnswers | undefined;
  decision: RuleDecision;
}

/** A review and its outcome: an entry of a cases.yaml, a line of a file of recordings, or a test case of policies. */
export interface Case {
  /** The case's name. It completes a sentence that begins with "it", such as `admits a pod`. */
  name: string;
  /** The object to evaluate, by phase; on DELETE, the old object. */
  mutate?: KubernetesObject;
  validate?: KubernetesObject;
  oldObject?: KubernetesObject;
  /** The request's operation. Default: UPDATE if the case has an oldObject, else CREATE. */
  operation?: Operation;
  /**
   * The members of a recorded AdmissionRequest that no other member of the case contains, such as its `kind`. In a case
   * with `request`, other members have no defaults.
   */
  request?: RecordedRequestMembers;
  /** The resource, such as `pods/exec`. Default: the object's resource, or else the first that the rule matches. */
  resource?: string;
  namespace?: string;
  user?: UserInfo;
  dryRun?: boolean;
  /** The variant of the rule that is evaluated: one of its webhook entries, which has settings of its own. */
  variant?: string;
  /** The settings that differ from the rule's defaults. */
  settings?: object;
  /** The cluster's minor version of Kubernetes, such as `1.35`. Default: the newest. */
  kubernetes?: string;
  needs?: RecordedCapabilityAnswers;
  now?: string;

  becomes?: KubernetesObject;
  admitted?: true;
  /** The case passes only if no policy is evaluated for the object. */
  unmatched?: true;
  refused?: string;
  /** The case passes only if the evaluation of the policies fails with this text. */
  fails?: string;
  /** The code of the expected refusal. Default: 403, with the reason Forbidden. */
  code?: number;
  /** The reason of the expected refusal; null if the Status has no reason. */
  reason?: string | null;
  /** The expected details of the Status. If absent, the details are not compared. */
  details?: Status["details"];
  warnings?: string[];
  audit?: Record<string, string>;

  /** The origin of a recorded case. Tests ignore it. */
  recorded?: object;
}

/** The members of an AdmissionRequest that a recording has in the member `request`. */
type RecordedRequestMembers = Pick<AdmissionRequest, "kind" | "resource"> & Partial<AdmissionRequest>;

type RecordedRequest = Omit<Case, "name"> & { request: RecordedRequestMembers };

/**
 * A review and its answer, as a case. Copied into a cases.yaml, the case passes. A file of recordings is a YAML list
 * with one recording in each line: `- ` and JSON.
 */
export interface Recording extends Case {
  operation: Operation;
  resource: string;
  user: UserInfo;
  now: string;
  request: RecordedRequestMembers;
  recorded: RecordingOrigin;
}

/** Where a recording comes from. */
export interface RecordingOrigin {
  rule: string;
  cluster: string;
  /** The function's version, or `local`. */
  version: string;
  /** The time of the review in ISO 8601. */
  at: string;
  /**
   * True if the rule may have decided differently about the original review than the recording says: the rule read
   * redacted text, an answer couldn't be recorded, or a CUE script that it ran had placeholders in place of texts.
   */
  redacted?: true;
}

/** Converts a request to the form of a case, from which `restoreRequest` can restore it. */
export const convertRequestToCase = (
  request: AdmissionRequest,
  phase: Phase,
): RecordedRequest & Pick<Recording, "operation" | "resource" | "user"> => {
  const { uid: _, operation, userInfo, namespace, subResource, dryRun, object, oldObject, ...rest } = request;
  const isDelete = operation === "DELETE";
  // `requireValidReview` has checked that this object is present.
  const subject = (isDelete ? oldObject : object) as KubernetesObject;
  const hasOldObject = !isDelete && isObject(oldObject);
  const unusableMembers = {
    ...("namespace" in request && !namespace && { namespace }),
    ...("subResource" in request && !subResource && { subResource }),
    ...("dryRun" in request && typeof dryRun !== "boolean" && { dryRun }),
    ...("object" in request && isDelete && { object }),
    ...("oldObject" in request && !isDelete && !hasOldObject && { oldObject }),
  };
  return {
    // A case has its object in the member `mutate` or `validate`.
    [phase]: subject,
    ...(hasOldObject && { oldObject: oldObject as KubernetesObject }),
    operation,
    resource: subResource ? `${rest.resource.resource}/${subResource}` : rest.resource.resource,
    ...(namespace && { namespace }),
    user: userInfo,
    ...(typeof dryRun === "boolean" && { dryRun }),
    // Members without a usable value, such as null, stay in `request`, and `restoreRequest` restores them from there.
    request: { ...rest, ...(unusableMembers as Partial<AdmissionRequest>) },
  };
};

/** The uid of each request that is made from a case. No verdict depends on the uid. */
export const caseRequestUid = "705ab4f5-6393-11e8-b7cc-42010a800002";

/** Makes a request from a case: the opposite of `convertRequestToCase`. */
export const restoreRequest = (recorded: RecordedRequest): AdmissionRequest => {
  const { mutate, validate, oldObject, resource = "", namespace, user = {}, dryRun, request } = recorded;
  const { operation = oldObject === undefined ? "CREATE" : "UPDATE" } = recorded;
  const subject = mutate ?? validate;
  // The subresource comes from `resource`, not from `request`, because a user may have edited only `resource`.
  const subResource = resource.split("/").slice(1).join("/");
  return {
    ...request,
    uid: caseRequestUid,
    ...(subResource && { subResource }),
    ...(namespace !== undefined && { namespace }),
    operation,
    userInfo: user,
    ...(dryRun !== undefined && { dryRun }),
    ...(operation === "DELETE" ? { oldObject: subject } : { object: subject, ...(oldObject && { oldObject }) }),
  };
};
