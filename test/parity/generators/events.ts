import fc, { type Arbitrary } from "fast-check";
import {
  generateWholeObjects,
  makeOptional,
  pickOne,
  type RequestSequence,
  requestOptions,
  type SequenceRequest,
} from "./steps.ts";

// Generates requests about events, more than the token buckets of EventRateLimit have tokens.

/**
 * Builds sequences that create an event and change it several times. Each sequence has its own token bucket, and its
 * events are all alike. So if one server has a token more than the other, this doesn't change what happens later.
 */
const manyEvents: Arbitrary<RequestSequence> = fc
  .tuple(
    generateWholeObjects({
      kind: pickOne("Pod", "Node"),
      name: makeOptional(pickOne("a", "b")),
      apiVersion: makeOptional(pickOne("v1")),
      uid: fc.noBias(fc.uuid()),
    }),
    makeOptional(
      generateWholeObjects({ component: makeOptional(pickOne("kubelet")), host: makeOptional(pickOne("n1")) }),
    ),
    fc.array(requestOptions, { minLength: 2, maxLength: 5 }),
  )
  .map(([object, source, [first, ...others]]): RequestSequence => {
    const involvedObject = { ...object, namespace: "default" };
    const body = { apiVersion: "v1", kind: "Event", metadata: {}, involvedObject, ...(source && { source }) };
    const seen = { count: 2, reason: "Again" };
    const steps = [
      ...(first ? [{ ...first, dryRun: false, verb: "create", body } satisfies SequenceRequest] : []),
      ...others.map((by) => ({ ...by, verb: "patch", type: "merge", body: seen }) satisfies SequenceRequest),
    ];
    return { kind: "events", namespace: "default", generateName: false, steps };
  });

/** Scenarios for EventRateLimit, by name. */
export const eventRateLimitScenarios = { events: manyEvents };
