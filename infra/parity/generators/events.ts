import fc, { type Arbitrary } from "fast-check";
import { asked, maybe, one, type Sequence, type Step, whole } from "./steps.ts";

// Events, more of them than there are tokens.

/**
 * Only the events of one sequence draw from its bucket, and each makes the same change. So an additional token for one
 * event doesn't change the outcome of those after it.
 */
const crowd: Arbitrary<Sequence> = fc
  .tuple(
    whole({
      kind: one("Pod", "Node"),
      name: maybe(one("a", "b")),
      apiVersion: maybe(one("v1")),
      uid: fc.noBias(fc.uuid()),
    }),
    maybe(whole({ component: maybe(one("kubelet")), host: maybe(one("n1")) })),
    fc.array(asked, { minLength: 2, maxLength: 5 }),
  )
  .map(([object, source, [first, ...others]]): Sequence => {
    const involvedObject = { ...object, namespace: "default" };
    const body = { apiVersion: "v1", kind: "Event", metadata: {}, involvedObject, ...(source && { source }) };
    const seen = { count: 2, reason: "Again" };
    const steps = [
      ...(first ? [{ ...first, dryRun: false, verb: "create", body } satisfies Step] : []),
      ...others.map((by) => ({ ...by, verb: "patch", type: "merge", body: seen }) satisfies Step),
    ];
    return { kind: "events", namespace: "default", generateName: false, steps };
  });

export const eventScenes = { events: crowd };
