/** The parts of a schema (of OpenAPI 2 or a CustomResourceDefinition) from which a TypeScript type is made. */
export interface ObjectSchema {
  description?: string;
  type?: string;
  format?: string;
  $ref?: string;
  nullable?: boolean;
  items?: ObjectSchema;
  additionalProperties?: ObjectSchema | boolean;
  properties?: Record<string, ObjectSchema>;
  required?: string[];
  "x-kubernetes-group-version-kind"?: { group: string; version: string; kind: string }[];
  "x-kubernetes-int-or-string"?: boolean;
  "x-kubernetes-preserve-unknown-fields"?: boolean;
}

/** Returns the declaration of a TypeScript type. The first sentence of each description becomes a comment. */
export const printDeclaration = (name: string, schema: ObjectSchema): string => {
  const comment = printComment(schema.description, "");
  if (!schema.properties) return `${comment}export type ${name} = ${printType(schema, "")};\n`;
  return `${comment}export interface ${name} ${printFields(schema, "")}\n`;
};

/** Returns a schema's fields as a TypeScript object type. */
const printFields = (schema: ObjectSchema, indent: string): string => {
  const { properties = {}, required = [], "x-kubernetes-group-version-kind": kinds = [] } = schema;
  const inner = `${indent}  `;
  const fields = Object.entries(properties)
    .toSorted(([left], [right]) => (left < right ? -1 : 1))
    .map(([field, value]) => {
      const key = /^[\w$]+$/.test(field) ? field : JSON.stringify(field);
      const optional = required.includes(field) ? "" : "?";
      const type = printLiteral(field, kinds) ?? printType(value, inner);
      return `${printComment(value.description, inner)}${inner}${key}${optional}: ${type};\n`;
    });
  const rest = schema["x-kubernetes-preserve-unknown-fields"] ? `${inner}[field: string]: unknown;\n` : "";
  return `{\n${fields.join("")}${rest}${indent}}`;
};

/** Returns the type of `apiVersion` or `kind`, such as `"apps/v1"`, if it can have only one value. */
const printLiteral = (
  field: string,
  [only, another]: NonNullable<ObjectSchema["x-kubernetes-group-version-kind"]>,
): string | undefined => {
  // DeleteOptions and WatchEvent exist in every group.
  if (!only || another) return undefined;
  if (field === "kind") return JSON.stringify(only.kind);
  if (field === "apiVersion") return JSON.stringify(only.group === "" ? only.version : `${only.group}/${only.version}`);
};

const simpleTypes = new Map([
  ["integer", "number"],
  ...["boolean", "number", "object", "string"].map((type) => [type, type] as const),
]);

/** Returns the type of a schema. Enumerations are ignored, because a later version may have more values. */
const printType = (schema: ObjectSchema, indent: string): string => {
  const { $ref, type = "", format, items, additionalProperties, properties, nullable } = schema;
  const isAnyObject = additionalProperties === true || schema["x-kubernetes-preserve-unknown-fields"] === true;
  const print = () => {
    // A reference in a hostile definition may be any text, so only a word at its end is used.
    if ($ref !== undefined) return /\.(\w+)$/.exec($ref)?.[1] ?? "unknown";
    if (items) return `${printElement(items, indent)}[]`;
    if (properties) return printFields(schema, indent);
    if (isAnyObject) return type === "object" ? "Record<string, unknown>" : "unknown";
    if (additionalProperties) return `Record<string, ${printType(additionalProperties, indent)}>`;
    if (format === "int-or-string" || schema["x-kubernetes-int-or-string"]) return "number | string";
    return simpleTypes.get(type) ?? "unknown";
  };
  return nullable ? `${print()} | null` : print();
};

/**
 * Returns the type of a list's elements. As `[]` follows, a union gets parentheses. `printType` returns only two kinds
 * of unions: a type with `| null` at the end, and `number | string`.
 */
const printElement = (schema: ObjectSchema, indent: string): string => {
  const type = printType(schema, indent);
  return / \| (null|string)$/.test(type) ? `(${type})` : type;
};

/** Returns the first sentence of a description as a comment. */
const printComment = (description: string | undefined, indent: string): string => {
  // A single word, such as "Deprecated.", is kept with the sentence after it. A full stop before a small letter, as in
  // "e.g. a name", doesn't end a sentence.
  const singleWord = String.raw`\w+[.:] `;
  const sentenceEnd = String.raw`[.:!?](?=\s+[^\sa-z]|\s*$)|(?=\n|$)`;
  const pattern = new RegExp(String.raw`^\s*((?:${singleWord})?.+?(?:${sentenceEnd}))`);
  const [, sentence = ""] = pattern.exec(description ?? "") ?? [];
  const text = sentence.replaceAll("*/", "*\\/").replace(/\s+/g, " ").trim();
  if (text === "") return "";
  const maxLineLength = 120;
  const line = `${indent}/** ${text} */\n`;
  if (line.length <= maxLineLength + "\n".length) return line;
  const width = Math.max(40, maxLineLength - `${indent} * `.length);
  const lines = wrapText(text, width).map((part) => `${indent} * ${part}\n`);
  return `${indent}/**\n${lines.join("")}${indent} */\n`;
};

const wrapText = (text: string, width: number): string[] =>
  text.match(new RegExp(`\\S.{0,${width - 1}}(?=\\s|$)|\\S+`, "g")) ?? [];
