import { listPhases, type Rule } from "#lib/rule.ts";
import type { CatalogueRule } from "../infra/catalogue/registry.ts";

/** Returns a rule as the catalogue has it, but without a folder. */
export const toCatalogueRule = (name: string, rule: Rule): CatalogueRule => {
  return { name, folder: "", phases: listPhases(rule), rule };
};
