import { readFile } from "node:fs/promises";
import type { Case } from "#lib/recording/recording.ts";
import { casesIn } from "../../catalogue/cases.ts";
import type { CatalogueRule } from "../../catalogue/registry.ts";

/** Returns the outcomes of a plugin that no API server has any more, as further cases of its port. */
export const readOutcomes = async ({ name, phases }: CatalogueRule): Promise<Case[]> => {
  const text = await readFile(new URL(`outcomes/${name}.yaml`, import.meta.url), "utf8").catch(() => undefined);
  if (text === undefined) return [];
  return casesIn(text, `outcomes/${name}.yaml`, phases).flatMap((entry) => {
    const { validate, oldObject } = entry;
    if (!validate || oldObject || validate.metadata?.generateName) return [entry];
    // There is no difference that an update would have to make.
    const update = { ...validate, metadata: { ...validate.metadata, labels: { app: "a" } } };
    return [entry, { ...entry, name: `an update of ${entry.name}`, oldObject: validate, validate: update }];
  });
};
