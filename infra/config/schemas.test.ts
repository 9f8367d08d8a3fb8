import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { readdir, readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { Ajv, type ValidateFunction } from "ajv";
import fc from "fast-check";
import { parse } from "yaml";
import { isMap, toList } from "#lib/json.ts";
import { createTestFolder } from "../../test/folders.ts";
import { readRows } from "../../test/rows.ts";
import { parseCases } from "../catalogue/cases.ts";
import { readCatalogue } from "../catalogue/registry.ts";
import { readSettingDescriptions } from "../catalogue/setting-descriptions.ts";
import { Complaint } from "../cli/complaint.ts";
import { packageRoot } from "../cli/roots.ts";
import { addSchemaLine, buildConfigSchema, casesSchema, schemaLine, writeSchemas } from "./schemas.ts";
import { validateConfig } from "./validation.ts";

const readText = (file: string) => readFileSync(join(packageRoot, file), "utf8");
const catalogue = await readCatalogue();
const names = catalogue.map(({ name }) => name);
// Editors and commands accept YAML's .inf as a number, so strictNumbers is off. The two added keywords are for editors.
const ajv = new Ajv({ allowUnionTypes: true, strictTypes: false, strictNumbers: false, strictRequired: false });
ajv.addVocabulary(["errorMessage", "patternErrorMessage"]);
const configSchema = await buildConfigSchema(catalogue, names);
const isConfigValid = ajv.compile(configSchema);
const areCasesValid = ajv.compile(casesSchema);

const parseYaml = (text: string): unknown => parse(text, { maxAliasCount: -1 });
const isRefused = (check: () => unknown): boolean => {
  try {
    check();
    return false;
  } catch {
    return true;
  }
};
const checkConfig = (text: string) => {
  // The only path of manifests that a config may name is policies/, without manifests. It may name no kubeconfig.
  const manifestsByPath = new Map([["policies/", []]]);
  const files = { folder: "", manifestsByPath, serviceSettingsByPath: new Map(), findPlace: () => "" };
  const known = { catalogue, names, ...files };
  const [mistake] = validateConfig(parseYaml(text), known).mistakes;
  if (mistake) throw new Complaint(`${mistake.path.join(".")} ${mistake.sentence}`);
};
const checkCases = (text: string) => parseCases(text, "cases.yaml", ["mutate", "validate"]);
const assertValid = (validate: ValidateFunction, value: unknown) => {
  assert.ok(validate(value), ajv.errorsText(validate.errors));
};

/** The examples of postern.yaml in the pages, by page and number. */
const examples = globSync(["*.md", "docs/**/*.md", "functions/*/README.md"], { cwd: packageRoot }).flatMap((page) =>
  [...readText(page).matchAll(/^```yaml\n(.*?)^```$/gms)].flatMap(([, text = ""], index): [string, string][] => {
    const value = isRefused(() => parseYaml(text)) ? undefined : parseYaml(text);
    const isConfig = isMap(value) && ["rules", "clusters", "groups"].some((key) => isMap(value[key]));
    return isConfig && !("apiVersion" in value) ? [[`example ${index + 1} of ${page}`, text]] : [];
  }),
);
const configFiles = globSync("test/fixtures/**/postern.yaml", { cwd: packageRoot });
const caseFiles = globSync(["functions/*/cases.yaml", "infra/commands/new/*/cases.yaml"], { cwd: packageRoot });

/** `wrong` has files with a mistake; `complete` has a postern.yaml and cases in which all members are set. */
const { wrong, complete } = readRows<{
  wrong: { config: [name: string, text: string][]; cases: [name: string, text: string][] };
  complete: { config: unknown; cases: unknown };
}>(import.meta.filename);

describe("the schema of postern.yaml", () => {
  for (const file of configFiles) it(`accepts ${file}`, () => assertValid(isConfigValid, parseYaml(readText(file))));
  for (const [name, text] of examples) it(`accepts ${name}`, () => assertValid(isConfigValid, parseYaml(text)));
  for (const [name, text] of wrong.config)
    it(`refuses ${name}, as commands do`, () => {
      assert.equal(isConfigValid(parseYaml(text)), false);
      assert.throws(() => checkConfig(text));
    });

  it("the schema of postern.yaml accepts all members, as commands do", () => {
    assertValid(isConfigValid, complete.config);
    checkConfig(JSON.stringify(complete.config));
  });

  it("the schema of postern.yaml accepts all settings of each rule, with their defaults", () => {
    const all = catalogue.map(({ name, rule }) => [name, { mode: "off", settings: rule.settings ?? {} }]);
    assertValid(isConfigValid, { rules: Object.fromEntries(all) });
  });

  it("the schema of postern.yaml accepts any settings of a rule that can't be loaded", async () => {
    const schema = await buildConfigSchema([], ["lost"]);
    assertValid(ajv.compile(schema), { rules: { lost: { settings: { a: 1 } } }, groups: { some: ["lost"] } });
  });

  it("the schema of postern.yaml refuses only what commands refuse", () => {
    const settings = catalogue.map(({ name, rule }): unknown => {
      return { rules: { [name]: { mode: "off", settings: rule.settings ?? {} } } };
    });
    const files = [...configFiles.map(readText), ...examples.map(([, text]) => text)].map(parseYaml);
    assertNoFalseAlarm(isConfigValid, checkConfig, [complete.config, ...settings, ...files]);
  });
});

describe("the schema of cases.yaml", () => {
  for (const file of caseFiles)
    it(`accepts ${file}, which names it`, () => {
      assert.ok(readText(file).startsWith("# yaml-language-server: $schema=../../.postern/cases.schema.json\n"));
      assertValid(areCasesValid, parseYaml(readText(file)));
    });
  for (const [name, text] of wrong.cases)
    it(`refuses ${name}, as commands do`, () => {
      assert.equal(areCasesValid(parseYaml(text)), false);
      assert.throws(() => checkCases(text));
    });

  it("the schema of cases.yaml accepts all members, as commands do", () => {
    assertValid(areCasesValid, complete.cases);
    checkCases(JSON.stringify(complete.cases));
  });

  it("the schema of cases.yaml refuses only what commands refuse", () =>
    assertNoFalseAlarm(areCasesValid, checkCases, [
      complete.cases,
      ...caseFiles.flatMap((file) => toList(parseYaml(readText(file))).map((entry) => [entry])),
    ]));
});

/** Changes valid files at random places. The schema may refuse no file that commands accept. */
function assertNoFalseAlarm(validate: ValidateFunction, check: (text: string) => unknown, files: readonly unknown[]) {
  const values = files.flatMap(listValues);
  const scalar = fc.oneof(
    fc.constantFrom<unknown>(null, "", "off", "a", 0, 1, 2, -1, 0.5, 1e300, true, [], {}),
    fc.string(),
  );
  const newValue = fc.oneof(scalar, fc.constantFrom(...values), fc.array(scalar, { maxLength: 2 }));
  const newKey = fc.oneof(
    fc.constantFrom(...new Set(values.flatMap((value) => (isMap(value) ? Object.keys(value) : [])))),
    fc.string(),
  );
  const kind = fc.constantFrom("replace" as const, "delete" as const, "rename" as const, "add" as const);
  const change = fc.record({ place: fc.nat(), kind, newValue, newKey });
  let refusals = 0;
  fc.assert(
    fc.property(fc.constantFrom(...files), fc.array(change, { minLength: 1, maxLength: 2 }), (file, changes) => {
      const changed = changes.reduce((value: unknown, next) => applyChange(value, next), file);
      const text = JSON.stringify(changed);
      if (validate(JSON.parse(text))) return;
      refusals += 1;
      assert.ok(
        isRefused(() => check(text)),
        `${ajv.errorsText(validate.errors)}: ${text}`,
      );
    }),
    { numRuns: 5000 },
  );
  assert.ok(refusals > 100, `only ${refusals} files were refused`);
}

/** A change of a file: at which of its places, what is done there, and the new value or key for it. */
interface Change {
  place: number;
  kind: "replace" | "delete" | "rename" | "add";
  newValue: unknown;
  newKey: string;
}

/** Returns a copy of a value that is changed at one of its places. */
function applyChange(value: unknown, { place, kind, newValue, newKey }: Change): unknown {
  const copy = structuredClone(value);
  const places = listValues(copy).flatMap((holder) =>
    typeof holder === "object" && holder !== null ? Object.keys(holder).map((name) => [holder, name] as const) : [],
  );
  const [holder, name] = places[place % places.length] ?? [];
  if (holder === undefined || name === undefined) return newValue;
  if (kind === "replace") Reflect.set(holder, name, newValue);
  else if (kind === "add") Reflect.set(holder, Array.isArray(holder) ? holder.length : newKey, newValue);
  else {
    if (kind === "rename" && isMap(holder)) holder[newKey] = holder[name];
    Reflect.deleteProperty(holder, name);
  }
  return copy;
}

/** Returns a value and all values in it. */
function listValues(value: unknown): unknown[] {
  const inner = typeof value === "object" && value !== null ? Object.values(value) : [];
  return [value, ...inner.flatMap(listValues)];
}

describe("the schemas", () => {
  it("writeSchemas writes the schemas to which YAML files refer in the first line, if they have changed", async () => {
    const folder = await createTestFolder();
    const listFiles = async () => {
      const names = await readdir(join(folder, ".postern"));
      return Promise.all(names.map(async (name) => [name, (await stat(join(folder, ".postern", name))).mtimeMs]));
    };
    await writeSchemas(folder, { catalogue, names });
    const first = await listFiles();
    assert.deepEqual(first.map(([name]) => name).sort(), ["cases.schema.json", "postern.schema.json"]);
    assert.deepEqual(JSON.parse(await readFile(join(folder, ".postern/postern.schema.json"), "utf8")), configSchema);
    await writeSchemas(folder, { catalogue, names });
    assert.deepEqual(await listFiles(), first);
  });

  it("the line that names a schema is added as the first line of a file only once", () => {
    const text = addSchemaLine("rules:\n");
    assert.equal(text, `${schemaLine}\nrules:\n`);
    assert.equal(addSchemaLine(text), text);
    assert.ok(readText("infra/create/create.js").includes(`\`${schemaLine}\n`), "create-postern has another line");
  });

  for (const listed of catalogue)
    it(`describe the settings of ${listed.name} as its README does`, async () => {
      const described = await readSettingDescriptions(listed);
      const { settings = {} } = listed.rule;
      const missing = Object.keys(settings).filter((name) => !described.has(name));
      const unknown = [...described.keys()].filter((path) => findSetting(settings, path) === undefined);
      assert.deepEqual({ missing, unknown }, { missing: [], unknown: [] });
    });

  it("the schema of postern.yaml describes a rule's members as docs/reference/configuration.md does", () => {
    const rows = readText("docs/reference/configuration.md").matchAll(/^\| `(\w+)` \| .*? \| (.*) \|$/gm);
    const described = [...rows].map(([, name = "", meaning = ""]) => [name, meaning.replace(/: see \[.*$/, "")]);
    const { properties } = Object(configSchema.definitions).generalRule;
    const present = Object.entries(properties).map(([name, member]) => [name, Object(member).description]);
    assert.deepEqual(Object.fromEntries(present), Object.fromEntries(described));
  });
});

function findSetting(settings: object, path: string): unknown {
  return path.split(".").reduce((value: unknown, key) => (isMap(value) ? value[key] : undefined), settings);
}
