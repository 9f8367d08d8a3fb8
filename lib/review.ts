import { createReviewFailure, Failure } from "./failure.ts";
import { isMap, isText, isTextList } from "./json.ts";

/** The fields of every Kubernetes object that a rule for any kind may use. */
export interface KubernetesObject {
  apiVersion?: string;
  kind?: string;
  metadata?: {
    name?: string;
    generateName?: string;
    namespace?: string;
    resourceVersion?: string;
    labels?: Record<string, string>;
    annotations?: Record<string, string>;
    finalizers?: string[];
  };
}

export interface GroupVersionKind {
  group: string;
  version: string;
  kind: string;
}

export interface GroupVersionResource {
  group: string;
  version: string;
  resource: string;
}

export type Operation = "CREATE" | "UPDATE" | "DELETE" | "CONNECT";

export interface UserInfo {
  username?: string;
  uid?: string;
  groups?: string[];
  extra?: Record<string, string[]>;
}

/** The request in an AdmissionReview. */
export interface AdmissionRequest {
  uid: string;
  kind: GroupVersionKind;
  resource: GroupVersionResource;
  subResource?: string;
  requestKind?: GroupVersionKind;
  requestResource?: GroupVersionResource;
  requestSubResource?: string;
  name?: string;
  namespace?: string;
  operation: Operation;
  userInfo: UserInfo;
  readonly object?: unknown;
  readonly oldObject?: unknown;
  dryRun?: boolean;
  options?: unknown;
}

export interface AdmissionReview {
  version: "v1" | "v1beta1";
  request: AdmissionRequest;
}

/** `AdmissionReview.response` before it is encoded. */
export interface ReviewOutcome {
  allowed: boolean;
  status?: Status;
  patch?: Patch;
  warnings?: string[];
  audit?: Record<string, string>;
}

export type Patch = (
  | { op: "add"; path: string; value: unknown }
  | { op: "replace"; path: string; value: unknown }
  | { op: "remove"; path: string }
)[];

/** A refusal as the API server passes it on; `code` is from 400 to 599. */
export interface Status {
  code: number;
  reason?: string;
  message: string;
  details?: {
    name?: string;
    group?: string;
    kind?: string;
    causes?: { reason?: string; message?: string; field?: string }[];
  };
}

const groupVersion = "admission.k8s.io/";

/** Reads a review and checks its envelope; of the object, only that it is present. */
export const decodeReview = (body: string, parse: ParseJson = JSON.parse): AdmissionReview =>
  requireValidReview(parseBody(body, parse));

type ParseJson = (text: string) => unknown;
type FormatJson = (value: unknown) => string;

/** Returns a review if rules can rely on its form. Otherwise, a Failure names the wrong field. */
export const requireValidReview = (value: unknown): AdmissionReview => {
  if (!isMap(value)) throw createFieldFailure("the review", "an object");
  // `checkRequest` checks every field that a rule can reach; the rest of the object stays unknown.
  const { apiVersion, kind, request } = value as { apiVersion: unknown; kind: unknown; request: AdmissionRequest };
  const version = versions.find((candidate) => groupVersion + candidate === apiVersion);
  if (kind !== "AdmissionReview") throw createFieldFailure("kind", '"AdmissionReview"');
  if (version === undefined)
    throw createFieldFailure("apiVersion", versions.map((candidate) => `"${groupVersion}${candidate}"`).join(" or "));
  const fault = checkRequest(request);
  if (fault) throw createFieldFailure(`request${fault[0]}`, fault[1]);
  const needed = request.operation === "DELETE" ? "oldObject" : "object";
  if (request[needed] == null) throw createFieldFailure(`request.${needed}`, `an object on ${request.operation}`);
  return { version, request };
};

const versions = ["v1", "v1beta1"] as const;

/** What is wrong with a value, and its path inside the checked value. A path is built only if there is a fault. */
type Fault = readonly [path: string, expected: string];
type Check = (value: unknown) => Fault | undefined;

/** Returns a check. For a wrong value, a check returns a path in the value, "" for the whole, and what is expected. */
const expectValue =
  (expected: string, test: (value: unknown) => boolean): Check =>
  (value) =>
    test(value) ? undefined : ["", expected];
const allowAbsent =
  (check: Check): Check =>
  (value) =>
    value == null ? undefined : check(value);
/** Returns a check for maps that checks some of their members. */
const checkMembers =
  (checks: Record<string, Check>): Check =>
  (value) => {
    if (!isMap(value)) return checkMap(value);
    for (const key in checks) {
      const fault = checks[key]?.(value[key]);
      if (fault) return [`.${key}${fault[0]}`, fault[1]];
    }
    return undefined;
  };
const isTexts = (value: unknown) => value == null || isTextList(value);

const checkText = expectValue("a string", isText);
const checkMap = expectValue("an object", isMap);
const checkKind = checkMembers({ group: checkText, version: checkText, kind: checkText });
const checkResource = checkMembers({ group: checkText, version: checkText, resource: checkText });

/** Checks the members of a request that rules read. */
const checkRequest = checkMembers({
  uid: expectValue("a non-empty string", (value) => isText(value) && value !== ""),
  operation: expectValue("CREATE, UPDATE, DELETE or CONNECT", (value) => isText(value) && operations.has(value)),
  kind: checkKind,
  resource: checkResource,
  requestKind: allowAbsent(checkKind),
  requestResource: allowAbsent(checkResource),
  name: allowAbsent(checkText),
  namespace: allowAbsent(checkText),
  subResource: allowAbsent(checkText),
  requestSubResource: allowAbsent(checkText),
  dryRun: expectValue("true or false", (value) => value == null || typeof value === "boolean"),
  userInfo: checkMembers({
    username: allowAbsent(checkText),
    uid: allowAbsent(checkText),
    groups: expectValue("a list of strings", isTexts),
    extra: expectValue(
      "a map of lists of strings",
      (value) => value == null || (isMap(value) && Object.values(value).every(isTexts)),
    ),
  }),
  object: allowAbsent(checkMap),
  oldObject: allowAbsent(checkMap),
  options: allowAbsent(checkMap),
});

const operations = new Set(["CREATE", "UPDATE", "DELETE", "CONNECT"]);

/** Returns the response body for an outcome, in the review's version and within the limits of the API server. */
export const encodeReviewResponse = (review: AdmissionReview, outcome: ReviewOutcome, format?: FormatJson): string =>
  JSON.stringify(buildReviewResponse(review, outcome, format));

/** Returns the AdmissionReview that answers a review. `format` returns the patch as JSON. */
export const buildReviewResponse = (
  { version, request }: AdmissionReview,
  outcome: ReviewOutcome,
  format: FormatJson = JSON.stringify,
) => {
  const warnings = outcome.warnings && fitWarnings(outcome.warnings);
  const patched = outcome.allowed && outcome.patch !== undefined && outcome.patch.length > 0;
  return {
    kind: "AdmissionReview",
    apiVersion: groupVersion + version,
    response: {
      uid: request.uid,
      allowed: outcome.allowed,
      ...(!outcome.allowed && { status: fitStatus(outcome.status) }),
      ...(patched && {
        patchType: "JSONPatch",
        patch: encodeBase64(format(outcome.patch)),
      }),
      ...(warnings && warnings.length > 0 && { warnings }),
      ...(outcome.audit &&
        Object.keys(outcome.audit).length > 0 && { auditAnnotations: fitAuditAnnotationKeys(outcome.audit) }),
    },
  };
};

/** Most patches are printable ASCII; a Buffer would take longer than making the patch. */
const encodeBase64 = (text: string) => (/[^ -~]/.test(text) ? Buffer.from(text).toString("base64") : btoa(text));

/** Turns a code outside 400 to 599 into 403: the API server turns lower ones into 400 and passes on 700 as it is. */
const fitStatus = (status: Status = { code: 403, reason: "Forbidden", message: "" }) =>
  Number.isInteger(status.code) && status.code >= 400 && status.code < 600
    ? status
    : { ...status, code: 403, reason: "Forbidden" };

/** The API server's limits in characters. */
const maxWarningLength = 256;
const maxLengthOfAllWarnings = 4096;
/** The characters that are kept free for a last warning, such as "12 more warnings did not fit". */
const lastWarningLength = 40;

/**
 * Returns the warnings that fit the API server's limits, and a last one that says how many are left out. The API server
 * drops a warning with a control character. If all together have more than 4096 characters, it cuts each to 256 and
 * drops some.
 */
export const fitWarnings = (warnings: readonly string[]): string[] => {
  const cleanWarnings = [...new Set(warnings.map(removeControls))].filter(Boolean);
  if (countCharacters(cleanWarnings.join("")) <= maxLengthOfAllWarnings) return cleanWarnings;
  const kept: string[] = [];
  let remaining = maxLengthOfAllWarnings - lastWarningLength;
  for (const text of cleanWarnings) {
    const shortened = truncate(text, maxWarningLength);
    remaining -= countCharacters(shortened);
    if (remaining < 0) break;
    kept.push(shortened);
  }
  const dropped = cleanWarnings.length - kept.length;
  return dropped > 0 ? [...kept, `${dropped} more warnings did not fit`] : kept;
};

// biome-ignore lint/suspicious/noControlCharactersInRegex: these control characters are removed
const control = /[\u0000-\u001f\u007f-\u009f]+/g;
const removeControls = (text: string) => text.toWellFormed().replace(control, " ").trim();
const countCharacters = (text: string) => [...text].length;
const truncate = (text: string, length: number) =>
  countCharacters(text) <= length ? text : `${[...text].slice(0, length - 1).join("")}…`;

/** Makes keys of audit annotations valid: the API server drops them if `<webhook>/<key>` is no qualified name. */
export const fitAuditAnnotationKeys = (audit: Record<string, string>): Record<string, string> => {
  const validAudit: Record<string, string> = {};
  for (const [key, value] of Object.entries(audit)) {
    const name =
      key
        .replace(/[^A-Za-z0-9._-]+/g, "-")
        .slice(0, 63)
        .replace(/^[^A-Za-z0-9]+|[^A-Za-z0-9]+$/g, "") || "note";
    validAudit[name] = Object.hasOwn(validAudit, name)
      ? `${validAudit[name]}; ${value.toWellFormed()}`
      : value.toWellFormed();
  }
  return validAudit;
};

/** Parses a request's body. A Failure says what is wrong, without the text of the body. */
const parseBody = (body: string, parse: ParseJson): unknown => {
  if (body === "") throw new Failure(400, "the body is empty; an AdmissionReview as JSON is expected");
  try {
    return parse(body);
  } catch (error) {
    // JSON.parse doesn't recurse. exactJson.parse, which reads large integers exactly, does, and may exceed the stack.
    if (error instanceof RangeError)
      throw new Failure(413, "the body has an integer beyond 2^53 and is nested too deep to read it exactly");
    // V8 quotes the text around the error, which may be a secret; the position, where V8 has one, is enough.
    const [, position] = /at (position \d+) \(line \d+ column \d+\)$/.exec(String(error)) ?? [];
    throw new Failure(
      400,
      `the body is not JSON${position ? ` (at ${position})` : ""}; an AdmissionReview is expected`,
    );
  }
};

const createFieldFailure = (path: string, expected: string) => createReviewFailure(`${path} must be ${expected}`);
