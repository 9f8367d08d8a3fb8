import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { readRows } from "../../test/rows.ts";
import { evaluateCue } from "../cue/engine.ts";
import { evaluateOverrideScript, evaluateValidateScript, findScriptFault, hasWrongOutput } from "./scripts.ts";
import type { PolicyCapabilities, PolicyRequest, ScriptHttpRequest } from "./types.ts";

const rows = readRows<{
  failing: { what: string; script: string; message: string }[];
  outputs: { output: "patches" | "validate"; script: string; isWrong: boolean }[];
}>(import.meta.filename);

const failRequest = async () => assert.fail("a script must not read objects");
/** Returns capabilities with the real CUE and recorded responses of HTTP. */
const createCapabilities = (
  answers: Record<string, Record<string, unknown>> = {},
  sent: ScriptHttpRequest[] = [],
): PolicyCapabilities => ({
  get: failRequest,
  findFirst: failRequest,
  fetchReference: failRequest,
  sendScriptRequest: async (request) => {
    sent.push(request);
    return answers[new URL(request.url).pathname] ?? assert.fail("nothing answers");
  },
  evaluateCue: (source) => evaluateCue(source, Date.now() + 30_000),
});
const capabilities = createCapabilities();

/** Normalizes a text as CUE does. */
const normalize = (text: string) => text.normalize("NFC");

describe("evaluateOverrideScript", () => {
  it("evaluateOverrideScript passes any JSON to the script and back unchanged", () =>
    fc.assert(
      fc.asyncProperty(fc.json({ maxDepth: 5 }), fc.string({ unit: "binary" }).map(normalize), async (json, text) => {
        const value = { any: JSON.parse(json), [`_${text}`]: text, __proto__: { constructor: "x" } };
        const ownMembers = JSON.parse(
          `{"__proto__": {"constructor": [1]}, "#d": 1, "_h": 2, "__x": 3, "a\\u2028\\ufeff": "\\u0000"}`,
        );
        const object = { value, own: ownMembers };
        const [patch] = await evaluateOverrideScript(
          'object: _\npatches: [{op: "add", path: "/a", value: object}]',
          object,
          capabilities,
        );
        assert.deepEqual(patch?.value, JSON.parse(JSON.stringify(object)));
      }),
      { numRuns: 60 },
    ));

  it("evaluateOverrideScript replaces lone surrogates, and keeps texts that look like their escapes", async () => {
    const [patch] = await evaluateOverrideScript(
      'object: _\npatches: [{op: "add", path: "/a", value: object.metadata}]',
      { metadata: { half: "a\ud800b", text: "\\ud800", pair: "😀", mark: "\ufeff" } },
      capabilities,
    );
    assert.deepEqual(patch?.value, { half: "a\ufffdb", text: "\\ud800", pair: "😀", mark: "\ufeff" });
  });

  for (const { what, script, message } of rows.failing)
    it(`fails for a script that ${what}`, async () => {
      const outcome = await evaluateOverrideScript(script, {}, capabilities).then(
        () => "",
        (error: Error) => error.message,
      );
      assert.match(outcome, new RegExp(message));
    });

  for (const number of ["1e400", "-1e400", `1${"0".repeat(400)}`])
    it(`fails for the number ${number.slice(0, 10)}, which JSON would make null`, () =>
      assert.rejects(
        evaluateOverrideScript(`patches: [{op: "add", path: "/a", value: {b: [${number}]}}]`, {}, capabilities),
        {
          message: "the script has a number that is too large",
        },
      ));
  it("evaluateOverrideScript accepts large numbers, and texts that look like numbers which are too large", async () => {
    const value = { a: 1e300, b: `E+${"9".repeat(400)}` };
    const patches = await evaluateOverrideScript(
      `patches: [{op: "add", path: "/a", value: ${JSON.stringify(value)}}]`,
      {},
      capabilities,
    );
    assert.deepEqual(patches, [{ op: "add", path: "/a", value }]);
  });

  it("evaluateOverrideScript ignores the case of field names, as Go does", async () =>
    assert.deepEqual(await evaluateOverrideScript('patches: [{Op: "remove", PATH: "/a"}]', {}, capabilities), [
      { op: "remove", path: "/a" },
    ]));

  it("evaluateOverrideScript evaluates a script with a long name", async () => {
    const script = `_${"u".repeat(500_000)}: [{op: "remove", path: "/a"}]\npatches: _${"u".repeat(500_000)}`;
    assert.deepEqual(await evaluateOverrideScript(script, {}, capabilities), [{ op: "remove", path: "/a" }]);
  });

  for (const none of ["[]", "null", "*null | [...]"])
    it(`returns no patches for ${none}`, async () =>
      assert.deepEqual(await evaluateOverrideScript(`patches: ${none}`, {}, capabilities), []));

  it("evaluateOverrideScript sends the HTTP request that the script states, with all its parts", async () => {
    const sent: ScriptHttpRequest[] = [];
    const script = `processing: {
      http: {
        method: *"POST" | string, url: "http://mock/t"
        request: {body: 'by\\x00tes', header: {A: "b"}, trailer: {C: "d"}}
        tls_config: {ca: "x", client_crt: "y", client_key: "z"}
      }
      output: {n: int}
    }
    patches: [{op: "add", path: "/a", value: processing.output.n}]`;
    const patches = await evaluateOverrideScript(script, {}, createCapabilities({ "/t": { n: 7 } }, sent));
    assert.deepEqual(patches, [{ op: "add", path: "/a", value: 7 }]);
    assert.deepEqual(sent, [
      {
        method: "POST",
        url: "http://mock/t",
        request: { body: "YnkAdGVz", bodyIsBytes: true, header: { A: "b" }, trailer: { C: "d" } },
        tls_config: { ca: "x", client_crt: "y", client_key: "z" },
      },
    ]);
    await assert.rejects(evaluateOverrideScript(script, {}, createCapabilities({}, sent), { dryRun: true }), {
      message: "processing.http is a POST, which is not sent on dry run",
    });
    assert.equal(sent.length, 1);
  });

  for (const [what, http, message] of [
    ["no method", 'url: "http://mock/"', "processing.http.method must be a text"],
    ["a number as url", 'method: "GET", url: 1', "processing.http.url must be a text"],
    [
      "a list as header",
      'method: "GET", url: "x", request: header: A: ["b"]',
      "processing.http.request.header.A must be a text",
    ],
    ["a CA that is missing", 'method: "GET", url: "x", tls_config: {}', "processing.http.tls_config.ca must be a text"],
  ])
    it(`refuses a request with ${what}`, () =>
      assert.rejects(evaluateOverrideScript(`processing: http: {${http}}\npatches: []`, {}, capabilities), {
        message,
      }));
});

describe("findScriptFault", () => {
  const validScripts = [
    "",
    "package p",
    '// a comment\n\n@if(x)\npackage p // another\nimport "strings"\na: strings.ToUpper("x")',
    'import (\n  s "strings" // an import ")"\n  "list"\n)\nimport "math", a: s.ToUpper("x"), b: list.Max([1]), c: math.Pi',
    '"import": 1\n"package": 2',
    '\uFEFFpackage p\nimport "strings"\na: strings.ToUpper("x")',
    'a: "} \\("{\\("x")}") {"\nb: #"\\( } \\#(a)"#\nc: """\n  import "tool/exec"\n  }\n  """\nd: \'}\'\n// }',
    'a: _ @tag(object) @x(y,"}")',
  ];
  for (const script of validScripts)
    it(`finds no fault in ${JSON.stringify(script)}`, async () =>
      assert.equal(await findScriptFault(script, capabilities.evaluateCue), undefined));

  const faultyScripts: [script: string, message: RegExp][] = [
    ["a: b", /^a: reference "b" not found$/],
    ["a: 1 & 2", /^a: conflicting values 2 and 1$/],
    ["a: {", /^a bracket has no end: "}" is missing$/],
    ["a: ]", /^the "\]" in line 1 closes nothing$/],
    ["}\nb: {", /^the "}" in line 1 closes nothing$/],
    ['a: "\\(}', /^the "}" in line 1 closes nothing$/],
    ['a: "b\n"', /^the text that begins in line 1 has no end$/],
    ['a: """\n  b', /^the text that begins in line 1 has no end$/],
    ['import (\n  "strings"\n  e "tool/exec" // "fmt"\n)', /^"tool\/exec" can't be imported/],
    ['import "t\\u006fol/exec"', /^the import "t\\u006fol\/exec" must be written without escapes$/],
    ['a: 1\nimport "strings"', /./],
    ["a: 1\n\uFEFFb: 2", /byte order mark/],
    ["import: 1", /^import must be followed by a path$/],
    ["package: 1", /^package must be followed by a name$/],
    [`a: ${"[".repeat(200_000)}${"]".repeat(200_000)}`, /^the script nests too deeply$/],
    [`a: ${'"\\('.repeat(200_000)}`, /has no end/],
  ];
  for (const [script, message] of faultyScripts)
    it(`finds a fault in ${JSON.stringify(script.slice(0, 60))}`, async () =>
      assert.match((await findScriptFault(script, capabilities.evaluateCue)) ?? "", message));
});

describe("evaluateValidateScript", () => {
  const object = { apiVersion: "v1", kind: "Pod", metadata: { name: "a" } };
  const script = "oldObject: _\nvalidate: {if oldObject.kind != _|_ {valid: false, reason: oldObject.kind}}";

  it("evaluateValidateScript passes the old object to the script only on UPDATE", async () => {
    const evaluateFor = (operation: PolicyRequest["operation"]) =>
      evaluateValidateScript(script, { operation, object, oldObject: object }, capabilities);
    assert.deepEqual(await evaluateFor("UPDATE"), { valid: false, reason: "Pod" });
    assert.deepEqual(await evaluateFor("CREATE"), { valid: true, reason: "" });
  });

  for (const [validate, valid, reason] of [
    ['{Valid: false, Reason: "no"}', false, "no"],
    ["{valid: true, Valid: false}", false, ""],
    ["{Valid: false, valid: true}", true, ""],
  ] as const)
    it(`reads ${validate} as Go does`, async () =>
      assert.deepEqual(
        await evaluateValidateScript(`validate: ${validate}`, { operation: "CREATE", object }, capabilities),
        {
          valid,
          reason,
        },
      ));

  for (const [what, validate, message] of [
    ["is no struct", "true", "validate must be a struct"],
    ["says maybe", '{valid: "maybe"}', "validate.valid must be true or false"],
    ["has a number as reason", "{reason: 1}", "validate.reason must be a text"],
  ])
    it(`fails for a validate that ${what}`, () =>
      assert.rejects(evaluateValidateScript(`validate: ${validate}`, { operation: "CREATE", object }, capabilities), {
        message,
      }));
});

describe("hasWrongOutput", () => {
  for (const { output, script, isWrong } of rows.outputs)
    it(`is ${isWrong} for ${JSON.stringify(script)}`, async () =>
      assert.equal(await hasWrongOutput(script, output, capabilities.evaluateCue), isWrong));
});
