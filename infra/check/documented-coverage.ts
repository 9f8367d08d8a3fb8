import { existsSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { getOwn } from "#lib/json.ts";
import { knownMinors } from "#lib/since.ts";
import { listKindCoverage } from "../apiserver/validation/coverage.ts";
import { replaceList } from "../catalogue/generated-lists.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import { describeCompiledInPlugin } from "../catalogue/upstream-plugins.ts";
import { getProjectRoot } from "../cli/roots.ts";

const getPage = (): string => join(getProjectRoot(), "docs/check.md");

/** Returns docs/check.md as it is, and with current tables of kinds and plugins. */
export const buildTablesOfCheckPage = async (
  catalogue: readonly CatalogueRule[],
): Promise<{ present: string; wanted: string }> => {
  const present = await readFile(getPage(), "utf8");
  const withKinds = replaceList(present, "table of kinds", `${formatKnownKinds()}\n\n${formatUnknownKinds()}`);
  return { present, wanted: replaceList(withKinds, "table of plugins", formatPlugins(catalogue)) };
};

/** Updates the tables in docs/check.md. Does nothing in a project, which has no such page. */
export const updateTablesOfCheckPage = async (catalogue: readonly CatalogueRule[]): Promise<void> => {
  if (existsSync(getPage())) await writeFile(getPage(), (await buildTablesOfCheckPage(catalogue)).wanted);
};

const formatMarkdownTable = (headings: readonly string[], rows: readonly (readonly unknown[])[]): string =>
  [headings, headings.map(() => "---"), ...rows].map((cells) => `| ${cells.join(" | ")} |`).join("\n");

const formatKnownKinds = (): string =>
  formatMarkdownTable(
    ["kind", "fields", "fields with a rule", "fields that can't change"],
    listKindCoverage()
      .filter(({ fields }) => fields > 0)
      .map(({ kind, apiVersion, fields, withRule, immutable }) => [
        `${kind} (\`${apiVersion}\`)`,
        fields,
        withRule,
        immutable,
      ]),
  );

const formatUnknownKinds = (): string => {
  const unknown = listKindCoverage().filter(({ fields }) => fields === 0);
  const byVersion = Map.groupBy(unknown, ({ apiVersion }) => apiVersion);
  const rows = [...byVersion].map(([apiVersion, kinds]) => [
    `\`${apiVersion}\``,
    kinds.map(({ kind }) => kind).join(", "),
  ]);
  return formatMarkdownTable(["apiVersion", "kinds without defaults and rules"], rows.toSorted());
};

const formatPlugins = (catalogue: readonly CatalogueRule[]): string =>
  formatMarkdownTable(
    ["plugin", "rule", `in Kubernetes ${knownMinors}`, "reads"],
    catalogue.flatMap(({ name, rule: { upstreamPlugin, needs = {} } }) => {
      if (upstreamPlugin === undefined) return [];
      const { plugin } = upstreamPlugin;
      const reads = new Set(Object.values(needs).map((need) => getOwn(getOwn(need, "kind"), "resource") ?? need.verb));
      const link = `[${name}](../functions/${name}/README.md)`;
      return [[plugin, link, describeCompiledInPlugin(plugin), [...reads].join(", ")]];
    }),
  );
