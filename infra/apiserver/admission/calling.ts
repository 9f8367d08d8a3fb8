import { randomUUID } from "node:crypto";
import { isMap, type JsonMap } from "#lib/json.ts";
import type { AdmissionRequest, Status } from "#lib/review.ts";
import { chooseReviewVersion, type HookResponse, parseHookResponse } from "./answer.ts";
import { type AuditAnnotations, buildFailedOpenAnnotation } from "./audit-annotations.ts";
import type { DefaultedWebhookEntry } from "./hooks.ts";
import { getHookUrl } from "./http.ts";
import type { InvocationResourceAndKind, RequestObjectsInVersion } from "./matching.ts";
import type {
  AdmissionAttributes,
  HookCallResult,
  HookTraceStep,
  ImitatedServerFunctions,
  ReviewToSend,
} from "./types.ts";

/** The state of one request's way through all hooks: its deadline, and the steps and warnings so far. */
export interface AdmissionRun {
  attributes: AdmissionAttributes;
  context: ImitatedServerFunctions;
  audit: AuditAnnotations;
  /** The deadline, on the clock of performance.now(). */
  end: number;
  steps: HookTraceStep[];
  warnings: string[];
  undecided: string[]; // sentences: which hook's answer, or other part of the result, isn't known, and why
}

/** Creates the trace entry of a hook; until the hook is called, its outcome is `skipped`. */
export const createSkippedTraceStep = (
  { phase, name, configuration, isPlugin, policy }: DefaultedWebhookEntry,
  { round, index }: Pick<HookTraceStep, "round" | "index">,
): HookTraceStep => {
  const step: HookTraceStep = { hook: name, configuration, phase, round, index, outcome: "skipped", warnings: [] };
  if (isPlugin) step.isPlugin = true;
  if (policy) step.policy = policy;
  return step;
};

export const markUndecided = (run: AdmissionRun, step: HookTraceStep, why: string): void => {
  Object.assign(step, { outcome: "can't say", why });
  run.undecided.push(`${step.hook} (${step.configuration}): ${why}`);
};

/** Calls a hook and completes its trace step. Returns `answer` if it is valid, `refusal` if it ends the request. */
export const callHook = async (
  run: AdmissionRun,
  hook: DefaultedWebhookEntry,
  { resource, kind }: InvocationResourceAndKind,
  { object, oldObject }: RequestObjectsInVersion,
  step: HookTraceStep,
): Promise<{ answer?: HookResponse; refusal?: Status }> => {
  const { attributes } = run;
  if (attributes.dryRun === true && hook.sideEffects === undefined)
    return applyFailurePolicy(run, hook, step, "Webhook SideEffects is nil");
  if (attributes.dryRun === true && !/^None(OnDryRun)?$/.test(String(hook.sideEffects))) {
    step.why = "it may have side effects, and this is a dry run";
    const message = `admission webhook "${hook.name}" does not support dry run`;
    return { refusal: noteRefusalInTraceStep(step, { code: 400, reason: "BadRequest", message }) };
  }
  const version = chooseReviewVersion(hook.admissionReviewVersions);
  if (version === undefined)
    return applyFailurePolicy(
      run,
      hook,
      step,
      "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)",
    );

  const { subResource, name, namespace, operation, userInfo, dryRun = false, options = null } = attributes;
  const uid = randomUUID();
  const request: AdmissionRequest = {
    uid,
    kind,
    resource,
    requestKind: attributes.kind,
    requestResource: attributes.resource,
    ...(subResource && { subResource, requestSubResource: subResource }),
    ...(name && { name }),
    ...(namespace && { namespace }),
    operation,
    userInfo,
    object,
    oldObject,
    dryRun,
    options,
  };
  Object.assign(step, { outcome: "called", request });
  const result = await callWithTimeout(run, hook, {
    kind: "AdmissionReview",
    apiVersion: `admission.k8s.io/${version}`,
    request,
  });
  if ("unsupported" in result) {
    markUndecided(run, step, result.unsupported);
    return {};
  }
  if ("failure" in result) return applyFailurePolicy(run, hook, step, `failed to call webhook: ${result.failure}`);

  const answer = parseHookResponse(hook.phase, version, uid, result.body);
  if ("fault" in answer) return applyFailurePolicy(run, hook, step, answer.fault);
  // A key begins with the webhook's or the policy's name. A hook for a policy has `isPlugin`, too, because a plugin
  // evaluates it; annotations of all other plugins are left out. All policies add their failures to one annotation.
  const keyPrefix = hook.isPlugin ? hook.policy : hook.name;
  for (const [key, value] of Object.entries(answer.audit))
    if (hook.policy && key === "validation_failure") run.audit.addFailures(value);
    else if (keyPrefix) run.audit.add(`${keyPrefix}/${key}`, value);
  for (const warning of answer.warnings) run.warnings.push(warning);
  Object.assign(step, { allowed: answer.allowed, warnings: answer.warnings });
  return { answer };
};

/** Applies failurePolicy to a call without a valid response: refuses the request or ignores the hook. */
export const applyFailurePolicy = (
  run: AdmissionRun,
  hook: DefaultedWebhookEntry,
  step: HookTraceStep,
  text: string,
): { refusal?: Status } => {
  step.outcome = "called";
  step.failure = `failed calling webhook "${hook.name}": ${text}`;
  if (hook.failurePolicy === "Fail")
    return { refusal: noteRefusalInTraceStep(step, createInternalError(step.failure)) };
  step.ignored = true;
  run.audit.add(...buildFailedOpenAnnotation(step));
  return {};
};

export const noteRefusalInTraceStep = (step: HookTraceStep, status: Status): Status => {
  Object.assign(step, { allowed: false, status });
  return status;
};

/**
 * Calls a webhook, with its own timeout or the rest of the request's time. A plugin has no timeout, as in an API
 * server; in a check, a rule stands for the plugin, and `context.call` limits the rule's time.
 */
const callWithTimeout = async (
  { context, end }: AdmissionRun,
  hook: DefaultedWebhookEntry,
  review: ReviewToSend,
): Promise<HookCallResult> => {
  if (hook.isPlugin) return context.call(hook, review);
  const milliseconds = Math.max(0, Math.min(hook.timeoutSeconds * 1000, end - performance.now()));
  const { promise, resolve } = Promise.withResolvers<HookCallResult>();
  const timer = setTimeout(() => {
    const seconds = Math.ceil(milliseconds / 1000);
    const url = `${getHookUrl(hook.clientConfig)}?timeout=${seconds}s`;
    resolve({ failure: `Post "${url}": context deadline exceeded` });
  }, milliseconds);
  try {
    return await Promise.race([context.call(hook, review), promise]);
  } finally {
    clearTimeout(timer);
  }
};

/** The API server's answer to an error that is no refusal. */
export const createInternalError = (text: string): Status => ({
  code: 500,
  reason: "InternalError",
  message: `Internal error occurred: ${text}`,
  details: { causes: [{ message: text }] },
});

/** The API server's answer if webhooks take longer than the request may. */
export const createTimeoutStatus = (): Status => ({
  code: 504,
  reason: "Timeout",
  message: "Timeout: request did not complete within requested timeout",
  details: {},
});

/** Returns the status that the client gets for a hook's refusal; a code below 400 becomes 400. */
export const toRefusal = ({ name, isPlugin }: DefaultedWebhookEntry, answered: JsonMap = {}): Status => {
  const { code, message, reason, details } = answered;
  const deniedBy = `admission webhook "${name}" denied the request`;
  const text = [message, reason].find((candidate) => typeof candidate === "string" && candidate !== "");
  const explained = isPlugin ? String(text) : `${deniedBy}: ${text}`;
  return {
    code: typeof code === "number" && code >= 400 ? code : 400,
    ...(typeof reason === "string" && reason !== "" && { reason }),
    message: text === undefined ? `${deniedBy} without explanation` : explained,
    ...(isMap(details) && { details: parseDetails(details) }),
  };
};

/** Returns the details of a webhook's status without members that are empty or have a wrong type. */
const parseDetails = ({ name, group, kind, uid, causes, retryAfterSeconds }: JsonMap): Status["details"] & object => {
  const keepStrings = (members: object) =>
    Object.fromEntries(Object.entries(members).filter(([, value]) => typeof value === "string" && value !== ""));
  const causeMaps = Array.isArray(causes) ? causes.filter(isMap) : [];
  return {
    ...keepStrings({ name, group, kind, uid }),
    ...(causeMaps.length > 0 && {
      causes: causeMaps.map(({ reason, message, field }) => keepStrings({ reason, message, field })),
    }),
    ...(typeof retryAfterSeconds === "number" && retryAfterSeconds !== 0 && { retryAfterSeconds }),
  };
};
