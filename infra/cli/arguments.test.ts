import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { describe, it } from "node:test";
import { createTestFolder } from "../../test/folders.ts";
import { readRows } from "../../test/rows.ts";
import check from "../commands/check.ts";
import { type CommandGrammar, describeParseError, parseArguments } from "./arguments.ts";
import { isNoFile } from "./options.ts";

const says = "";
const options: CommandGrammar["options"] = {
  rules: {
    type: "string",
    multiple: true,
    // Words after --rules are rules, up to the first that is the path of a file. If paths stand before, all are rules.
    isValue: (word, hasPathsBefore) => /^[a-z,]+$/.test(word) && (hasPathsBefore || isNoFile(word)),
    says,
  },
  state: { type: "string", multiple: true, short: "s", says },
  live: { type: "boolean", says },
  page: { type: "string", says },
};
const withPaths: CommandGrammar = { options, usage: "[PATH…]", optionsInPlaceOfWords: ["live"] };
const grammars = { withoutPaths: { options }, withPaths };

interface Row {
  name: string;
  verb: keyof typeof grammars;
  /** The arguments, with spaces between them. The other fields are what they must be read as. */
  line: string;
  rules?: string[];
  state?: string[];
  words?: string[];
}
const rows = readRows<Row[]>(import.meta.filename);

describe("the words after an option that takes several values", () => {
  for (const { name, verb, line, rules, state, words = [] } of rows)
    it(name, () => {
      const { values, words: others } = parseArguments(line.split(" "), grammars[verb]);
      assert.deepEqual([values.rules, values.state, others], [rules, state, words]);
    });

  it("postern check takes words after --rules as rules, unless they are files or folders", () => {
    const line = "--rules allowed-registries AlwaysPullImages misspelt infra -o json sarif=a.sarif k8s -n shop lib";
    const { values, words } = parseArguments(line.split(" "), check);
    assert.deepEqual(values.rules, ["allowed-registries", "AlwaysPullImages", "misspelt"]);
    assert.deepEqual([values.output, values.namespace], [["json", "sarif=a.sarif"], ["shop"]]);
    assert.deepEqual(words, ["infra", "k8s", "lib"]);
  });
});

describe("a rule of the catalogue after --rules", () => {
  it("a rule of the catalogue after --rules is a rule even if there is a file of this name", async () => {
    const folder = await createTestFolder();
    const before = process.cwd();
    try {
      process.chdir(folder);
      await writeFile("always-deny", "");
      // There is no file `misspelt`, so this word is taken for a rule's name, too.
      const { values, words } = parseArguments(["--rules", "always-admit", "always-deny", "misspelt"], check);
      assert.deepEqual([values.rules, words], [["always-admit", "always-deny", "misspelt"], []]);
    } finally {
      process.chdir(before);
    }
  });
});

describe("an unknown option, or one without its value,", () => {
  const faults: [args: string[], sentence: string][] = [
    [["--rules", "-a"], "--rules has no value; one that begins with a hyphen is written --rules=-…; "],
    [["--state", "--live"], "--state has no value; one that begins with a hyphen is written --state=-…; "],
    [["-s", "-a"], "--state has no value; one that begins with a hyphen is written --state=-…; "],
    [["a", "--page", "-1"], "--page has no value; one that begins with a hyphen is written --page=-…; "],
    [["--rulse", "a"], "Unknown option '--rulse'; did you mean --rules? "],
    [["--halp"], "Unknown option '--halp'; did you mean --help? "],
    [["--nothing-like-it"], "Unknown option '--nothing-like-it'; "],
    [["-x"], "Unknown option '-x'; "],
  ];
  for (const [args, sentence] of faults)
    it(`${args.join(" ")} is refused`, () => {
      assert.throws(
        () => parseArguments(args, withPaths),
        (error) => describeParseError(error, withPaths) === sentence,
      );
    });
});
