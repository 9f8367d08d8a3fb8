import { applyJsonPatchAsApiServer, dropNumberTextsFromPatch, parsePatchOperations } from "#lib/core/json-patch.ts";
import { createReinvocationTracker, type ReinvocationTracker } from "#lib/core/reinvocation.ts";
import { getErrorMessage } from "#lib/failure.ts";
import { isMap, type JsonMap } from "#lib/json.ts";
import type { Status } from "#lib/review.ts";
import { mergeSince, type Since } from "#lib/since.ts";
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
import { type ConvertibleRequestObjects, describeUnknownConversion, matchHookWithAuthorizer } from "./matching.ts";
import { countsEmptyPatchAsChange, isSameBesidesEmptyMembers, normalizePatchedObject } from "./server-objects.ts";
import type { HookTraceStep } from "./types.ts";

interface MutationResult {
  refusal?: Status;
  object: unknown;
}

/**
 * Calls the hooks one after the other, each with the object that the previous hook left. If a webhook or a policy
 * changed the object, all plugins and the earlier webhooks and policies with reinvocationPolicy IfNeeded are called
 * once more. A change in this second round counts as a change for the webhooks after it.
 */
export const runMutatingWebhooks = async (
  run: AdmissionRun,
  hooks: readonly DefaultedWebhookEntry[],
  view: ConvertibleRequestObjects,
): Promise<MutationResult> => {
  const state: MutationState = {
    reinvocations: createReinvocationTracker(),
    isChanged: false,
    countsEmptyPatch: countsEmptyPatchAsChange(run.attributes),
  };
  for (const round of [0, 1] as const) {
    if (round === 1 && !state.isChanged) break;
    for (const [index, hook] of hooks.entries()) {
      const refusal = await runHook(run, hook, view, createSkippedTraceStep(hook, round, index), state);
      if (refusal) return { refusal, object: view.latest.object };
    }
    // The object is converted back: each round of mutating webhooks starts and ends in the request's version.
    const objects = view.as(run.attributes.kind);
    if (objects === undefined) {
      run.undecided.push(`it can't be said ${describeUnknownConversion(run.attributes, run.attributes.kind)}`);
      return { object: view.latest.object };
    }
    const isPatched = run.steps.some((step) => step.round === round && step.after !== undefined && !step.isPlugin);
    if (isPatched && isMap(objects.object)) view.put(await run.context.fill(objects.object, "request"));
  }
  return { object: view.latest.object };
};

interface MutationState {
  reinvocations: ReinvocationTracker<string>;
  isChanged: boolean;
  /** True if the next patch counts as a change even if it changes nothing. */
  countsEmptyPatch: boolean;
}

/** Calls a hook if it matches, and applies its patch. Returns the refusal of the request, if there is one. */
const runHook = async (
  run: AdmissionRun,
  hook: DefaultedWebhookEntry,
  view: ConvertibleRequestObjects,
  step: HookTraceStep,
  state: MutationState,
): Promise<Status | undefined> => {
  const match = await matchHookWithAuthorizer(hook, run.attributes, view, run.context);
  // Like the API server, matches every hook in the second round. A hook that isn't called again may thus refuse.
  const isRepeated = hook.reinvocationPolicy === "Always";
  if (!("refusal" in match) && step.round === 1 && !isRepeated && !state.reinvocations.has(hook.identity))
    return undefined;
  run.steps.push(step);
  if ("skipped" in match) {
    step.why = match.skipped;
    return undefined;
  }
  if ("unsupported" in match) {
    markUndecided(run, step, match.unsupported);
    return undefined;
  }
  if ("refusal" in match) return noteRefusalInTraceStep(step, match.refusal);
  const objects = view.as(match.invocation.kind);
  if (objects === undefined) {
    markUndecided(run, step, describeUnknownConversion(run.attributes, match.invocation.kind));
    return undefined;
  }

  const { answer, refusal } = await callHook(run, hook, match.invocation, objects, step);
  const result = answer?.allowed
    ? await applyResponsePatch(run, hook, view, step, answer, state.countsEmptyPatch)
    : unchanged;
  const { isPlugin = false } = hook;
  if (!isPlugin && (step.outcome === "called" || refusal))
    run.audit.add(...buildMutationAnnotation(step, result.isChanged));
  if (!isPlugin && (result.isChanged || result.isApplied)) state.countsEmptyPatch = false;
  state.isChanged ||= result.isChanged && !isRepeated;
  state.reinvocations.note(hook.identity, result.isChanged, hook.reinvocationPolicy === "IfNeeded");

  const finalRefusal = refusal ?? result.refusal;
  if (finalRefusal) return finalRefusal;
  if (answer && !answer.allowed) return noteRefusalInTraceStep(step, toRefusal(hook, answer.status));
  return step.ignored && performance.now() >= run.end ? noteRefusalInTraceStep(step, createTimeoutStatus()) : undefined;
};

/** Reads a changed object as a new one; returns why the API server can't. */
const readChanged = async (
  { context }: AdmissionRun,
  changed: unknown,
): Promise<{ object: unknown } | { misfit: string }> => {
  try {
    return { object: await context.fill(changed, "patch") };
  } catch (error) {
    return { misfit: getErrorMessage(error) };
  }
};

interface PatchResult {
  isChanged: boolean;
  isApplied?: boolean;
  refusal?: Status | undefined;
}

const unchanged: PatchResult = { isChanged: false };

/** Whether a patch that can't be parsed is a failure of the hook; otherwise it ends the request. */
const undecodablePatch: Since<{ isFailure: boolean }> = { "1.0": { isFailure: false }, "1.34": { isFailure: true } };

/**
 * Applies the patch of a webhook's response. A patch that can't be applied always ends the request. With
 * `countsEmptyPatch`, a patch counts as a change even if it changes nothing.
 */
const applyResponsePatch = async (
  run: AdmissionRun,
  hook: DefaultedWebhookEntry,
  view: ConvertibleRequestObjects,
  step: HookTraceStep,
  { patch, patchType }: HookResponse,
  countsEmptyPatch: boolean,
): Promise<PatchResult> => {
  if (patch === undefined) return unchanged;
  const endRequest = (text: string): PatchResult => {
    return { isChanged: false, refusal: noteRefusalInTraceStep(step, createInternalError(text)) };
  };
  const failHook = (text: string): PatchResult => {
    return { isChanged: false, refusal: applyFailurePolicy(run, hook, step, text).refusal };
  };
  let operations: JsonMap[];
  try {
    operations = parsePatchOperations(patch);
  } catch (error) {
    const { isFailure } = mergeSince(undecodablePatch, run.context.kubernetes);
    const text = getErrorMessage(error);
    return isFailure ? failHook(`received undecodable patch in webhook response: ${text}`) : endRequest(text);
  }
  if (operations.length === 0) return unchanged;
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
      return unchanged;
    }
    const read = normalizePatchedObject(raw);
    // Compiled-in changes are made in memory; what a webhook or a policy makes of the object is read as a new one.
    const after = hook.reinvocationPolicy === "Always" ? { object: read } : await readChanged(run, read);
    if ("misfit" in after) {
      if (!hook.isPlugin) return endRequest(after.misfit);
      markUndecided(run, step, `what it makes of the object can't be read: ${after.misfit}`);
      return unchanged;
    }
    step.after = after.object;
    if (!hook.isPlugin) run.audit.add(...buildPatchAuditAnnotation(step, step.patch));
    view.put(step.after);
    const countsAsChange = (countsEmptyPatch && !hook.isPlugin) || !isSameBesidesEmptyMembers(before, read);
    return { isChanged: countsAsChange, isApplied: true };
  } catch (error) {
    return endRequest(getErrorMessage(error));
  }
};
