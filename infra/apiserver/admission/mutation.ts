import { getErrorMessage } from "#lib/failure.ts";
import { isMap, type JsonMap } from "#lib/json.ts";
import { openReinvocations, type Reinvocations } from "#lib/reinvocation.ts";
import type { Status } from "#lib/review.ts";
import type { Answer } from "./answer.ts";
import { mutationNote, patchNote } from "./audit-annotations.ts";
import { ask, createStep, fail, giveUp, internalError, outOfTime, type Run, refuse, toRefusal } from "./calling.ts";
import type { Hook } from "./hooks.ts";
import { applyPatch, parseOperations, toPlain } from "./json-patch.ts";
import { matchHook, notConverted, type View } from "./matching.ts";
import { isSameToServer, isStamped, readObject } from "./server-objects.ts";
import type { Step } from "./types.ts";

interface Mutated {
  refusal?: Status;
  object: unknown;
}

/**
 * Calls the hooks one after the other, each with the object that the previous hook left. If a hook changed the object,
 * earlier hooks with reinvocationPolicy IfNeeded are called once more. A change in this second round counts as a change
 * for the hooks after it.
 */
export const mutate = async (run: Run, hooks: readonly Hook[], view: View): Promise<Mutated> => {
  const rounds: Rounds = {
    again: openReinvocations(),
    isChanged: false,
    isStamped: isStamped(run.attributes),
  };
  for (const round of [0, 1] as const) {
    if (round === 1 && !rounds.isChanged) break;
    for (const [index, hook] of hooks.entries()) {
      const refusal = await turn(run, hook, view, createStep(hook, round, index), rounds);
      if (refusal) return { refusal, object: view.latest.object };
    }
    // Each round starts and ends with the object in the request's version.
    if (view.as(run.attributes.kind) === undefined) {
      run.undecided.push(`it can't be said ${notConverted(run.attributes, run.attributes.kind)}`);
      return { object: view.latest.object };
    }
  }
  return { object: view.latest.object };
};

interface Rounds {
  again: Reinvocations<string>;
  isChanged: boolean;
  /** Whether the next patch counts as a change even if it changes nothing; see `isStamped` in server-objects.ts. */
  isStamped: boolean;
}

const turn = async (run: Run, hook: Hook, view: View, step: Step, rounds: Rounds): Promise<Status | undefined> => {
  const taken = matchHook(hook, run.attributes, view, run.around);
  // The API server matches every hook in the second round, too: this can refuse the request for a hook that isn't
  // called again.
  if (!("refusal" in taken) && step.round === 1 && !rounds.again.has(hook.identity)) return undefined;
  run.steps.push(step);
  if ("skipped" in taken) {
    step.why = taken.skipped;
    return undefined;
  }
  if ("unsupported" in taken) {
    giveUp(run, step, taken.unsupported);
    return undefined;
  }
  if ("refusal" in taken) return refuse(step, taken.refusal);
  const seen = view.as(taken.invocation.kind);
  if (seen === undefined) {
    giveUp(run, step, notConverted(run.attributes, taken.invocation.kind));
    return undefined;
  }

  const { answer, refusal } = await ask(run, hook, taken.invocation, seen, step);
  const changed = answer?.allowed ? change(run, hook, view, step, answer, rounds.isStamped) : unchanged;
  const { configuration, name } = hook;
  if (step.outcome === "called" || refusal)
    run.audit.add(...mutationNote(step.round, step.index, configuration, name, changed.isChanged));
  if (changed.isChanged || changed.isApplied) rounds.isStamped = false;
  rounds.isChanged ||= changed.isChanged;
  rounds.again.note(hook.identity, changed.isChanged, hook.reinvocationPolicy === "IfNeeded");

  const end = refusal ?? changed.refusal;
  if (end) return end;
  if (answer && !answer.allowed) return refuse(step, toRefusal(hook.name, answer.status));
  return step.ignored && performance.now() >= run.end ? refuse(step, outOfTime()) : undefined;
};

interface Change {
  isChanged: boolean;
  isApplied?: boolean;
  refusal?: Status | undefined;
}

const unchanged: Change = { isChanged: false };

/** A patch that can't be parsed is a failure of the hook; a patch that can't be applied always ends the request. */
const change = (
  run: Run,
  hook: Hook,
  view: View,
  step: Step,
  { patch, patchType }: Answer,
  isStamped: boolean,
): Change => {
  if (patch === undefined) return unchanged;
  const ended = (text: string): Change => {
    return { isChanged: false, refusal: refuse(step, internalError(text)) };
  };
  const failed = (text: string): Change => {
    return { isChanged: false, refusal: fail(run, hook, step, text).refusal };
  };
  let operations: JsonMap[];
  try {
    operations = parseOperations(patch);
  } catch (error) {
    return failed(`received findUndecodable patch in webhook response: ${getErrorMessage(error)}`);
  }
  if (operations.length === 0) return unchanged;
  const { object: before } = view.latest;
  if (!isMap(before))
    return ended(
      `admission webhook "${hook.name}" attempted to modify the object, which is not supported for this operation`,
    );
  if (patchType !== "JSONPatch") return failed(`unsupported patch type ${JSON.stringify(patchType)}`);

  try {
    const raw = applyPatch(before, operations);
    const isOther = !isMap(raw) || raw.apiVersion !== before.apiVersion || raw.kind !== before.kind;
    step.patch = toPlain(operations);
    step.before = before;
    if (isOther) {
      giveUp(run, step, "its patch makes the object another kind");
      return unchanged;
    }
    const read = readObject(raw);
    step.after = run.around.fill(read);
    run.audit.add(...patchNote(step.round, step.index, hook.configuration, hook.name, step.patch));
    view.put(step.after);
    return { isChanged: isStamped || !isSameToServer(before, read), isApplied: true };
  } catch (error) {
    return ended(getErrorMessage(error));
  }
};
