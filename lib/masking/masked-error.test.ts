import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import fc from "fast-check";
import { createTestSigner } from "../../test/parity/test-key.ts";
import { createUnconnectedCapabilities } from "../core/capabilities.ts";
import { formatLogLine } from "../core/log-line.ts";
import { Failure, toFailure } from "../failure.ts";
import { createLambdaHandler } from "../lambda/handler.ts";
import { get, list } from "../needs.ts";
import type { AdmissionRequest } from "../review.ts";
import { rule } from "../rule.ts";
import { formatError } from "./masked-error.ts";

const buildRequest = (object: object, kind = "ConfigMap"): AdmissionRequest => ({
  uid: "uid-1",
  kind: { group: "", version: "v1", kind },
  resource: { group: "", version: "v1", resource: `${kind.toLowerCase()}s` },
  namespace: "shop",
  name: "settings",
  operation: "CREATE",
  userInfo: { username: "jane" },
  object: { metadata: { name: "settings", namespace: "shop" }, ...object },
});

/** Returns the error that an expression throws. */
const getError = (fail: () => unknown): unknown => {
  try {
    return fail();
  } catch (error) {
    return error;
  }
};

/** The last argument of formatError. */
const withStack = true;
/** Returns the failure that is logged if a rule throws the error. */
const getRuleFailure = (fail: () => unknown) => toFailure(getError(fail));

describe("the message of an error in a log", () => {
  const object = {
    data: {
      password: "S3cret-pa55",
      pin: 48151623,
      word: "abcd",
      json: '{"user":"jo","inner":"abc-inner"}',
      encoded: Buffer.from("decoded-value").toString("base64"),
      quoted: 'a "quoted" text, with \\ and\nlines of text',
      metadata: "spec",
      own: "failed",
    },
  };
  const messages: [thrown: unknown, message: string][] = [
    [new Error('strconv.Atoi: parsing "S3cret-pa55": invalid syntax'), 'strconv.Atoi: parsing "***": invalid syntax'],
    [new Error('out.a: conflicting values "x" and "y" (mismatch)'), 'out.a: conflicting values "***" (mismatch)'],
    [new Error("out.a: conflicting values 48151623 and string"), "out.a: conflicting values *** and string"],
    [new Error("metadata has abcd and S3cret-pa5"), "metadata has *** and ***"],
    [new Error("the JSON has abc-inner"), "the JSON has ***"],
    [new Error("it decodes to decoded-value"), "it decodes to ***"],
    [new Error(JSON.stringify(object.data.quoted)), '"***"'],
    [
      new Error("configmaps settings of shop can't be read, it isn't 'x'"),
      "configmaps settings of shop can't be read, it isn't '***'",
    ],
    [new Error('cut off "S3c'), 'cut off "***"'],
    [new Error(`can't parse "{"a":"b"}" and "c"`), `can't parse "***"`],
    [
      getRuleFailure(() => JSON.parse('{"password":S3cret}')),
      `the rule failed: SyntaxError: Unexpected token '***', "***" is not valid JSON`,
    ],
    [
      getRuleFailure(() => new RegExp(`${"("}other`)),
      "the rule failed: SyntaxError: Invalid regular expression: /***/: Unterminated group",
    ],
    [getRuleFailure(() => BigInt("S3cret-pa55")), "the rule failed: SyntaxError: Cannot convert *** to a BigInt"],
    [getRuleFailure(() => Reflect.get(Object(undefined), "a").b), "the rule failed: a value may have the wrong type"],
    [toFailure("thrown abcd"), "the rule failed: thrown ***"],
    [
      new Failure(503, 'could not read cluster "prod": "x" of "shop" abcd'),
      'could not read cluster "prod": "***" of "shop" ***',
    ],
    [toFailure(new Failure(400, '"5 x" is no quantity such as 500m')), '"***" is no quantity such as 500m'],
    ["a text", "a text"],
    [undefined, "undefined"],
  ];
  for (const [thrown, message] of messages)
    it(`is ${message}`, () =>
      assert.equal(formatError(thrown, { request: buildRequest(object), cluster: "prod" }), message));

  it("the message of an error in a log keeps the stack, but not the property name that V8 could not read", () => {
    const text = formatError(
      getRuleFailure(() => Reflect.get(object, "none").abcd),
      { request: buildRequest(object) },
      withStack,
    );
    assert.match(text, /^Error: the rule failed: a value may have the wrong type\n {4}at /);
    assert.match(
      text,
      /\ncaused by TypeError: Cannot read properties of undefined \(reading '\*\*\*'\)\n {4}at .*masked-error\.test\.ts:\d+:\d+/,
    );
  });

  it("the message of an error in a log has no lines of the original message among the lines of the stack", () => {
    const error = new Error("first\n    at S3cret (/code/rule.js:1:1)\n    at /code/x:2:2");
    const plain = formatError(error, {}, withStack);
    assert.match(plain, /^Error: first\n {4}at S3cret/);
    error.message = "changed";
    const changed = formatError(
      error,
      {
        request: buildRequest({ data: { a: "/code/rule.js:1:1", b: "S3cret" } }),
      },
      withStack,
    );
    assert.doesNotMatch(changed, /S3cret|rule\.js/);
  });

  it("the message of an error in a log has the errors of an AggregateError, but at most ten of them", () => {
    const errors = Array.from({ length: 5000 }, (_, index) => new RangeError(`number ${index}`));
    const text = formatError(new AggregateError(errors, "all"), {}, withStack);
    assert.match(text, /^AggregateError: all\n.*\ncaused by RangeError: number 0\n/s);
    assert.equal(text.split("\ncaused by ").length, 10);
  });

  it("the message of an error in a log is returned for any error, even if its members aren't texts", () => {
    for (const member of ["name", "message", "stack", "cause", "errors"])
      for (const value of [undefined, null, 5, Symbol("a"), { __proto__: null }, [{ __proto__: null }]]) {
        const error = Object.assign(new Error("x"), { [member]: value });
        assert.match(formatError(toFailure("wrapped"), {}, withStack), /^Error: the rule failed: wrapped/);
        assert.equal(typeof formatError(new Failure(500, "outer", { cause: error }), {}, withStack), "string");
        assert.equal(typeof formatError(error, {}, withStack), "string");
      }
  });

  it("the message of an error in a log is short, whatever was thrown", () => {
    const request = buildRequest({ data: { large: "0123456789".repeat(300_000) } });
    for (const message of [
      "0123456789".repeat(300_000),
      '"'.repeat(300_000),
      "'/`\"".repeat(100_000),
      "\n    at ".repeat(100_000),
    ])
      assert.ok(formatError(toFailure(new SyntaxError(message)), { request }, withStack).length < 20_000);
  });
});

/**
 * Generates a secret that occurs nowhere else, and a text with the secret between characters at which programs quote,
 * escape or split texts.
 */
const marker = fc
  .tuple(
    fc.string({ unit: fc.constantFrom(..."QXZJ0123456789"), minLength: 10, maxLength: 14 }),
    fc.constantFrom("", "-", " ", '"', "'", "`", "\\", "/", "\n", "{", "(", "%", "=", "é", "\u2028"),
    fc.constantFrom("", '"', "'", "\n    at ", ":1:1"),
  )
  .map(([secret, before, after]) => ({ secret, text: `${before}${secret}${after}` }));

/** Code that a rule may run with a value, and that throws an error which shows the value. */
const failures: Record<string, (value: string, object: object) => unknown> = {
  "a message": (value) => Promise.reject(new Error(`the value ${value} is wrong`)),
  "a quoted message": (value) => Promise.reject(new RangeError(`"${value}" isn't right, or '${value}'`)),
  "the object": (_, object) => Promise.reject(new Error(JSON.stringify(object))),
  "the value as JSON": (value) => JSON.parse(value),
  "JSON around the value": (value) => JSON.parse(`{"a": [1, ${value}, "${value}"]}`),
  "JSON that is cut off": (value) => JSON.parse(`{"password":"${value}`),
  "JSON of base64": (value) => JSON.parse(atob(btoa(encodeURIComponent(value)))),
  "an expression": (value) => new RegExp(`${value}(`),
  "a property of undefined": (value) => Reflect.get(Object({}), value)[value],
  "a bigint": (value) => BigInt(`${value}n`),
  "an entry of a Map": (value) => new Map([value] as never),
  "a call of no function": (value) => Object({ [value]: value })[value](),
  "a key that is looked for in a text": (value) => "a" in (value as never),
  "a frozen object": (value) => Object.defineProperty(Object.freeze({}), value, { value }),
  "an address": (value) => new URL(value),
  "a time zone": (value) => new Intl.DateTimeFormat("en", { timeZone: value }),
  "a file": (value) => readFileSync(`/none/${value.replaceAll("\0", "")}`),
  "an assertion": (value) => assert.equal(value, "other"),
  "an assertion of objects": (value) => assert.deepEqual({ a: [value] }, { a: [1] }),
  "code that is no JavaScript": (value) => new Function(value)(),
  "a text instead of an Error": (value) => Promise.reject(value),
  "an object instead of an Error": (value) => Promise.reject({ message: value, stack: value }),
  "a Failure": (value) => Promise.reject(new Failure(503, `no answer for ${value}`)),
  "a Failure with a cause": (value) => Promise.reject(new Failure(503, `none: ${value}`, { cause: new Error(value) })),
  "a caller's mistake": (value) => Promise.reject(new Failure(400, `${value} is no quantity`)),
  "a cause": (value) => Promise.reject(new Error("outer", { cause: new Error(`inner ${value}`, { cause: value }) })),
  "several causes": (value) => Promise.any([Promise.reject(new Error(value)), Promise.reject(value)]),
  "the value as its name": (value) => Promise.reject(Object.assign(new Error("x"), { name: value })),
  "the value in its stack": (value) =>
    Promise.reject(Object.assign(new Error("x"), { stack: `${value}\n    at ${value} (${value}:1:1)` })),
  "a message that was changed later": (value) => Promise.reject(Object.assign(new Error(value), { message: "x" })),
  "a function's name": (value) =>
    ({
      [value]: () => {
        throw new Error("x");
      },
    })[value]?.(),
  "a part of the value": (value) => Promise.reject(new Error(`begins with ${value.slice(0, 11)}`)),
};

describe("the log line of a failed review", () => {
  const signer = createTestSigner(1);
  const context = { functionName: "sample", functionVersion: "7", getRemainingTimeInMillis: () => 5000 };
  for (const [name, fail] of Object.entries(failures))
    it(`contains no value of the review after an error with ${name}`, () =>
      fc.assert(
        fc.asyncProperty(
          marker,
          fc.array(marker, { maxLength: 3 }),
          fc.constantFrom("ConfigMap", "Secret"),
          fc.constantFrom("object", "oldObject", "userInfo"),
          async (used, others, kind, place) => {
            const lines: string[] = [];
            const sample = rule({
              summary: "Fails.",
              match: [],
              async validate(object) {
                await fail(used.text, object);
              },
            });
            const handler = createLambdaHandler(
              { rules: { sample }, config: { rule: "sample", clusters: {} } },
              {
                publicKeys: signer.publicKey,
                openCapabilities: createUnconnectedCapabilities,
                writeLogLine: (facts) =>
                  lines.push(formatLogLine(facts, "test", 1), facts.error ? formatError(facts.error, facts) : ""),
              },
            );
            const data = Object.fromEntries(others.map(({ text }, index) => [`key-${index}`, text]));
            const request = {
              ...buildRequest({ data, ...(place === "object" && { spec: [{ used: used.text }] }) }, kind),
              ...(place === "oldObject" && { oldObject: { data: { used: used.text } } }),
              ...(place === "userInfo" && { userInfo: { username: "jane", extra: { used: [used.text] } } }),
            };
            const review = { apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview", request };
            const answer = await handler({ phase: "validate", review }, context as Parameters<typeof handler>[1]);
            const logText = lines.join("\n");
            // Some functions in `failures` fail only for some values.
            fc.pre(logText.includes('"verdict":"failed"'));
            // The beginning is looked for, because the log must not contain a part of a secret either.
            for (const { secret } of [used, ...others]) assert.ok(!logText.includes(getBeginning(secret)), logText);
            if (kind === "Secret") assert.ok(!JSON.stringify(answer).includes(getBeginning(used.secret)));
          },
        ),
        { numRuns: 40 },
      ));
});

/** Returns the part of a text that a log must not contain. Parts of fewer than nine characters may be unrecognized. */
const getBeginning = (text: string): string => text.slice(0, 9);

/** Messages of rules in which a value of a Secret is shown in different forms. */
const messagesByForm: Record<string, (value: string, object: object) => string> = {
  "the value": (value) => `the value ${value} is weak`,
  "the value in quotes": (value) => `must not be "${value}", '${value}' or \`${value}\``,
  "the value alone": (value) => value,
  JSON: (value) => JSON.stringify({ value }),
  "the object": (_, object) => JSON.stringify(object),
  // In stringData, the value isn't base64, so a rule has no base64 to show.
  base64: (value, object) => ("stringData" in object ? "" : Buffer.from(value).toString("base64")),
  "a part of the value": (value) => `begins with ${value.slice(0, 11)}`,
  "a long text": (value, object) => `${JSON.stringify(object)}${" ".repeat(3900)}${value}`,
};

describe("the log line of a denial", () => {
  const core = fc.string({ unit: fc.constantFrom(..."QXZJ"), minLength: 2, maxLength: 14 });
  const around = fc.constantFrom("", "-", '"', "'", "\\", "\n", "é");
  const encode = (value: string) => ({ data: { a: Buffer.from(value).toString("base64") } });
  const places: Record<string, (value: string) => { reviewed: object; read?: string }> = {
    "the reviewed Secret": (value) => ({ reviewed: encode(value) }),
    // An API server moves stringData to data before it sends a review; another sender may not.
    "the stringData of the reviewed Secret": (value) => ({ reviewed: { stringData: { a: value } } }),
    "a Secret that the rule read": () => ({ reviewed: {}, read: "one" }),
    "a Secret in a list": () => ({ reviewed: {}, read: "all" }),
  };
  const refusing = rule({
    summary: "Refuses.",
    match: [],
    needs: { secret: get("secrets"), all: list("secrets") },
    settings: { how: "", value: "", read: "" },
    async validate(object, { settings: { how, value, read }, secret, all }) {
      let found: object | undefined = object;
      if (read === "one") found = await secret({ name: "other", namespace: "shop" });
      if (read === "all") found = await all("shop");
      return messagesByForm[how]?.(value, found ?? object);
    },
  });
  const lines: string[] = [];
  const handler = createLambdaHandler(
    { rules: { sample: refusing }, config: { rule: "sample", clusters: {} } },
    {
      publicKeys: "",
      openCapabilities: createUnconnectedCapabilities,
      writeLogLine: (facts) => void lines.push(formatLogLine(facts, "test", 1)),
    },
  );
  for (const how of Object.keys(messagesByForm))
    for (const [place, build] of Object.entries(places))
      it(`contains no value of ${place} if the rule's message has ${how}`, () =>
        fc.assert(
          fc.asyncProperty(around, core, around, async (before, text, after) => {
            const value = `${before}${text}${after}`;
            const { reviewed, read = "" } = build(value);
            const request = buildRequest(reviewed, read ? "ConfigMap" : "Secret");
            const review = { apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview", request };
            const metadata = { name: "other", namespace: "shop" };
            const secret = { apiVersion: "v1", kind: "Secret", metadata, ...encode(value) };
            lines.length = 0;
            const event = { phase: "validate", review, settings: { how, value, read }, needs: { objects: [secret] } };
            await handler(event, {} as Parameters<typeof handler>[1]);
            const { verdict, message } = JSON.parse(String(lines[0]));
            assert.equal(verdict, "denied");
            // Not even a beginning may be shown. `text` is tested without `before` and `after`, which JSON may escape.
            for (const form of [text, Buffer.from(value).toString("base64")].map(getBeginning))
              assert.ok(!message.includes(form), message);
          }),
          { numRuns: 40 },
        ));

  it("the log line of a denial has the message, cut to 4000 characters, for objects other than Secrets", async () => {
    const review = { apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview", request: buildRequest({}) };
    lines.length = 0;
    for (const value of ['spec.tier: "x" is wrong', "a".repeat(5000)])
      await handler(
        { phase: "validate", review, settings: { how: "the value alone", value }, needs: {} },
        {} as Parameters<typeof handler>[1],
      );
    const messages = lines.map((line) => JSON.parse(line).message);
    assert.deepEqual(messages, ['spec.tier: "x" is wrong', `${"a".repeat(4000)}…`]);
  });
});
