import { existsSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { getOwn } from "#lib/json.ts";
import { replaceList } from "../catalogue/generated-lists.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import { describeCompiledInPlugin } from "../catalogue/upstream-plugins.ts";
import { knownMinors } from "../cli/minors.ts";
import { getProjectRoot } from "../cli/roots.ts";

const getPagePath = (): string => join(getProjectRoot(), "docs/reference/check.md");

/** Returns the text of docs/reference/check.md as it is, and as it should be, with a new table of plugins. */
export const buildCheckPage = async (
  catalogue: readonly CatalogueRule[],
): Promise<{ currentPage: string; wantedPage: string }> => {
  const currentPage = await readFile(getPagePath(), "utf8");
  return { currentPage, wantedPage: replaceList(currentPage, "table of plugins", formatPlugins(catalogue)) };
};

/** Writes docs/reference/check.md with a new table of plugins. Does nothing in a project, which has no such page. */
export const updateTableOfCheckPage = async (catalogue: readonly CatalogueRule[]): Promise<void> => {
  if (existsSync(getPagePath())) await writeFile(getPagePath(), (await buildCheckPage(catalogue)).wantedPage);
};

const formatMarkdownTable = (headings: readonly string[], rows: readonly (readonly unknown[])[]): string =>
  [headings, headings.map(() => "---"), ...rows].map((cells) => `| ${cells.join(" | ")} |`).join("\n");

/** Returns the check page's table of plugins. What a rule reads is named by its resource or, without one, by a verb. */
const formatPlugins = (catalogue: readonly CatalogueRule[]): string =>
  formatMarkdownTable(
    ["plugin", "rule", `in Kubernetes ${knownMinors}`, "reads"],
    catalogue.flatMap(({ name, rule: { upstreamPlugin, needs = {} } }) => {
      if (upstreamPlugin === undefined) return [];
      const { plugin } = upstreamPlugin;
      const reads = new Set(Object.values(needs).map((need) => getOwn(getOwn(need, "kind"), "resource") ?? need.verb));
      const link = `[${name}](../../functions/${name}/README.md)`;
      return [[plugin, link, describeCompiledInPlugin(plugin), [...reads].join(", ")]];
    }),
  );
