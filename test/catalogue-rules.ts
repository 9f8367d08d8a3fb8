import { join } from "node:path";
import { listPhases, type Rule } from "#lib/rule.ts";
import type { CatalogueRule } from "../infra/catalogue/registry.ts";
import { getFunctionsFolder, toRuleFolder } from "../infra/catalogue/sources.ts";

/** Returns a rule as the catalogue has it; its folder does not exist. */
export const toCatalogueRule = (name: string, rule: Rule): CatalogueRule => {
  return { ...toRuleFolder(join(getFunctionsFolder(), name), name), phases: listPhases(rule), rule };
};
