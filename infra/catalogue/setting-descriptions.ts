import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type { CatalogueRule } from "./registry.ts";

/** Returns what the table in a rule's README says of settings, by the setting's path, such as `spare.resources`. */
export const readSettingDescriptions = async ({
  folder,
}: Pick<CatalogueRule, "folder">): Promise<Map<string, string>> =>
  parseSettingDescriptions(await readFile(join(folder, "README.md"), "utf8").catch(() => ""));

/** Returns the meaning of each setting in the tables of a rule's README, by the setting's path. */
const parseSettingDescriptions = (readme: string): Map<string, string> => {
  const tables = readme.match(/^\| *setting *\|.*\n(?:\|.*(?:\n|$))*/gm) ?? [];
  // A row is for instance "| `spare.resources` | `{}` | the resources that … |".
  const rows = tables.flatMap((table) => [...table.matchAll(/^\| *`([^`]+)` *\|(?:\\.|[^|\\])*\|(.*)\| *$/gm)]);
  return new Map(
    rows.map(([, path = "", meaning = ""]) => [path, meaning.trim().replaceAll("\\|", "|").replace(/:$/, "")]),
  );
};
