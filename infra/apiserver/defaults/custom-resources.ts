import { getOwn, isMap } from "#lib/json.ts";
import type { DefaultedObject } from "./defaults.ts";

/**
 * Returns a custom resource as an API server reads it by the schema of its CustomResourceDefinition: with the schema's
 * defaults, without fields that it doesn't have, and without nulls that it doesn't allow.
 */
export const fillCustomResource = ({ object, strays, misfits }: DefaultedObject, schema: unknown): DefaultedObject => {
  const dropped = [...strays];
  const read: DefaultedObject["object"] = readMap(Object(object), schema, dropped, "", true);
  return { object: read, strays: dropped, misfits };
};

const readValue = (value: unknown, schema: unknown, dropped: string[], path: string): unknown => {
  if (Array.isArray(value)) {
    const items = getOwn(schema, "items");
    if (!items) return value;
    return value.map((item, index) => readValue(fillNull(item, items), items, dropped, `${path}[${index}]`));
  }
  const isResource = getOwn(schema, "x-kubernetes-embedded-resource") === true;
  return isMap(value) ? readMap(value, schema, dropped, path, isResource) : value;
};

const readMap = (
  value: Record<string, unknown>,
  schema: unknown,
  dropped: string[],
  path: string,
  isResource: boolean,
): Record<string, unknown> => {
  const properties = getOwn(schema, "properties") ?? {};
  const others = getOwn(schema, "additionalProperties");
  const keepsOthers = Boolean(others) || getOwn(schema, "x-kubernetes-preserve-unknown-fields") === true;
  const read: [string, unknown][] = [];
  for (const [name, member] of Object.entries(value)) {
    const own = getOwn(properties, name) ?? (isMap(others) ? others : undefined);
    const at = path === "" ? name : `${path}.${name}`;
    if (isResource && typeFields.includes(name)) read.push([name, member]);
    else if (own !== undefined) {
      const filled = fillNull(member, own);
      if (filled !== null || getOwn(own, "nullable") === true) read.push([name, readValue(filled, own, dropped, at)]);
    } else if (keepsOthers) read.push([name, member]);
    else dropped.push(at);
  }
  for (const [name, own] of Object.entries(properties)) {
    const preset = getOwn(own, "default");
    if (preset !== undefined && !Object.hasOwn(value, name))
      read.push([name, readValue(structuredClone(preset), own, dropped, path)]);
  }
  return Object.fromEntries(read);
};

const typeFields = ["apiVersion", "kind", "metadata"];

/** Returns the default in place of a null that a schema doesn't allow. */
const fillNull = (value: unknown, schema: unknown): unknown => {
  const preset = getOwn(schema, "default");
  return value === null && preset !== undefined && getOwn(schema, "nullable") !== true
    ? structuredClone(preset)
    : value;
};
