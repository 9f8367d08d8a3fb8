import { randomUUID } from "node:crypto";
import type { Request, Status } from "#lib/review.ts";
import { type Answer, answerIn, versionFor } from "./answer.ts";
import type { Audit } from "./audit.ts";
import { openNote } from "./audit.ts";
import type { Hook } from "./hooks.ts";
import { addressOf } from "./http.ts";
import type { Invocation } from "./matching.ts";
import { callFailure, dryRunUnsupported } from "./refusals.ts";
import type { Around, Attributes, Called, Cel, Sent, Step } from "./trace.ts";
import type { Versioned } from "./view.ts";

/** One request on its way. */
export interface Run {
  attributes: Attributes;
  around: Around;
  cel: Cel;
  audit: Audit;
  /** When there is no time left. */
  end: number;
  steps: Step[];
  warnings: string[];
  undecided: string[];
}

/** A step before anything is done. */
export const stepFor = ({ phase, name, configuration }: Hook, round: 0 | 1, index: number): Step => {
  return { hook: name, configuration, phase, round, index, outcome: "skipped", warnings: [] };
};

/** What is said where something can't be: whose turn it was, and what is not known. */
export const giveUp = (run: Run, step: Step, why: string): void => {
  Object.assign(step, { outcome: "can't say", why });
  run.undecided.push(`${step.hook} (${step.configuration}): ${why}`);
};

/** Calls a hook and notes in its step what came of it; an answer if there is a valid one, a refusal if that is the end. */
export const ask = async (
  run: Run,
  hook: Hook,
  { resource, kind }: Invocation,
  { object, oldObject }: Versioned,
  step: Step,
): Promise<{ answer?: Answer; refusal?: Status }> => {
  const { attributes, around } = run;
  if (attributes.dryRun === true && hook.sideEffects === undefined)
    return fail(run, hook, step, "Webhook SideEffects is nil");
  if (attributes.dryRun === true && !/^None(OnDryRun)?$/.test(String(hook.sideEffects))) {
    step.why = "it may do something outside, and this is a dry run";
    return { refusal: refused(step, dryRunUnsupported(hook.name)) };
  }
  const version = versionFor(hook.admissionReviewVersions);
  if (version === undefined)
    return fail(
      ...([run, hook, step] as const),
      "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)",
    );

  const { subResource, name, namespace, operation, userInfo, dryRun = false, options = null } = attributes;
  const uid = around.uid?.() ?? randomUUID();
  const request: Request = {
    ...{ uid, kind, resource, ...(subResource && { subResource }) },
    ...{ requestKind: attributes.kind, requestResource: attributes.resource },
    ...{ ...(subResource && { requestSubResource: subResource }), ...(name && { name }) },
    ...{ ...(namespace && { namespace }), operation, userInfo, object, oldObject, dryRun, options },
  };
  Object.assign(step, { outcome: "called", request });
  const called = await inTime(run, hook, {
    kind: "AdmissionReview",
    apiVersion: `admission.k8s.io/${version}`,
    request,
  });
  if ("would" in called) {
    step.outcome = "would be called";
    return {};
  }
  if ("unsaid" in called) {
    giveUp(run, step, called.unsaid);
    return {};
  }
  if ("failure" in called) return fail(run, hook, step, `failed to call webhook: ${called.failure}`);

  const answer = answerIn(hook.phase, version, uid, called.body);
  if ("fault" in answer) return fail(run, hook, step, answer.fault);
  for (const [key, value] of Object.entries(answer.audit)) run.audit.add(`${hook.name}/${key}`, value);
  for (const warning of answer.warnings) run.warnings.push(warning);
  Object.assign(step, { allowed: answer.allowed, warnings: answer.warnings });
  return { answer };
};

/** There was no valid answer: the end of the request, or as if the hook weren't there. */
export const fail = (run: Run, hook: Hook, step: Step, text: string): { refusal?: Status } => {
  step.outcome = "called";
  step.failure = `failed calling webhook "${hook.name}": ${text}`;
  if (hook.failurePolicy === "Fail") return { refusal: refused(step, callFailure(hook.name, text)) };
  step.ignored = true;
  run.audit.add(...openNote(hook.phase, step.round, step.index, hook.name));
  return {};
};

/** The step ends the request. */
export const refused = (step: Step, status: Status): Status => {
  Object.assign(step, { allowed: false, status });
  return status;
};

/** A call lasts as long as the hook may take, or the request has left. */
const inTime = async ({ around, end }: Run, hook: Hook, review: Sent): Promise<Called> => {
  const said = around.call(hook, review);
  if (!(said instanceof Promise)) return said;
  const milliseconds = Math.max(0, Math.min(hook.timeoutSeconds * 1000, end - performance.now()));
  const { promise, resolve } = Promise.withResolvers<Called>();
  const timer = setTimeout(() => {
    const url = `${addressOf(hook.clientConfig)}?timeout=${Math.ceil(milliseconds / 1000)}s`;
    resolve({ failure: `Post "${url}": context deadline exceeded` });
  }, milliseconds);
  try {
    return await Promise.race([said, promise]);
  } finally {
    clearTimeout(timer);
  }
};
