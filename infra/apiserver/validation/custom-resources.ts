import { getOwn, isMap, type JsonMap, toList, toMap } from "#lib/json.ts";
import type { KubernetesObject } from "#lib/review.ts";
import { createRuleValidation, type RuleValidation } from "./custom-rules.ts";
import { type FieldFault, validateFields } from "./fields.ts";
import { findSchemaFaults, formatBadValue, pickKeys, toIdentity } from "./schema.ts";

/** What the API server does with the custom resources of one kind and version. */
export interface CustomKind {
  /** Returns an object with its defaults and without the fields that its schema doesn't have, with their paths. */
  complete(object: KubernetesObject): { object: KubernetesObject; strays: string[] };
  /** Returns the faults of an object; calls `tell` with what can't be evaluated. */
  validate(
    object: KubernetesObject,
    oldObject: KubernetesObject | undefined,
    tell: (sentence: string) => void,
  ): FieldFault[];
}

/** Returns the kind of a custom resource; undefined for other objects. */
export type FindCustomKind = (object: { apiVersion?: unknown; kind?: unknown }) => CustomKind | undefined;

/** Returns the kinds that CustomResourceDefinitions among some objects define, by apiVersion and kind. */
export const createCustomKinds = (objects: readonly unknown[], kubernetes: string | undefined): FindCustomKind => {
  const schemas = new Map<string, { schema: JsonMap; hasStatus: boolean }>();
  for (const definition of objects) {
    if (!isMap(definition) || definition.kind !== "CustomResourceDefinition") continue;
    const { group, names, versions, preserveUnknownFields } = toMap(toMap(definition).spec);
    for (const { name, schema, subresources } of toList(versions).map(toMap)) {
      const { openAPIV3Schema } = toMap(schema);
      if (!isMap(openAPIV3Schema) || preserveUnknownFields === true) continue;
      const hasStatus = toMap(subresources).status !== undefined;
      schemas.set(`${group}/${name} ${toMap(names).kind}`, { schema: openAPIV3Schema, hasStatus });
    }
  }
  const kinds = new Map<string, CustomKind>();
  return ({ apiVersion, kind }) => {
    const key = `${apiVersion} ${kind}`;
    const found = schemas.get(key);
    if (found === undefined) return undefined;
    const custom = kinds.get(key) ?? createCustomKind(found.schema, found.hasStatus, kubernetes);
    kinds.set(key, custom);
    return custom;
  };
};

const createCustomKind = (schema: JsonMap, hasStatus: boolean, kubernetes: string | undefined): CustomKind => {
  let rules: RuleValidation | undefined;
  return {
    complete: (object) => {
      const strays: string[] = [];
      const pruned = prune(object, { ...schema, "x-kubernetes-embedded-resource": true }, "", strays);
      const filled = fillDefaults(dropNulls(pruned, schema), schema);
      // The parts of an object stay objects.
      return { object: filled as KubernetesObject, strays: strays.sort() };
    },
    validate: (given, old, tell) => {
      const object = hasStatus ? replaceStatus(given, old) : given;
      const faults = [
        // The rules for metadata are those of a ConfigMap, whose name has the same format.
        ...(validateFields({ ...configMap, metadata: object.metadata ?? {} } as KubernetesObject, kubernetes) ?? []),
        ...findSchemaFaults(object, schema, kubernetes),
        ...findListFaults(object, schema, "", kubernetes),
      ].map(({ field, reason, message }) => ({ field, reason, message }));
      if (!hasRules(schema)) return faults;
      if (faults.some(({ reason }) => blocking.has(reason))) return [...faults, createBlockedFault(kubernetes)];
      rules ??= createRuleValidation(schema, kubernetes);
      return [...faults, ...rules(object, old, tell)];
    },
  };
};

const configMap = { apiVersion: "v1", kind: "ConfigMap" };

/** A request for a custom resource that has a subresource for its status can't change the status. */
const replaceStatus = ({ status, ...object }: KubernetesObject & { status?: unknown }, old?: KubernetesObject) => {
  const before = getOwn(old, "status");
  return { ...object, ...(before !== undefined && { status: before }) } as KubernetesObject;
};

/** The faults because of which the API server doesn't evaluate rules. */
const blocking = new Set([
  ...["FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany"],
  "FieldValueTypeInvalid",
]);

const createBlockedFault = (kubernetes: string | undefined): FieldFault => ({
  field: "<nil>",
  reason: "FieldValueInvalid",
  message: `Invalid value: ${formatBadValue(null, kubernetes)}: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation`,
});

const hasRules = (schema: unknown): boolean =>
  Array.isArray(schema)
    ? schema.some(hasRules)
    : isMap(schema) && (schema["x-kubernetes-validations"] !== undefined || Object.values(schema).some(hasRules));

const metaFields = ["apiVersion", "kind", "metadata"];

/** Returns a value without unknown fields; `schema` is undefined below an unknown value. */
const prune = (value: unknown, schema: unknown, path: string, strays: string[]): unknown => {
  const { properties, additionalProperties, items } = toMap(schema);
  const keeps = toMap(schema)["x-kubernetes-preserve-unknown-fields"] === true;
  if (Array.isArray(value))
    return value.map((item, index) => pruneInner(item, items, `${path}[${index}]`, strays, keeps));
  if (!isMap(value)) return value;
  const isEmbedded = toMap(schema)["x-kubernetes-embedded-resource"] === true;
  return Object.fromEntries(
    Object.entries(value).flatMap(([key, member]) => {
      if (isEmbedded && metaFields.includes(key)) return [[key, member]];
      const at = path === "" ? key : `${path}.${key}`;
      const own = getOwn(properties, key);
      if (own !== undefined) return [[key, pruneInner(member, own, at, strays, keeps)]];
      if (isMap(additionalProperties)) return [[key, pruneInner(member, additionalProperties, at, strays, keeps)]];
      if (additionalProperties === true || keeps) return [[key, member]];
      strays.push(at);
      return [];
    }),
  );
};

/** Fields without a schema of their own are kept where unknown fields are. */
const pruneInner = (value: unknown, schema: unknown, path: string, strays: string[], keeps: boolean): unknown =>
  keeps && !isMap(schema) ? value : prune(value, schema, path, strays);

/** Returns a value without nulls that its schema doesn't allow, where there is no default. */
const dropNulls = (value: unknown, schema: unknown): unknown => {
  const { properties, additionalProperties, items } = toMap(schema);
  if (Array.isArray(value)) return value.map((item) => dropNulls(item, items));
  if (!isMap(value)) return value;
  return Object.fromEntries(
    Object.entries(value).flatMap(([key, member]) => {
      const own = getOwn(properties, key) ?? additionalProperties;
      return isRefusedNull(member, own) && toMap(own).default === undefined ? [] : [[key, dropNulls(member, own)]];
    }),
  );
};

const isRefusedNull = (value: unknown, schema: unknown): boolean =>
  value === null && isMap(schema) && schema.nullable !== true;

const fillDefaults = (value: unknown, schema: unknown): unknown => {
  const { properties, additionalProperties, items } = toMap(schema);
  const replace = (inner: unknown, own: unknown) => (isRefusedNull(inner, own) ? (toMap(own).default ?? null) : inner);
  if (Array.isArray(value)) return value.map((item) => fillDefaults(replace(item, items), items));
  if (!isMap(value)) return value;
  const filled: JsonMap = { ...value };
  for (const [key, own] of Object.entries(toMap(properties)))
    if (toMap(own).default != null && (!Object.hasOwn(value, key) || isRefusedNull(value[key], own)))
      filled[key] = toMap(own).default;
  return Object.fromEntries(
    Object.entries(filled).map(([key, member]) => {
      const own = getOwn(properties, key);
      return [
        key,
        own === undefined
          ? fillDefaults(replace(member, additionalProperties), additionalProperties)
          : fillDefaults(member, own),
      ];
    }),
  );
};

/** Returns the faults of lists that are sets or maps: elements that are there twice. */
const findListFaults = (value: unknown, schema: unknown, field: string, kubernetes?: string): FieldFault[] => {
  const { properties, additionalProperties, items } = toMap(schema);
  if (isMap(value))
    return Object.entries(value).flatMap(([key, member]) => {
      const own = getOwn(properties, key);
      const others = isMap(additionalProperties)
        ? findListFaults(member, additionalProperties, `${field}[${key}]`, kubernetes)
        : [];
      return [
        ...others,
        ...(own === undefined ? [] : findListFaults(member, own, field === "" ? key : `${field}.${key}`, kubernetes)),
      ];
    });
  if (!Array.isArray(value)) return [];
  return [
    ...findDuplicates(value, toMap(schema), field, kubernetes),
    ...value.flatMap((item, index) => findListFaults(item, items, `${field}[${index}]`, kubernetes)),
  ];
};

const findDuplicates = (
  value: readonly unknown[],
  schema: JsonMap,
  field: string,
  kubernetes?: string,
): FieldFault[] => {
  const { "x-kubernetes-list-type": type, "x-kubernetes-list-map-keys": keys } = schema;
  if (type !== "set" && type !== "map") return [];
  const other = type === "map" ? value.findIndex((item) => item !== null && !isMap(item)) : -1;
  if (other >= 0) {
    const message = `Invalid value: ${formatBadValue(value[other], kubernetes)}: must be an object for an array of list-type map`;
    return [{ field: `${field}[${other}]`, reason: "FieldValueInvalid", message }];
  }
  const identities = type === "set" ? value : value.map((item) => pickKeys(item, toList(keys).map(String)));
  const counts = new Map<string, number>();
  return identities.flatMap((identity, index) => {
    const key = toIdentity(identity);
    const count = (counts.get(key) ?? 0) + 1;
    counts.set(key, count);
    // Only the second of equal elements is named.
    if (count !== 2) return [];
    const message = `Duplicate value: ${formatBadValue(identity, kubernetes)}`;
    return [{ field: `${field}[${index}]`, reason: "FieldValueDuplicate", message }];
  });
};
