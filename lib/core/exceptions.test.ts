import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Context } from "aws-lambda";
import { buildPodRequest, buildPodReview } from "../../test/requests.ts";
import { readRows } from "../../test/rows.ts";
import { createLambdaHandler } from "../lambda/handler.ts";
import type { AdmissionRequest } from "../review.ts";
import { rule } from "../rule.ts";
import type { EnforcementMode } from "./evaluation.ts";
import { findException, type RuleException } from "./exceptions.ts";
import { type AnsweredReviewFacts, formatLogLine, probeUser } from "./log-line.ts";

const rows = readRows<
  {
    name: string;
    exception?: Partial<RuleException>;
    request?: Partial<AdmissionRequest>;
    now?: string;
    expected: boolean;
  }[]
>(import.meta.filename);
/** The exception ends with this day in UTC. */
const baseException = { until: "2027-01-31", owner: "team-billing", reason: "old base image" };
const userInfo = { username: "jane", groups: ["developers"] };
const anHourBeforeEnd = "2027-01-31T22:59:59Z";
const exceptionText = "until 2027-01-31 (team-billing): old base image";

describe("an exception", () => {
  for (const { name, exception = { namespaces: ["legacy"] }, request, now = anHourBeforeEnd, expected } of rows)
    it(name, () => {
      const created = buildPodRequest({ namespace: "legacy", userInfo, ...request });
      const found = findException([{ ...baseException, ...exception }], created, new Date(now));
      assert.equal(found !== undefined, expected);
    });
  it("findException finds the first of several exceptions that cover the request", () => {
    const exceptions = ["other", "legacy", "legacy"].map((namespace, index) => {
      return { ...baseException, namespaces: [namespace], reason: `reason ${index}` };
    });
    const created = buildPodRequest({ namespace: "legacy" });
    assert.match(findException(exceptions, created, new Date(anHourBeforeEnd)) ?? "", /reason 1$/);
  });
});

describe("an endpoint with an exception", () => {
  const contexts: object[] = [];
  const sample = rule<{ metadata?: { labels?: object } }>({
    summary: "Changes and refuses.",
    match: [],
    mutate: (pod) => {
      pod.metadata = { labels: { seen: "yes" } };
    },
    validate: (_, context) => {
      contexts.push(context);
      return "no";
    },
  });
  const reports: AnsweredReviewFacts[] = [];
  const createHandler = (mode: EnforcementMode) =>
    createLambdaHandler(
      {
        rules: { sample },
        config: {
          rule: "sample",
          clusters: {
            one: { keyVersions: [1], mode, settings: {}, exceptions: [{ ...baseException, namespaces: ["legacy"] }] },
            two: { keyVersions: [1], mode, settings: {} },
          },
        },
      },
      { publicKeys: "", writeLogLine: (report) => void reports.push(report) },
    );
  const evaluate = async (handler: ReturnType<typeof createHandler>, event: object, request: object = {}) => {
    const review = buildPodReview({ namespace: "legacy", userInfo, ...request });
    const answer = await handler(
      { phase: "validate", cluster: "one", now: anHourBeforeEnd, review, ...event },
      {} as Context,
    );
    const { uid: _, ...response } = Object(answer).response;
    return response;
  };
  const admittedResponse = { allowed: true, auditAnnotations: { exception: exceptionText } };

  for (const mode of ["enforce", "warn", "audit"] as const)
    for (const phase of ["mutate", "validate"])
      it(`admits a covered object unchanged, with an audit annotation, on ${phase} in mode ${mode}`, async () =>
        assert.deepEqual(await evaluate(createHandler(mode), { phase }), admittedResponse));
  it("an endpoint with an exception does nothing if the rule is off", async () =>
    assert.deepEqual(await evaluate(createHandler("off"), {}), { allowed: true }));
  it("an endpoint with an exception refuses in other namespaces and clusters, and without a cluster", async () => {
    const handler = createHandler("enforce");
    for (const [event, request] of [[{}, { namespace: "shop" }], [{ cluster: "two" }], [{ cluster: undefined }]])
      assert.equal((await evaluate(handler, event ?? {}, request)).allowed, false);
  });
  it("an endpoint with an exception doesn't show its exceptions to the rule", async () => {
    contexts.length = 0;
    await evaluate(createHandler("enforce"), {}, { namespace: "shop" });
    assert.equal(Reflect.get(contexts[0] ?? assert.fail(), "exceptions"), undefined);
  });
  it("an endpoint with an exception refuses after the end of the exception, in the same process", async () => {
    const handler = createHandler("enforce");
    const moments = ["2027-01-31T23:59:59.999Z", "2027-02-01T00:00:00Z", "2027-01-31T23:59:59Z"];
    const answers: boolean[] = [];
    for (const now of moments) answers.push((await evaluate(handler, { now })).allowed);
    assert.deepEqual(answers, [true, false, true]);
  });
  it("an endpoint with an exception names the exception in the log line of a review, but not of a probe", async () => {
    const readLine = async (request: object) => {
      reports.length = 0;
      await evaluate(createHandler("enforce"), {}, request);
      return JSON.parse(formatLogLine(reports[0] ?? assert.fail(), "test", 0));
    };
    const { verdict, exception, Reviews, Denials } = await readLine({});
    assert.deepEqual([verdict, exception, Reviews, Denials], ["allowed", exceptionText, 1, 0]);
    assert.equal((await readLine({ namespace: "shop" })).exception, undefined);
    assert.equal((await readLine({ dryRun: true, userInfo: { username: probeUser } })).exception, undefined);
  });
});
