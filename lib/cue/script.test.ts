import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { evaluateCue } from "./engine.ts";
import { splitCueScript } from "./script.ts";

/** Parts of which random scripts are put together. */
const pieces = [
  "a: 1",
  'b: "c"',
  "d: 'e'",
  "f: _ @tag(g)",
  'h: #"i"#',
  'j: """\n  k\n  """',
  'l: "\\(1)"',
  "m: [1, {n: 2}]",
  "// o\n",
  ...'{ } [ ] ( ) " \' """ \\( \\ # #" "# @x( , : // _'.split(" "),
  "\n",
  " ",
  "package p\n",
  "package p",
  "\uFEFF",
  'import "list"\n',
  "import ",
  '"list"',
  "import (\n",
  "p: list.Max([1])\n",
];

describe("splitCueScript", () => {
  it("splitCueScript accepts exactly the scripts that CUE accepts", () =>
    fc.assert(
      fc.asyncProperty(fc.array(fc.constantFrom(...pieces), { maxLength: 7 }), async (parts) => {
        const script = parts.join("");
        const isAccepted = (source: string) =>
          // A script may have values that aren't concrete, and unused or repeated imports: such errors don't count.
          evaluateCue(source).then(
            () => true,
            ({ message }: Error) =>
              /^cue: marshal error|imported and not used|redeclared as imported package name/.test(message),
          );
        const wrap = () => {
          const { imports, declarations } = splitCueScript(script);
          return `${imports}\n_u: {\n${declarations}\n}\n`;
        };
        let wrapped: string | undefined;
        try {
          wrapped = wrap();
        } catch (error) {
          assert.equal((error as Error).constructor, Error);
        }
        assert.equal(wrapped !== undefined && (await isAccepted(wrapped)), await isAccepted(script), wrapped);
      }),
      {
        numRuns: 500,
        examples: [
          ["package p\n", "// o\n", ","],
          ["package p\n", ","],
          ["package p\n", 'import "list"'],
          ["@x(", ")", 'import "list"\n'],
          ["@x(", "\n", ")", "package p\n"],
        ].map((parts) => [parts]),
      },
    ));

  it("splitCueScript splits very long and deeply nested scripts, because it takes linear time", () => {
    const deep = `a: ${'"\\('.repeat(300_000)}1${')"'.repeat(300_000)}\n`;
    assert.equal(splitCueScript(deep).declarations, deep);
    const wide = `import "list"\n${"a: 1\n".repeat(300_000)}`;
    assert.equal(splitCueScript(wide).imports, 'import "list"');
    const imports = "import ()\n".repeat(100_000);
    assert.equal(splitCueScript(imports).imports, imports.trim());
  });
});
