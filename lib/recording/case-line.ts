import { evaluateRule, type RuleDecision } from "../core/evaluation.ts";
import { applyPatch } from "../core/patch.ts";
import { exactJson } from "../exact-json.ts";
import { freezeDeep } from "../json.ts";
import { getObjectName } from "../refusals.ts";
import type { AdmissionRequest, KubernetesObject, ReviewOutcome } from "../review.ts";
import { mergeWithDefaults } from "../settings.ts";
import { createFieldReadTracker, inactiveFieldReadTracker } from "./reads.ts";
import {
  convertRequestToCase,
  type RecordedEvaluation,
  type Recording,
  type RecordingOrigin,
  restoreRequest,
} from "./recording.ts";
import { createRedactor, type RedactValue, type UnredactedPath } from "./redaction.ts";
import { createAnswerRepeaterIfNeeded, repeatEvaluationToTrackReads } from "./traced-decision.ts";

/** The most bytes of one recording. */
const maxBytes = 1024 * 1024;

/**
 * Returns a review as one line of a file of recordings. The outcome comes from a second evaluation of the redacted
 * review in mode enforce: so it contains no free text, and a replay has the same outcome. Texts at the paths of `keep`,
 * in the object and the old object, are not redacted. Throws if the review can't be recorded.
 */
export const formatRecording = async (
  evaluation: RecordedEvaluation,
  origin: Omit<RecordingOrigin, "redacted">,
  keep: readonly UnredactedPath[] = [],
): Promise<string> => {
  const recording = await createRecording(evaluation, origin, keep);
  const line = `- ${exactJson.stringify(recording).replace(unsafe, escapeCharacter)}\n`;
  const bytes = Buffer.byteLength(line);
  if (bytes > maxBytes) throw new Error(`it has ${bytes} bytes, but a recording may have at most ${maxBytes}`);
  return line;
};

/** Characters that JSON doesn't escape, but that some parsers ignore or treat as line breaks. */
const unsafe = /[\u007f-\u009f\u2028\u2029\ufeff]/g;
const escapeCharacter = (character: string) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;

/** Evaluates a request twice more: to note which texts the rule reads, then without other free text. Returns a case. */
const createRecording = async (
  evaluation: RecordedEvaluation,
  origin: Omit<RecordingOrigin, "redacted">,
  keep: readonly UnredactedPath[],
): Promise<Recording> => {
  const { rule, phase, request, context, decision } = evaluation;
  const { variant, now, mode, kubernetes } = context;
  // Some rules copy their arguments in ways that proxies don't support. They are traced without proxies, so that no
  // text counts as read. Errors are dropped: they may contain free text. The repeater stores the answers of a cluster
  // or service for the evaluation below. If both ways fail, it has stored none: a rule that asks a question then fails
  // below, and this error has only redacted text.
  const traced = await repeatEvaluationToTrackReads(evaluation, createFieldReadTracker())
    .catch(() => repeatEvaluationToTrackReads(evaluation, inactiveFieldReadTracker))
    .catch(() => ({ reads: inactiveFieldReadTracker, repeater: createAnswerRepeaterIfNeeded(evaluation) }));
  const isSecret = [request.kind.kind, request.requestKind?.kind].includes("Secret");
  const redact = createRedactor({ reads: traced.reads, isSecret });

  const unredactedPaths = [phase, "oldObject"].flatMap((member) => keep.map((path) => [member, ...path]));
  const redacted = redact(convertRequestToCase(request, phase), unredactedPaths);
  const settings = selectChangedSettings(context.settings, rule.settings, redact);
  const input = {
    ...redacted,
    ...(variant !== undefined && { variant }),
    ...(Object.keys(settings).length > 0 && { settings }),
    ...(rule.since && kubernetes !== undefined && { kubernetes }),
    now: now.toISOString(),
  };
  const restoredRequest = restoreRequest(input);
  const redactedAnswers = traced.repeater?.openRedacted(redact);
  const secondDecision = await evaluateRule(rule, phase, restoredRequest, {
    ...context,
    mode: "enforce",
    settings: freezeDeep(mergeWithDefaults(rule.settings ?? {}, input.settings)),
    capabilities: redactedAnswers?.capabilities,
  });
  const isDecisionDifferent =
    secondDecision.refused !== decision.refused ||
    secondDecision.operations !== decision.operations || // the number of the patch's operations
    (mode === "enforce" && summarizeOutcome(secondDecision.outcome) !== summarizeOutcome(decision.outcome));
  // A script that reads placeholders may decide differently in a replay, even if its decision is the same here.
  const mayAffectDecision = isDecisionDifferent || redactedAnswers?.isCueRedacted() === true;
  return {
    name: buildCaseName(secondDecision, restoredRequest),
    ...input,
    ...(redactedAnswers && { needs: redactedAnswers.noted() }),
    // The cast is safe: `convertRequestToCase` always sets the member `redacted[phase]`.
    ...toCaseOutcome(secondDecision.outcome, redacted[phase] as KubernetesObject),
    recorded: { ...origin, ...(mayAffectDecision && { redacted: true }) },
  };
};

/** Returns the parts of an outcome without text of the object, to compare them with those of the redacted object. */
const summarizeOutcome = ({ status, warnings = [], audit = {} }: ReviewOutcome): string =>
  JSON.stringify([status?.code, status?.reason, warnings.length, Object.keys(audit).length]);

const selectChangedSettings = (settings: object, defaults: object = {}, redact: RedactValue): object => {
  const isDefault = (key: string, value: unknown) =>
    Object.hasOwn(defaults, key) && JSON.stringify(Reflect.get(defaults, key)) === JSON.stringify(value);
  const defaultKeys = Object.entries(settings).flatMap(([key, value]) => (isDefault(key, value) ? [key] : []));
  return Object.fromEntries(Object.entries(redact(settings)).filter(([key]) => !defaultKeys.includes(key)));
};

/** Converts an outcome to the members of a case that state it, such as `refused` or `becomes`. */
const toCaseOutcome = ({ status, patch = [], warnings = [], audit = {} }: ReviewOutcome, object: KubernetesObject) => {
  const { code, reason, message, details } = status ?? {};
  const refusal = {
    ...(code !== 403 && code !== undefined && { code }),
    ...(reason !== "Forbidden" && { reason: reason ?? null }),
    ...(details && { details }),
  };
  return {
    ...(message !== undefined && { refused: message, ...refusal }),
    ...(!status && patch.length > 0 && { becomes: applyPatch(object, patch) as KubernetesObject }),
    ...(!status && patch.length === 0 && { admitted: true as const }),
    ...(warnings.length > 0 && { warnings }),
    ...(Object.keys(audit).length > 0 && { audit }),
  };
};

const buildCaseName = ({ refused, operations }: RuleDecision, request: AdmissionRequest): string => {
  const { operation, kind, subResource, namespace } = request;
  const what = [kind.kind, subResource].filter(Boolean).join("/");
  const objectText = [what, [namespace, getObjectName(request)].filter(Boolean).join("/")].join(" ").slice(0, 300);
  if (refused) return `refuses to ${operation} ${objectText}`;
  return operations > 0 ? `changes ${objectText} on ${operation}` : `admits ${operation} of ${objectText}`;
};
