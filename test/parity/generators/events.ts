import fc, { type Arbitrary } from "fast-check";
import {
  addSometimes,
  generateObjects,
  pickOne,
  type RequestSequence,
  requestOptions,
  type SequenceRequest,
} from "./steps.ts";

// Generates requests about events, more than the token buckets of EventRateLimit have tokens.

/**
 * Builds sequences that create an event and change it several times. The random uid gives each sequence its own token
 * bucket in EventRateLimit. All changes of a sequence are equal: so if one server refuses a change that the other
 * server accepts, later answers stay equal.
 */
const manyEvents: Arbitrary<RequestSequence> = fc
  .tuple(
    generateObjects({
      kind: pickOne("Pod", "Node"),
      name: addSometimes(pickOne("a", "b")),
      apiVersion: addSometimes(pickOne("v1")),
      uid: fc.noBias(fc.uuid()),
    }),
    addSometimes(generateObjects({ component: addSometimes(pickOne("kubelet")), host: addSometimes(pickOne("n1")) })),
    fc.array(requestOptions, { minLength: 2, maxLength: 5 }),
  )
  .map(([reference, source, [first, ...others]]): RequestSequence => {
    const involvedObject = { ...reference, namespace: "default" };
    const body = { apiVersion: "v1", kind: "Event", metadata: {}, involvedObject, ...(source && { source }) };
    const repeated = { count: 2, reason: "Again" };
    const steps = [
      ...(first ? [{ ...first, dryRun: false, verb: "create", body } satisfies SequenceRequest] : []),
      ...others.map((by) => ({ ...by, verb: "patch", type: "merge", body: repeated }) satisfies SequenceRequest),
    ];
    return { kind: "events", namespace: "default", generateName: false, steps };
  });

/** Scenarios for EventRateLimit, by name. */
export const eventRateLimitScenarios = { events: manyEvents };
