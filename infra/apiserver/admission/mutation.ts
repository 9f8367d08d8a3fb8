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
 * changed the object, all plugins and the earlier webhooks and policies with reinvocationPolicy IfNeeded are called once
 * more. A change in this second
 * round counts as a change for the webhooks after it.
 */
export const runMutatingWebhooks = async (
  run: AdmissionRun,
  hooks: readonly DefaultedWebhookEntry[],
  view: ConvertibleRequestObjects,
): Promise<MutationResult> => {
  const rounds: MutationState = {
    again: createReinvocationTracker(),
    isChanged: false,
    isStamped: countsEmptyPatchAsChange(run.attributes),
  };
  for (const round of [0, 1] as const) {
    if (round === 1 && !rounds.isChanged) break;
    for (const [index, hook] of hooks.entries()) {
      const refusal = await runHook(run, hook, view, createSkippedTraceStep(hook, round, index), rounds);
      if (refusal) return { refusal, object: view.latest.object };
    }
    // The object is converted back: each round of mutating webhooks starts and ends in the request's version.
    const back = view.as(run.attributes.kind);
    if (back === undefined) {
      run.undecided.push(`it can't be said ${describeUnknownConversion(run.attributes, run.attributes.kind)}`);
      return { object: view.latest.object };
    }
    const isPatched = run.steps.some((step) => step.round === round && step.after !== undefined && !step.isPlugin);
    if (isPatched && isMap(back.object)) view.put(await run.context.fill(back.object, "request"));
  }
  return { object: view.latest.object };
};

interface MutationState {
  again: ReinvocationTracker<string>;
  isChanged: boolean;
  /** True if the next patch counts as a change even if it changes nothing: see `countsEmptyPatchAsChange`. */
  isStamped: boolean;
}

const runHook = async (
  run: AdmissionRun,
  hook: DefaultedWebhookEntry,
  view: ConvertibleRequestObjects,
  step: HookTraceStep,
  rounds: MutationState,
): Promise<Status | undefined> => {
  const taken = await matchHookWithAuthorizer(hook, run.attributes, view, run.context);
  // Like the API server, matches every hook in the second round. That can refuse the request for a hook that isn't
  // called again.
  const isRepeated = hook.reinvocationPolicy === "Always";
  if (!("refusal" in taken) && step.round === 1 && !isRepeated && !rounds.again.has(hook.identity)) return undefined;
  run.steps.push(step);
  if ("skipped" in taken) {
    step.why = taken.skipped;
    return undefined;
  }
  if ("unsupported" in taken) {
    markUndecided(run, step, taken.unsupported);
    return undefined;
  }
  if ("refusal" in taken) return noteRefusalInTraceStep(step, taken.refusal);
  const seen = view.as(taken.invocation.kind);
  if (seen === undefined) {
    markUndecided(run, step, describeUnknownConversion(run.attributes, taken.invocation.kind));
    return undefined;
  }

  const { answer, refusal } = await callHook(run, hook, taken.invocation, seen, step);
  const changed = answer?.allowed
    ? await applyResponsePatch(run, hook, view, step, answer, rounds.isStamped)
    : unchanged;
  const { isPlugin = false } = hook;
  if (!isPlugin && (step.outcome === "called" || refusal))
    run.audit.add(...buildMutationAnnotation(step, changed.isChanged));
  if (!isPlugin && (changed.isChanged || changed.isApplied)) rounds.isStamped = false;
  rounds.isChanged ||= changed.isChanged && !isRepeated;
  rounds.again.note(hook.identity, changed.isChanged, hook.reinvocationPolicy === "IfNeeded");

  const end = refusal ?? changed.refusal;
  if (end) return end;
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
 * Applies the patch of a webhook's response. A patch that can't be applied always ends the request. With `isStamped`, a patch
 * counts as a change even if it changes nothing: see `countsEmptyPatchAsChange`.
 */
const applyResponsePatch = async (
  run: AdmissionRun,
  hook: DefaultedWebhookEntry,
  view: ConvertibleRequestObjects,
  step: HookTraceStep,
  { patch, patchType }: HookResponse,
  isStamped: boolean,
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
    return { isChanged: (isStamped && !hook.isPlugin) || !isSameBesidesEmptyMembers(before, read), isApplied: true };
  } catch (error) {
    return endRequest(getErrorMessage(error));
  }
};
