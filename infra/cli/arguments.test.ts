import assert from "node:assert/strict";
import { describe, it } from "node:test";
import check from "../commands/check.ts";
import { type CommandGrammar, describeParseError, parseArguments } from "./arguments.ts";

const says = "";
const options: CommandGrammar["options"] = {
  rules: { type: "string", multiple: true, isValue: (word) => /^[a-z,]+$/.test(word), says },
  state: { type: "string", multiple: true, short: "s", says },
  live: { type: "boolean", says },
  page: { type: "string", says },
};
const wordless: CommandGrammar = { options };
const withPaths: CommandGrammar = { options, usage: "[PATH…]", wordless: ["live"] };

describe("the words after an option that takes several values", () => {
  type Lists = { rules?: string[]; state?: string[] };
  const cases: [name: string, verb: CommandGrammar, line: string, lists: Lists, words?: string[]][] = [
    ["are its values if the verb takes no words", wordless, "--rules a b --live", { rules: ["a", "b"] }],
    ["are its values if the option is repeated", wordless, "--rules a --rules b", { rules: ["a", "b"] }],
    ["may follow = or the short name", wordless, "-s=a b --rules=c d", { state: ["=a", "b"], rules: ["c", "d"] }],
    [
      "are its values even if they are invalid, so that the error names them",
      wordless,
      "--rules a B.C",
      { rules: ["a", "B.C"] },
    ],
    [
      "are words of the verb from the first invalid value on",
      withPaths,
      "--rules a b 1.yaml c",
      { rules: ["a", "b"] },
      ["1.yaml", "c"],
    ],
    ["are its values up to the next option", withPaths, "--rules a b --page 7 c", { rules: ["a", "b"] }, ["c"]],
    ["are words of the verb if both take paths", withPaths, "--state a b", { state: ["a"] }, ["b"]],
    ["are its values if words of the verb come before it", withPaths, "x --state a b", { state: ["a", "b"] }, ["x"]],
    [
      "are its values if words of the verb come after --",
      withPaths,
      "--state a b -- x y",
      { state: ["a", "b"] },
      ["x", "y"],
    ],
    ["are its values if another option excludes words", withPaths, "--state a b --live", { state: ["a", "b"] }],
    [
      "are words of the verb after an option that takes one value or none",
      withPaths,
      "--page 7 a --live b",
      {},
      ["a", "b"],
    ],
  ];
  for (const [name, verb, line, lists, words = []] of cases)
    it(name, () => {
      const given = parseArguments(line.split(" "), verb);
      const { rules, state } = given.values;
      assert.deepEqual({ rules, state, words: given.words }, { rules: undefined, state: undefined, ...lists, words });
    });

  it("are rules or paths for postern check", () => {
    const line = "--rules allowed-registries AlwaysPullImages misspelt infra -o json sarif=a.sarif k8s -n shop lib";
    const { values, words } = parseArguments(line.split(" "), check);
    assert.deepEqual(values.rules, ["allowed-registries", "AlwaysPullImages", "misspelt"]);
    assert.deepEqual([values.output, values.namespace], [["json", "sarif=a.sarif"], ["shop"]]);
    assert.deepEqual(words, ["infra", "k8s", "lib"]);
  });
});

describe("an unknown option", () => {
  const faults: [args: string[], sentence: string][] = [
    [["--rulse", "a"], "Unknown option '--rulse'; did you mean --rules? "],
    [["--halp"], "Unknown option '--halp'; did you mean --help? "],
    [["--nothing-like-it"], "Unknown option '--nothing-like-it'; "],
    [["-x"], "Unknown option '-x'; "],
  ];
  for (const [args, sentence] of faults)
    it(`${args[0]} is refused`, () => {
      assert.throws(
        () => parseArguments(args, withPaths),
        (error) => describeParseError(error, withPaths) === sentence,
      );
    });
});
