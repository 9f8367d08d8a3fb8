import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Context } from "aws-lambda";
import { createTestSigner } from "../../test/parity/test-key.ts";
import { buildPodReview } from "../../test/requests.ts";
import type { EndpointHost } from "../core/endpoint.ts";
import type { GroupConfig } from "../core/group.ts";
import { toMap } from "../json.ts";
import { get } from "../needs.ts";
import { createRecordedCapabilities } from "../recording/recorded-answers.ts";
import type { KubernetesObject } from "../review.ts";
import { rule } from "../rule.ts";
import { createLambdaHandler } from "./handler.ts";
import type { RecordingBucketSettings } from "./recording.ts";

const signer = createTestSigner(1);
const match = [{ apiGroups: ["*"], apiVersions: ["*"], resources: ["*"], operations: ["*" as const] }];
const labels = rule({
  summary: "Labels.",
  match,
  mutate(object: KubernetesObject) {
    if (object.metadata?.name === "labels-fails-open") throw new Error("broken");
    object.metadata = { ...object.metadata, labels: { ...object.metadata?.labels, a: "b" } };
  },
});
const reads = rule({
  summary: "Reads the pod with the object's name, and refuses the object if there is one.",
  match,
  needs: { pod: get("pods") },
  async mutate(object: KubernetesObject, { pod }) {
    if (object.metadata?.name === "reads-fails-closed") throw new Error("broken");
    return (await pod({ name: object.metadata?.name ?? "", namespace: "shop" })) ? "it is there" : undefined;
  },
});
const everyReview = { bucket: "reviews", prefix: "a/", share: 1 };

interface ReviewFields {
  uid?: string;
  name?: string;
  dryRun?: boolean;
  annotations?: Record<string, string>;
}

const buildReview = ({ uid = "UID", name = "web", dryRun = false, annotations = {} }: ReviewFields) => {
  const object = { apiVersion: "v1", kind: "Pod", metadata: { name, namespace: "shop", annotations } };
  return buildPodReview({ uid, namespace: "shop", object, dryRun });
};

const buildEvent = (path: string, fields: ReviewFields) => ({
  version: "2.0",
  rawPath: `/${signer.segment("prod")}/${path}`,
  headers: { "content-type": "application/json" },
  requestContext: { http: { method: "POST" } },
  body: JSON.stringify(buildReview(fields)),
});

const pod = { apiVersion: "v1", kind: "Pod", metadata: { name: "there", namespace: "shop" } };
const host: EndpointHost = {
  publicKeys: signer.publicKey,
  openCapabilities: () => createRecordedCapabilities({ objects: [pod] }),
  writeLogLine: () => {},
};

/** Parses a recording: JSON after `- `, so that it is an element of a list in YAML. */
const parseRecording = (text: string) => JSON.parse(text.slice("- ".length));

/** Sends events to a function that records. Returns the recordings by their keys in S3, and the function's answers. */
const recordEvents = async (events: object[], place: RecordingBucketSettings = everyReview) => {
  const recordings = new Map<string, unknown>();
  const put = async (bucket: string, key: string, body: string) => {
    assert.equal(bucket, "reviews");
    const stableKey = key.replace(/\/\d{4}-\d\d-\d\d\/\d\d-\d\d-\d\d\.\d{3}-/, "/DAY/TIME-");
    recordings.set(stableKey, parseRecording(body));
  };
  const buildMember = (mode: "enforce" | "warn") => ({ mode, settings: {}, match, failsOpen: true, exempt: {} });
  const settings = { labels: buildMember("enforce"), reads: { ...buildMember("warn"), failsOpen: false } };
  const clusters = { prod: { keyVersions: [1], mode: "enforce" as const, settings } };
  // `alone` is for invocations that name no cluster.
  const config: GroupConfig = { rule: "both", clusters, alone: settings };
  const buckets = { prod: { labels: place, reads: place } };
  const handler = createLambdaHandler({ rules: { labels, reads }, config, buckets, put }, host);
  const answers: unknown[] = [];
  for (const event of events) answers.push(await handler(event, {} as Context));
  return { recordings, answers };
};

describe("a recording function", () => {
  it("a recording function records a group's review for each member, with that member's outcome", async () => {
    const { recordings } = await recordEvents([buildEvent("both/mutate", { name: "there" })]);
    // Of the recordings of one review, all but the first have a number after the review's uid.
    assert.deepEqual([...recordings.keys()], ["a/prod/labels/DAY/TIME-UID.yaml", "a/prod/reads/DAY/TIME-UID-1.yaml"]);
    const [first, second] = [...recordings.values()].map(Object);
    assert.deepEqual([first.becomes.metadata.labels, first.needs], [{ a: "b" }, undefined]);
    assert.deepEqual([second.mutate.metadata.labels, second.refused], [{ a: "b" }, "it is there"]);
    const looked = [{ group: "", resource: "pods", namespace: "shop", name: "there" }];
    assert.deepEqual([second.needs, second.recorded.rule], [{ objects: [pod], reads: looked }, "reads"]);
  });

  it("a recording function records no dry run, failure, direct invocation or request with a wrong key", async () => {
    const [dryRun, valid] = [buildEvent("both/mutate", { dryRun: true }), buildEvent("both/mutate", {})];
    const direct = { phase: "mutate", cluster: "prod", review: buildReview({}) };
    const events = [dryRun, { ...valid, body: "{}" }, direct, { ...valid, rawPath: "/prod.key/both/mutate" }, {}];
    assert.equal((await recordEvents(events)).recordings.size, 0);
    const [failed] = (await recordEvents([buildEvent("both/mutate", { name: "reads-fails-closed" })])).answers;
    assert.equal(toMap(failed).statusCode, 500);
    assert.equal((await recordEvents([buildEvent("both/mutate", { name: "reads-fails-closed" })])).recordings.size, 0);
    const failedOpen = await recordEvents([buildEvent("both/mutate", { name: "labels-fails-open" })]);
    assert.deepEqual([...failedOpen.recordings.keys()], ["a/prod/reads/DAY/TIME-UID.yaml"]);
  });

  it("a recording function records about the fraction `share` of reviews, the same reviews for each rule", async () => {
    const events = Array.from({ length: 400 }, (_, index) => buildEvent("both/mutate", { uid: `review-${index}` }));
    const tenth = [...(await recordEvents(events, { ...everyReview, share: 0.1 })).recordings.keys()];
    const threeTenths = [...(await recordEvents(events, { ...everyReview, share: 0.3 })).recordings.keys()];
    assert.ok(tenth.length > 2 * 20 && tenth.length < 2 * 60, `${tenth.length}, not about 2 * 40`);
    assert.ok(tenth.every((key) => threeTenths.includes(key)));
    const getRecordings = (rule: string) =>
      tenth.filter((key) => key.includes(`/${rule}/`)).map((key) => /review-\d+/.exec(key)?.[0]);
    assert.deepEqual(getRecordings("labels"), getRecordings("reads"));
  });

  it("a recording function does not use text of a caller in the names of S3 objects", async () => {
    const { recordings } = await recordEvents(
      ["../../x", "a b", "é", "x".repeat(65)].map((uid) => buildEvent("both/mutate", { uid })),
    );
    for (const key of recordings.keys())
      assert.match(key, /^a\/prod\/(labels|reads)\/DAY\/TIME-[0-9a-f]{64}(-1)?\.yaml$/);
    assert.equal(recordings.size, 8, "4 reviews of 2 rules");
  });

  it("a recording function marks a recording if the rule answers the redacted review differently", async () => {
    const refusingOneToken = rule({
      summary: "Refuses one token.",
      match,
      validate: ({ metadata }: KubernetesObject) =>
        Object.values(metadata?.annotations ?? {}).includes("abc") ? "it has that token" : undefined,
    });
    const recordings: Record<string, unknown>[] = [];
    const put = async (_: string, __: string, body: string) => void recordings.push(parseRecording(body));
    const config = { rule: "labels", clusters: { prod: { keyVersions: [1], mode: "enforce" as const, settings: {} } } };
    const buckets = { prod: { labels: everyReview } };
    const handler = createLambdaHandler({ rules: { labels: refusingOneToken }, config, buckets, put }, host);
    for (const token of ["abc", "def"])
      await handler(buildEvent("labels/validate", { annotations: { token } }), {} as Context);
    // The recording has the answer to the redacted review, whose token is masked, so that the rule admits it.
    assert.deepEqual(
      recordings.map(({ admitted, refused, recorded }) => [admitted, refused, toMap(recorded).redacted]),
      [
        [true, undefined, true],
        [true, undefined, undefined],
      ],
    );
    assert.ok(!JSON.stringify(recordings).includes("abc"));
  });
});
