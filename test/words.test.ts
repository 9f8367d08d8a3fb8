import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";

// Comments, messages, titles of tests and pages are read one at a time, mostly in a second language. These words make
// a reader guess what is meant: pronouns without a noun, and metaphors for which CONTRIBUTING.md lists the usual terms.

/** The forbidden words, and what to write instead. */
const replacements: Record<string, string> = {
  "user that": "user who",
  "users that": "users who",
  "engineers that": "engineers who",
  whoever: "a noun, such as 'a user who'",
  nobody: "'no' with a noun, such as 'no user'",
  somebody: "a noun, such as 'a user'",
  twin: "upstream plugin",
  world: "capabilities",
  judge: "evaluate",
  judged: "evaluated",
  judges: "evaluates",
  judging: "evaluating",
  court: "evaluation",
  jury: "rules",
  hearing: "evaluation",
  door: "endpoint type",
  doorkeeper: "key verifier",
  told: "reported",
  born: "initial objects",
  surgery: "edit",
  incision: "edit",
  patient: "file",
  unsaid: "undecided",
  outgrown: "stale",
  mended: "fixed",
  survey: "cluster inspection",
};

const forbidden = new RegExp(`\\b(?:${Object.keys(replacements).join("|")})\\b`, "gi");

const comments = /^\s*(?:\/\/|\/\*\*|\*(?!\/)).*/gm;

/** What people read in each kind of file, by the end of its name. */
const readable: Record<string, RegExp[]> = {
  "test.ts": [comments, /(?<=\b(?:it|describe)\(\s*)(?:"(?:[^"\\]|\\.)*"|`(?:[^`\\]|\\.)*`)/g],
  // Texts of more than one word are messages and help.
  ts: [comments, /"(?=[^"\n]* )(?:[^"\\\n]|\\.)*"|`(?=[^`\n]* )(?:[^`\\\n]|\\.)*`/g],
  js: [comments],
  cjs: [comments],
  go: [comments],
  mod: [comments],
  sh: [/(?:^|\s)#.*/gm],
  yaml: [/(?:^|\s)#.*/gm, /(?<=^\s*- name: ).*/gm],
  yml: [/(?:^|\s)#.*/gm],
  md: [/^.*$/gm],
};

interface Found {
  line: number;
  word: string;
}

/** Finds forbidden words in what people read of a file: not in code and backquotes of a page, or in `${…}` of code. */
const findForbidden = (file: string, text: string): Found[] => {
  const patterns = Object.entries(readable).find(([end]) => file.endsWith(`.${end}`))?.[1] ?? [];
  const prose = blank(text, file.endsWith(".md") ? /^```[\s\S]*?^```$|`[^`]+`/gm : /\$\{[^{}]*\}/g);
  return patterns.flatMap((pattern) =>
    [...prose.matchAll(pattern)].flatMap(({ 0: sentence, index }) =>
      [...sentence.matchAll(forbidden)].map(({ 0: word, index: offset }) => ({
        line: prose.slice(0, index + offset).split("\n").length,
        word,
      })),
    ),
  );
};

/** Removes what a pattern matches, but not the ends of lines, so that the numbers of lines stay the same. */
const blank = (text: string, pattern: RegExp): string => text.replace(pattern, (part) => part.replace(/[^\n]/g, ""));

const root = fileURLToPath(new URL("..", import.meta.url));
const files = globSync(`{*.md,*.y{a,}ml,{docs,functions,infra,lib,test}/**/*.{${Object.keys(readable).join(",")}}}`, {
  cwd: root,
  exclude: [
    "**/node_modules/**",
    "**/dist/**",
    "**/fixtures/**",
    "**/crds/**",
    "lib/kubernetes/**",
    "CHANGELOG.md",
    "postern.yaml",
    "test/words.test.ts",
  ],
});

describe("the words", () => {
  it('comments, messages, titles and pages use the terms of the glossary, and no words such as "nobody"', () => {
    const found = files.flatMap((file) =>
      findForbidden(file, readFileSync(`${root}/${file}`, "utf8")).map(
        ({ line, word }) => `${file}:${line}: instead of ${word}, write ${replacements[word.toLowerCase()]}`,
      ),
    );
    assert.deepEqual(found, []);
  });

  const examples: [file: string, text: string, words: string[]][] = [
    ["a.ts", "// Nobody reads this.\n", ["Nobody"]],
    ["a.ts", "/** Returns a key. */\nconst key = 1;\n/**\n * Finds the users that ask.\n */\n", ["users that"]],
    ["a.test.ts", 'it("leaves a twin as it is", () => {});\n', ["twin"]],
    ["a.ts", 'throw new Failure(\n  500,\n  "the world ended",\n);', ["world"]],
    ["a.ts", 'const list = { says: "only these doors", summary: "a court" };\n', ["court"]],
    ["a.ts", "throw new Error(`$" + "{twin} asked nobody`);\n", ["nobody"]],
    ["a.ts", "const world = twin;\n", []],
    ["a.md", "A user who asks; the user, that is, the client.\n", []],
    ["a.sh", "# Whoever runs this\njudge\n", ["Whoever"]],
    ["a.yaml", "# A twin.\n- name: is told nothing\n  world: {}\n", ["twin", "told"]],
    ["a.md", "A judge.\n\n```\ntwin\n```\n\nThe field `world`.\n", ["judge"]],
  ];
  for (const [file, text, words] of examples)
    it(`the words to avoid in ${JSON.stringify(text)} are found: ${words.join(", ") || "none"}`, () => {
      assert.deepEqual(
        findForbidden(file, text).map(({ word }) => word),
        words,
      );
    });
});
