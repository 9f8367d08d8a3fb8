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
import {
  type ConvertibleRequestObjects,
  describeUnknownConversion,
  type InvocationResourceAndKind,
  matchHookWithAuthorizer,
} from "./matching.ts";
import { countsEmptyPatchAsChange, isSameBesidesEmptyMembers, normalizePatchedObject } from "./server-objects.ts";
import type { HookTraceStep } from "./types.ts";

interface MutationResult {
  refusal?: Status;
  object: unknown;
  /** True if nothing changed the object after it got its defaults. */
  isFilled: boolean;
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
  let filled = view.latest.object;
  const getResult = () => ({ object: view.latest.object, isFilled: view.latest.object === filled });
  for (const round of [0, 1] as const) {
    if (round === 1 && !state.isChanged) break;
    for (const [index, hook] of hooks.entries()) {
      const matching = matchHookWithAuthorizer(hook, run.attributes, view, run.context);
      const match = matching instanceof Promise ? await matching : matching;
      // Like the API server, matches every hook in the second round. A hook that isn't called again may thus refuse.
      const isCalled = round === 0 || isInEachRound(hook) || state.reinvocations.has(hook.identity);
      if (!isCalled && !("refusal" in match)) continue;
      const step = createSkippedTraceStep(hook, round, index);
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
    const objects = view.as(run.attributes.kind);
    if (objects === undefined) {
      run.undecided.push(`it can't be said ${describeUnknownConversion(run.attributes, run.attributes.kind)}`);
      return getResult();
    }
    const isPatched = run.steps.some((step) => step.round === round && step.after !== undefined && !step.isPlugin);
    if (isPatched && isMap(objects.object)) {
      filled = await run.context.fill(objects.object, "request");
      view.put(filled);
    }
  }
  return getResult();
};

/** Compiled-in plugins that change objects are called in both rounds. */
const isInEachRound = ({ reinvocationPolicy }: DefaultedWebhookEntry) => reinvocationPolicy === "Always";

interface MutationState {
  reinvocations: ReinvocationTracker<string>;
  isChanged: boolean;
  /** True if the next patch counts as a change even if it changes nothing. */
  countsEmptyPatch: boolean;
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
  const objects = view.as(invocation.kind);
  if (objects === undefined) {
    markUndecided(run, step, describeUnknownConversion(run.attributes, invocation.kind));
    return undefined;
  }

  const { answer, refusal } = await callHook(run, hook, invocation, objects, step);
  const result = answer?.allowed
    ? await applyResponsePatch(run, hook, view, step, answer, state.countsEmptyPatch)
    : unchanged;
  const { isPlugin = false } = hook;
  if (!isPlugin && (step.outcome === "called" || refusal))
    run.audit.add(...buildMutationAnnotation(step, result.isChanged));
  if (!isPlugin && (result.isChanged || result.isApplied)) state.countsEmptyPatch = false;
  state.isChanged ||= result.isChanged && !isInEachRound(hook);
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
