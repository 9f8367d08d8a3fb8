import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { caseMembers } from "../infra/catalogue/case-shape.ts";
import { readCatalogue } from "../infra/catalogue/registry.ts";
import { compiledInPlugins } from "../infra/catalogue/upstream-plugins.ts";
import { buildCheckPage } from "../infra/check/documented-coverage.ts";
import { buildCommandsPage } from "./generate/commands-page.ts";
import { buildLimitsPage } from "./generate/limits-page.ts";
import { readersFiles } from "./readers-files.ts";

const root = fileURLToPath(new URL("..", import.meta.url));
/** The text of each page, without code blocks, because code blocks show files of other projects. */
const pages = new Map(
  globSync("**/*.md", { cwd: root, exclude: ["**/node_modules/**", "**/dist/**"] }).map((page) => [
    page,
    readFileSync(join(root, page), "utf8").replace(/^```[\s\S]*?^```$/gm, ""),
  ]),
);
/** All pages except the changelog, which also names files of older versions. */
const pagesExceptChangelog = [...pages].filter(([page]) => page !== "CHANGELOG.md");

const doesExist = (path: string): boolean => readersFiles.test(path) || globSync(path, { cwd: root }).length > 0;

/** Returns the anchors that GitHub generates for the headings of a page. */
const listAnchors = (page: string): string[] =>
  [...(pages.get(page) ?? "").matchAll(/^#{1,6} (.*)$/gm)].map(([, heading = ""]) =>
    heading
      .toLowerCase()
      .replace(/[^\p{L}\p{N} _-]/gu, "")
      .replaceAll(" ", "-"),
  );

/** Counts the words of a page's text and tables, without the targets of links. */
const countWords = (text: string): number =>
  text.replace(/\]\([^)]*\)/g, "]").match(/[\p{L}\p{N}][^\s|]*/gu)?.length ?? 0;

/** Reports whether code declares a function or a value, or has a member, of this name. */
const declaresName = (code: string, name: string): boolean =>
  new RegExp(`\\b(?:const|function\\*?|interface) ${name}\\b|^ +(?:async )?${name}[(:]`, "m").test(code);

describe("the pages", () => {
  it("the pages link to files and headings that exist", () => {
    const broken = [...pages].flatMap(([page, text]) =>
      [...text.matchAll(/\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)/g)].flatMap(([, path = "", anchor]) => {
        const target = path === "" ? page : relative(root, join(root, dirname(page), path));
        const isFound = doesExist(target) && (anchor === undefined || listAnchors(target).includes(anchor));
        return isFound ? [] : [`${page}: ${path}${anchor === undefined ? "" : `#${anchor}`}`];
      }),
    );
    assert.deepEqual(broken, []);
  });

  it("the pages name files and folders that exist", () => {
    const missing = pagesExceptChangelog.flatMap(([page, text]) =>
      [...text.matchAll(/`((?:docs|functions|infra|lib|test)\/[^`\s<…]*)`/g)].flatMap(([, path = ""]) =>
        doesExist(path) ? [] : [`${page}: ${path}`],
      ),
    );
    assert.deepEqual(missing, []);
  });

  it("the pages in infra, lib and test name only TypeScript files below the root, lib or the page's folder", () => {
    const missing = pagesExceptChangelog
      .filter(([page]) => /^(infra|lib|test)\/.*README\.md$/.test(page) && page !== "lib/client/README.md")
      .flatMap(([page, text]) =>
        [...text.matchAll(/`((?:[\w-]+\/)*[\w.-]+\.ts)`/g)].flatMap(([, path = ""]) =>
          [path, `${dirname(page)}/**/${path}`, `lib/**/${path}`].some(doesExist) ? [] : [`${page}: ${path}`],
        ),
      );
    assert.deepEqual(missing, []);
  });

  it("the pages have few words: a how-to guide at most 900, all for users 25,000, the catalogue's 18,000", () => {
    const users = [...pages].filter(([page]) => /^docs\/(start|how-to|reference)\//.test(page));
    const sumWords = (some: [string, string][]) => some.reduce((sum, [, text]) => sum + countWords(text), 0);
    assert.deepEqual(
      users.flatMap(([page, text]) => (page.includes("/how-to/") && countWords(text) > 900 ? [page] : [])),
      [],
    );
    assert.ok(sumWords(users) <= 25_000, `the pages for users have ${sumWords(users)} words`);
    const catalogue = [...pages].filter(([page]) => /^functions\/.*README\.md$/.test(page));
    assert.ok(sumWords(catalogue) <= 18_000, `the catalogue's pages have ${sumWords(catalogue)} words`);
  });

  it("the README has at most 130 lines, and the changelog 150", () => {
    for (const [page, most] of [["README.md", 130] as const, ["CHANGELOG.md", 150] as const]) {
      const lines = pages.get(page)?.trimEnd().split("\n").length ?? 0;
      assert.ok(lines > 0 && lines <= most, `${page} has ${lines} lines`);
    }
  });

  it("the pages include all pages that messages of infra and lib name", () => {
    const files = globSync("{infra,lib}/**/*.ts", { cwd: root, exclude: ["**/*.test.ts"] });
    const namedPages = files.flatMap((file) => {
      const code = readFileSync(join(root, file), "utf8");
      return [...code.matchAll(/formatPage\("([^"]*)"\)/g)].map(([, page = ""]) => page);
    });
    assert.ok(namedPages.length > 0);
    const missing = namedPages.filter((page) => !doesExist(`docs/${page}`));
    assert.deepEqual(missing, []);
  });

  it("the pages name functions that the file named beside the function declares", () => {
    const missing = pagesExceptChangelog.flatMap(([page, text]) =>
      [...text.matchAll(/`((?:infra|lib|test)\/[\w./-]+\.[jt]s)`\s*\(((?:`\w+`,?\s*)+)\)/g)].flatMap(
        ([, file = "", names = ""]) => {
          const code = doesExist(file) ? readFileSync(join(root, file), "utf8") : "";
          return (names.match(/\w+/g) ?? []).flatMap((name) =>
            declaresName(code, name) ? [] : [`${page}: ${file} ${name}`],
          );
        },
      ),
    );
    assert.deepEqual(missing, []);
  });

  it("the pages describe every folder of lib and infra", () => {
    const folders = globSync("{lib,infra}/*/", { cwd: root });
    const text = pages.get("docs/background/architecture.md") ?? "";
    assert.deepEqual(
      folders.filter((folder) => !text.includes(`\`${folder.replaceAll("\\", "/").replace(/\/?$/, "/")}\``)),
      [],
    );
  });

  it("the pages have an up-to-date table of what check evaluates, which npm run fix writes", async () => {
    const { currentPage, wantedPage } = await buildCheckPage(await readCatalogue());
    assert.equal(currentPage, wantedPage);
    assert.ok(currentPage.includes("<!-- End of the table of plugins. -->"));
  });

  it("the pages have the up-to-date help of all commands, which npm run fix writes", async () => {
    const { present: currentPage, wanted: wantedPage } = await buildCommandsPage();
    assert.equal(currentPage, wantedPage);
    assert.ok(currentPage.includes("## check\n"));
  });

  it("the pages have the limits as the code has them, which npm run fix writes", () => {
    const { present: currentPage, wanted: wantedPage } = buildLimitsPage();
    assert.equal(currentPage, wantedPage);
    assert.ok(currentPage.includes("| 300 integrations and routes |"));
    assert.ok(currentPage.includes("<!-- End of the table of own limits. -->"));
  });

  it("the pages explain all members of cases, and no other members", () => {
    const page = pages.get("docs/reference/cases.md") ?? "";
    const firstColumns = [...page.matchAll(/^\| (`.*?) \|/gm)].map(([, column = ""]) => column).join();
    const listNames = (text: string) => [...text.matchAll(/`(\w+)(?:: true)?`/g)].map(([, name = ""]) => name);
    const members = Object.keys(caseMembers);
    assert.deepEqual(
      listNames(firstColumns).filter((name) => !members.includes(name)),
      [],
    );
    assert.deepEqual(
      members.filter((name) => !listNames(page).includes(name)),
      [],
    );
  });

  it("the pages list each rule that replaces a plugin in the plugin's row of a table, in order", async () => {
    const text = pages.get("docs/background/plugins.md") ?? "";
    const rows = new Map(text.matchAll(/^\| (\d+) \| (.*) \|$/gm).map(([, number, columns]) => [number, columns]));
    for (const { name, phases, rule } of await readCatalogue()) {
      const { order, upstreamPlugin } = rule;
      if (upstreamPlugin === undefined) continue;
      const [plugin, isOn, , link, ownPhases] = rows.get(String(order))?.split(" | ") ?? [];
      const wanted = [
        upstreamPlugin.plugin,
        compiledInPlugins[upstreamPlugin.plugin]?.isOn ? "yes" : "",
        `[${name}](../../functions/${name}/README.md)`,
      ];
      assert.deepEqual([plugin, isOn, link, ownPhases], [...wanted, phases.join(", ")]);
      assert.equal(Object.keys(compiledInPlugins).indexOf(upstreamPlugin.plugin) + 1, order);
    }
  });
});
