import type { Status } from "#lib/review.ts";
import { openAudit } from "./audit.ts";
import { builtIn } from "./conditions.ts";
import type { Hook } from "./hooks.ts";
import { mutate } from "./mutation.ts";
import type { Run } from "./run.ts";
import { born, prepared } from "./storage.ts";
import type { Around, Attributes, Trace } from "./trace.ts";
import { validate } from "./validation.ts";
import { openView } from "./view.ts";
import { heard } from "./warnings.ts";

/** How long the API server gives all of a request, in milliseconds. */
const mostTime = 34_000;

/** What the API server's admission makes of a write, hook by hook. */
export const admit = async (
  attributes: Attributes,
  hooks: { mutating: readonly Hook[]; validating: readonly Hook[] },
  around: Around,
): Promise<Trace> => {
  const isGone = attributes.operation === "DELETE" || attributes.object == null;
  const given = isGone ? null : around.fill(attributes.object);
  const filled = { ...attributes, object: given, oldObject: attributes.oldObject ?? null };
  const run: Run = {
    ...{
      attributes: filled,
      around,
      cel: around.cel ?? builtIn,
      audit: openAudit(),
      end: performance.now() + mostTime,
    },
    ...{ steps: [], warnings: [], undecided: [] },
  };
  const traceOf = (last: unknown, refusals: Status[]): Trace => {
    const [status] = refusals;
    return {
      ...{ allowed: status === undefined, ...(status && { status }), refusals, object: last },
      ...{ warnings: heard(run.warnings), audit: run.audit.annotations, steps: run.steps, undecided: run.undecided },
    };
  };
  if (isExempt(filled)) return traceOf(given, []);

  const mutated = await mutate(run, hooks.mutating, openView(filled, around.convert));
  if (mutated.refusal) return traceOf(mutated.object, [mutated.refusal]);
  const object = prepared(filled, mutated.object);
  const last = born({ ...filled, object }, around);
  return traceOf(object, await validate({ ...run, attributes: last }, hooks.validating));
};

const configurations = ["WebhookConfiguration", "AdmissionPolicy", "AdmissionPolicyBinding"];
const exempt = new Set(configurations.flatMap((kind) => [`Mutating${kind}`, `Validating${kind}`]));

/** What says who is called is never shown to those who are. */
const isExempt = ({ kind: { group, kind } }: Attributes): boolean =>
  group === "admissionregistration.k8s.io" && exempt.has(kind);
