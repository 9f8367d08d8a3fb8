// This file builds the JSON Schemas of postern.yaml and cases.yaml. With them, editors complete and check these files.
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { toMap } from "#lib/json.ts";
import { casesShape } from "../catalogue/case-shape.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import { readSettingDescriptions } from "../catalogue/setting-descriptions.ts";
import { createMapShape, type InputShape, toJsonSchema } from "../cli/shape.ts";
import { clusterRuleShape, generalRuleShape } from "./rule-configs.ts";
import { buildSettingsSchema } from "./settings-schema.ts";
import { createConfigShape, findGroupFault } from "./validation.ts";

const dialect = { $schema: "http://json-schema.org/draft-07/schema#" };

/** Writes the schemas to `.postern` in the folder of postern.yaml, if they have changed. */
export const writeSchemas = async (
  projectFolder: string,
  { catalogue, names }: { catalogue: readonly CatalogueRule[]; names: readonly string[] },
): Promise<void> => {
  const folder = join(projectFolder, ".postern");
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const schemas = {
    "postern.schema.json": await buildConfigSchema(catalogue, names),
    "cases.schema.json": casesSchema,
  };
  for (const [name, schema] of Object.entries(schemas)) {
    const [file, text] = [join(folder, name), `${JSON.stringify(schema, null, 2)}\n`];
    if ((await readFile(file, "utf8").catch(() => undefined)) !== text) await writeFile(file, text);
  }
};

/** The first line of a postern.yaml. It names the schema for editors. */
export const schemaLine = "# yaml-language-server: $schema=.postern/postern.schema.json";

/** Adds the line that names the schema to the text of a postern.yaml, unless the text names a schema already. */
export const addSchemaLine = (text: string): string =>
  /^# yaml-language-server:/m.test(text) ? text : `${schemaLine}\n${text}`;

export const casesSchema = { ...dialect, ...toJsonSchema(casesShape) };

/** Returns the schema of postern.yaml, with the settings of rules. A rule that can't be loaded accepts any settings. */
export const buildConfigSchema = async (
  catalogue: readonly CatalogueRule[],
  names: readonly string[],
): Promise<Record<string, unknown>> => {
  const settings = catalogue.map(
    async (listed) => [listed.name, buildSettingsSchema(listed.rule, await readSettingDescriptions(listed))] as const,
  );
  const brokenRules = names.filter((name) => !catalogue.some((listed) => listed.name === name));
  const definitions: Record<string, unknown> = Object.fromEntries(await Promise.all(settings));
  const buildRulesShape = (section: string, shape: InputShape): InputShape => {
    const { properties, ...keywords } = toJsonSchema(shape);
    definitions[section] = { properties };
    const commonProperties = Object.keys(toMap(properties)).map((member) => [
      member,
      { $ref: `#/definitions/${section}/properties/${member}` },
    ]);
    for (const { name, rule } of catalogue) {
      const ruleProperties = { ...Object.fromEntries(commonProperties), settings: { $ref: `#/definitions/${name}` } };
      definitions[`${section}.${name}`] = { description: rule.summary, ...keywords, properties: ruleProperties };
    }
    for (const name of brokenRules)
      definitions[`${section}.${name}`] = { ...keywords, properties: Object.fromEntries(commonProperties) };
    const references = [...catalogue.map(({ name }) => name), ...brokenRules].map(
      (name) => [name, { $ref: `#/definitions/${section}.${name}` }] as const,
    );
    return {
      ...createMapShape({}),
      editorKeywords: {
        properties: Object.fromEntries(references),
        // A section may name a rule by its plugin, too: AlwaysPullImages instead of always-pull-images.
        patternProperties: Object.fromEntries(
          references.map(([name, schema]) => [`^${buildPluginNamePattern(name)}$`, schema]),
        ),
      },
    };
  };
  // The rules that may be in a group, which is a set of rules in one function. A rule that can't be loaded may be, too.
  const groupable = [...catalogue.filter((listed) => !findGroupFault(listed)).map(({ name }) => name), ...brokenRules];
  const members = {
    anyOf: [{ enum: groupable }, { type: "string", pattern: `^(${groupable.map(buildPluginNamePattern).join("|")})$` }],
  };
  const shape = createConfigShape(
    buildRulesShape("generalRule", generalRuleShape),
    buildRulesShape("clusterRule", clusterRuleShape),
    members,
  );
  return { ...dialect, ...toJsonSchema(shape), definitions };
};

/** Returns a pattern for the name of a rule's plugin, for instance `A[Ll][Ww]…` for always-pull-images. */
const buildPluginNamePattern = (name: string): string =>
  // A rule's name doesn't show all capitals of its plugin's: deny-service-external-ips is DenyServiceExternalIPs.
  name.replaceAll("-", "").replace(/./g, (letter, index) => {
    const capital = letter.toUpperCase();
    return index === 0 ? capital : `[${capital}${letter}]`;
  });
