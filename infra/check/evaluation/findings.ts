import { assignGeneratedMetadata } from "#infra/apiserver/admission/server-objects.ts";
import type { AdmissionAttributes, AdmissionTrace, HookTraceStep } from "#infra/apiserver/admission/types.ts";
import { isSendableWarningText } from "#infra/apiserver/admission/warnings.ts";
import { getOwn } from "#lib/json.ts";
import { isSelected } from "#lib/objects/selection.ts";
import { matchesRequest } from "#lib/request-match.ts";
import type { AdmissionRequest, KubernetesObject, Status } from "#lib/review.ts";
import type { FieldPath, Manifest } from "../../manifests/manifests.ts";
import { findPosition } from "../../manifests/positions.ts";
import { guessRefusedField, parseFieldPath } from "./field-paths.ts";
import type {
  CheckVerdict,
  Denial,
  EvaluatedRequestAndManifest,
  ObjectEvaluationEnvironment,
} from "./object-evaluation.ts";
import { isReview } from "./requests.ts";

/**
 * Collects what a check reports of an object: its verdict, and what rules, webhooks and API validation say of it.
 * `unknownLabels` says why the labels of its namespace are unknown.
 */
export const collectFindings = async (
  trace: AdmissionTrace,
  subject: EvaluatedRequestAndManifest,
  environment: ObjectEvaluationEnvironment,
  unknownLabels: string | undefined,
  unevaluated: readonly string[],
) => {
  const { steps } = trace;
  // The rules of a group share one hook: then the message of a denial tells which of them denied.
  const getName = ({ hook }: HookTraceStep, message?: string) => environment.getHookName(hook, message);
  const denials = await Promise.all(
    steps
      .filter(({ status }) => status !== undefined)
      .map(async (step) => {
        const denial = createDenial(step.status as Status, subject, (message) => getName(step, message));
        const suggestion = await environment.findSuggestion(
          denial.rule,
          step,
          subject.podOfWorkload?.templatePath ?? [],
        );
        return { ...denial, ...(suggestion !== undefined && { suggestion }) };
      }),
  );
  if (!trace.allowed && denials.length === 0 && trace.status)
    denials.push(
      ...(trace.status.details?.causes
        ? await listFaults(trace.status, trace, subject, environment)
        : [createDenial(trace.status, subject, () => "the API server")]),
    );
  const changes = steps.filter(isShownChange).map((step) => {
    return { rule: getChangerName(step, environment), patch: step.patch as object[] };
  });
  const undecided = [
    ...trace.undecided.map((sentence) => formatUndecided(sentence, environment)),
    ...steps.flatMap((step) => (step.failure && step.ignored ? [`${getName(step)}: ${step.failure}`] : [])),
    ...(unknownLabels === undefined ? [] : listUnknownLabels(subject.attributes, environment, unknownLabels)),
    ...unevaluated,
  ];
  const exempt = listExceptions(trace.audit, environment);
  const passing = steps
    .filter((step) => step.outcome === "called" && step.allowed && !step.isPlugin && !step.patch?.length)
    .map((step) => getName(step))
    // A rule with two endpoints passed only if neither refused or changed the object.
    .filter((name) => ![...changes, ...denials, ...exempt].some(({ rule }) => rule === name));
  const ifDecided: CheckVerdict = changes.length > 0 ? "changed" : "allowed";
  const ifAllowed: CheckVerdict = undecided.length > 0 ? "undecided" : ifDecided;
  const verdict: CheckVerdict = trace.allowed ? ifAllowed : "denied";
  return {
    verdict,
    denials,
    warnings: [
      ...trace.validationWarnings.map((text) => ({ rule: "API validation", text })),
      ...steps.filter(hasWarnings).flatMap((step) => listWarnings(getName(step), step)),
    ],
    changes,
    undecided: [...new Set(undecided)],
    passed: [...new Set(passing)],
    ...(exempt.length > 0 && { exempt }),
  };
};

/** Lists the rules, or members of groups, that an exception exempts the object from. */
const listExceptions = (audit: AdmissionTrace["audit"], { getHookName }: ObjectEvaluationEnvironment) =>
  Object.entries(audit).flatMap(([key, text]) => {
    const [, hook, member] = /^(.+\.postern\.dev)\/(?:(.+)\.)?exception$/.exec(key) ?? [];
    return hook === undefined ? [] : [{ rule: member ?? getHookName(hook), text }];
  });

/** Reports whether a step is a change that reports show: what compiled-in plugins change belongs to the object. */
export const isShownChange = ({ isPlugin, policy, patch, after }: HookTraceStep): boolean =>
  (!isPlugin || policy !== undefined) && after !== undefined && patch !== undefined && patch.length > 0;

/** Names what changes an object: a rule, a webhook, a plugin, or the policy that a plugin evaluates. */
const getChangerName = (
  { hook, policy }: HookTraceStep,
  { getHookName }: Pick<ObjectEvaluationEnvironment, "getHookName">,
): string => (policy === undefined ? getHookName(hook) : `${hook} ${policy}`);

const hasWarnings = ({ warnings }: HookTraceStep) => warnings.length > 0;

/** Returns a rule's warnings. In mode warn, they begin with the rule's name, which is removed: reports show it. */
const listWarnings = (rule: string, { warnings }: HookTraceStep) =>
  [...new Set(warnings)].filter(isSendableWarningText).map((text) => {
    return { rule, text: text.startsWith(`${rule} would `) ? text.slice(rule.length + 1) : text };
  });

/**
 * Replaces the hook and its configuration at the start of a sentence, such as `x.example.com (foreign): it timed out`,
 * with the hook's name for reports.
 */
const formatUndecided = (sentence: string, { getHookName }: ObjectEvaluationEnvironment): string => {
  const [, hook, rest] = /^([-A-Za-z0-9.]+) \([^)]*\): (.*)$/s.exec(sentence) ?? [];
  return hook === undefined ? sentence : `${getHookName(hook)}: ${rest}`;
};

/** Returns a sentence for each hook whose namespaceSelector needs labels that are unknown. */
const listUnknownLabels = (
  attributes: AdmissionAttributes,
  { chain, kinds, getHookName }: ObjectEvaluationEnvironment,
  reason: string,
): string[] =>
  [...chain.mutating, ...chain.validating].flatMap((hook) => {
    const { name, rules, matchPolicy, namespaceSelector, objectSelector } = hook;
    const { matchLabels = {}, matchExpressions = [] } = namespaceSelector;
    const keys = [...Object.keys(matchLabels), ...matchExpressions.map(({ key }) => key)];
    const unknown = keys.find((key) => key !== "kubernetes.io/metadata.name");
    if (unknown === undefined) return [];
    const others = matchPolicy === "Exact" ? [] : kinds.equivalents(attributes.resource);
    const requests = [attributes.resource, ...others].map(
      (resource) => ({ ...attributes, resource }) as AdmissionRequest,
    );
    if (!rules.some((rule) => requests.some((request) => matchesRequest(rule, request)))) return [];
    const objects = [attributes.object, attributes.oldObject] as (KubernetesObject | null)[];
    if (!objects.some((object) => isSelected(objectSelector, object?.metadata?.labels))) return [];
    return [`${getHookName(name)}: whether its namespace has the label ${unknown}; ${reason}`];
  });

/**
 * Creates the denial that reports show: removes the API server's text before a hook's message, and finds the line and
 * column in the manifest that the message is about.
 */
const createDenial = (
  status: Status,
  subject: EvaluatedRequestAndManifest,
  findRuleName: (message: string) => string,
): Denial => {
  const text = status.message.replace(/^admission webhook "[^"]*" denied the request: /, "");
  const rule = findRuleName(text);
  const message = text.startsWith(`${rule}: `) ? text.slice(rule.length + 2) : text;
  const { manifest } = subject;
  const at = getObjectPath(subject);
  const field = guessRefusedField(at.reduce<unknown>(getOwn, manifest.object), { ...status, message }, []);
  return placeDenial({ rule, message }, status, manifest, [...at, ...field]);
};

/** Returns a denial with the position of a field in its manifest. */
export const placeDenial = (
  denial: Pick<Denial, "rule" | "message">,
  { code, reason }: Pick<Status, "code" | "reason">,
  manifest: Manifest,
  field: FieldPath,
): Denial => {
  const { line, column } = findPosition(manifest, field);
  return { ...denial, code, ...(reason && { reason }), line, column };
};

/** Returns a denial for each fault that API validation finds. If a rule's change caused a fault, its denial says so. */
const listFaults = async (
  status: Status,
  { steps }: AdmissionTrace,
  subject: EvaluatedRequestAndManifest,
  environment: ObjectEvaluationEnvironment,
): Promise<Denial[]> => {
  const { attributes, manifest, sent } = subject;
  const { handlers } = environment;
  const changing = steps.filter(({ patch }) => patch && patch.length > 0);
  const changed = new Set(changing.map((step) => getChangerName(step, environment)));
  // The object is also validated without the rules' changes: faults that it has then are its own.
  const unchanged = changed.size > 0 ? { ...attributes, object: sent ?? attributes.object } : undefined;
  const answer = unchanged && (await handlers?.store(assignGeneratedMetadata(unchanged)));
  const ownCauses = answer?.status?.details?.causes ?? [];
  const at = getObjectPath(subject);
  const causes = status.details?.causes ?? [];
  const denials = causes.slice(0, mostFaults).map(({ field = "", message }) => {
    const isOwn = changed.size === 0 || ownCauses.some((cause) => cause.field === field && cause.message === message);
    const explanation = isOwn ? "" : `; ${[...changed].join(", ")} changed the object`;
    // After the first line, an API server prints what differs from the stored object.
    const denial = { rule: "API validation", message: `${field}: ${message?.split("\n", 1)[0]}${explanation}` };
    return placeDenial(denial, status, manifest, [...at, ...parseFieldPath(field)]);
  });
  // An API server lists the members of a map in random order.
  denials.sort(comparePlaces);
  const rest = causes.length - mostFaults;
  return rest > 0
    ? [...denials, placeDenial({ rule: "API validation", message: `… and ${rest} more faults` }, status, manifest, at)]
    : denials;
};

/** The most faults of an object in a report. */
const mostFaults = 100;

const comparePlaces = (left: Denial, right: Denial): number =>
  (left.line ?? 0) - (right.line ?? 0) ||
  (left.column ?? 0) - (right.column ?? 0) ||
  Number(left.message > right.message) - Number(left.message < right.message);

/** Returns the path in the manifest of the evaluated object or, for a Pod of a workload, of its template. */
const getObjectPath = ({ manifest, podOfWorkload }: EvaluatedRequestAndManifest): FieldPath => {
  const templatePath = podOfWorkload?.templatePath ?? [];
  if (!isReview(manifest)) return templatePath;
  const isDeletion = getOwn(getOwn(manifest.object, "request"), "object") == null;
  return ["request", isDeletion ? "oldObject" : "object", ...templatePath];
};
