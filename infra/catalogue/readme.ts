import { existsSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { replaceList } from "./generated-lists.ts";
import { describeMinorsOfService, isManagedService, serviceNames } from "./managed-services.ts";
import { findRecommendation } from "./recommendations.ts";
import { type CatalogueRule, hasNeed } from "./registry.ts";
import { getFunctionsFolder } from "./sources.ts";
import { compiledInPluginHeading, describeCompiledInPlugin } from "./upstream-plugins.ts";

const getReadme = (): string => join(getFunctionsFolder(), "README.md");

/** Returns functions/README.md as it is, and with a current list and table; the text around them stays. */
export const buildCatalogueReadme = async (
  catalogue: CatalogueRule[],
): Promise<{ present: string; wanted: string }> => {
  const present = await readFile(getReadme(), "utf8");
  const rows = catalogue.map(
    ({ name, phases, rule }) =>
      `| [${name}](${name}/README.md) | ${phases.join(", ")} | ${rule.summary} | ${describeCompiledInPlugin(rule.upstreamPlugin?.plugin)} | ${hasNeed({ rule }, "ledger") ? "yes" : ""} |`,
  );
  const headings = `| rule | phase | what it does | ${compiledInPluginHeading} | [ledger](../docs/background/deployments.md#the-ledger) |`;
  const list = [headings, "| --- | --- | --- | --- | --- |", ...rows].join("\n");
  const withList = replaceList(present, "list", list);
  return { present, wanted: replaceList(withList, "table of managed clusters", formatChoices(catalogue)) };
};

/** Updates the list of rules in functions/README.md if this page has one, as that of Postern's own catalogue. */
export const updateRuleListInReadme = async (catalogue: CatalogueRule[]): Promise<void> => {
  if (existsSync(getReadme())) await writeFile(getReadme(), (await buildCatalogueReadme(catalogue)).wanted);
};

/** Returns a table that says which rules to turn on in managed clusters. Rules with the same answers share a row. */
const formatChoices = (catalogue: CatalogueRule[]): string => {
  const services = Object.keys(serviceNames).filter(isManagedService);
  const choices = catalogue.flatMap(({ name, rule: { upstreamPlugin } }) => {
    const recommendation = findRecommendation(name, upstreamPlugin !== undefined);
    if (recommendation === undefined) return [];
    const cells = services.map((service) => describeMinorsOfService(upstreamPlugin?.plugin, service));
    return [{ name, rank: recommendation.rank, answers: [...cells, recommendation.text].join(" | ") }];
  });
  const sorted = choices.toSorted((left, right) => left.rank - right.rank);
  const rows = [...Map.groupBy(sorted, ({ answers }) => answers)].map(
    ([answers, some]) => `| ${some.map(({ name }) => `[${name}](${name}/README.md)`).join(", ")} | ${answers} |`,
  );
  const headings = ["rule", ...services.map((service) => serviceNames[service]), "turn it on?"];
  return [`| ${headings.join(" | ")} |`, `| ${headings.map(() => "---").join(" | ")} |`, ...rows].join("\n");
};
