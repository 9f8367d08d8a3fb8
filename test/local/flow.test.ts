import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import type { Context } from "aws-lambda";
import fc from "fast-check";
import { createUnconnectedCapabilities } from "#lib/core/capabilities.ts";
import type { EndpointConfig, EndpointHost } from "#lib/core/endpoint.ts";
import { type AnsweredReviewFacts, formatLogLine } from "#lib/core/log-line.ts";
import { createLambdaHandler } from "#lib/lambda/handler.ts";
import { list } from "#lib/needs.ts";
import type { KubernetesObject } from "#lib/review.ts";
import { type Rule, rule } from "#lib/rule.ts";
import { createTestSigner } from "../parity/test-key.ts";
import { readRows } from "../rows.ts";

// Sends Lambda events to an endpoint, and compares the bytes of its responses.

/** The response of an endpoint to an event. Each shape of events has some of these fields. */
interface Reply {
  statusCode: number;
  statusDescription?: string;
  headers: Record<string, string>;
  multiValueHeaders?: Record<string, string[]>;
  body: string;
  isBase64Encoded: boolean;
}

type Event = Record<string, unknown> & { body: string };
type Map = Record<string, unknown>;

const readFixture = <T = Event>(name: string): T =>
  JSON.parse(readFileSync(new URL(`../fixtures/${name}.json`, import.meta.url), "utf8"));

const needs = { ranges: list("limitranges") };
const labelRule = rule<KubernetesObject, { label: string }, typeof needs>({
  summary: "Labels every object, and refuses objects named bad.",
  match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["*"] }],
  settings: { label: "seen" },
  needs,
  mutate(object, { settings }) {
    object.metadata = { ...object.metadata, labels: { ...object.metadata?.labels, [settings.label]: "yes" } };
    return { warnings: ["it was seen\nby day"], audit: { "by whom": "judge" } };
  },
  validate(object, { ranges }) {
    const name = object.metadata?.name;
    if (name === "bad") return 'metadata.name must not be "bad"';
    if (name === "broken") throw new RangeError("the rule broke");
    if (name === "mistyped") Object(object).spec.containers.map(String);
    if (name === "silent") return new Promise(() => {});
    if (name === "curious") return ranges("shop").then(() => undefined);
    return undefined;
  },
});

const signer = createTestSigner(1);
const cluster = { keyVersions: [1], mode: "enforce", settings: { label: "seen" } } as const;
const config: EndpointConfig = {
  rule: "judge",
  clusters: { "prod-eu": cluster, idle: { ...cluster, mode: "off" }, raised: { ...cluster, keyVersions: [2, 3] } },
};

const buildContext = (remainingMs = 10_000) =>
  ({ functionName: "judge", functionVersion: "7", getRemainingTimeInMillis: () => remainingMs }) as Context;

/** Opens an endpoint without a connection to a cluster, and records the reports for its log. */
const openEndpoint = (endpointRule: Rule, endpointConfig = config, host: Partial<EndpointHost> = {}) => {
  const reports: AnsweredReviewFacts[] = [];
  const recordReport = (report: AnsweredReviewFacts) => void reports.push(report);
  const handler = createLambdaHandler(
    { rules: { rule: endpointRule }, config: endpointConfig },
    {
      publicKeys: signer.publicKey,
      openCapabilities: createUnconnectedCapabilities,
      writeLogLine: recordReport,
      ...host,
    },
  );
  return { handler, reports };
};

const openTestEndpoint = () => {
  const { handler, reports } = openEndpoint(labelRule);
  return {
    handler,
    reports,
    sendEvent: async (event: unknown, remainingMs?: number) =>
      (await handler(event, buildContext(remainingMs))) as Reply,
  };
};

type RequestRow = [name: string, change: Change & { request?: Map; phase?: string }, code: number, sentence: string];
const fixtures = readRows<{
  requests: RequestRow[];
  /** The bodies of three answers of the webhook, each an AdmissionReview as JSON. */
  answers: Record<"changed" | "admitted" | "refused", string>;
  /** By the shape of the event, the fields that the function's reply has beside its body and status code. */
  otherReplyFields: Record<string, Omit<Reply, "body" | "statusCode" | "isBase64Encoded">>;
  /** The `reason` of a Kubernetes Status by its HTTP code, such as BadRequest for 400. */
  reasonsByCode: Record<number, string>;
  /** Keys and texts of random events. */
  keys: string[];
  texts: string[];
}>(import.meta.filename);
const { changed, admitted, refused } = fixtures.answers;

describe("a cluster's key", () => {
  const usual = { ...cluster, settings: { label: "usual" } };
  const withoutKeys = { ...cluster, keyVersions: [], mode: "off" } as const;
  const ofSecondKey = { ...cluster, keyVersions: [2] };
  // A string names the cluster whose setup is used.
  const clusters = { own: cluster, same: "own", gone: withoutKeys, lost: "gone", raised: ofSecondKey };
  const { handler } = openEndpoint(labelRule, { rule: "judge", usual, clusters });
  /** Sends a review with the key of a cluster. Returns the patch, or the HTTP code of a refusal. */
  const sendWithKey = async (cluster: string, keyVersion = 1) => {
    const rawPath = `/${signer.segment(cluster, keyVersion)}/judge/mutate`;
    const reply = (await handler({ ...apiEvent, rawPath }, buildContext())) as Reply;
    return reply.statusCode === 200
      ? String(Buffer.from(JSON.parse(reply.body).response.patch, "base64"))
      : reply.statusCode;
  };

  it("a cluster's key gives access to the usual setup if the bundle doesn't name the cluster", async () => {
    for (const name of ["new", "constructor", "a"]) assert.match(String(await sendWithKey(name)), /usual/);
    assert.equal(await sendWithKey("new", 2), 404);
  });
  it("a cluster's key gives access to the cluster's setup, which can refer to another cluster's setup", async () => {
    for (const name of ["own", "same"]) assert.match(String(await sendWithKey(name)), /seen/);
  });
  it("a cluster's key is refused if the cluster's setup has no versions, or not the key's version", async () => {
    for (const name of ["gone", "lost", "raised"]) assert.equal(await sendWithKey(name), 404, name);
    assert.match(String(await sendWithKey("raised", 2)), /seen/);
  });
});

describe("a rule with variants", () => {
  const levels = rule<KubernetesObject, { limit: number; unit: string }>({
    summary: "Reports its variant and settings.",
    match: [],
    settings: { limit: 1, unit: "m" },
    validate: (_, { variant, settings: { limit, unit } }) => `${variant} ${limit}${unit}`,
  });
  const variants = { strict: { limit: 2 }, loose: {} };
  const clusterConfig = { keyVersions: [1], mode: "enforce", settings: { limit: 5, unit: "k" } } as const;
  const clusters = {
    "prod-eu": { ...clusterConfig, variants },
    idle: { ...clusterConfig, mode: "off" as const },
    other: clusterConfig,
  };
  const { handler } = openEndpoint(levels, { rule: "levels", variants: { usual: { limit: 3 } }, clusters });
  const sendEvent = async (event: unknown) => (await handler(event, buildContext())) as Reply & { response?: Map };
  const sendToVariant = async (path: string, cluster = "prod-eu") => {
    const rawPath = `/${signer.segment(cluster)}/levels/${path}`;
    const { statusCode, body } = await sendEvent({ ...apiEvent, rawPath });
    const { response } = JSON.parse(body);
    return statusCode === 200 ? (response.status?.message ?? response.allowed) : statusCode;
  };

  it("a rule with variants gets the name and the settings of the called variant", async () => {
    assert.equal(await sendToVariant("validate/strict"), "strict 2k");
    assert.equal(await sendToVariant("validate/loose"), "loose 5k");
  });

  it("a rule with variants answers a call without a variant, because an older entry may have none", async () =>
    assert.equal(await sendToVariant("validate"), "undefined 5k"));

  it("a rule with variants answers 404 for an unknown variant", async () => {
    for (const name of ["", "usual", "stric", "strict/", "__proto__", "constructor", "validate", "STRICT"])
      assert.equal(await sendToVariant(`validate/${name}`), 404, name);
  });

  it("a rule with variants has the variants that are set for the cluster, or else its own variants", async () => {
    assert.equal(await sendToVariant("validate/usual", "other"), "usual 3k");
    assert.equal(await sendToVariant("validate/strict", "other"), 404);
  });

  it("a rule with variants admits everything if it is off", async () =>
    assert.equal(await sendToVariant("validate/gone", "idle"), true));

  it("a rule with variants can be run with any settings by a direct invocation", async () => {
    const invoke = async (event: object) =>
      Object((await sendEvent({ phase: "validate", review, ...event })).response).status?.message;
    // An event's settings replace the cluster's. What neither the event nor the variant states is the rule's default.
    assert.equal(await invoke({ variant: "usual" }), "usual 3m");
    assert.equal(await invoke({ variant: "strict", cluster: "prod-eu", settings: { unit: "g" } }), "strict 2g");
    assert.equal(await invoke({ variant: "other" }), "other 1m");
  });
});

/** Changes of the request in an event. */
interface Change {
  method?: string;
  path?: string;
  headers?: Record<string, string>;
  timeout?: string;
  body?: string | null;
  isBase64Encoded?: boolean;
}

/** Returns the event of a request with these changes. */
const alterEvent = (event: Event, { method, path, headers = {}, timeout, ...rest }: Change): Event => {
  const changed = structuredClone({ ...event, ...rest }) as Event;
  /** Sets a header or a parameter, which may be present in other letter case. */
  const set = (map: unknown, key: string, value: unknown) => {
    if (typeof map !== "object" || map === null) return;
    const oldKey = Object.keys(map).find((name) => name.toLowerCase() === key.toLowerCase());
    Reflect.deleteProperty(map, oldKey ?? key);
    Reflect.set(map, key, value);
  };
  // Other shapes of events than HTTP API 2.0 and function URL have the method and the path in the event itself.
  const http = (changed.requestContext as Map).http as Map | undefined;
  if (method !== undefined) Object.assign(http ?? changed, http ? { method } : { httpMethod: method });
  if (path !== undefined) changed[http ? "rawPath" : "path"] = path;
  for (const [key, value] of Object.entries(headers)) {
    set(changed.headers, key, value);
    set(changed.multiValueHeaders, key, [value]);
  }
  if (timeout !== undefined) {
    set(changed.queryStringParameters, "timeout", timeout);
    set(changed.multiValueQueryStringParameters, "timeout", [timeout]);
  }
  return changed;
};

const encodeBody = (event: Event): Event => ({
  ...event,
  body: Buffer.from(event.body).toString("base64"),
  isBase64Encoded: true,
});

const shapes = ["http-api-2.0", "http-api-1.0", "rest-proxy", "function-url", "alb", "alb-multi-value"];
const apiEvent = readFixture("http-api-2.0");
const review = readFixture<{ review: { request: Map } & Map }>("direct").review;
/** Returns the JSON of the review with these changes of its request. */
const printReview = (request: Map) => JSON.stringify({ ...review, request: { ...review.request, ...request } });
const printReviewOf = (name: string) => printReview({ object: { metadata: { name } } });
/** Returns the path of a webhook's URL: the signed name of a cluster, the name of this test's rule, and the phase. */
const toPath = (phase: string, segment = signer.segment("prod-eu")) => `/${segment}/judge/${phase}`;

const printFailure = (code: number, reason: string, message: string) =>
  `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":${JSON.stringify(message)},"reason":"${reason}","code":${code}}`;

/** Returns JSON of nested objects, such as {"a":{"a":1}} for the depth 2. */
const nest = (depth: number) => ['{"a":'.repeat(depth), 1, "}".repeat(depth)].join("");
describe("an event", () => {
  for (const shape of shapes)
    for (const [encoding, event] of [
      ["text", readFixture(shape)],
      ["base64", encodeBody(readFixture(shape))],
    ] as const) {
      it(`an event of the shape ${shape} with a body in ${encoding} is answered in this shape`, async () => {
        const { sendEvent, reports } = openTestEndpoint();
        assert.deepEqual(await sendEvent(event), {
          statusCode: 200,
          ...fixtures.otherReplyFields[shape],
          body: changed,
          isBase64Encoded: false,
        });
        assert.deepEqual(
          reports.map(({ cluster, phase, code, operations }) => ({ cluster, phase, code, operations })),
          [{ cluster: "prod-eu", phase: "mutate", code: 200, operations: 1 }],
        );
      });
      it(`an event of the shape ${shape} with a body in ${encoding} gets a rule's refusal in its shape`, async () => {
        const event = alterEvent(readFixture(shape), { path: toPath("validate"), body: printReviewOf("bad") });
        const { statusCode, body } = await openTestEndpoint().sendEvent(
          encoding === "text" ? event : encodeBody(event),
        );
        assert.deepEqual([statusCode, body], [200, refused]);
      });
    }

  it("a direct invocation is answered with the review itself", async () => {
    assert.equal(JSON.stringify(await openTestEndpoint().sendEvent(readFixture("direct"))), changed);
    const withoutCluster = { phase: "validate", review: JSON.parse(printReviewOf("bad")) };
    assert.equal(JSON.stringify(await openTestEndpoint().sendEvent(withoutCluster)), refused);
  });

  it("a direct invocation can state settings, recorded answers and a time", async () => {
    const received: unknown[] = [];
    const recordingRule = rule<KubernetesObject, { label: string }, typeof needs>({
      summary: "Reports its input.",
      match: [],
      settings: { label: "seen" },
      needs,
      async validate(_, { settings, now, ranges }) {
        received.push(
          settings,
          now.toISOString(),
          (await ranges("shop")).map(({ metadata }) => metadata?.name),
        );
      },
    });
    const { handler } = openEndpoint(recordingRule);
    const objects = [{ kind: "LimitRange", apiVersion: "v1", metadata: { name: "small", namespace: "shop" } }];
    const event = {
      phase: "validate",
      cluster: "prod-eu",
      review,
      settings: { label: "own" },
      needs: { objects },
      now: "2026-02-03T04:05:06Z",
    };
    assert.equal(JSON.stringify(await handler(event, buildContext())), admitted);
    assert.deepEqual(received, [{ label: "own" }, "2026-02-03T04:05:06.000Z", ["small"]]);
    // The settings of an invocation replace those in the bundle. Missing settings have the rule's defaults.
    const bundledSettings = { label: "baked", other: 1 };
    const bundledConfig = { rule: "judge", clusters: { "prod-eu": { ...cluster, settings: bundledSettings } } };
    const bundled = openEndpoint(recordingRule, bundledConfig);
    received.length = 0;
    await bundled.handler({ ...event, settings: {} }, buildContext());
    assert.deepEqual(received[0], { label: "seen" });
  });

  it("a direct invocation with other settings sends no request with the function's rights", async () => {
    let opened = 0;
    const openCapabilities = () => {
      opened += 1;
      return createUnconnectedCapabilities("prod-eu");
    };
    const { handler } = openEndpoint(labelRule, config, { openCapabilities });
    // The rule reads the cluster for an object with the name "curious".
    const event = { phase: "validate", cluster: "prod-eu", review: JSON.parse(printReviewOf("curious")) };
    const answer = await handler({ ...event, settings: { label: "mine" } }, buildContext());
    assert.equal(Object(answer).response?.allowed, true);
    assert.equal(opened, 0);
    assert.equal(Object(await handler(event, buildContext())).code, 503);
    assert.equal(opened, 1);
  });

  it("an event does not let a rule change the settings of the next review", async () => {
    const careless = rule({
      summary: "Edits what it was given.",
      match: [],
      settings: { labels: { seen: "yes" } },
      mutate(object: KubernetesObject, { settings, request }) {
        object.metadata = { ...object.metadata, labels: settings.labels as Record<string, string> };
        Object.assign(object.metadata.labels ?? {}, { [request.uid]: "was here" });
      },
    });
    const answer = JSON.stringify(await openEndpoint(careless).handler({ phase: "mutate", review }, buildContext()));
    assert.match(answer, /"code":500/);
    assert.deepEqual(careless.settings, { labels: { seen: "yes" } });
  });

  const wrongDirect: [name: string, event: object, sentence: string][] = [
    ["with an unknown phase", { phase: "judge", review }, "phase must be mutate or validate"],
    ["without a review", { phase: "mutate", review: null }, "this is no AdmissionReview: the review must be an object"],
    [
      "with an invalid time",
      { phase: "mutate", review, now: "noon" },
      "now must be a time, for instance 2026-01-01T00:00:00Z",
    ],
  ];
  for (const [name, event, sentence] of wrongDirect)
    it(`a direct invocation ${name} is answered with a Status`, async () => {
      assert.equal(
        JSON.stringify(await openTestEndpoint().sendEvent(event)),
        printFailure(400, "BadRequest", sentence),
      );
    });

  const harmlessChanges: [name: string, change: Change][] = [
    ["whose path begins with a stage", { path: `/prod${toPath("mutate")}` }],
    ["whose path begins with several segments", { path: `/a/b/c${toPath("mutate")}` }],
    ["with CONTENT-TYPE in capitals", { headers: { "CONTENT-TYPE": "Application/JSON" } }],
    ["with a charset", { headers: { "content-type": "application/json; charset=utf-8" } }],
    ["with an invalid timeout", { timeout: "soon" }],
  ];
  for (const [name, change] of harmlessChanges)
    for (const shape of shapes)
      it(`an event of the shape ${shape} ${name} gets the answer that it gets without this change`, async () => {
        const { statusCode, body } = await openTestEndpoint().sendEvent(alterEvent(readFixture(shape), change));
        assert.deepEqual([statusCode, body], [200, changed]);
      });

  it("a load balancer's health check is answered 200", async () => {
    const { sendEvent, reports } = openTestEndpoint();
    const { statusCode, body } = await sendEvent(readFixture("alb-health-check"));
    assert.deepEqual([statusCode, body, reports], [200, "", []]);
  });

  it("an event is a health check only if it comes from a load balancer", async () => {
    const event = alterEvent(apiEvent, { path: "/", headers: { "user-agent": "ELB-HealthChecker/2.0" } });
    assert.equal((await openTestEndpoint().sendEvent(event)).statusCode, 404);
  });
});

describe("a request that is not a review", () => {
  const text = JSON.stringify(review);
  const describeInvalidJson = (position: number) =>
    `the body is not JSON (at position ${position}); an AdmissionReview is expected`;
  const describeInvalidReview = (sentence: string) => `this is no AdmissionReview: ${sentence}`;
  const noOperation = describeInvalidReview("request.operation must be CREATE, UPDATE, DELETE or CONNECT");
  const tooLong = "the body has more than 6291456 bytes, the most that Lambda takes";
  const deep = "[".repeat(200_000) + "]".repeat(200_000);
  const encodeBytes = (bytes: Buffer): Change => ({ body: bytes.toString("base64"), isBase64Encoded: true });
  const replaceOperation = (value: string) =>
    text.replace('"operation":"CREATE"', `"operation":"CREATE","operation":${value}`);
  const badInputs: [string, Change, number, string][] = [
    ...fixtures.requests.map(
      ([name, { request, phase, ...change }, code, sentence]): [string, Change, number, string] => [
        name,
        { ...change, ...(request && { body: printReview(request) }), ...(phase && { path: toPath(phase) }) },
        code,
        sentence,
      ],
    ),
    ["trailing data", { body: `${text} x` }, 400, describeInvalidJson(text.length + 1)],
    ["two reviews", { body: text.repeat(2) }, 400, describeInvalidJson(text.length)],
    [
      "a review without a uid",
      { body: printReview({ uid: undefined }) },
      400,
      describeInvalidReview("request.uid must be a non-empty string"),
    ],
    ["an answer instead of a review", { body: admitted }, 400, describeInvalidReview("request must be an object")],
    ["7 MB", { body: " ".repeat(7_000_000) }, 413, tooLong],
    ["7 MB in base64", encodeBytes(Buffer.alloc(7_000_000, 32)), 413, tooLong],
    ["lists 200,000 levels deep", { body: deep }, 400, describeInvalidReview("the review must be an object")],
    [
      "objects 200,000 levels deep",
      { body: nest(200_000) },
      400,
      describeInvalidReview('kind must be "AdmissionReview"'),
    ],
    ["an operation 200,000 levels deep", { body: replaceOperation(deep) }, 400, noOperation],
    ["a duplicate key whose last value is wrong", { body: replaceOperation('"READ"') }, 400, noOperation],
    [
      "invalid UTF-8 in base64",
      encodeBytes(Buffer.from([0x7b, 0xff, 0x7d])),
      400,
      "the body is not UTF-8; an AdmissionReview as JSON is expected",
    ],
    ["invalid base64", { body: text, isBase64Encoded: true }, 400, "the body is not base64, though its event says so"],
    [
      "a review hidden in __proto__",
      { body: `{"__proto__":${text}}` },
      400,
      describeInvalidReview('kind must be "AdmissionReview"'),
    ],
  ];
  for (const [name, change, code, sentence] of badInputs)
    it(`a request that is no review, for ${name}, is answered with ${code} in every shape of events`, async () => {
      for (const shape of shapes) {
        const { statusCode, headers, body } = await openTestEndpoint().sendEvent(
          alterEvent(readFixture(shape), change),
        );
        const allow = code === 405 ? { allow: "POST" } : {};
        assert.deepEqual(
          [statusCode, headers, body],
          [
            code,
            { "content-type": "application/json", ...allow },
            printFailure(code, fixtures.reasonsByCode[code] ?? "", sentence),
          ],
          shape,
        );
      }
    });

  it("a request that is not a review does not affect the next request", async () => {
    const { sendEvent } = openTestEndpoint();
    for (const [, change] of badInputs) {
      await sendEvent(alterEvent(apiEvent, change));
      assert.equal((await sendEvent(encodeBody(apiEvent))).body, changed);
    }
  });

  const unknownPaths: [string, string][] = [
    ["a wrong key", toPath("mutate", `prod-eu.${"A".repeat(86)}`)],
    ["a key of another signer", toPath("mutate", createTestSigner(2).segment("prod-eu"))],
    ["another cluster's key", toPath("mutate", signer.segment("prod-us").replace("prod-us", "prod-eu"))],
    ["an unknown cluster", toPath("mutate", signer.segment("prod-us"))],
    ["a cluster named as a member of every object", toPath("mutate", signer.segment("constructor"))],
    ["a key of an old version", toPath("mutate", signer.segment("raised", 1))],
    ["no key", "/judge/mutate"],
    ["a cluster without its key", "/prod-eu/judge/mutate"],
    ["an empty segment", "//judge/mutate"],
    ["no path", ""],
    ["a slash", "/"],
    ["an unknown rule", `/${signer.segment("prod-eu")}/judges/mutate`],
    ["an unknown phase", toPath("judge")],
    ["no phase", `/${signer.segment("prod-eu")}/judge`],
    ["an unknown variant", toPath("mutate/strict")],
    ["a phase for a variant", toPath("mutate/validate")],
    ["an empty variant", toPath("mutate/")],
    ["a key in another letter case", toPath("mutate").toUpperCase()],
    ["an encoded slash", toPath("mutate").replaceAll("/", "%2F")],
  ];
  it("a request for an unknown path or key gets the same answer, whatever is wrong", async () => {
    const { sendEvent, reports } = openTestEndpoint();
    const expected = {
      statusCode: 404,
      headers: { "content-type": "application/json" },
      body: printFailure(404, "NotFound", "there is nothing here"),
      isBase64Encoded: false,
    };
    for (const [name, path] of unknownPaths) {
      assert.deepEqual(await sendEvent(alterEvent(apiEvent, { path })), expected, name);
      // The key is verified first, so the answer says nothing about other faults of the request.
      for (const otherFault of [{ method: "GET" }, { body: "{" }, { headers: { "content-type": "text/plain" } }])
        assert.deepEqual(await sendEvent(alterEvent(apiEvent, { path, ...otherFault })), expected, name);
    }
    assert.equal(reports.length, unknownPaths.length * 4);
  });

  it("a request for a phase that the rule does not have is answered 404", async () => {
    const validatingRule = rule({ summary: "Validates.", match: [], validate() {} });
    assert.equal(((await openEndpoint(validatingRule).handler(apiEvent, buildContext())) as Reply).statusCode, 404);
  });
});

describe("a review", () => {
  const acceptedReviews: [name: string, change: Change, answer: string][] = [
    [
      "with a deep object is admitted",
      { path: toPath("validate"), body: printReview({ object: 1 }).replace('"object":1', `"object":${nest(200_000)}`) },
      admitted,
    ],
    [
      "with duplicate keys has the value of the last key",
      { path: toPath("validate"), body: printReviewOf("good").replace('"name":"good"', '"name":"good","name":"bad"') },
      refused,
    ],
    [
      "with a key of an old version that is still accepted is admitted",
      { path: toPath("validate", signer.segment("raised", 2)) },
      admitted,
    ],
    ["with a key of the new version is admitted", { path: toPath("validate", signer.segment("raised", 3)) }, admitted],
    [
      "for a rule that is off is admitted",
      { path: toPath("validate", signer.segment("idle")), body: printReviewOf("bad") },
      admitted,
    ],
    ["for a rule that is off changes nothing", { path: toPath("mutate", signer.segment("idle")) }, admitted],
    [
      "of v1beta1 is answered in v1beta1",
      { path: toPath("validate"), body: JSON.stringify({ ...review, apiVersion: "admission.k8s.io/v1beta1" }) },
      admitted.replace("k8s.io/v1", "k8s.io/v1beta1"),
    ],
  ];
  for (const [name, change, expected] of acceptedReviews)
    it(`a review ${name}`, async () => {
      const { statusCode, body } = await openTestEndpoint().sendEvent(alterEvent(apiEvent, change));
      assert.deepEqual([statusCode, body], [200, expected]);
    });

  it("a review's key named __proto__ is kept, and nothing is read from its value", async () => {
    const labels = '{"__proto__":{"seen":"no"},"app":"web"}';
    const body = printReview({ object: { metadata: { labels: 1 } } }).replace('"labels":1', `"labels":${labels}`);
    const reply = await openTestEndpoint().sendEvent(alterEvent(apiEvent, { body }));
    const { patch } = JSON.parse(reply.body).response;
    assert.equal(
      Buffer.from(patch, "base64").toString(),
      '[{"op":"add","path":"/metadata/labels/seen","value":"yes"}]',
    );
  });

  it("a review with a deeply nested object that the rule changes is answered with 200 or 500", async () => {
    const body = printReview({ object: 1 }).replace('"object":1', `"object":{"metadata":{"labels":${nest(200_000)}}}`);
    const { sendEvent } = openTestEndpoint();
    assert.ok([200, 500].includes((await sendEvent(alterEvent(apiEvent, { body }))).statusCode));
    assert.equal((await sendEvent(apiEvent)).body, changed);
  });

  it("a review that a rule never answers fails before the timeouts of Lambda and of the caller", async () => {
    // The function has no time left, or the caller waits for only a second.
    for (const [timeoutOfCaller, remainingMs] of [
      ["30s", 0],
      ["1s", 10_000],
    ] as const) {
      const change = { path: toPath("validate"), body: printReviewOf("silent"), timeout: timeoutOfCaller };
      const { statusCode, body } = await openTestEndpoint().sendEvent(alterEvent(apiEvent, change), remainingMs);
      assert.deepEqual([statusCode, body], [504, printFailure(504, "Timeout", "the rule did not answer in time")]);
    }
  });

  it("a review that makes a rule throw has the stack in the log, and not in the answer", async () => {
    const { sendEvent, reports } = openTestEndpoint();
    const { body } = await sendEvent(alterEvent(apiEvent, { path: toPath("validate"), body: printReviewOf("broken") }));
    const [report] = reports;
    assert.ok(report);
    const { error, verdict } = JSON.parse(formatLogLine(report, "test", 0));
    assert.equal(verdict, "failed");
    assert.match(error, /caused by RangeError: the rule broke\n +at .*flow\.test\.ts:\d+/);
    assert.doesNotMatch(body, /flow\.test/);
  });
});

describe("a handler", () => {
  it("a handler declares fewer than three parameters, because Lambda's Node 24 refuses a third one", () =>
    assert.ok(openTestEndpoint().handler.length < 3));

  it("a handler answers any event", async () => {
    const { sendEvent } = openTestEndpoint();
    const texts = [...fixtures.texts, toPath("mutate"), toPath("validate"), JSON.stringify(review)];
    // Any JavaScript value; many have the keys and texts of events.
    const { any } = fc.letrec((tie) => ({
      any: fc.oneof(
        { maxDepth: 5, withCrossShrink: true },
        fc.anything(),
        fc.constantFrom<unknown>(...texts, true, null, review),
        fc.array(tie("any"), { maxLength: 3 }),
        fc.dictionary(fc.constantFrom(...fixtures.keys), tie("any"), { maxKeys: 12 }),
      ),
    }));
    // Events of which up to three members are replaced.
    const changedEvents = fc
      .tuple(
        fc.constantFrom(...shapes, "direct"),
        fc.array(fc.tuple(fc.constantFrom(...fixtures.keys), any), { maxLength: 3 }),
      )
      .map(([shape, changes]) => ({ ...readFixture<object>(shape), ...Object.fromEntries(changes) }));
    await fc.assert(
      fc.asyncProperty(fc.oneof(any, changedEvents), async (event) => {
        const reply = (await sendEvent(event)) as unknown as Map;
        const code = reply.statusCode ?? reply.code ?? (reply.kind === "AdmissionReview" ? 200 : undefined);
        assert.ok(typeof code === "number" && code >= 200 && code < 600, JSON.stringify(reply));
      }),
      { numRuns: 3000 },
    );
  });

  it("a handler answers 500 for anything that a rule throws", async () => {
    await fc.assert(
      fc.asyncProperty(fc.anything({ withNullPrototype: true }), async (thrown) => {
        const validate = () => {
          throw thrown;
        };
        const broken = rule({ summary: "Breaks.", match: [], validate });
        const checkReport = (report: AnsweredReviewFacts) => void JSON.parse(formatLogLine(report, "test", 0));
        const { handler } = openEndpoint(broken, config, { writeLogLine: checkReport });
        const event = alterEvent(apiEvent, { path: toPath("validate") });
        const { statusCode, body } = (await handler(event, buildContext())) as Reply;
        assert.equal(statusCode, 500);
        assert.match(JSON.parse(body).message, /^the rule failed: /);
      }),
    );
  });

  it("a handler answers 500 if an error is its own cause", async () => {
    const error = new Error("round");
    error.cause = new Error("and round", { cause: error });
    const validate = () => {
      throw error;
    };
    const { handler, reports } = openEndpoint(rule({ summary: "Breaks.", match: [], validate }));
    const event = alterEvent(apiEvent, { path: toPath("validate") });
    assert.equal(((await handler(event, buildContext())) as Reply).statusCode, 500);
    assert.match(reports.map((report) => formatLogLine(report, "test", 0)).join(), /and round/);
  });
});
