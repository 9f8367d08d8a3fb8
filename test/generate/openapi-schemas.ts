// Makes lib/admission-policies/merge/built-in-schemas.json: what merging a patch needs to know of built-in kinds, from
// the OpenAPI documents that the newest API server publishes. `npm run kubernetes-types` writes the file, and
// test/cluster/kubernetes-types.test.ts compares the file with the documents.
import { join } from "node:path";
import { convertSchema, type ValueType } from "#lib/admission-policies/merge/schemas.ts";
import { isSame, type JsonMap, toList, toMap } from "#lib/json.ts";
import { packageRoot } from "../../infra/cli/roots.ts";

/** The documents of OpenAPI 3, by their paths without `/openapi/v3/`, such as `apis/apps/v1`. */
export type SchemaDocuments = Readonly<Record<string, unknown>>;

export const schemasFile = join(packageRoot, "lib/admission-policies/merge/built-in-schemas.json");

/** The types that upstream uses for two definitions, whatever their schemas are. */
const specialTypes: Readonly<Record<string, string>> = {
  "io.k8s.apimachinery.pkg.api.resource.Quantity": "any",
  "io.k8s.apimachinery.pkg.runtime.RawExtension": "atomic",
};

/**
 * Returns the content of built-in-schemas.json: the groups and versions that have documents, and, each on a line, the
 * types of the documents' kinds.
 */
export const printSchemas = (documents: SchemaDocuments): string => {
  const types = Object.entries(buildSchemas(documents)).toSorted(([left], [right]) => (left < right ? -1 : 1));
  const lines = types.map(([name, type]) => `    ${JSON.stringify(name)}: ${JSON.stringify(type)}`);
  const paths = Object.keys(documents).filter((path) => /^(api|apis\/[^/]+)\/\w+$/.test(path));
  const versions = paths.map((path) => path.replace(/^apis?\//, "")).sort();
  return `{\n  "versions": ${JSON.stringify(versions)},\n  "types": {\n${lines.join(",\n")}\n  }\n}\n`;
};

/** Returns the types of all kinds, and of all definitions that these types refer to, by their names. */
const buildSchemas = (documents: SchemaDocuments): Record<string, ValueType> => {
  const types = new Map<string, ValueType>();
  for (const [path, document] of Object.entries(documents)) {
    const schemas = toMap(toMap(toMap(document).components).schemas);
    /** Adds the type of a definition, and returns its name; returns a simple type, such as `any`, itself. */
    const convert = (definition: string, name: string): string => {
      const special = specialTypes[definition];
      if (special !== undefined) return special;
      if (types.has(name)) return name;
      // The name must be present before the type is complete, because a type may refer to itself.
      types.set(name, {});
      const type = convertSchema(toMap(schemas[definition]), (reference) => {
        const referred = reference.replace("#/components/schemas/", "");
        return { name: convert(referred, nameType(referred)), schema: toMap(schemas[referred]) };
      });
      if (typeof type === "string") {
        types.delete(name);
        return type;
      }
      types.set(name, type);
      return name;
    };
    for (const [definition, schema] of Object.entries(schemas)) {
      const kind = findKind(toMap(schema), path);
      if (kind !== undefined) convert(definition, kind);
    }
  }
  return Object.fromEntries(types);
};

/** Returns the last three parts of a definition's name, such as `core.v1.PodSpec`. */
const nameType = (definition: string): string => definition.split(".").slice(-3).join(".");

/**
 * Returns the apiVersion and kind of a type, such as `apps/v1/Deployment`, if requests can have objects of it. Like the
 * API server, finds a kind only in the OpenAPI document of its group and version, which is published at `path`.
 */
const findKind = (schema: JsonMap, path: string): string | undefined => {
  const { allOf } = toMap(toMap(schema.properties).metadata);
  if (!isSame(allOf, [{ $ref: "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta" }])) return;
  for (const { group, version, kind } of toList(schema["x-kubernetes-group-version-kind"]).map(toMap))
    if (path === (group === "" ? `api/${version}` : `apis/${group}/${version}`))
      return `${path.replace(/^apis?\//, "")}/${kind}`;
};
