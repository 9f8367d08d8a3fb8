import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type CatalogueRule, catalogueFolder } from "./registry.ts";

const file = join(catalogueFolder, "README.md");
const [begin, end] = ["<!-- The list is written by npm run fix. -->", "<!-- End of the list. -->"];

/** Returns functions/README.md as it is, and with a current list; the text around the list stays. */
export const listing = async (catalogue: CatalogueRule[]): Promise<{ present: string; wanted: string }> => {
  const present = await readFile(file, "utf8");
  const [before, rest = ""] = present.split(begin);
  const [, after] = rest.split(end);
  const rows = catalogue.map(
    ({ name, phases, rule }) => `| [${name}](${name}/README.md) | ${phases.join(", ")} | ${rule.summary} |`,
  );
  const list = ["| rule | phase | what it does |", "| --- | --- | --- |", ...rows].join("\n");
  return { present, wanted: `${before}${begin}\n\n${list}\n\n${end}${after ?? "\n"}` };
};

export const writeListing = async (catalogue: CatalogueRule[]): Promise<void> =>
  writeFile(file, (await listing(catalogue)).wanted);
