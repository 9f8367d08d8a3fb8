import { existsSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { getProjectRoot } from "../cli/roots.ts";
import { replaceList } from "./generated-lists.ts";
import { describeMinorsOfService, isManagedService, serviceNames } from "./managed-services.ts";
import { findRecommendation } from "./recommendations.ts";
import { type CatalogueRule, hasNeed } from "./registry.ts";
import { getFunctionsFolder } from "./sources.ts";
import { compiledInPluginHeading, describeCompiledInPlugin } from "./upstream-plugins.ts";

const getReadme = (): string => join(getFunctionsFolder(), "README.md");
const getChoicesPage = (): string => join(getProjectRoot(), "docs/how-to/choose-rules.md");

/** A page with a generated part. */
interface GeneratedPage {
  /** The page as it is. */
  present: string;
  /** The page with the current generated part. */
  wanted: string;
}

/** Builds functions/README.md with a current list of rules. */
export const buildCatalogueReadme = async (catalogue: CatalogueRule[]): Promise<GeneratedPage> => {
  const present = await readFile(getReadme(), "utf8");
  const rows = catalogue.map(
    ({ name, phases, rule }) =>
      `| [${name}](${name}/README.md) | ${phases.join(", ")} | ${rule.summary} | ${describeCompiledInPlugin(rule.upstreamPlugin?.plugin)} | ${hasNeed({ rule }, "ledger") ? "yes" : ""} |`,
  );
  const headings = `| rule | phase | what it does | ${compiledInPluginHeading} | [ledger](../docs/background/deployments.md#the-ledger) |`;
  const list = [headings, "| --- | --- | --- | --- | --- |", ...rows].join("\n");
  return { present, wanted: replaceList(present, "list", list) };
};

/** Builds docs/how-to/choose-rules.md with a current table of managed clusters. */
export const buildChoicesPage = async (catalogue: CatalogueRule[]): Promise<GeneratedPage> => {
  const present = await readFile(getChoicesPage(), "utf8");
  return { present, wanted: replaceList(present, "table of managed clusters", formatChoices(catalogue)) };
};

/** Updates the list of rules in functions/README.md and the table in docs/how-to/choose-rules.md, if they exist. */
export const updateCataloguePages = async (catalogue: CatalogueRule[]): Promise<void> => {
  if (existsSync(getReadme())) await writeFile(getReadme(), (await buildCatalogueReadme(catalogue)).wanted);
  if (existsSync(getChoicesPage())) await writeFile(getChoicesPage(), (await buildChoicesPage(catalogue)).wanted);
};

/** Returns a table that says which rules to turn on in managed clusters. Rules with the same answers are in one row. */
const formatChoices = (catalogue: CatalogueRule[]): string => {
  const services = Object.keys(serviceNames).filter(isManagedService);
  const choices = catalogue.flatMap(({ name, rule: { upstreamPlugin } }) => {
    const recommendation = findRecommendation(name, upstreamPlugin !== undefined);
    if (recommendation === undefined) return [];
    const cells = services.map((service) => describeMinorsOfService(upstreamPlugin?.plugin, service));
    return [{ name, rank: recommendation.rank, answers: [recommendation.text, ...cells].join(" | ") }];
  });
  const sorted = choices.toSorted((left, right) => left.rank - right.rank);
  const rows = [...Map.groupBy(sorted, ({ answers }) => answers)].map(
    ([answers, some]) =>
      `| ${some.map(({ name }) => `[${name}](../../functions/${name}/README.md)`).join(", ")} | ${answers} |`,
  );
  const headings = ["rule", "turn it on?", ...services.map((service) => serviceNames[service])];
  return [`| ${headings.join(" | ")} |`, `| ${headings.map(() => "---").join(" | ")} |`, ...rows].join("\n");
};
