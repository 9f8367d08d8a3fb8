import { isMap } from "#lib/json.ts";
import type { AdmissionRequest } from "#lib/review.ts";
import type { Phase } from "#lib/rule.ts";
import type { Random } from "../../../infra/testing/random.ts";
import { vocabulary } from "./vocabulary.ts";

/** Returns a webhook's answer to a request, or undefined if the webhook never answers. */
export type HookScript = (
  request: AdmissionRequest,
  reviewVersion: string,
) => { code?: number; type?: string; body: string } | undefined;

type Change = Record<string, unknown>;

const respond = (version: string, response: object) => {
  return { body: JSON.stringify({ kind: "AdmissionReview", apiVersion: version, response }) };
};

const buildPatchFields = (changes: unknown) => {
  return { patchType: "JSONPatch", patch: Buffer.from(JSON.stringify(changes)).toString("base64") };
};

const getLabels = (object: unknown): Record<string, string> => Object(Object(Object(object).metadata).labels);
const getAnnotations = (object: unknown): Record<string, string> => Object(Object(Object(object).metadata).annotations);

/** Returns the patch operation that sets a label or annotation, even if the object has no labels or annotations. */
const buildSetOperations = (object: unknown, field: "labels" | "annotations", key: string, value: string): Change[] => {
  const path = `/metadata/${field}`;
  if (Object(Object(object).metadata)[field] === undefined) return [{ op: "add", path, value: { [key]: value } }];
  return [{ op: "add", path: `${path}/${key.replaceAll("/", "~1")}`, value }];
};

const { denials, faultyAnswers, oddPatches } = vocabulary;

/** Returns a function that changes Pods as `change` does, and no other objects. */
const forPods =
  (change: (object: unknown) => Change[]) =>
  (object: unknown): Change[] =>
    Object(object).kind === "Pod" ? change(object) : [];

/** Functions that compute, from the object of a request, the JSON patch with which a test webhook answers. */
const changes: ((object: unknown) => Change[])[] = [
  (object) => buildSetOperations(object, "labels", "tier", getLabels(object).tier === "a" ? "b" : "a"),
  (object) => buildSetOperations(object, "labels", "env", "x"),
  (object) => buildSetOperations(object, "labels", "example.com/team", "t"),
  (object) => (getLabels(object).env === undefined ? [] : [{ op: "remove", path: "/metadata/labels/env" }]),
  (object) => buildSetOperations(object, "annotations", "count", `${getAnnotations(object).count ?? ""}x`),
  (object) => buildSetOperations(object, "annotations", "once", "1"),
  (object) => [
    { op: "test", path: "/kind", value: Object(object).kind },
    ...buildSetOperations(object, "annotations", "kind", String(Object(object).kind)),
  ],
  (object) => (getLabels(object).tier === undefined ? buildSetOperations(object, "labels", "tier", "b") : []),
  () => [],
  // API servers of different minors set defaults for these fields before or after mutating webhooks.
  forPods((object) => buildSetOperations(object, "annotations", "pod.beta.kubernetes.io/init-containers", "[]")),
  forPods(() => [{ op: "add", path: "/spec/serviceAccountName", value: "other" }]),
  forPods(() => [{ op: "add", path: "/spec/resources", value: { limits: { cpu: "2" } } }]),
];

const warnings = ["careful", 'mind <this> "quoted" \\ one', "two\nlines", "", "äöü", "careful", "w".repeat(300)];
const createLongWarnings = (count: number) =>
  Array.from({ length: count }, (_, index) => `${index} ${"long ".repeat(60)}`);

/** Audit annotations of answers, some with keys that the API server refuses. */
const auditAnnotations: Record<string, string>[] = [
  { plain: "v" },
  { "with/slash": "v", fine_one: "a<b" },
  { "-bad": "v" },
  { ["x".repeat(63)]: "y" },
  { ["x".repeat(64)]: "y" },
];

/** Returns a script that behaves at random, with a description of its behaviour. */
export const createScript = (phase: Phase, random: Random): { what: string; answer: HookScript } => {
  const pickWarnings = () => {
    const areLong = phase === "mutate" && random.decide(0.15);
    return areLong ? createLongWarnings(random.pick([5, 14, 30])) : random.pickSome(warnings);
  };
  const extras = {
    ...(random.decide(0.3) && { warnings: pickWarnings() }),
    ...(random.decide(0.3) && { auditAnnotations: random.pick(auditAnnotations) }),
  };
  const admit: HookScript = ({ uid }, version) => respond(version, { uid, allowed: true, ...extras });
  const patchObject = ({ uid }: AdmissionRequest, version: string, operations: unknown) =>
    respond(version, { uid, allowed: true, ...extras, ...buildPatchFields(operations) });
  // A number from 0 to 1 chooses the behaviour: for instance, a number below 0.05 makes the script deny.
  const choice = random.draw();
  if (choice < 0.05) {
    const status = random.pick(denials);
    const answer: HookScript = ({ uid }, version) => respond(version, { uid, allowed: false, status, ...extras });
    return { what: `denies with ${JSON.stringify(status)}`, answer };
  }
  if (choice < 0.09) {
    const { body, ...rest } = random.pick(faultyAnswers);
    const answer: HookScript = ({ uid }, version) => {
      const otherVersion = version.endsWith("/v1") ? `${version}beta1` : "admission.k8s.io/v1";
      return { ...rest, body: body.replace("UID", uid).replace("VERSION", version).replace("OTHER", otherVersion) };
    };
    return { what: `answers wrongly: ${body}`, answer };
  }
  if (choice < 0.095) return { what: "never answers", answer: () => undefined };
  if (phase === "validate") {
    if (choice > 0.98)
      return {
        what: "patches where it may not",
        answer: ({ uid }, version) => respond(version, { uid, allowed: choice > 0.99, ...buildPatchFields([]) }),
      };
    return { what: "admits", answer: admit };
  }
  if (choice < 0.3) return { what: "admits", answer: admit };
  if (choice > 0.94) {
    // Some odd patches change an annotation, which is added to the object first.
    const { annotation = {}, patch } = random.pick(oddPatches);
    const buildOperations = (object: unknown) => [
      ...Object.entries(annotation).flatMap(([key, value]) => buildSetOperations(object, "annotations", key, value)),
      ...patch,
    ];
    return {
      what: `patches oddly: ${JSON.stringify(patch)}`,
      answer: (request, version) => {
        if (request.kind.kind === "SelfSubjectAccessReview") return admit(request, version);
        return patchObject(request, version, buildOperations(request.object));
      },
    };
  }
  const buildChange = random.pick(changes);
  const sourceCode = String(buildChange);
  const patchesDeletions = random.decide(0.1);
  return {
    what: `patches: ${sourceCode}`,
    answer: (request, version) => {
      if (!isMap(request.object) && !patchesDeletions) return admit(request, version);
      // The objects of CONNECT requests and of access reviews can't have labels.
      if (request.operation === "CONNECT" || request.kind.kind === "SelfSubjectAccessReview")
        return admit(request, version);
      return patchObject(request, version, buildChange(request.object));
    },
  };
};
