import { isDeepStrictEqual } from "node:util";
import jsonPatch from "fast-json-patch";
import type { RuleDecision } from "#lib/core/evaluation.ts";
import { isMap, isObject, toMap } from "#lib/json.ts";
import type { Case } from "#lib/recording/recording.ts";
import type { buildReviewResponse, KubernetesObject, Patch, ReviewOutcome } from "#lib/review.ts";
import { computeHunks } from "../diff/difference.ts";

type EncodedOutcome = ReturnType<typeof buildReviewResponse>["response"];

/** Returns the decision in an AdmissionReview; undefined if the answer is no AdmissionReview with this uid. */
export const parseDecision = (answer: unknown, uid: string): RuleDecision | undefined => {
  const { kind, response } = toMap(answer);
  if (kind !== "AdmissionReview" || toMap(response).uid !== uid) return undefined;
  const { allowed, status, warnings, auditAnnotations: audit, patch } = response as EncodedOutcome;
  const operations: Patch = patch === undefined ? [] : JSON.parse(Buffer.from(patch, "base64").toString());
  const outcome: ReviewOutcome = {
    allowed,
    ...(status && { status }),
    ...(warnings && { warnings }),
    ...(audit && { audit }),
    ...(patch && { patch: operations }),
  };
  return { outcome, refused: !allowed, operations: operations.length };
};

/** Returns a copy of the object with the outcome's patch, as the API server applies it. */
export const applyOutcomePatch = (object: unknown, { patch }: ReviewOutcome): unknown =>
  patch === undefined ? object : jsonPatch.applyPatch(structuredClone(object), patch, /* validate */ true).newDocument;

/** Returns a sentence for each way in which a rule's decision differs from what a case expects. */
export const describeCaseDifferences = (ruleCase: Case, { outcome }: RuleDecision): string[] => {
  const { status } = outcome;
  const compare = (what: string, expected: unknown, actual: unknown) =>
    isDeepStrictEqual(expected, actual)
      ? []
      : [`${what} is ${JSON.stringify(actual) ?? "absent"}, not ${JSON.stringify(expected)}`];
  return [
    ...describeRefusalDifference(ruleCase.refused, status?.message),
    ...(status === undefined ? [] : compare("the code", ruleCase.code ?? 403, status.code)),
    ...(status === undefined
      ? []
      : compare("the reason", ruleCase.reason === undefined ? "Forbidden" : ruleCase.reason, status.reason ?? null)),
    ...(ruleCase.details === undefined ? [] : compare("what its details say", ruleCase.details, status?.details)),
    ...(ruleCase.mutate && ruleCase.refused === undefined
      ? describeObjectDifferences(ruleCase.becomes ?? ruleCase.mutate, applyOutcomePatch(ruleCase.mutate, outcome))
      : []),
    ...compare("what it warns of", ruleCase.warnings ?? [], outcome.warnings ?? []),
    ...compare("what it says to the audit log", ruleCase.audit ?? {}, outcome.audit ?? {}),
  ];
};

const describeRefusalDifference = (expected: string | undefined, actual: string | undefined): string[] => {
  if (expected === actual) return [];
  if (actual === undefined) return [`nothing refuses it; the case expects the refusal ${JSON.stringify(expected)}`];
  if (expected === undefined) return [`it is refused: ${JSON.stringify(actual)}; the case expects no refusal`];
  return [`the refusal is ${JSON.stringify(actual)}, not ${JSON.stringify(expected)}`];
};

/** Returns the differences as a diff between the case (-) and the rule (+), or as sentences if no line differs. */
export const formatCaseDiff = (ruleCase: Case, decision: RuleDecision): string[] => {
  const sentences = describeCaseDifferences(ruleCase, decision);
  if (sentences.length === 0) return [];
  const [expected, actual] = [toDiffFormat(ruleCase), toActual(ruleCase, decision)];
  const hunks = computeHunks(expected, [{ rule: "", after: sortKeysLike(expected, actual) }]);
  if (hunks.length === 0) return sentences;
  const text = hunks.map(({ lines }) => lines.map(({ sign, text }) => `${sign} ${text}`));
  return [
    "the case says (-), the rule does (+):",
    ...text.flatMap((lines, index) => (index > 0 ? ["…", ...lines] : lines)),
  ];
};

/** Returns what a case expects, in the format of the diff. */
const toDiffFormat = (ruleCase: Case): object => {
  const { refused, code = 403, reason = "Forbidden", details, warnings = [], audit = {} } = ruleCase;
  const outcome = ruleCase.mutate ? { becomes: ruleCase.becomes ?? ruleCase.mutate } : { admitted: true };
  return {
    ...(refused === undefined ? outcome : { refused, code, reason, ...(details && { details }) }),
    ...(warnings.length > 0 && { warnings }),
    ...(Object.keys(audit).length > 0 && { audit }),
  };
};

/** Returns what a rule has decided, in the format of the diff: as a case that expects just this decision. */
const toActual = (ruleCase: Case, { outcome }: RuleDecision): object => {
  const { status, warnings = [], audit = {} } = outcome;
  const matchingCase = { name: ruleCase.name, warnings, audit };
  if (status !== undefined)
    return toDiffFormat({
      ...matchingCase,
      refused: status.message ?? "",
      code: status.code ?? 0,
      reason: status.reason ?? null,
      ...(ruleCase.details && { details: status.details }),
    });
  if (!ruleCase.mutate) return toDiffFormat(matchingCase);
  const becomes = applyOutcomePatch(ruleCase.mutate, outcome) as KubernetesObject;
  return toDiffFormat({ ...matchingCase, mutate: ruleCase.mutate, becomes });
};

/** Sorts the keys of `value` in the order of the keys of `model`, so that a diff doesn't show a different order. */
const sortKeysLike = (model: unknown, value: unknown): unknown => {
  if (Array.isArray(value))
    return value.map((element, index) => sortKeysLike(Array.isArray(model) ? model[index] : undefined, element));
  if (!isMap(value)) return value;
  const order = isMap(model) ? model : {};
  const keys = [...new Set([...Object.keys(order).filter((key) => Object.hasOwn(value, key)), ...Object.keys(value)])];
  return Object.fromEntries(keys.map((key) => [key, sortKeysLike(order[key], value[key])]));
};

/** Returns a sentence for each field in which two objects differ. */
const describeObjectDifferences = (expected: object, actual: unknown): string[] => {
  if (isDeepStrictEqual(expected, actual)) return [];
  const places = jsonPatch.compare(expected, isObject(actual) ? actual : {}).map(({ path, ...found }) => {
    const wanted: unknown = found.op === "add" ? undefined : jsonPatch.getValueByPointer(expected, path);
    const present = "value" in found ? JSON.stringify(found.value) : "nothing";
    return `the object has ${present} at ${path}, not ${JSON.stringify(wanted) ?? "nothing"}`;
  });
  return places.length > 0 ? places : [`the object is ${JSON.stringify(actual)}, not ${JSON.stringify(expected)}`];
};
