import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { describe, it } from "node:test";
import { bundleCode } from "./bundle.ts";
import { createCelPlugin } from "./cel.ts";

const entry = `
  import { compileExpression, createAdmissionEnvironment, evaluateExpression } from "./lib/cel/kubernetes.ts";
  import { dyn } from "./lib/cel/types.ts";
  module.exports = (text) => {
    const compiled = compileExpression(text, createAdmissionEnvironment({}), [dyn]);
    return evaluateExpression(text, compiled, { find: () => null }, { left: 1e6 });
  };`;

/** Returns a bundle's code for settings, and its function that evaluates an expression. */
const bundle = async (settings: unknown) => {
  const { code } = await bundleCode(entry, [createCelPlugin(settings)]);
  const module: { exports?: (text: string) => { value?: unknown; error?: string } } = {};
  new Function("module", "require", code)(module, createRequire(import.meta.url));
  return { code, evaluate: (text: string) => module.exports?.(`dyn(${text})`) };
};

describe("a bundle with expressions of CEL", () => {
  const texts = [
    "dyn('%s-%s'.format(['a', 'b'])) == 'a-b'",
    "quantity ('1Ki').isGreaterThan( // A comment.\n quantity('1k'))",
    "ip.isCanonical('::1') && ip('::1').family() == 6",
    "format.dns1123Label().validate('a.b').hasValue()",
    "optional.of(1).optMap(x, x + 1).orValue(0) == 2 && [[1], [2]].flatten().sum() == 3",
    "{'b': 2}.transformMap(k, v, v + 1) == {'b': 3} && ['bb', 'a'].sortBy(x, x.size()) == ['a', 'bb']",
    "sets . contains([1, 2], [2]) && duration('1h').getMinutes() == 60 && 'ab'.matches('^a.$')",
  ];

  it("has what its expressions call", async () => {
    const { evaluate } = await bundle({ policies: [{ spec: { validations: ["dyn(1)", ...texts] } }] });
    for (const text of texts) assert.equal(evaluate(text)?.value, true, text);
  });

  it("has no functions that its expressions don't call", async () => {
    const { code, evaluate } = await bundle("dyn(object.a).startsWith('b')");
    assert.match(String(evaluate("quantity('1')")?.error), /undeclared reference to 'quantity'/);
    assert.ok(code.length < 70 * 1024, `${code.length} bytes`);
  });
});
