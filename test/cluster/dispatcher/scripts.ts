import { isMap } from "#lib/json.ts";
import type { AdmissionRequest } from "#lib/review.ts";
import type { Phase } from "#lib/rule.ts";
import type { Random } from "./random.ts";

/** What a hook does with any request: a pure function of it. */
export type Answering = (
  request: AdmissionRequest,
  version: string,
) => { code?: number; type?: string; body: string } | undefined;

type Change = Record<string, unknown>;

const respond = (version: string, response: object, more: object = {}) => {
  return { body: JSON.stringify({ kind: "AdmissionReview", apiVersion: version, ...more, response }) };
};

const patching = (changes: unknown) => {
  return { patchType: "JSONPatch", patch: Buffer.from(JSON.stringify(changes)).toString("base64") };
};

const labelsOf = (object: unknown): Record<string, string> => Object(Object(Object(object).metadata).labels);
const notesOf = (object: unknown): Record<string, string> => Object(Object(Object(object).metadata).annotations);

/** Sets a member of a map in metadata that may not be there. */
const setting = (object: unknown, field: "labels" | "annotations", key: string, value: string): Change[] => {
  const there = Object(Object(object).metadata)[field];
  const path = `/metadata/${field}`;
  return there === undefined
    ? [{ op: "add", path, value: { [key]: value } }]
    : [{ op: "add", path: `${path}/${key.replaceAll("/", "~1")}`, value }];
};

const denials: object[] = [
  { code: 403, reason: "Forbidden", message: "no <b>&</b>" },
  {
    code: 422,
    message: "not so",
    details: { name: "x", kind: "y", causes: [{ message: "m", field: "spec.z", reason: "FieldValueInvalid" }] },
  },
  { code: 200, message: "fine" },
  { reason: "Conflict" },
  { code: 429, reason: "TooManyRequests", details: { group: "g", retryAfterSeconds: 3 } },
  { status: "Success", message: "well" },
  {},
];

/** Answers that no API server takes. */
const faulty: ((request: AdmissionRequest, version: string) => { code?: number; type?: string; body: string })[] = [
  () => ({ body: "" }),
  (_, version) => ({ body: JSON.stringify({ kind: "AdmissionReview", apiVersion: version }) }),
  (_, version) => respond(version, { uid: "another", allowed: true }),
  ({ uid }, version) => respond(version, { uid, allowed: "true" }),
  ({ uid }, version) => respond(version, { uid, allowed: 1 }),
  ({ uid }, version) => respond(version, { uid, allowed: true, warnings: "w" }),
  ({ uid }, version) => respond(version, { uid, allowed: true, warnings: [1] }),
  ({ uid }, version) => respond(version, { uid, allowed: true, auditAnnotations: { a: 1 } }),
  ({ uid }, version) => respond(version, { uid, allowed: true, status: { code: "403" } }),
  ({ uid }, version) => respond(version, { uid, allowed: true, patch: "a*b" }),
  ({ uid }, version) => respond(version, { uid, allowed: true, patch: "abc", patchType: "JSONPatch" }),
  ({ uid }, version) => respond(version, { uid, allowed: true, patch: "W10=" }),
  ({ uid }, version) => respond(version, { uid, allowed: true, patchType: "JSONPatch" }),
  ({ uid }, version) => respond(version, { uid, allowed: true, patch: "W10=", patchType: "" }),
  ({ uid }, version) => respond(version, { uid, allowed: true, patch: "e30=", patchType: "JSONPatch" }),
  ({ uid }, version) => respond(version, { uid, allowed: true, patch: "WzFd", patchType: "JSONPatch" }),
  ({ uid }, version) =>
    respond(version, { uid, allowed: true, ...patching([{ op: "remove", path: "/x" }]), patchType: "MergePatch" }),
  ({ uid }) => ({ body: JSON.stringify({ response: { uid, allowed: true } }) }),
  ({ uid }, version) => ({ body: JSON.stringify({ apiVersion: version, response: { uid, allowed: true } }) }),
  ({ uid }, version) =>
    respond(
      version,
      { uid, allowed: true },
      { apiVersion: version.endsWith("/v1") ? `${version}beta1` : "admission.k8s.io/v1" },
    ),
  ({ uid }, version) => respond(version, { uid, allowed: true }, { response: null }),
  () => ({ code: 500, body: '{"message":"Internal Server Error"}' }),
  () => ({ code: 500, type: "text/plain", body: "oops <here>" }),
  () => ({ code: 403, body: '{"message":"no"}' }),
  () => ({ code: 404, body: "{}" }),
  () => ({ code: 429, body: "{}" }),
  () => ({
    code: 503,
    body: '{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"we are closed","code":503}',
  }),
];

/** Patches that can't be applied, or hardly. */
const odd: ((object: unknown) => Change[])[] = [
  () => [{ op: "remove", path: "/metadata/none" }],
  () => [{ op: "add", path: "/metadata/none/a", value: 1 }],
  () => [{ op: "replace", path: "/metadata/none/a", value: 1 }],
  () => [{ op: "test", path: "/metadata/name", value: "another" }],
  () => [{ op: "test", path: "/metadata/none/x", value: "another" }],
  () => [{ op: "move", from: "/metadata/none", path: "/metadata/other" }],
  () => [{ op: "copy", from: "/none/none", path: "/metadata/other" }],
  () => [{ op: "frob", path: "/metadata" }],
  () => [{ path: "/metadata" }],
  () => [{ op: "add", value: 1 }],
  () => [{ op: "add", path: 1, value: 1 }],
  () => [{ op: "replace", path: 1, value: 1 }],
  () => [{ op: "remove", path: "" }],
  () => [{ op: "add", path: "", value: {} }],
  () => [{ op: "add", path: "x", value: {} }],
  () => [{ op: "replace", path: "", value: 5 }],
  // Without a value, that ends the API server's handler, and no answer comes at all.
  () => [{ op: "test", path: "", value: 1 }],
  (object) => [
    ...setting(object, "annotations", "odd", "1"),
    { op: "test", path: "/metadata/annotations/odd", value: "1" },
  ],
  (object) => [
    ...setting(object, "annotations", "odd", "1"),
    { op: "copy", from: "/metadata/annotations/odd", path: "/metadata/annotations/even" },
  ],
  (object) => [
    ...setting(object, "annotations", "odd", "1"),
    { op: "move", from: "/metadata/annotations/odd", path: "/metadata/annotations/even" },
  ],
  (object) => [
    ...setting(object, "annotations", "odd", "1"),
    { op: "replace", path: "/metadata/annotations/fresh~1one", value: "~" },
  ],
  (object) => [
    ...setting(object, "annotations", "less", "a<b"),
    { op: "replace", path: "/metadata/annotations/less", value: "a<c" },
  ],
  (object) => [...setting(object, "annotations", "odd", "1"), { op: "remove", path: "/metadata/annotations/odd" }],
  () => [
    { op: "add", path: "/metadata/finalizers", value: ["a.io/a", "a.io/b"] },
    { op: "add", path: "/metadata/finalizers/1", value: "a.io/c" },
    { op: "remove", path: "/metadata/finalizers/-1" },
  ],
  () => [
    { op: "add", path: "/metadata/finalizers", value: ["a.io/a"] },
    { op: "add", path: "/metadata/finalizers/-", value: "a.io/d" },
    { op: "replace", path: "/metadata/finalizers/0", value: "a.io/e" },
  ],
  () => [
    { op: "add", path: "/metadata/finalizers", value: ["a.io/a"] },
    { op: "add", path: "/metadata/finalizers/7", value: "a.io/d" },
  ],
  () => [
    { op: "add", path: "/metadata/finalizers", value: ["a.io/a"] },
    { op: "remove", path: "/metadata/finalizers/x" },
  ],
  () => [
    { op: "add", path: "/metadata/finalizers", value: ["a.io/a"] },
    { op: "replace", path: "/metadata/finalizers/3", value: "a" },
  ],
  () => [{ op: "add", path: "/metadata/finalizers", value: [] }],
  () => [{ op: "add", path: "/metadata/annotations", value: null }],
];

const changes: ((object: unknown) => Change[])[] = [
  (object) => setting(object, "labels", "tier", labelsOf(object).tier === "a" ? "b" : "a"),
  (object) => setting(object, "labels", "env", "x"),
  (object) => setting(object, "labels", "example.com/team", "t"),
  (object) => (labelsOf(object).env === undefined ? [] : [{ op: "remove", path: "/metadata/labels/env" }]),
  (object) => setting(object, "annotations", "count", `${notesOf(object).count ?? ""}x`),
  (object) => setting(object, "annotations", "once", "1"),
  (object) => [
    { op: "test", path: "/kind", value: Object(object).kind },
    ...setting(object, "annotations", "kind", String(Object(object).kind)),
  ],
  (object) => (labelsOf(object).tier === undefined ? setting(object, "labels", "tier", "b") : []),
  () => [],
];

const warnings = ["careful", 'mind <this> "quoted" \\ one', "two\nlines", "", "äöü", "careful", "w".repeat(300)];
const many = (count: number) => Array.from({ length: count }, (_, index) => `${index} ${"long ".repeat(60)}`);

const notes: Record<string, string>[] = [
  { plain: "v" },
  { "with/slash": "v", fine_one: "a<b" },
  { "-bad": "v" },
  { ["x".repeat(63)]: "y" },
  { ["x".repeat(64)]: "y" },
];

/** What a hook of a phase does, and in a word what that is. */
export const scriptFor = (phase: Phase, random: Random): { what: string; answer: Answering } => {
  const extras = {
    ...(random.chance(0.3) && {
      warnings: phase === "mutate" && random.chance(0.15) ? many(random.pick([5, 14, 30])) : random.some(warnings),
    }),
    ...(random.chance(0.3) && { auditAnnotations: random.pick(notes) }),
  };
  const admitting: Answering = ({ uid }, version) => respond(version, { uid, allowed: true, ...extras });
  const kind = random.next();
  if (kind < 0.05) {
    const status = random.pick(denials);
    const answer: Answering = ({ uid }, version) => respond(version, { uid, allowed: false, status, ...extras });
    return { what: `denies with ${JSON.stringify(status)}`, answer };
  }
  if (kind < 0.09) {
    const answer = random.pick(faulty);
    return { what: `answers wrongly: ${answer}`, answer };
  }
  if (kind < 0.095) return { what: "never answers", answer: () => undefined };
  if (phase === "validate") {
    if (kind > 0.98)
      return {
        what: "patches where it may not",
        answer: ({ uid }, version) => respond(version, { uid, allowed: kind > 0.99, ...patching([]) }),
      };
    return { what: "admits", answer: admitting };
  }
  if (kind > 0.94) {
    const patch = random.pick(odd);
    return {
      what: `patches oddly: ${patch}`,
      answer: (request, version) =>
        request.kind.kind === "SelfSubjectAccessReview"
          ? admitting(request, version)
          : respond(version, { uid: request.uid, allowed: true, ...extras, ...patching(patch(request.object)) }),
    };
  }
  if (kind < 0.3) return { what: "admits", answer: admitting };
  const patch = random.pick(changes);
  const evenDeletes = random.chance(0.1);
  return {
    what: `patches: ${patch}`,
    answer: (request, version) => {
      if (!isMap(request.object) && !evenDeletes) return admitting(request, version);
      // What connections have for an object has no room for labels, and questions may have none.
      if (request.operation === "CONNECT" || request.kind.kind === "SelfSubjectAccessReview")
        return admitting(request, version);
      return respond(version, { uid: request.uid, allowed: true, ...extras, ...patching(patch(request.object)) });
    },
  };
};
