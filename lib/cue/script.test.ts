import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { evaluate } from "./engine.ts";
import { splitScript } from "./script.ts";

const pieces = [
  ...[
    "a: 1",
    'b: "c"',
    "d: 'e'",
    "f: _ @tag(g)",
    'h: #"i"#',
    'j: """\n  k\n  """',
    'l: "\\(1)"',
    "m: [1, {n: 2}]",
    "// o\n",
  ],
  ...'{ } [ ] ( ) " \' """ \\( \\ # #" "# @x( , : // _'.split(" "),
  "\n",
  " ",
  ...["package p\n", "package p", "\uFEFF", 'import "list"\n', "import ", '"list"', "import (\n", "p: list.Max([1])\n"],
];

describe("parted", () => {
  it("agrees with CUE on what is a script, and on nothing else than a script is put between braces", () =>
    fc.assert(
      fc.asyncProperty(fc.array(fc.constantFrom(...pieces), { maxLength: 7 }), async (parts) => {
        const script = parts.join("");
        const isAccepted = (source: string) =>
          // What isn't concrete is a script all the same; and what no script uses, CUE minds in packages alone.
          evaluate(source).then(
            () => true,
            ({ message }: Error) => /^cue: marshal error|imported and not used/.test(message),
          );
        const wrap = () => {
          const { imports, declarations } = splitScript(script);
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
        ].map((parts) => [parts]),
      },
    ));

  it("takes no longer for what is long", () => {
    const deep = `a: ${'"\\('.repeat(300_000)}1${')"'.repeat(300_000)}\n`;
    assert.equal(splitScript(deep).declarations, deep);
    const wide = `import "list"\n${"a: 1\n".repeat(300_000)}`;
    assert.equal(splitScript(wide).imports, 'import "list"');
    const imports = "import ()\n".repeat(100_000);
    assert.equal(splitScript(imports).imports, imports.trim());
  });
});
