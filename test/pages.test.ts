import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { describe, it } from "node:test";
import { getFirstLine, hasShownOutput, listPageEntries, parsePage, readPages } from "./pages.ts";

describe("pages.yaml", () => {
  const pages = readPages();

  it("pages.yaml names only pages with commands, and only commands, outputs and words that the pages have", () => {
    const stale = listPageEntries().flatMap(([page, { skip = {}, exits = {}, replace = {} }]) => {
      const blocks = pages.get(page) ?? [];
      const texts = blocks.flatMap(({ commands, outputs }) => [...commands, ...outputs]);
      const firstLines = new Set(texts.map(getFirstLine));
      const missingLines = [...Object.keys(skip), ...Object.keys(exits)].filter((line) => !firstLines.has(line));
      const missingWords = Object.keys(replace).filter((word) => !texts.some((text) => text.includes(word)));
      const noCommands = blocks.length > 0 ? [] : ["no commands"];
      return [...missingLines, ...missingWords, ...noCommands].map((line) => `${page}: ${line}`);
    });
    assert.deepEqual(stale, []);
  });

  it("pages.yaml has a reason for each skipped command, and names only tests that exist", () => {
    for (const [page, { skip = {} }] of listPageEntries())
      for (const [line, reason] of Object.entries(skip)) {
        assert.ok(reason.length > 10, `${page}: ${line}`);
        for (const [file] of reason.matchAll(/test\/[\w/.-]+\.ts/g)) assert.ok(existsSync(file), `${page}: ${file}`);
      }
  });

  it("pages.yaml skips only some commands, so that more than 40 are run", () => {
    const skipsByPage = new Map(listPageEntries().map(([page, { skip = {} }]) => [page, skip]));
    const notSkipped = [...pages].flatMap(([page, blocks]) => {
      const commands = blocks.flatMap((block) => block.commands);
      return commands.filter((command) => skipsByPage.get(page)?.[getFirstLine(command)] === undefined);
    });
    assert.ok(notSkipped.length > 40, "pages.yaml must not skip commands that can run");
  });
});

describe("the parser of pages", () => {
  it("the parser of pages finds commands with all their lines, and the output after each command", () => {
    const page =
      "```\nnone\n```\n- a\n\n  ```sh\n  a \\\n    b # c\n  cat > d <<'END'\n  e\n  END\n  ```\n\n```\nf\n```\n";
    assert.deepEqual(parsePage(page), [{ commands: ["a \\\n  b # c", "cat > d <<'END'\ne\nEND"], outputs: ["f\n"] }]);
  });

  for (const [shown, output, isWholeOutput, isFound] of [
    ["a\nb", "a\nb\n", true, true],
    ["a", "a\nb\n", true, false],
    ["a\n…", "a\nb\nc\n", true, true],
    ["…\nc", "a\nb\nc\n", true, true],
    ["b", "a\nb\nc\n", true, false],
    ["b", "a\nb\nc\n", false, true],
    ["a … c", "a b c", true, true],
    ["a  1.5 ms", "a 20 ms", true, true],
    // A word that a page shortens by … stands for any word: for instance, each run has another key in its URLs.
    ["https://x/ZUgAQ1…/y", "https://x/abc-def/y", true, true],
    ["https://x/ZUgAQ1…/y", "https://x/abc-def/z", true, false],
    ["3 rules", "4 rules", true, false],
  ] as const)
    it(`the parser ${isFound ? "finds" : "doesn't find"} ${JSON.stringify(shown)} in ${JSON.stringify(output)}`, () =>
      assert.equal(hasShownOutput(shown, output, isWholeOutput), isFound));
});
