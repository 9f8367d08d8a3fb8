import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { readRows } from "../../test/rows.ts";
import { toMap } from "../json.ts";
import { createFieldReadTracker } from "./reads.ts";
import { createRedactor, hasPlaceholder, type UnredactedPath } from "./redaction.ts";

const rows = readRows<{
  kept: { what: string; value: unknown }[];
  replaced: { what: string; value: unknown; expected: unknown }[];
}>(import.meta.filename);

const redactValue = (value: unknown, kept: UnredactedPath[] = []) => createRedactor()(value, kept);

describe("a redaction", () => {
  for (const { what, value } of rows.kept) it(`keeps ${what}`, () => assert.deepEqual(redactValue(value), value));
  for (const { what, value, expected } of rows.replaced)
    it(`replaces ${what}`, () => assert.deepEqual(redactValue(value), expected));

  it("a redaction replaces a text by the same placeholder in all values", () => {
    const redact = createRedactor();
    assert.deepEqual(redact({ a: "x" }), { a: "redacted0001" });
    assert.deepEqual(redact({ b: ["y", "x"] }), { b: ["redacted0002", "redacted0001"] });
  });

  it("a redaction uses placeholders that are valid labels, names and base64", () => {
    const many = redactValue({ data: Array.from({ length: 10_001 }, (_, index) => `text ${index}`) }) as {
      data: string[];
    };
    for (const text of [many.data[0], many.data[10_000]])
      assert.ok(text && /^[a-z0-9]{1,63}$/.test(text) && Buffer.from(text, "base64").toString("base64") === text, text);
    assert.equal(new Set(many.data).size, 10_001);
  });

  it("a redaction keeps a text that a rule read, unless it looks like a secret", () => {
    const object = {
      annotations: {
        a: "free text",
        b: "free text, too",
        c: "Authorization: Bearer abc",
        d: "https://a:b@example.com",
      },
      env: [
        { name: "DB_PASSWORD", value: "p w" },
        { name: "GREETING", value: "good day" },
      ],
      args: ["--verbose", "good day", "--token", "good evening", "--requirepass good"],
      url: "https://hooks.example.com/T0/Xy7Kp2Lm9Qw4Rt6Z",
      password: "p w 2",
    };
    const reads = createFieldReadTracker();
    const { annotations, env, args, url, password } = reads.watch(object);
    assert.ok(
      [annotations.a, annotations.c, annotations.d, env[0]?.value, env[1]?.value, ...args, url, password].every(
        Boolean,
      ),
    );
    assert.deepEqual(createRedactor({ reads })(object), {
      annotations: { a: "free text", b: "redacted0001", c: "redacted0002", d: "https://redacted0003" },
      env: [
        { name: "DB_PASSWORD", value: "redacted0004" },
        { name: "GREETING", value: "good day" },
      ],
      args: ["--verbose", "good day", "--token", "redacted0005", "redacted0006"],
      url: "https://redacted0007",
      password: "redacted0008",
    });
  });

  it("a redaction keeps a script that a rule read, without the values of fields with names of secrets", () => {
    const buildScript = (token: string) =>
      `spec: automountServiceAccountToken: false\nhttp: header: {"X-Token": ${token}, key: "a b"}`;
    const policy = { cue: buildScript('"free text"'), renderedCue: "free text", more: { cue: 'a: "Basic free text"' } };
    const reads = createFieldReadTracker();
    const { cue, more } = reads.watch(policy);
    assert.ok(cue && more.cue);
    assert.deepEqual(createRedactor({ reads })(policy), {
      cue: buildScript('"redacted0001"'),
      renderedCue: "redacted0002",
      more: { cue: "redacted0003" },
    });
  });

  it("a redaction keeps a script, without texts that are assigned to a secret's name or look like tokens", () => {
    const buildScript = (license: string, note: string) =>
      `licenseKey: ${license}\nnote: ${note}\ntopologyKey: "zone"\nimage: "nginx:1.2"`;
    const policy = { apiVersion: "policy.kcloudlabs.io/v1alpha1", cue: buildScript('"a b"', '"glpat-abcdefghij"') };
    assert.equal(createRedactor()(policy).cue, buildScript('"redacted0001"', '"redacted0002"'));
  });

  it("a redaction keeps no data of a Secret, whether the object or the request has the kind Secret", () => {
    const content = { data: { name: "Zm9v" }, stringData: { type: "text" } };
    const redacted = { data: { name: "redacted0001" }, stringData: { type: "redacted0002" } };
    const secret = { kind: "Secret", ...content };
    for (const [value, expected, isSecret] of [
      [secret, { kind: "Secret", ...redacted }, false],
      [{ items: [secret] }, { items: [{ kind: "Secret", ...redacted }] }, false],
      [{ validate: content }, { validate: redacted }, true],
    ] as const) {
      const reads = createFieldReadTracker();
      JSON.stringify(toMap(toMap(reads.watch(value)).data).name); // The rule reads the name.
      assert.deepEqual(createRedactor({ reads, isSecret })(value), expected);
    }
  });

  it("a redaction keeps values at the paths that the operator configured, for one element of a list or for all", () => {
    const value = {
      spec: { containers: [{ args: ["a b", "c d"], note: "e" }, { args: ["f g"] }] },
      data: { "x.y": "z" },
    };
    assert.deepEqual(
      redactValue(value, [
        ["spec", "containers", "args"],
        ["data", "x.y"],
      ]),
      {
        spec: { containers: [{ args: ["a b", "c d"], note: "redacted0001" }, { args: ["f g"] }] },
        data: { "x.y": "z" },
      },
    );
    assert.deepEqual(redactValue(value, [["spec", "containers", 1]]), {
      spec: { containers: [{ args: ["redacted0001", "redacted0002"], note: "redacted0003" }, { args: ["f g"] }] },
      data: { "x.y": "redacted0004" },
    });
  });

  it("a redaction keeps answers valid as JSON or XML, with the texts that a rule read", () => {
    const redact = createRedactor();
    const json = '{"status":{"allowed":true,"reason":"too old"},"name":"a"}';
    assert.equal(redact.body(json), '{"status":{"allowed":true,"reason":"redacted0001"},"name":"a"}');
    assert.equal(
      redact.body(
        "<?xml?>\n<a><availabilityZone>eu-west-1a</availabilityZone><value>too old</value><Code>Not.Found</Code></a>",
      ),
      "<?xml?>\n<a><availabilityZone>eu-west-1a</availabilityZone><value>redacted0001</value><Code>Not.Found</Code></a>",
    );
    assert.deepEqual([redact.body("too old"), redact.body("")], ["redacted0001", ""]);
    const [reads, content] = [createFieldReadTracker(), JSON.parse(json)];
    assert.equal(reads.watch(content).status.reason, "too old");
    assert.equal(createRedactor({ reads }).body(json, content), json);
  });

  it("a redaction keeps the types of values and the lengths of lists, and changes nothing in a redacted value", () => {
    const getShape = (value: unknown): unknown =>
      Array.isArray(value)
        ? value.map(getShape)
        : typeof value === "object" && value !== null
          ? Object.values(value).map(getShape)
          : typeof value;
    const plain = fc.jsonValue().filter((value) => !hasPlaceholder(JSON.stringify(value)));
    fc.assert(
      fc.property(plain, (value) => {
        const once = redactValue(value);
        assert.deepEqual(getShape(once), getShape(value));
        assert.deepEqual(redactValue(once), once);
      }),
    );
  });

  it("a redaction throws if a value is too large or nests too deeply", () => {
    const deep = JSON.parse(`${'{"a":'.repeat(5000)}1${"}".repeat(5000)}`);
    for (const value of [deep, Array.from({ length: 30_000 }).fill("x".repeat(100))])
      assert.throws(() => redactValue(value), /^Error: it is too large to be recorded$/);
  });

  it("a redaction is fast for long texts that repeat parts of secrets, because its patterns take linear time", () => {
    const parts = "a a. a/ a- a1B 1m 1h 1. _ :// //a/ a: a:b@ eyJ password <a> <a>b {{ <password hooks. ?key \\\" ('key"
      .split(" ")
      .concat(
        "bearer ",
        "secret =",
        "token ",
        "--key ",
        "--key, ",
        "-u a",
        "login a ",
        "\nkey ",
        "a.key ",
        "ssh-rsa AAAA",
      );
    const redact = createRedactor();
    for (const part of parts) {
      const text = part.repeat(Math.floor(500_000 / part.length));
      const reads = createFieldReadTracker();
      const value = { a: text, image: text, name: text, labels: { a: text }, limits: { cpu: text } };
      assert.equal(reads.watch(value).a, text);
      createRedactor({ reads })({ a: text });
      for (const [key, member] of Object.entries(value)) redact({ [key]: member });
      redact.body(text);
      redact.body(`<${text}`);
    }
  });
});
