import type { Status } from "#lib/review.ts";
import type { Hook } from "./hooks.ts";
import { type Invocation, notConverted, takes } from "./matching.ts";
import { refusalOf } from "./refusals.ts";
import { ask, giveUp, type Run, refused, stepFor } from "./run.ts";
import type { Step } from "./trace.ts";
import { openView, type Versioned } from "./view.ts";

/** Calls the hooks that validate, all at once and none before it is known of every one whether it is called; answers what any refuses. */
export const validate = async (run: Run, hooks: readonly Hook[]): Promise<Status[]> => {
  const calls: { hook: Hook; invocation: Invocation; seen: Versioned; step: Step }[] = [];
  for (const hook of hooks) {
    const step = stepFor(hook, 0, calls.length);
    run.steps.push(step);
    // Labels and conditions are those of the object as it came, whatever version the hook before wanted.
    const view = openView(run.attributes, run.around.convert);
    const taken = takes(hook, run.attributes, view, run.around, run.cel);
    if ("skipped" in taken) step.why = taken.skipped;
    else if ("unsaid" in taken) giveUp(run, step, taken.unsaid);
    else if ("refusal" in taken) {
      for (const call of calls) call.step.why = "the request was refused before anyone was called";
      return [refused(step, taken.refusal)];
    } else {
      const { invocation } = taken;
      const seen = view.as(invocation.kind);
      if (seen) calls.push({ hook, invocation, seen, step });
      else giveUp(run, step, notConverted(run.attributes, invocation.kind));
    }
  }

  const refusals = await Promise.all(
    calls.map(async ({ hook, invocation, seen, step }) => {
      const { answer, refusal } = await ask(run, hook, invocation, seen, step);
      if (answer?.allowed === false) return refused(step, refusalOf(hook.name, answer.status));
      return refusal;
    }),
  );
  return refusals.filter((one) => one !== undefined);
};
