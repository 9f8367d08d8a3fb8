import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Ajv } from "ajv";
import type { Context } from "aws-lambda";
import fc from "fast-check";
import { createTestSigner } from "../../test/parity/test-key.ts";
import { createLambdaHandler } from "../lambda/handler.ts";
import { rule } from "../rule.ts";
import { createUnconnectedCapabilities } from "./capabilities.ts";
import type { EndpointConfig, EndpointHost } from "./endpoint.ts";
import schema from "./log-line.schema.json" with { type: "json" };
import { type AnsweredReviewFacts, formatLogLine, getVerdictForLog } from "./log-line.ts";

const report: AnsweredReviewFacts = {
  rule: "sample",
  phase: "validate",
  cluster: "prod-eu",
  key: "abcdefgh.1",
  mode: "enforce",
  code: 200,
  refused: false,
  operations: 0,
  milliseconds: 1.25,
  function: "postern-sample",
  version: "7",
};

interface Directive {
  Namespace: string;
  Dimensions: string[][];
  Metrics: { Name: string }[];
}

const isLogLine = new Ajv({ strict: true }).compile(schema);

/**
 * Returns the metrics that CloudWatch reads from a log line by the specification of the embedded metric format. Fails
 * if the line doesn't match the schema.
 */
const parseMetrics = (text: string): Record<string, unknown>[] => {
  assert.ok(isLogLine(JSON.parse(text)), `${JSON.stringify(isLogLine.errors)}: ${text}`);
  const { _aws, ...values } = JSON.parse(text);
  if (_aws === undefined) return [];
  assert.ok(Number.isSafeInteger(_aws.Timestamp) && _aws.CloudWatchMetrics.length > 0);
  return _aws.CloudWatchMetrics.flatMap(({ Namespace, Dimensions, Metrics }: Directive) => {
    assert.match(Namespace, /^[\w./#:-]{1,256}$/);
    for (const set of Dimensions) {
      assert.ok(set.length > 0 && set.length <= 30);
      for (const name of set)
        assert.ok(
          typeof values[name] === "string" && values[name] !== "" && values[name].length <= 1024,
          `dimension ${name} is ${values[name]}`,
        );
    }
    for (const { Name } of Metrics) assert.ok(Number.isFinite(values[Name]), `metric ${Name} is ${values[Name]}`);
    return Dimensions.flatMap((set) =>
      Metrics.map(({ Name }) => ({ [Name]: values[Name], by: set.map((name) => values[name]).join(" ") })),
    );
  });
};

describe("a log line", () => {
  it("a log line counts a review for its stage, and its denial for its stage and rule", () => {
    assert.deepEqual(parseMetrics(formatLogLine({ ...report, refused: true }, "prod", 5)), [
      { Errors: 0, by: "prod" },
      { Latency: 1.25, by: "prod" },
      { Denials: 1, by: "prod sample" },
    ]);
  });
  it("a log line adds the time of a function's start (200 ms) to the latency of the first review", () => {
    const line = formatLogLine(report, "prod", 5, 200);
    assert.deepEqual(parseMetrics(line), [
      { Errors: 0, by: "prod" },
      { Latency: 201.25, by: "prod" },
      { ColdStart: 201.25, by: "prod" },
      { Denials: 0, by: "prod sample" },
    ]);
    assert.equal(JSON.parse(line).Init, 200);
  });
  it("a log line counts a review of a group once, and a member's denial for the member", () => {
    const member = { rule: "sample", mode: "enforce" as const, refused: true, operations: 0 };
    const group = { ...report, rule: "all", refused: true, members: [member] };
    assert.deepEqual(
      [
        formatLogLine(group, "prod", 5),
        formatLogLine({ ...group, ...member, members: undefined, group: "all" }, "prod", 5),
      ].flatMap(parseMetrics),
      [
        { Errors: 0, by: "prod" },
        { Latency: 1.25, by: "prod" },
        { Denials: 0, by: "prod all" },
        { Errors: 0, by: "prod" },
        { Denials: 1, by: "prod sample" },
      ],
    );
  });
  it("a log line counts a failure as an error and not as a denial", () => {
    const metrics = parseMetrics(formatLogLine({ ...report, code: 504, error: new Error("late") }, "prod", 5));
    assert.deepEqual(
      [metrics.filter(({ Errors }) => Errors === 1).length, metrics.filter(({ Denials }) => Denials === 1).length],
      [1, 0],
    );
  });
  it("a log line counts no request without a valid key", () => {
    const withoutKey = { ...report, cluster: undefined, key: undefined, phase: undefined, mode: undefined, code: 404 };
    assert.deepEqual(parseMetrics(formatLogLine(withoutKey, "prod", 5, 200)), []);
  });

  const verdicts: [change: Partial<AnsweredReviewFacts>, verdict: string][] = [
    [{}, "allowed"],
    [{ operations: 2 }, "changed"],
    [{ refused: true }, "denied"],
    [{ code: 500 }, "failed"],
    [{ code: 404, refused: true }, "failed"],
    [{ mode: "warn" }, "allowed"],
    [{ mode: "warn", refused: true }, "would be denied"],
    [{ mode: "audit", operations: 1 }, "would be changed"],
    [{ mode: "off" }, "allowed"],
  ];
  for (const [change, verdict] of verdicts)
    it(`has the verdict ${verdict} for ${JSON.stringify(change)}`, () =>
      assert.equal(getVerdictForLog({ ...report, ...change }), verdict));

  it("a log line has the cluster and the reviewed object", () => {
    const request = {
      uid: "u",
      kind: { group: "apps", version: "v1", kind: "Deployment" },
      resource: { group: "apps", version: "v1", resource: "deployments" },
      subResource: "scale",
      operation: "UPDATE",
      userInfo: { username: "jane" },
      name: "web",
      namespace: "shop",
      dryRun: true,
      object: { secret: "s3cret" },
    } as const;
    const { _aws: _, ...entry } = JSON.parse(formatLogLine({ ...report, variant: "v", request }, "prod", 5));
    assert.deepEqual(entry, {
      Rule: "sample",
      Phase: "validate",
      Cluster: "prod-eu",
      Mode: "enforce",
      Function: "postern-sample",
      Version: "7",
      Key: "abcdefgh.1",
      Stage: "prod",
      Reviews: 1,
      Denials: 0,
      Errors: 0,
      Latency: 1.25,
      Init: 0,
      verdict: "allowed",
      code: 200,
      variant: "v",
      operations: 0,
      operation: "UPDATE",
      group: "apps",
      resource: "deployments",
      subResource: "scale",
      namespace: "shop",
      name: "web",
      uid: "u",
      dryRun: true,
    });
  });

  const request = {
    uid: "u",
    kind: { group: "", version: "v1", kind: "Pod" },
    resource: { group: "", version: "v1", resource: "pods" },
    operation: "CREATE" as const,
    userInfo: { username: "jane@example.com" },
    object: {},
  };
  const denied = { ...report, request, refused: true, message: "it has no label" };
  it("a log line doesn't count a probe's denial, but counts a denial of the probe's user without dry run", () => {
    const probe = { ...denied, request: { ...request, userInfo: { username: "postern:probe" }, dryRun: true } };
    assert.deepEqual(parseMetrics(formatLogLine(probe, "prod", 5)), [
      { Errors: 0, by: "prod" },
      { Latency: 1.25, by: "prod" },
    ]);
    assert.equal(JSON.parse(formatLogLine(probe, "prod", 5)).Denials, 0);
    const real = { ...probe, request: { ...probe.request, dryRun: false } };
    assert.ok(parseMetrics(formatLogLine(real, "prod", 5)).some((metric) => "Denials" in metric));
    assert.equal(JSON.parse(formatLogLine(real, "prod", 5)).Denials, 1);
  });
  const denials: [name: string, change: Partial<AnsweredReviewFacts>, expected: object][] = [
    ["has no user and no message for an admitted review", { refused: false, message: undefined }, {}],
    ["has both for a denied review", {}, { user: "jane@example.com", message: "it has no label" }],
    ["has both in mode warn", { mode: "warn" }, { user: "jane@example.com", message: "it has no label" }],
    ["has both in mode audit", { mode: "audit" }, { user: "jane@example.com", message: "it has no label" }],
    ["has no user and no message with minimal logs", { logs: "minimal" }, {}],
    [
      "has an empty user for a user without a name",
      { request: { ...request, userInfo: {} } },
      { user: "", message: "it has no label" },
    ],
    ["has no user and no message for a group, because its members have log lines", { members: [] }, {}],
    ["keeps line breaks", { message: "one\ntwo" }, { user: "jane@example.com", message: "one\ntwo" }],
    [
      "replaces characters that harm terminals",
      { message: "a\u0007\u009b\u202eb\u2028\ud800", request: { ...request, userInfo: { username: "x\u001b[2J\n" } } },
      { user: "x?[2J\n", message: "a???b\u2028?" },
    ],
    [
      "cuts long texts",
      { message: "m".repeat(5_000_000), request: { ...request, userInfo: { username: "u".repeat(5_000_000) } } },
      { user: `${"u".repeat(500)}…`, message: `${"m".repeat(4000)}…` },
    ],
  ];
  for (const [name, change, expected] of denials)
    it(`${name} (user and message of a denial)`, () => {
      const line = formatLogLine({ ...denied, ...change }, "prod", 5);
      const { user, message } = JSON.parse(line);
      parseMetrics(line);
      assert.deepEqual({ ...(user !== undefined && { user }), ...(message !== undefined && { message }) }, expected);
    });

  it("a log line has an error with all its causes", () => {
    const error = new Error("outer", {
      cause: new TypeError("middle", { cause: new RangeError("inner", { cause: "no error" }) }),
    });
    assert.match(
      JSON.parse(formatLogLine({ ...report, code: 500, error }, "prod", 5)).error,
      /^Error: outer\n.*\ncaused by TypeError: middle\n.*\ncaused by RangeError: inner\n/s,
    );
  });

  it("a log line has no member that the schema doesn't describe, and all members that it requires", () => {
    const wrongChanges = [{ Reviews: "1" }, { verdict: "refused" }, { extra: 1 }, { Latency: -1 }, { Rule: undefined }];
    for (const change of wrongChanges) {
      const line = { ...JSON.parse(formatLogLine(report, "prod", 5)), ...change };
      assert.ok(!isLogLine(JSON.parse(JSON.stringify(line))), JSON.stringify(change));
    }
  });

  it("a log line is one line of JSON with valid metrics for any report", () => {
    const text = fc.string({ unit: "binary", minLength: 1, maxLength: 100 });
    const request = fc.record({
      uid: text,
      name: text,
      namespace: text,
      subResource: text,
      operation: fc.constant("CREATE" as const),
      dryRun: fc.boolean(),
      userInfo: fc.constant({}),
      kind: fc.record({ group: text, version: text, kind: text }),
      resource: fc.record({ group: text, version: text, resource: text }),
    });
    const change = fc.record(
      {
        phase: fc.constantFrom("mutate" as const, "validate" as const),
        variant: text,
        key: text,
        request,
        code: fc.constantFrom(200, 400, 500),
        refused: fc.boolean(),
        message: fc.string({ unit: "binary", maxLength: 5000 }),
        operations: fc.nat(),
        milliseconds: fc.double({ min: 0, noNaN: true, noDefaultInfinity: true }),
        error: text.map((message) => new Error(message)),
      },
      { requiredKeys: [] },
    );
    fc.assert(
      fc.property(change, fc.integer({ min: 0 }), (changes, time) => {
        const line = formatLogLine({ ...report, ...changes }, "prod", time);
        assert.doesNotMatch(line, /[\n\r]/);
        // Errors, Latency and Denials; none for a request that is no review (400).
        assert.equal(parseMetrics(line).length, changes.code === 400 ? 0 : 3);
      }),
      { numRuns: 500 },
    );
  });
});

describe("the log of an endpoint", () => {
  const signer = createTestSigner(1);
  const segment = signer.segment("prod-eu");
  const changingRule = rule({
    summary: "Validates.",
    match: [],
    settings: { token: "settings-s3cret" },
    mutate(object) {
      if (object.metadata?.name === "fail") throw new TypeError("it fails");
      for (const [key, value] of Object.entries(object.metadata?.labels ?? {})) key.concat(value.trim());
      object.metadata = { ...object.metadata, labels: {} };
    },
    validate: ({ metadata }) => (metadata?.labels?.bad ? `it is bad: ${metadata.labels.bad}` : undefined),
  });
  const lines: string[] = [];
  const config: EndpointConfig = {
    rule: "sample",
    clusters: { "prod-eu": { keyVersions: [1], mode: "enforce", settings: { token: "settings-s3cret" } } },
  };
  const host: EndpointHost = {
    functionName: "postern-sample",
    functionVersion: "7",
    publicKeys: signer.publicKey,
    openCapabilities: createUnconnectedCapabilities,
    writeLogLine: (facts) => lines.push(formatLogLine(facts, "test", Date.now())),
  };
  const usualHandler = createLambdaHandler({ rules: { sample: changingRule }, config }, host);
  const context = { getRemainingTimeInMillis: () => 1000 } as Context;
  const logEvent = async (event: unknown, handler = usualHandler): Promise<string> => {
    lines.length = 0;
    await handler(event, context);
    assert.equal(lines.length, 1);
    assert.ok(isLogLine(JSON.parse(String(lines[0]))), `${JSON.stringify(isLogLine.errors)}: ${lines[0]}`);
    return lines[0] ?? "";
  };
  const buildEvent = (path: string, body: string, method = "POST") => ({
    version: "2.0",
    rawPath: path,
    headers: { "content-type": "application/json" },
    requestContext: { http: { method } },
    body,
    isBase64Encoded: false,
  });
  const review = (object: unknown) => ({
    kind: "AdmissionReview",
    apiVersion: "admission.k8s.io/v1",
    request: {
      uid: "u",
      kind: { group: "", version: "v1", kind: "Secret" },
      resource: { group: "", version: "v1", resource: "secrets" },
      name: "web",
      operation: "CREATE",
      userInfo: { username: "jane", groups: ["group-s3cret"] },
      object,
      oldObject: object,
    },
  });

  it("the log of an endpoint has no part of the object, the settings, the body or the key", async () => {
    const secretText = fc.string({ unit: fc.constantFrom(..."QWZ789"), minLength: 6, maxLength: 20 });
    const secretAndBody = fc
      .tuple(secretText, fc.constantFrom("data", "stringData", "metadata", "spec"), fc.nat(), fc.boolean())
      .map(([secret, key, length, isCut]) => {
        const text = JSON.stringify(review({ [key]: { [secret]: secret, labels: { bad: secret } } }));
        return { secret, body: isCut ? text.slice(0, length % text.length) + secret : text };
      });
    await fc.assert(
      fc.asyncProperty(
        secretAndBody,
        fc.constantFrom("mutate", "validate", "sample"),
        fc.constantFrom("POST", "GET"),
        async ({ secret, body }, phase, method) => {
          const line = await logEvent(buildEvent(`/${segment}/sample/${phase}`, body, method));
          for (const hidden of [secret, segment, segment.slice(-40), "s3cret"]) assert.ok(!line.includes(hidden), line);
        },
      ),
      { numRuns: 300 },
    );
  });

  it("the log of an endpoint has the user and the message of a denial, unless `logs` is minimal", async () => {
    const event = { phase: "validate", review: review({ metadata: { labels: { bad: "QWZ789" } } }) };
    const minimalConfig: EndpointConfig = { ...config, logs: "minimal" };
    const handlers = [
      usualHandler,
      createLambdaHandler({ rules: { sample: changingRule }, config: minimalConfig }, host),
    ];
    const found = [];
    for (const handler of handlers) {
      const { Denials, user, message } = JSON.parse(await logEvent(event, handler));
      found.push([Denials, user, message]);
    }
    assert.deepEqual(found, [
      [1, "jane", "it is bad: ***"],
      [1, undefined, undefined],
    ]);
  });

  const pathsWithoutValidKey: [string, string][] = [
    ["no key", "/sample/mutate"],
    ["a wrong key", `/prod-eu.${"A".repeat(86)}/sample/mutate`],
    ["another signer's key", `/${createTestSigner(2).segment("prod-eu")}/sample/mutate`],
    ["no path", ""],
  ];
  for (const [name, path] of pathsWithoutValidKey)
    it(`is one line without a cluster and without metrics for a request with ${name}`, async () => {
      const text = await logEvent(buildEvent(path, "{}"));
      const { Latency: _, ...entry } = JSON.parse(text);
      assert.deepEqual(parseMetrics(text), []);
      assert.deepEqual(entry, {
        Rule: "sample",
        Function: "postern-sample",
        Version: "7",
        Stage: "test",
        Reviews: 0,
        Denials: 0,
        Errors: 0,
        Init: 0,
        verdict: "failed",
        code: 404,
        operations: 0,
        error: "there is nothing here",
      });
    });
  it("the log of an endpoint has no metrics for an unreadable event", async () =>
    assert.deepEqual(parseMetrics(await logEvent({ a: 1 })), []));

  const [path, wrongType] = [`/${segment}/sample/mutate`, JSON.stringify(review({ metadata: { labels: { a: 0 } } }))];
  const eventsWithValidKey: [name: string, event: unknown, code: number, metrics: number][] = [
    ["a review", buildEvent(path, JSON.stringify(review({}))), 200, 3],
    ["a direct review", { phase: "mutate", cluster: "prod-eu", review: review({}) }, 200, 3],
    [
      "a review on which the rule fails",
      buildEvent(path, JSON.stringify(review({ metadata: { name: "fail" } }))),
      500,
      3,
    ],
    ["a body that is no review", buildEvent(path, "{"), 400, 0],
    ["another method", buildEvent(path, "", "GET"), 405, 0],
    ["a review with a wrong type", buildEvent(path, wrongType), 400, 0],
  ];
  for (const [name, event, code, metrics] of eventsWithValidKey)
    it(`${metrics > 0 ? "counts" : "does not count"} ${name}, sent with a valid key`, async () => {
      const text = await logEvent(event);
      const { code: loggedCode, Reviews, Errors } = JSON.parse(text);
      assert.deepEqual(
        [parseMetrics(text).length, loggedCode, Reviews, Errors],
        [metrics, code, metrics > 0 ? 1 : 0, code === 500 ? 1 : 0],
      );
    });
  for (const invocation of [
    { phase: "mutate", cluster: "prod-eu", review: {} },
    { phase: "sample", cluster: "prod-eu", review: {} },
    { phase: "mutate", cluster: "prod-eu", review: review({}), now: "noon" },
    { phase: "mutate", cluster: "", review: review({}) },
  ])
    it(`has valid metrics, or none, for ${JSON.stringify(invocation).slice(0, 60)}`, async () => {
      assert.ok([0, 3].includes(parseMetrics(await logEvent(invocation)).length));
    });
});
