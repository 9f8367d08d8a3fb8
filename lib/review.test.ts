import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import fc from "fast-check";
import { Failure } from "./failure.ts";
import {
  decodeReview,
  encodeReviewResponse,
  fitAuditAnnotationKeys,
  fitWarnings,
  type Patch,
  type ReviewOutcome,
  type Status,
} from "./review.ts";

type Fields = Record<string, unknown>;
const reviewFile = new URL("../test/fixtures/direct.json", import.meta.url);
const review: { apiVersion: string; request: Fields } = JSON.parse(readFileSync(reviewFile, "utf8")).review;
const request = (change: Fields) => ({ ...review, request: { ...review.request, ...change } });

/** Returns the Failure; any other error is a bug of Postern. */
const findFailure = (body: string): Failure | undefined => {
  try {
    decodeReview(body);
    return undefined;
  } catch (error) {
    assert.ok(error instanceof Failure, `${error instanceof Error ? error.stack : error}`);
    return error;
  }
};

describe("decodeReview", () => {
  const completeReview = request({
    subResource: "status",
    requestSubResource: "status",
    oldObject: { a: 1 },
    unheardOf: { kept: true },
  });
  for (const version of ["v1", "v1beta1"] as const)
    it(`reads every field of ${version}`, () => {
      assert.deepEqual(
        decodeReview(JSON.stringify({ ...completeReview, apiVersion: `admission.k8s.io/${version}`, more: 1 })),
        {
          version,
          request: completeReview.request,
        },
      );
    });

  const requestOfUser = (change: Fields) => request({ userInfo: { username: "jane", ...change } });
  const optional: [name: string, value: object][] = [
    ...[
      "subResource",
      "requestKind",
      "requestResource",
      "requestSubResource",
      "name",
      "namespace",
      "oldObject",
      "dryRun",
      "options",
    ].flatMap((key): [string, object][] => [
      [`no ${key}`, request({ [key]: undefined })],
      [`${key} null`, request({ [key]: null })],
    ]),
    ["an empty user", request({ userInfo: {} })],
    ["a user without groups", requestOfUser({ groups: null, extra: null, uid: null })],
    ["a user with an empty extra", requestOfUser({ extra: { a: [], b: null } })],
    ["empty texts", request({ name: "", namespace: "", subResource: "" })],
    ["a deletion", request({ operation: "DELETE", object: null, oldObject: {} })],
    ["a connection", request({ operation: "CONNECT", object: { kind: "PodExecOptions" }, options: null })],
  ];
  for (const [name, value] of optional)
    it(`takes ${name}`, () => assert.equal(findFailure(JSON.stringify(value)), undefined));

  const gvk = { group: "", version: "v1", kind: "Pod" };
  const gvr = { group: "", version: "v1", resource: "pods" };
  const versions = '"admission.k8s.io/v1" or "admission.k8s.io/v1beta1"';
  const envelopes: [string, unknown, path: string, expected: string][] = [
    ["null", null, "the review", "an object"],
    ["a list", [], "the review", "an object"],
    ["a text", "review", "the review", "an object"],
    ["a list of versions", { ...review, apiVersion: ["admission.k8s.io/v1"] }, "apiVersion", versions],
    ["no version", { ...review, apiVersion: undefined }, "apiVersion", versions],
    ["a kind in another letter case", { ...review, kind: "admissionReview" }, "kind", '"AdmissionReview"'],
    ["no request", { ...review, request: undefined }, "request", "an object"],
    ["a list of requests", { ...review, request: [review.request] }, "request", "an object"],
  ];
  const uid = "a non-empty string";
  const extra = "a map of lists of strings";
  const groups = "a list of strings";
  const requests: [string, Fields, path: string, expected: string][] = [
    ["an empty uid", { uid: "" }, "uid", uid],
    ["a number for a uid", { uid: 1 }, "uid", uid],
    ...["create", "PATCH", null, 1, ["CREATE"], { toString: 1, valueOf: 1 }].map(
      (operation): [string, Fields, string, string] => [
        `the operation ${JSON.stringify(operation)}`,
        { operation },
        "operation",
        "CREATE, UPDATE, DELETE or CONNECT",
      ],
    ),
    ...["kind", "requestKind"].flatMap((key): [string, Fields, string, string][] => [
      [`${key} as a text`, { [key]: "Pod" }, key, "an object"],
      [`${key} without a group`, { [key]: { ...gvk, group: undefined } }, `${key}.group`, "a string"],
      [`${key} with a version that is no text`, { [key]: { ...gvk, version: 1 } }, `${key}.version`, "a string"],
      [`${key} without a kind`, { [key]: gvr }, `${key}.kind`, "a string"],
    ]),
    ...["resource", "requestResource"].flatMap((key): [string, Fields, string, string][] => [
      [`${key} as a list`, { [key]: [gvr] }, key, "an object"],
      [`${key} without a resource`, { [key]: gvk }, `${key}.resource`, "a string"],
    ]),
    ["no kind", { kind: undefined }, "kind", "an object"],
    ["no resource", { resource: undefined }, "resource", "an object"],
    ...["name", "namespace", "subResource", "requestSubResource"].map((key): [string, Fields, string, string] => [
      `${key} that is no text`,
      { [key]: ["a"] },
      key,
      "a string",
    ]),
    ["dryRun as a text", { dryRun: "true" }, "dryRun", "true or false"],
    ["no user", { userInfo: undefined }, "userInfo", "an object"],
    ["a user without a proper name", { userInfo: { username: 1 } }, "userInfo.username", "a string"],
    ["a user without a proper uid", { userInfo: { uid: 1 } }, "userInfo.uid", "a string"],
    ["groups as a text", { userInfo: { groups: "system:masters" } }, "userInfo.groups", groups],
    ["a group that is no text", { userInfo: { groups: ["a", 1] } }, "userInfo.groups", groups],
    ["extra as a list", { userInfo: { extra: [] } }, "userInfo.extra", extra],
    ["extra that isn't lists", { userInfo: { extra: { scopes: "all" } } }, "userInfo.extra", extra],
    ["no object", { object: undefined }, "object", "an object on CREATE"],
    ["no object to connect to", { operation: "CONNECT", object: null }, "object", "an object on CONNECT"],
    ["no object to update", { operation: "UPDATE", object: null, oldObject: {} }, "object", "an object on UPDATE"],
    [
      "no old object to delete",
      { operation: "DELETE", object: {}, oldObject: null },
      "oldObject",
      "an object on DELETE",
    ],
    ["a list for an object", { object: [] }, "object", "an object"],
    ["a text for an old object", { oldObject: "x" }, "oldObject", "an object"],
  ];
  const refusals = [
    ...envelopes,
    ...requests.map(([name, change, path, expected]) => [name, request(change), `request.${path}`, expected] as const),
  ];
  for (const [name, value, path, expected] of refusals)
    it(`refuses ${name}`, () => {
      const failure = findFailure(JSON.stringify(value));
      assert.equal(failure?.code, 400);
      assert.equal(failure?.message, `this is no AdmissionReview: ${path} must be ${expected}`);
    });

  const notJson = "the body is not JSON; an AdmissionReview is expected";
  const broken: [string, string, string][] = [
    ["nothing", "", "the body is empty; an AdmissionReview as JSON is expected"],
    ["a space", " ", notJson],
    ["a word", "hello", notJson],
    ["half an object", '{"a":1', "the body is not JSON (at position 6); an AdmissionReview is expected"],
    ["trailing data", "{} {}", "the body is not JSON (at position 3); an AdmissionReview is expected"],
    ["a byte order mark", "\ufeff{}", notJson],
    ["text that looks like an error position", "position 123456", notJson],
    ["text that ends like a parser error", "x at position 123456 (line 1 column 2)", notJson],
  ];
  for (const [name, body, sentence] of broken)
    it(`refuses ${name}`, () => {
      const failure = findFailure(body);
      assert.deepEqual([failure?.code, failure?.message], [400, sentence]);
    });

  it("decodeReview takes the last of duplicate keys", () => {
    assert.equal(
      decodeReview(JSON.stringify(review).replace('"dryRun":false', '"dryRun":false,"dryRun":true')).request.dryRun,
      true,
    );
  });

  it("decodeReview keeps __proto__ as a key, which sets no prototype", () => {
    const { object } = decodeReview(
      JSON.stringify(request({ object: 1 })).replace('"object":1', '"object":{"__proto__":{"a":1}}'),
    ).request;
    assert.deepEqual(
      [JSON.stringify(object), Reflect.get(object as object, "a")],
      ['{"__proto__":{"a":1}}', undefined],
    );
    assert.equal(
      findFailure(JSON.stringify(request({ uid: undefined })).replace('"kind"', '"__proto__":{"uid":"x"},"kind"'))
        ?.code,
      400,
    );
  });

  const depth = 200_000;
  const nested = {
    lists: "[".repeat(depth) + "]".repeat(depth),
    objects: ['{"a":'.repeat(depth), 1, "}".repeat(depth)].join(""),
  };
  it("decodeReview takes an object 200,000 levels deep", () => {
    assert.equal(
      findFailure(JSON.stringify(request({ object: 1 })).replace('"object":1', `"object":${nested.objects}`)),
      undefined,
    );
  });
  for (const [name, text] of Object.entries(nested)) {
    it(`refuses ${name} 200,000 levels deep`, () => assert.equal(findFailure(text)?.code, 400));
    for (const key of ["uid", "operation", "kind", "resource", "name", "dryRun"])
      it(`refuses ${name} 200,000 levels deep as ${key}`, () => {
        assert.equal(
          findFailure(JSON.stringify(request({ [key]: 1 })).replace(`"${key}":1`, `"${key}":${text}`))?.code,
          400,
        );
      });
  }

  const reviewWithRandomValue = fc
    .tuple(fc.constantFrom(...listPaths(review)), fc.jsonValue({ maxDepth: 3 }))
    .map(([path, value]) => JSON.stringify(replaceAt(review, path, value)));

  it("decodeReview decodes any text or fails with 400", () => {
    const text = fc.oneof(fc.string({ unit: "binary" }), fc.json(), reviewWithRandomValue);
    fc.assert(
      fc.property(text, (body) => [undefined, 400].includes(findFailure(body)?.code)),
      { numRuns: 3000 },
    );
  });

  it("decodeReview quotes nothing of the body in a failure", () => {
    const secret = fc
      .array(fc.constantFrom("Q", "W", "Z", "7", "8", "9"), { minLength: 4, maxLength: 40 })
      .map((letters) => letters.join(""));
    const brokenBody = fc
      .tuple(reviewWithRandomValue, secret, fc.nat(), fc.boolean())
      .map(([body, word, position, isCut]) => {
        const index = position % (body.length + 1);
        return { word, body: body.slice(0, index) + word + (isCut ? "" : body.slice(index)) };
      });
    const bodyWithWrongField = fc
      .tuple(secret, fc.constantFrom("uid", "operation", "kind", "name", "userInfo", "object", "dryRun"), fc.boolean())
      .map(([word, key, isList]) => {
        return { word, body: JSON.stringify(request({ [key]: isList ? [word] : word })) };
      });
    fc.assert(
      fc.property(fc.oneof(brokenBody, bodyWithWrongField), ({ body, word }) => {
        const failure = findFailure(body);
        assert.ok(!failure?.message.includes(word) && failure?.cause === undefined, failure?.message);
      }),
      { numRuns: 3000 },
    );
  });
});

/** Lists every path in a review except those inside the object. */
function listPaths(value: unknown, path: string[] = []): string[][] {
  if (typeof value !== "object" || value === null || path.at(-1) === "object") return [path];
  return [path, ...Object.entries(value).flatMap(([key, inner]) => listPaths(inner, [...path, key]))];
}

function replaceAt(parent: unknown, [key, ...rest]: string[], value: unknown): unknown {
  if (key === undefined) return value;
  const copy = Array.isArray(parent) ? [...parent] : { ...(parent as object) };
  Reflect.set(copy, key, replaceAt(Reflect.get(copy, key), rest, value));
  return copy;
}

/** Processes an answer as kube-apiserver does (admissionreview.go, statuserror.go, attributes.go and warning.go). */
const receive = (body: string, version: string, uid: string, phase: "mutate" | "validate") => {
  const sent = JSON.parse(body);
  const { response } = sent;
  const hasType = (value: unknown, type: string) =>
    assert.ok(value === undefined || typeof value === type, `${JSON.stringify(value)} is no ${type}`);
  assert.ok(response, "webhook response was absent");
  hasType(response.allowed, "boolean");
  hasType(response.patch, "string");
  assert.match(
    response.patch ?? "",
    /^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/,
    "illegal base64 data",
  );
  if (version === "v1") {
    assert.equal(response.uid, uid);
    assert.deepEqual([sent.apiVersion, sent.kind], ["admission.k8s.io/v1", "AdmissionReview"]);
    assert.equal("patchType" in response, Boolean(response.patch), "patch and patchType go together");
    if (phase === "validate") assert.ok(!("patch" in response), "validating webhook may not return response.patch");
  } else assert.deepEqual([sent.apiVersion, sent.kind], ["admission.k8s.io/v1beta1", "AdmissionReview"]);

  const qualified = /^(?=.{1,63}$)([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$/;
  for (const [key, value] of Object.entries(response.auditAnnotations ?? {})) {
    assert.match(key, qualified);
    hasType(value, "string");
  }
  const warnings: string[] = response.warnings ?? [];
  for (const text of warnings)
    assert.ok(text !== "" && text.isWellFormed() && !/\p{Cc}/u.test(text), JSON.stringify(text));

  let characters = 0;
  const countCharacters = (text: string) => Array.from(text).length;
  const total = warnings.reduce((sum, text) => sum + countCharacters(text), 0);
  const headers = [...new Set(warnings)].flatMap((text) => {
    const shortened = total > 4096 ? Array.from(text).slice(0, 256).join("") : text;
    if (characters >= 4096) return [];
    characters += countCharacters(shortened);
    return [shortened];
  });
  assert.deepEqual(headers, warnings, "no warning is cut or dropped on its way");

  if (response.allowed === true) {
    assert.ok(!("status" in response));
    const patch: unknown = response.patch && JSON.parse(Buffer.from(response.patch, "base64").toString());
    if (response.patch) assert.ok(Array.isArray(patch) && response.patchType === "JSONPatch");
    return { allowed: true, patch };
  }
  assert.ok(!("patch" in response), "a denial has no patch");
  const { code, message, reason } = response.status;
  assert.ok(Number.isInteger(code) && code >= 400 && code < 600, `code ${code}`);
  return { allowed: false, code, message: `denied the request: ${message || reason}` };
};

const anyText = fc.oneof(
  fc.string(),
  fc.string({ unit: "binary" }),
  fc.string({ unit: fc.constantFrom("😀", "\ud800", "\udc00", "\n", "\u0085", "a", " ") }),
  fc.string({ minLength: 200, maxLength: 600 }),
);
const patches: fc.Arbitrary<Patch> = fc.array(
  fc.oneof(
    fc.record({ op: fc.constantFrom("add" as const, "replace" as const), path: anyText, value: fc.jsonValue() }),
    fc.record({ op: fc.constant("remove" as const), path: anyText }),
  ),
  { maxLength: 4 },
);
const statuses = fc.record({
  code: fc.oneof(fc.integer({ min: -1, max: 1000 }), fc.double()),
  message: anyText,
  reason: fc.string(),
});
const outcomes = fc.record(
  {
    allowed: fc.boolean(),
    status: statuses,
    warnings: fc.array(anyText, { maxLength: 40 }),
    audit: fc.dictionary(anyText, anyText, { maxKeys: 8 }),
  },
  { requiredKeys: ["allowed"] },
) as fc.Arbitrary<ReviewOutcome>;

describe("encodeReview", () => {
  const buildReview = (version: string, uid: string) =>
    decodeReview(JSON.stringify({ ...request({ uid }), apiVersion: `admission.k8s.io/${version}` }));
  const uids = fc.oneof(fc.uuid(), fc.string({ minLength: 1 }));

  it("encodeReview returns what the API server accepts for any outcome of mutate", () => {
    fc.assert(
      fc.property(fc.constantFrom("v1", "v1beta1"), uids, outcomes, patches, (version, uid, outcome, patch) => {
        const received = receive(
          encodeReviewResponse(buildReview(version, uid), { ...outcome, patch }),
          version,
          uid,
          "mutate",
        );
        assert.equal(received.allowed, outcome.allowed);
        if (outcome.allowed) assert.deepEqual(received.patch ?? [], JSON.parse(JSON.stringify(patch)));
      }),
      { numRuns: 1500 },
    );
  });

  it("encodeReview returns what the API server accepts for any outcome of validate", () => {
    fc.assert(
      fc.property(fc.constantFrom("v1", "v1beta1"), uids, outcomes, (version, uid, outcome) => {
        assert.equal(
          receive(encodeReviewResponse(buildReview(version, uid), outcome), version, uid, "validate").allowed,
          outcome.allowed,
        );
      }),
      { numRuns: 500 },
    );
  });

  const sendStatus = (status: Status) =>
    JSON.parse(encodeReviewResponse(buildReview("v1", "1"), { allowed: false, status })).response.status;
  for (const code of [400, 422, 599])
    it(`keeps the code ${code} of a refusal`, () => {
      const status = { code, reason: "Odd", message: "no" };
      assert.deepEqual(sendStatus(status), status);
    });
  for (const code of [200, 399, 600, 700, 403.5, Number.NaN])
    it(`replaces the code ${code} of a refusal by 403`, () =>
      assert.deepEqual(sendStatus({ code, reason: "Odd", message: "no" }), {
        code: 403,
        reason: "Forbidden",
        message: "no",
      }));

  it("encodeReview keeps the details of a status", () => {
    const status = {
      code: 422,
      reason: "Invalid",
      message: "no",
      details: { name: "a", kind: "Pod", causes: [{ reason: "FieldValueInvalid", message: "m", field: "spec" }] },
    };
    assert.deepEqual(sendStatus(status), status);
  });

  it("encodeReview refuses with 403 if there is no status", () => {
    assert.deepEqual(receive(encodeReviewResponse(buildReview("v1", "1"), { allowed: false }), "v1", "1", "validate"), {
      allowed: false,
      code: 403,
      message: "denied the request: Forbidden",
    });
  });
});

describe("warnings", () => {
  const clean = (text: string) =>
    text
      .toWellFormed()
      .replace(/\p{Cc}+/gu, " ")
      .trim();

  it("warnings are unchanged if they fit, except for control characters", () => {
    assert.deepEqual(fitWarnings(["a\nb", "", "\t", "a b", 'say "x" \\', "\ud83d", "😀", "x".repeat(300)]), [
      "a b",
      'say "x" \\',
      "\ufffd",
      "😀",
      "x".repeat(300),
    ]);
  });

  it("the length of warnings is counted in characters, not in UTF-16 units", () => {
    const emojis = Array.from({ length: 20 }, (_, index) => "😀".repeat(150 + index));
    assert.deepEqual(fitWarnings(emojis), emojis);
  });

  it("the last warning states how many warnings did not fit", () => {
    const longWarnings = Array.from({ length: 17 }, (_, index) => `${index + 10}${"😀".repeat(254)}`);
    assert.deepEqual(fitWarnings(longWarnings), [...longWarnings.slice(0, 15), "2 more warnings did not fit"]);
  });

  it("the last warning counts all dropped warnings, for any texts", () => {
    fc.assert(
      fc.property(fc.array(anyText, { maxLength: 60 }), (texts) => {
        const cleanTexts = [...new Set(texts.map(clean))].filter(Boolean);
        const sent = fitWarnings(texts);
        const [, droppedCount = "0"] = /^(\d+) more warnings did not fit$/.exec(sent.at(-1) ?? "") ?? [];
        const kept = droppedCount === "0" ? sent : sent.slice(0, -1);
        assert.equal(kept.length + Number(droppedCount), cleanTexts.length);
        for (const [index, text] of kept.entries())
          assert.ok(text === cleanTexts[index] || cleanTexts[index]?.startsWith(text.replace(/…$/, "")));
        if (cleanTexts.reduce((sum, text) => sum + [...text].length, 0) <= 4096) assert.deepEqual(sent, cleanTexts);
      }),
      { numRuns: 1000 },
    );
  });
});

describe("audit annotations", () => {
  const cases: [string, Record<string, string>, Record<string, string>][] = [
    ["keep a valid key", { "would-deny": "a", "A.b_c": "b" }, { "would-deny": "a", "A.b_c": "b" }],
    [
      "replace characters that a key must not have",
      { "by whom/when": "a", é: "b" },
      { "by-whom-when": "a", note: "b" },
    ],
    ["cut long keys", { [`${"k".repeat(62)}-long`]: "a" }, { ["k".repeat(62)]: "a" }],
    ["join values whose keys become equal", { "a b": "1", "a/b": "2", "a-b": "3" }, { "a-b": "1; 2; 3" }],
    [
      "accept keys such as constructor and __proto__",
      { constructor: "a", toString: "b", ["__proto__"]: "c" },
      { constructor: "a", toString: "b", proto: "c" },
    ],
    ["replace an empty key by note", { "": "a", "---": "b" }, { note: "a; b" }],
  ];
  for (const [name, audit, sent] of cases) it(name, () => assert.deepEqual(fitAuditAnnotationKeys(audit), sent));

  it("audit annotations keep all values, even if keys become equal", () => {
    const keys = fc.oneof(anyText, fc.constantFrom("constructor", "__proto__", "hasOwnProperty", "a", "a ", "/a"));
    fc.assert(
      fc.property(fc.dictionary(keys, anyText), (audit) => {
        const splitParts = (values: string[]) => values.flatMap((value) => value.toWellFormed().split("; ")).sort();
        assert.deepEqual(splitParts(Object.values(fitAuditAnnotationKeys(audit))), splitParts(Object.values(audit)));
      }),
      { numRuns: 1000 },
    );
  });
});
