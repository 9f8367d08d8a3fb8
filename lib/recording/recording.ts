import type { Circumstances, Decision } from "../decide.ts";
import { isObject } from "../json.ts";
import type { Recorded } from "../recorded-answers.ts";
import type { KubernetesObject, Operation, Request, Status, UserInfo } from "../review.ts";
import type { Phase, Rule } from "../rule.ts";

/** A review that a rule has judged. */
export interface Judged {
  rule: Rule;
  phase: Phase;
  request: Request;
  circumstances: Circumstances;
  /** What it asked of the world; undefined where it needs nothing. */
  needs?: Recorded | undefined;
  decision: Decision;
}

/**
 * An example of a review and its outcome: one entry of a cases.yaml, a line of a file of recordings, or one of the cases that
 * policies are tested with.
 */
export interface Case {
  /** A sentence that completes "it …". */
  name: string;
  /** The object judged, by phase; on DELETE it is the old one. */
  mutate?: KubernetesObject;
  validate?: KubernetesObject;
  oldObject?: KubernetesObject;
  /** UPDATE where there is an oldObject, else CREATE. */
  operation?: Operation;
  /** What the other members don't say of a recorded request. Nothing of such a request is filled in. */
  request?: Envelope;
  /** Such as `pods` or `deployments/scale`; by default the object's own among those that the rule matches, or else the first. */
  resource?: string;
  namespace?: string;
  user?: UserInfo;
  dryRun?: boolean;
  variant?: string;
  /** Where they differ from the rule's defaults. */
  settings?: object;
  needs?: Recorded;
  now?: string;

  becomes?: KubernetesObject;
  admitted?: true;
  refused?: string;
  /** Of policies: the sentence with which their evaluation fails. */
  fails?: string;
  /** 403 and Forbidden, unless said otherwise. */
  code?: number;
  /** Null where there is none. */
  reason?: string | null;
  /** Only where they are said. */
  details?: Status["details"];
  warnings?: string[];
  audit?: Record<string, string>;

  /** Where it comes from; no test looks at it. */
  recorded?: object;
}

/** Of a request, what a case doesn't say otherwise. */
export type Envelope = Pick<Request, "kind" | "resource"> & Partial<Request>;

/** The request of a case. */
type Asked = Omit<Case, "name"> & { request: Envelope };

/**
 * A review and its answer, as a case that passes where it is copied into a cases.yaml. A file of recordings is a YAML list
 * with one of them a line, each line `- ` and JSON.
 */
export interface Recording extends Case {
  operation: Operation;
  resource: string;
  user: UserInfo;
  now: string;
  request: Envelope;
  recorded: Origin;
}

/** Where a recording comes from. */
export interface Origin {
  rule: string;
  cluster: string;
  /** The function's, or `local`. */
  version: string;
  /** As ISO 8601 has it. */
  at: string;
  /**
   * What was answered then may have been something else: it was, for it hung on what is redacted here or on answers that
   * can't be written down, or a script was given placeholders.
   */
  redacted?: true;
}

/** A request as a case has it; every member is in one place, so that it can be put together again. */
export const askedBy = (request: Request, phase: Phase): Asked & Pick<Recording, "operation" | "resource" | "user"> => {
  const { uid: _, operation, userInfo, namespace, subResource, dryRun, object, oldObject, ...rest } = request;
  const isDelete = operation === "DELETE";
  // `decode` saw to it that what is judged is there.
  const judged = (isDelete ? oldObject : object) as KubernetesObject;
  const isOld = !isDelete && isObject(oldObject);
  const left = {
    ...("namespace" in request && !namespace && { namespace }),
    ...("subResource" in request && !subResource && { subResource }),
    ...("dryRun" in request && typeof dryRun !== "boolean" && { dryRun }),
    ...("object" in request && isDelete && { object }),
    ...("oldObject" in request && !isDelete && !isOld && { oldObject }),
  };
  return {
    [phase]: judged,
    ...(isOld && { oldObject: oldObject as KubernetesObject }),
    operation,
    resource: [rest.resource.resource, subResource].filter(Boolean).join("/"),
    ...(namespace && { namespace }),
    user: userInfo,
    ...(typeof dryRun === "boolean" && { dryRun }),
    // What is no text where there should be one stands for nothing: it goes back where it was.
    request: { ...rest, ...(left as Partial<Request>) },
  };
};

/** Of every request that a case makes: no verdict follows from it. */
export const uid = "705ab4f5-6393-11e8-b7cc-42010a800002";

/** The request that a case was made from, but for its uid. */
export const requestOf = (asked: Asked): Request => {
  const { mutate, validate, oldObject, resource = "", namespace, user = {}, dryRun, request } = asked;
  const { operation = oldObject === undefined ? "CREATE" : "UPDATE" } = asked;
  const judged = mutate ?? validate;
  // A recording names its resource twice, and a hand may have written one of them.
  const subResource = resource.split("/").slice(1).join("/");
  return {
    ...request,
    uid,
    ...(subResource && { subResource }),
    ...(namespace !== undefined && { namespace }),
    operation,
    userInfo: user,
    ...(dryRun !== undefined && { dryRun }),
    ...(operation === "DELETE" ? { oldObject: judged } : { object: judged, ...(oldObject && { oldObject }) }),
  };
};
