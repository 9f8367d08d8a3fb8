import type { Status } from "#lib/review.ts";
import { createAuditAnnotations } from "./audit-annotations.ts";
import {
  type AdmissionRun,
  callHook,
  createSkippedTraceStep,
  markUndecided,
  noteRefusalInTraceStep,
  toRefusal,
} from "./calling.ts";
import { isExempt } from "./exempt.ts";
import type { DefaultedWebhookEntry } from "./hooks.ts";
import {
  createConvertibleRequestObjects,
  describeUnknownConversion,
  type InvocationResourceAndKind,
  matchHookWithAuthorizer,
  type RequestObjectsInVersion,
} from "./matching.ts";
import { runMutatingWebhooks } from "./mutation.ts";
import { assignGeneratedMetadata, restoreEmptyMembers, restoreUnwrittenFields } from "./server-objects.ts";
import type {
  AdmissionAttributes,
  AdmissionTrace,
  HookTraceStep,
  ImitatedServerFunctions,
  StoreResult,
} from "./types.ts";
import { limitWarnings } from "./warnings.ts";

/** The API server's time limit for one write request (requestTimeoutUpperBound), in milliseconds. */
const mostTime = 34_000;

/** Sends a request through hooks in their order, in which compiled-in plugins stand before and after webhooks. */
export const runAdmissionChain = async (
  attributes: AdmissionAttributes,
  hooks: { mutating: readonly DefaultedWebhookEntry[]; validating: readonly DefaultedWebhookEntry[] },
  context: ImitatedServerFunctions,
): Promise<AdmissionTrace> => {
  const isGone = attributes.operation === "DELETE" || attributes.object == null;
  const { objectBeforeDefaults } = context;
  const hasDefaults = isGone || objectBeforeDefaults !== undefined;
  const withDefaults = hasDefaults ? attributes.object : await context.addDefaults(attributes.object, "request");
  const filled = { ...attributes, object: isGone ? null : withDefaults, oldObject: attributes.oldObject ?? null };
  const run: AdmissionRun = {
    attributes: filled,
    context,
    audit: createAuditAnnotations(),
    end: performance.now() + mostTime,
    steps: [],
    warnings: [],
    undecided: [],
  };
  const isExcluded = isExempt(filled.resource, context.kubernetes);
  const select = (all: readonly DefaultedWebhookEntry[]) => (isExcluded ? all.filter(({ isPlugin }) => isPlugin) : all);
  const mutated = await runMutatingWebhooks(
    run,
    select(hooks.mutating),
    createConvertibleRequestObjects(filled, context.convert),
  );
  let result: StoreResult | undefined;
  const buildTrace = async (last: unknown, refusals: Status[]): Promise<AdmissionTrace> => {
    const [status] = refusals;
    // An object that plugins changed gets its defaults when it is read from the storage, unless it got them before.
    const hasAllDefaults =
      isGone || mutated.hasAllDefaults || !run.steps.some(({ isPlugin, after }) => isPlugin && after !== undefined);
    return {
      allowed: status === undefined,
      ...(status && { status }),
      refusals,
      object: hasAllDefaults ? last : await context.addDefaults(last, "request"),
      ...(result?.object !== undefined && { stored: result.object }),
      validationWarnings: result?.warnings ?? [],
      warnings: limitWarnings(run.warnings),
      audit: run.audit.all,
      steps: run.steps,
      undecided: run.undecided,
    };
  };
  if (mutated.refusal) return buildTrace(mutated.object, [mutated.refusal]);
  const object = context.prepare(restoreUnwrittenFields(filled, mutated.object));
  // Kubernetes' types leave out empty lists and maps, which validation may refuse. The object in memory still has them,
  // until it is written for a webhook or a policy that changes it.
  const changes = run.steps.filter(({ after }) => after !== undefined);
  const isWritten = changes.some(({ isPlugin, policy }) => !isPlugin || policy);
  const keepEmptyMembers = () => {
    const sent = objectBeforeDefaults ?? attributes.object;
    if (changes.length === 0) return sent;
    return isWritten ? mutated.object : restoreEmptyMembers(mutated.object, sent);
  };
  const toStore =
    isGone || context.store === undefined ? filled : assignGeneratedMetadata({ ...filled, object: keepEmptyMembers() });
  if (!isGone) result = await context.store?.(toStore);
  if (result?.undecided !== undefined) run.undecided.push(`API validation: ${result.undecided}`);
  if (result?.status) return buildTrace(object, [result.status]);
  const last =
    result?.object === undefined
      ? assignGeneratedMetadata({ ...filled, object })
      : { ...toStore, object: result.object };
  const validation = { ...run, attributes: last };
  for (const group of groupValidating(select(hooks.validating))) {
    const refusals = await validate(validation, group);
    if (refusals.length > 0) return buildTrace(object, refusals);
  }
  return buildTrace(object, []);
};

/** Groups hooks that are called at the same time: webhooks that follow each other, or the entries of one plugin. */
const groupValidating = (hooks: readonly DefaultedWebhookEntry[]): DefaultedWebhookEntry[][] => {
  const groups: DefaultedWebhookEntry[][] = [];
  for (const hook of hooks) {
    const last = groups.at(-1);
    const isAlike = hook.isPlugin ? last?.[0]?.name === hook.name : !last?.[0]?.isPlugin;
    if (last && isAlike) last.push(hook);
    else groups.push([hook]);
  }
  return groups;
};

/** Calls matching validating webhooks in parallel and returns all refusals. Before the first call, all are matched. */
const validate = async (run: AdmissionRun, hooks: readonly DefaultedWebhookEntry[]): Promise<Status[]> => {
  const calls: {
    hook: DefaultedWebhookEntry;
    invocation: InvocationResourceAndKind;
    objects: RequestObjectsInVersion;
    step: HookTraceStep;
  }[] = [];
  const createView = () => createConvertibleRequestObjects(run.attributes, run.context.convert);
  let view = createView();
  for (const hook of hooks) {
    // Until it is called, a hook counts as skipped. `round` is 0: only mutating hooks can be called a second time.
    const step = createSkippedTraceStep(hook, { round: 0, index: calls.length });
    run.steps.push(step);
    // Selectors and conditions see the object in the request's version, not in the version that another hook asked for.
    if (view.latest.kind !== run.attributes.kind) view = createView();
    const matching = matchHookWithAuthorizer(hook, run.attributes, view, run.context);
    const match = matching instanceof Promise ? await matching : matching;
    if ("skipped" in match) step.why = match.skipped;
    else if ("unsupported" in match) markUndecided(run, step, match.unsupported);
    else if ("refusal" in match) {
      for (const call of calls) call.step.why = "the request was refused before anyone was called";
      return [noteRefusalInTraceStep(step, match.refusal)];
    } else {
      const { invocation } = match;
      const objects = view.convertTo(invocation.kind);
      if (objects) calls.push({ hook, invocation, objects, step });
      else markUndecided(run, step, describeUnknownConversion(run.attributes, invocation.kind));
    }
  }

  const refusals = await Promise.all(
    calls.map(async ({ hook, invocation, objects, step }) => {
      const { answer, refusal } = await callHook(run, hook, invocation, objects, step);
      if (answer?.allowed === false) return noteRefusalInTraceStep(step, toRefusal(hook, answer.status));
      return refusal;
    }),
  );
  return refusals.filter((refusal) => refusal !== undefined);
};
