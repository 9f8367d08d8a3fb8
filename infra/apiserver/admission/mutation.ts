import { applyJsonPatchAsApiServer, dropNumberTextsFromPatch, parsePatchOperations } from "#lib/core/json-patch.ts";
import { createReinvocationTracker, type ReinvocationTracker } from "#lib/core/reinvocation.ts";
import { getErrorMessage } from "#lib/failure.ts";
import { isMap, type JsonMap } from "#lib/json.ts";
import type { Status } from "#lib/review.ts";
import { mergeSince, type Since } from "#lib/since.ts";
import { convertFromInternal } from "../defaults/defaults.ts";
import type { HookResponse } from "./answer.ts";
import { buildMutationAnnotation, buildPatchAuditAnnotation } from "./audit-annotations.ts";
import {
  type AdmissionRun,
  applyFailurePolicy,
  callHook,
  createInternalError,
  createSkippedTraceStep,
  createTimeoutStatus,
  markUndecided,
  noteRefusalInTraceStep,
  toRefusal,
} from "./calling.ts";
import type { DefaultedWebhookEntry } from "./hooks.ts";
import {
  type ConvertibleRequestObjects,
  describeUnknownConversion,
  type InvocationResourceAndKind,
  matchHookWithAuthorizer,
} from "./matching.ts";
import { hasNanosecondsInManagedFields, isSameBesidesEmptyMembers, normalizePatchedObject } from "./server-objects.ts";
import type { HookTraceStep } from "./types.ts";

interface MutationResult {
  refusal?: Status;
  object: unknown;
  /** True if nothing changed the object after its defaults were set, so that they needn't be set again. */
  hasAllDefaults: boolean;
}

/**
 * Calls the hooks one after the other, each with the object that the previous hook left. If a webhook or a policy
 * changed the object, all built-in plugins and the earlier webhooks and policies with reinvocationPolicy IfNeeded are
 * called once more. If a hook changes the object in this second round, those after it with IfNeeded are called again.
 */
export const runMutatingWebhooks = async (
  run: AdmissionRun,
  hooks: readonly DefaultedWebhookEntry[],
  view: ConvertibleRequestObjects,
): Promise<MutationResult> => {
  const state: MutationState = {
    reinvocations: createReinvocationTracker(),
    needsSecondRound: false,
    isPatchedByWebhook: false,
  };
  // The object has all its defaults as long as it is this one: a hook that changes it replaces it.
  let objectWithDefaults = view.latest.object;
  const getResult = () => ({ object: view.latest.object, hasAllDefaults: view.latest.object === objectWithDefaults });
  for (const round of [0, 1] as const) {
    if (round === 1 && !state.needsSecondRound) break;
    for (const [index, hook] of hooks.entries()) {
      const matching = matchHookWithAuthorizer(hook, run.attributes, view, run.context);
      const match = matching instanceof Promise ? await matching : matching;
      // Like the API server, matches every hook in the second round. A hook that isn't called again may thus refuse.
      const isCalled = round === 0 || isBuiltInPlugin(hook) || state.reinvocations.has(hook.identity);
      if (!isCalled && !("refusal" in match)) continue;
      const step = createSkippedTraceStep(hook, { round, index });
      run.steps.push(step);
      if ("skipped" in match) step.why = match.skipped;
      else if ("unsupported" in match) markUndecided(run, step, match.unsupported);
      else {
        const refusal =
          "refusal" in match
            ? noteRefusalInTraceStep(step, match.refusal)
            : await runHook(run, hook, match.invocation, view, step, state);
        if (refusal) return { refusal, ...getResult() };
      }
    }
    // The object is converted back: each round of mutating webhooks starts and ends in the request's version.
    const objects = view.convertTo(run.attributes.kind);
    if (objects === undefined) {
      run.undecided.push(`it can't be said ${describeUnknownConversion(run.attributes, run.attributes.kind)}`);
      return getResult();
    }
    // The API server converts an object that webhooks patched to its internal version, which sets defaults, too.
    // Plugins change that version itself.
    const isPatched = run.steps.some((step) => step.round === round && step.after !== undefined && !step.isPlugin);
    if (isPatched && isMap(objects.object)) {
      objectWithDefaults = await run.context.addDefaults(objects.object, "request");
      view.replaceObject(objectWithDefaults);
    }
  }
  return getResult();
};

const isWebhook = ({ isPlugin }: DefaultedWebhookEntry) => !isPlugin;
/** Reports whether a hook is a compiled-in plugin, not a webhook or policy. Such plugins are called in both rounds. */
const isBuiltInPlugin = ({ reinvocationPolicy }: DefaultedWebhookEntry) => reinvocationPolicy === "Always";

interface MutationState {
  reinvocations: ReinvocationTracker<string>;
  /** True if a webhook or a policy changed the object. */
  needsSecondRound: boolean;
  /** True if a patch of a webhook was applied, even one that changes nothing. */
  isPatchedByWebhook: boolean;
}

/** Calls a hook that matches, and applies its patch. Returns the refusal of the request, if there is one. */
const runHook = async (
  run: AdmissionRun,
  hook: DefaultedWebhookEntry,
  invocation: InvocationResourceAndKind,
  view: ConvertibleRequestObjects,
  step: HookTraceStep,
  state: MutationState,
): Promise<Status | undefined> => {
  const objects = view.convertTo(invocation.kind);
  if (objects === undefined) {
    markUndecided(run, step, describeUnknownConversion(run.attributes, invocation.kind));
    return undefined;
  }

  const { answer, refusal } = await callHook(run, hook, invocation, objects, step);
  const result = answer?.allowed ? await applyResponsePatch(run, hook, view, step, answer, state) : notApplied;
  if (isWebhook(hook) && (step.outcome === "called" || refusal))
    run.audit.add(...buildMutationAnnotation(step, result.isChanged));
  state.isPatchedByWebhook ||= isWebhook(hook) && result.isApplied;
  // Only changes by webhooks and policies cause a second round, in which all built-in plugins are called again, too.
  state.needsSecondRound ||= result.isChanged && !isBuiltInPlugin(hook);
  state.reinvocations.note(hook.identity, result.isChanged, hook.reinvocationPolicy === "IfNeeded");

  const finalRefusal = refusal ?? result.refusal;
  if (finalRefusal) return finalRefusal;
  if (answer && !answer.allowed) return noteRefusalInTraceStep(step, toRefusal(hook, answer.status));
  return step.ignored && performance.now() >= run.end ? noteRefusalInTraceStep(step, createTimeoutStatus()) : undefined;
};

/** Decodes a patched object and sets its defaults, as the API server does; returns an error if it can't be decoded. */
const decodePatchedObject = async (
  { context }: AdmissionRun,
  patched: unknown,
): Promise<{ object: unknown } | { decodingError: string }> => {
  try {
    return { object: await context.addDefaults(patched, "patch") };
  } catch (error) {
    return { decodingError: getErrorMessage(error) };
  }
};

interface PatchResult {
  /** True if a patch was applied, even one that changes nothing. */
  isApplied: boolean;
  /** True if the API server finds that the object changed, so that it calls earlier webhooks again. */
  isChanged: boolean;
  refusal?: Status | undefined;
}

const notApplied: PatchResult = { isApplied: false, isChanged: false };

/** By Kubernetes version, whether a patch that can't be parsed is the hook's failure; otherwise it ends the request. */
const patchFaultSince: Since<{ failsHook: boolean }> = { "1.0": { failsHook: false }, "1.34": { failsHook: true } };

/**
 * Applies the JSON patch in the response of a webhook, plugin or policy. If a parsed patch fails to apply, the request
 * is refused, whatever the failure policy says.
 */
const applyResponsePatch = async (
  run: AdmissionRun,
  hook: DefaultedWebhookEntry,
  view: ConvertibleRequestObjects,
  step: HookTraceStep,
  { patch, patchType }: HookResponse,
  { isPatchedByWebhook }: MutationState,
): Promise<PatchResult> => {
  if (patch === undefined) return notApplied;
  const endRequest = (text: string): PatchResult => {
    return { ...notApplied, refusal: noteRefusalInTraceStep(step, createInternalError(text)) };
  };
  const failHook = (text: string): PatchResult => {
    return { ...notApplied, refusal: applyFailurePolicy(run, hook, step, text).refusal };
  };
  let operations: JsonMap[];
  try {
    operations = parsePatchOperations(patch);
  } catch (error) {
    // From Kubernetes 1.34 on, the failure policy of the hook applies to such a patch. Before, it ends the request.
    const { failsHook } = mergeSince(patchFaultSince, run.context.kubernetes);
    const text = getErrorMessage(error);
    return failsHook ? failHook(`received undecodable patch in webhook response: ${text}`) : endRequest(text);
  }
  if (operations.length === 0) return notApplied;
  const { object: before } = view.latest;
  if (!isMap(before))
    return endRequest(
      `admission webhook "${hook.name}" attempted to modify the object, which is not supported for this operation`,
    );
  if (patchType !== "JSONPatch") return failHook(`unsupported patch type ${JSON.stringify(patchType)}`);

  try {
    const raw = applyJsonPatchAsApiServer(before, operations);
    const isOther = !isMap(raw) || raw.apiVersion !== before.apiVersion || raw.kind !== before.kind;
    step.patch = dropNumberTextsFromPatch(operations);
    step.before = before;
    if (isOther) {
      markUndecided(run, step, "its patch makes the object another kind");
      return notApplied;
    }
    const read = normalizePatchedObject(raw);
    // A plugin changes the object in memory. What a webhook or a policy makes of it is JSON, to be decoded.
    const after = isBuiltInPlugin(hook)
      ? { object: convertFromInternal(read, run.context.kubernetes) }
      : await decodePatchedObject(run, read);
    if ("decodingError" in after) {
      if (isWebhook(hook)) return endRequest(after.decodingError);
      markUndecided(run, step, `what it makes of the object can't be read: ${after.decodingError}`);
      return notApplied;
    }
    step.after = after.object;
    if (isWebhook(hook)) run.audit.add(...buildPatchAuditAnnotation(step, step.patch));
    view.replaceObject(step.after);
    // The API server applies the patch to JSON, in which times have whole seconds. So the first patch of a webhook
    // changes an object to whose managedFields the request adds a time, whatever the patch is.
    const losesNanoseconds = isWebhook(hook) && !isPatchedByWebhook && hasNanosecondsInManagedFields(run.attributes);
    return { isApplied: true, isChanged: losesNanoseconds || !isSameBesidesEmptyMembers(before, read) };
  } catch (error) {
    return endRequest(getErrorMessage(error));
  }
};
