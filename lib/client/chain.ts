import { rejectWhenLate } from "../core/deadline.ts";
import type { EnforcementMode, RuleDecision } from "../core/evaluation.ts";
import { evaluateRule } from "../core/evaluation.ts";
import { applyPatch } from "../core/patch.ts";
import { callMutatorsInRounds } from "../core/reinvocation.ts";
import { type Failure, toFailure } from "../failure.ts";
import { toMap } from "../json.ts";
import type { Capabilities } from "../needs.ts";
import { isSelected, type LabelSelector } from "../objects/selection.ts";
import { matchesRequest } from "../request-match.ts";
import type { AdmissionRequest, KubernetesObject, Patch } from "../review.ts";
import type { Phase } from "../rule.ts";
import type { RuleAsWebhookEntry } from "./guard-entries.ts";
import { buildWebhookCallFailure, buildWebhookDenialStatus, type ErrorStatus } from "./responses.ts";

/** The decision of a rule about a request, or its failure. */
export interface GuardOutcome {
  rule: string;
  phase: Phase;
  mode: EnforcementMode;
  request: AdmissionRequest;
  /** The outcome in the rule's mode, and whether the rule refused, independently of the mode. */
  decision?: RuleDecision;
  failure?: Failure;
}

/** The rules of a guarded client, and how they are evaluated. */
export interface RuleChainContext {
  entries: readonly RuleAsWebhookEntry[];
  failurePolicy: "Fail" | "Ignore";
  kubernetes: string | undefined;
  now(): Date;
  capabilities(ruleTimeoutMilliseconds: number): Capabilities;
  report(outcome: GuardOutcome): void;
}

/** The result of all rules together: a refusal, or the object with all changes. */
export interface RuleChainResult {
  refusal?: ErrorStatus;
  object: KubernetesObject;
  isChanged: boolean;
  warnings: string[];
}

export const filterMatching = (entries: readonly RuleAsWebhookEntry[], phase: Phase, request: AdmissionRequest) =>
  entries.filter(({ match }) => match[phase]?.some((row) => matchesRequest(row, request)));

/**
 * Evaluates a request in the API server's order: the mutating rules one after another, then the validating rules in
 * parallel.
 */
export const evaluateRuleChain = async (
  request: AdmissionRequest,
  context: RuleChainContext,
): Promise<RuleChainResult> => {
  const mutated = await mutate(request, context);
  if (mutated.refusal) return mutated;
  const last = mutated.isChanged ? { ...request, object: mutated.object } : request;
  // A mutation doesn't change which entries match: `match` doesn't depend on the object.
  const results = await Promise.all(
    filterMatching(context.entries, "validate", request).map((entry) =>
      evaluateEntry(entry, "validate", last, context),
    ),
  );
  const warnings = [...mutated.warnings, ...results.flatMap(({ warnings }) => warnings)];
  const refusal = results.find(({ refusal }) => refusal)?.refusal;
  return { ...mutated, warnings, ...(refusal && { refusal }) };
};

/** Evaluates the mutating rules, and again those that a later change concerns, as an API server does. */
const mutate = async (request: AdmissionRequest, context: RuleChainContext): Promise<RuleChainResult> => {
  const entries = filterMatching(context.entries, "mutate", request);
  const warnings: string[] = [];
  let { object } = request;
  let refusal: ErrorStatus | undefined;
  const isReinvoked = ({ mode, rule }: RuleAsWebhookEntry) => mode === "enforce" && rule.reinvocationPolicy !== "Never";
  await callMutatorsInRounds(entries, isReinvoked, async (entry) => {
    const result = await evaluateEntry(entry, "mutate", { ...request, object }, context);
    for (const warning of result.warnings) warnings.push(warning);
    refusal = result.refusal;
    if (refusal) return undefined;
    object = applyPatch(object, result.patch);
    return result.patch.length > 0;
  });
  const isChanged = refusal === undefined && object !== request.object;
  // The cast is safe: rules edit the object, but can't replace it.
  return { object: object as KubernetesObject, isChanged, warnings, ...(refusal && { refusal }) };
};

interface EntryResult {
  patch: Patch;
  warnings: string[];
  refusal?: ErrorStatus;
}

/** Evaluates one rule, and returns its patch, its warnings and its refusal. */
const evaluateEntry = async (
  entry: RuleAsWebhookEntry,
  phase: Phase,
  request: AdmissionRequest,
  context: RuleChainContext,
): Promise<EntryResult> => {
  const { name, mode, rule, settings, variant, milliseconds } = entry;
  let decision: RuleDecision | undefined;
  let failure: Failure | undefined;
  try {
    if (!(await isSelectedBy(entry, request, context))) return { patch: [], warnings: [] };
    const evaluation = evaluateRule(rule, phase, request, {
      name,
      mode,
      settings,
      kubernetes: context.kubernetes,
      variant,
      now: context.now(),
      capabilities: rule.needs && context.capabilities(milliseconds),
    });
    decision = await (evaluation instanceof Promise ? rejectWhenLate(evaluation, milliseconds) : evaluation);
  } catch (thrown) {
    failure = toFailure(thrown);
  }
  context.report({ rule: name, phase, mode, request, ...(decision && { decision }), ...(failure && { failure }) });
  const fatal = mode === "enforce" && context.failurePolicy === "Fail" ? failure : undefined;
  const { status, patch = [], warnings = [] } = decision?.outcome ?? {};
  const refusal = fatal
    ? buildWebhookCallFailure(entry.webhook, fatal)
    : status && buildWebhookDenialStatus(entry.webhook, status);
  return { patch, warnings, ...(refusal && { refusal }) };
};

/** Reports whether the rule's selectors select a request. They are evaluated as by the API server. */
const isSelectedBy = async (
  { namespaceSelector, objectSelector, milliseconds }: RuleAsWebhookEntry,
  { object, oldObject, namespace, resource: { group, resource } }: AdmissionRequest,
  context: RuleChainContext,
): Promise<boolean> => {
  const hasLabels = (selector: LabelSelector, value: unknown) =>
    isSelected(selector, toMap(toMap(toMap(value).metadata).labels));
  if (objectSelector && ![object, oldObject].some((value) => value != null && hasLabels(objectSelector, value)))
    return false;
  if (namespaceSelector === undefined || namespace === undefined) return true;
  if (group === "" && resource === "namespaces") return hasLabels(namespaceSelector, object ?? oldObject);
  const found = await context.capabilities(milliseconds).get({ group: "", resource: "namespaces" }, namespace);
  return found !== undefined && hasLabels(namespaceSelector, found);
};
