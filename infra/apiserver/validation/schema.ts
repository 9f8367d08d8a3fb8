import { isIPv4, isIPv6 } from "node:net";
import { compilePattern } from "#lib/cel/libraries/regex.ts";
import { exactJson, writeInteger } from "#lib/exact-json.ts";
import { getOwn, isMap, isSame, type JsonMap, toList, toMap } from "#lib/json.ts";
import { selectTraits } from "./changes.ts";
import type { FieldFault } from "./fields.ts";

// Validates a value against the schema of a CustomResourceDefinition, as kube-openapi does: with its messages, and with
// its choice of the alternative whose faults are named.

/** The faults of a value, and how many checks were made: an alternative with more of them is nearer to the value. */
interface Outcome {
  faults: FieldFault[];
  checks: number;
}

/** Returns the faults of a custom resource. `path` is that of the value, empty for the object itself. */
export const findSchemaFaults = (value: unknown, schema: JsonMap, kubernetes?: string): FieldFault[] =>
  validate(value, schema, "", kubernetes).faults;

const validate = (value: unknown, schema: JsonMap, path: string, kubernetes?: string): Outcome => {
  const outcome: Outcome = { faults: [], checks: 0 };
  const types = listTypes(schema);
  const format = getFormat(schema, types, kubernetes);
  const parts: Outcome[] = [];
  if (types.length > 0 || format !== "") parts.push(validateType(value, schema, types, format, path));
  if (value === null) {
    const fault = findEnumFault(value, schema, path, kubernetes);
    if (fault) parts.push({ faults: [fault], checks: 0 });
    return merge(outcome, parts);
  }
  const alternatives = validateAlternatives(value, schema, path, kubernetes);
  alternatives.checks++;
  parts.push(alternatives);
  if (typeof value === "string") {
    const fault = findTextFault(value, schema, path, kubernetes);
    parts.push({ faults: fault ? [fault] : [], checks: 1 });
    const isValid = textFormats[format.replaceAll("-", "")];
    if (isValid) {
      const said = `${path} in body must be of type ${format}: ${JSON.stringify(value)}`;
      parts.push({ faults: isValid(value) ? [] : [createTypeFault(path, JSON.stringify(value), said)], checks: 1 });
    }
  }
  if (typeof value === "number" || typeof value === "bigint")
    parts.push({ faults: listNumberFaults(value, schema, path, kubernetes), checks: 2 });
  if (Array.isArray(value)) parts.push(validateList(value, schema, path, kubernetes), { faults: [], checks: 1 });
  const fault = findEnumFault(value, schema, path, kubernetes);
  parts.push({ faults: fault ? [fault] : [], checks: 1 });
  if (isMap(value)) parts.push(validateMap(value, schema, path, kubernetes), { faults: [], checks: 1 });
  outcome.checks += 2;
  return merge(outcome, parts);
};

const merge = (outcome: Outcome, parts: readonly Outcome[]): Outcome => {
  const toKey = ({ field, message }: FieldFault) => `${field}\n${message}`;
  const known = new Set(outcome.faults.map(toKey));
  for (const { faults, checks } of parts) {
    for (const fault of faults) {
      const key = toKey(fault);
      if (!known.has(key)) outcome.faults.push(fault);
      known.add(key);
    }
    outcome.checks += checks;
  }
  return outcome;
};

const listTypes = (schema: JsonMap): string[] =>
  schema["x-kubernetes-int-or-string"] === true
    ? ["integer", "string"]
    : typeof schema.type === "string" && schema.type !== ""
      ? [schema.type]
      : [];

/** Returns the format of a schema, if the API server knows it for the type. */
const getFormat = ({ format }: JsonMap, types: readonly string[], kubernetes?: string): string => {
  if (typeof format !== "string" || types.length > 1) return "";
  const [type = "string"] = types;
  if (type === "string") return knownFormats.has(format.replaceAll("-", "")) ? format : "";
  if (!selectTraits(kubernetes).hasNumberFormats) return "";
  const known = { integer: ["int32", "int64"], number: ["float", "double"] }[type] ?? [];
  return known.includes(format) ? format : "";
};

const getType = (value: unknown): string => {
  if (Array.isArray(value)) return "array";
  if (typeof value === "bigint") return "integer";
  if (typeof value === "number") return Number.isInteger(value) ? "integer" : "number";
  return typeof value;
};

const validateType = (
  value: unknown,
  { nullable }: JsonMap,
  types: readonly string[],
  format: string,
  path: string,
): Outcome => {
  const valid = { faults: [], checks: 1 };
  const refuse = (wanted: string, found: string): Outcome => {
    const said = `${path} in body must be of type ${wanted}: ${JSON.stringify(found)}`;
    return { faults: [createTypeFault(path, JSON.stringify(found), said)], checks: 0 };
  };
  if (value === null) return types.length === 0 || nullable === true ? valid : refuse(types.join(","), "null");
  const type = getType(value);
  const isNumeric = types.includes("number") || types.includes("integer");
  if (!isNumeric && format !== "" && (type === "string" || type === "array")) return valid;
  const isValid = types.includes(type) || (type === "integer" && types.includes("number"));
  if (!isValid && format !== "" && type !== "string" && type !== "array") return refuse(format, describeFormat(type));
  return isValid || (types.length === 0 && format === "") ? valid : refuse(types.join(","), type);
};

/** Go's numbers have formats of their own. */
const describeFormat = (type: string): string => ({ integer: "int64", number: "float64" })[type] ?? "";

const validateAlternatives = (value: unknown, schema: JsonMap, path: string, kubernetes?: string): Outcome => {
  const outcome: Outcome = { faults: [], checks: 0 };
  const validateAll = (name: string) =>
    toList(schema[name]).map((inner) => validate(value, toMap(inner), path, kubernetes));
  const refuse = (sentence: string) => outcome.faults.push(createUnnamedFault(`${JSON.stringify(path)} ${sentence}`));
  const isValid = ({ faults }: Outcome) => faults.length === 0;
  // The first of those with the most checks.
  const pickBest = (all: readonly Outcome[]) =>
    all.reduce<Outcome | undefined>((best, one) => (best && best.checks >= one.checks ? best : one), undefined);
  const anyOf = validateAll("anyOf");
  if (anyOf.length > 0) {
    const valid = anyOf.find(isValid);
    if (valid === undefined) refuse("must validate at least one schema (anyOf)");
    const kept = valid ?? pickBest(anyOf);
    if (kept) merge(outcome, [kept]);
  }
  const oneOf = validateAll("oneOf");
  if (oneOf.length > 0) {
    const valid = oneOf.filter(isValid);
    const found = valid.length === 0 ? "Found none valid" : `Found ${valid.length} valid alternatives`;
    if (valid.length !== 1) refuse(`must validate one and only one schema (oneOf). ${found}`);
    const afterLast = oneOf.slice(0, oneOf.findIndex(isValid) + 1 || undefined);
    const kept = valid.length === 1 ? valid[0] : valid.length === 0 ? pickBest(afterLast) : undefined;
    if (kept) merge(outcome, [kept]);
  }
  const allOf = validateAll("allOf");
  if (allOf.length > 0) {
    merge(outcome, allOf);
    const valid = allOf.filter(isValid).length;
    if (valid !== allOf.length) refuse(`must validate all the schemas (allOf)${valid === 0 ? ". None validated" : ""}`);
  }
  if (isMap(schema.not) && isValid(validate(value, schema.not, path, kubernetes)))
    refuse("must not validate the schema (not)");
  return outcome;
};

const validateMap = (value: JsonMap, schema: JsonMap, path: string, kubernetes?: string): Outcome => {
  const outcome: Outcome = { faults: [], checks: 0 };
  const { minProperties, maxProperties, additionalProperties } = schema;
  const properties = toMap(schema.properties);
  const size = Object.keys(value).length;
  if (typeof minProperties === "number" && size < minProperties)
    outcome.faults.push(
      createInvalidFault(path, String(size), `${path} in body should have at least ${minProperties} properties`),
    );
  if (typeof maxProperties === "number" && size > maxProperties)
    outcome.faults.push(createCountFault(path, size, maxProperties, kubernetes));
  const join = (key: string) => `${path}.${key}`;
  const members = Object.entries(value).flatMap(([key, member]) => {
    const own = getOwn(properties, key);
    if (own !== undefined) return [validate(member, toMap(own), path === "" ? key : join(key), kubernetes)];
    return isMap(additionalProperties) ? [validate(member, additionalProperties, join(key), kubernetes)] : [];
  });
  merge(outcome, members);
  for (const key of toList(schema.required))
    if (!Object.hasOwn(value, String(key)))
      outcome.faults.push({
        field: join(String(key)).replace(/^\./, ""),
        reason: "FieldValueRequired",
        message: "Required value",
      });
  return outcome;
};

const validateList = (value: readonly unknown[], schema: JsonMap, path: string, kubernetes?: string): Outcome => {
  const outcome: Outcome = { faults: [], checks: 1 };
  const { items, minItems, maxItems } = schema;
  if (isMap(items))
    merge(
      outcome,
      value.map((item, index) => validate(item, items, `${path}[${index}]`, kubernetes)),
    );
  if (typeof minItems === "number" && value.length < minItems)
    outcome.faults.push(
      createInvalidFault(path, String(value.length), `${path} in body should have at least ${minItems} items`),
    );
  if (typeof maxItems === "number" && value.length > maxItems)
    outcome.faults.push(createCountFault(path, value.length, maxItems, kubernetes));
  return outcome;
};

const findTextFault = (
  value: string,
  { minLength, maxLength, pattern }: JsonMap,
  path: string,
  kubernetes?: string,
): FieldFault | undefined => {
  const length = [...value].length;
  if (typeof maxLength === "number" && length > maxLength) {
    const unit = maxLength === 1 && selectTraits(kubernetes).hasSingularForms ? "byte" : "bytes";
    const message = `Too long: may not be more than ${maxLength} ${unit}`;
    return { field: path, reason: "FieldValueTooLong", message };
  }
  const refuse = (said: string) => createInvalidFault(path, JSON.stringify(value), `${path} in body ${said}`);
  if (typeof minLength === "number" && length < minLength) return refuse(`should be at least ${minLength} chars long`);
  if (typeof pattern === "string" && pattern !== "" && !compilePattern(pattern).test(value))
    return refuse(`should match '${pattern}'`);
  return undefined;
};

const listNumberFaults = (value: number | bigint, schema: JsonMap, path: string, kubernetes?: string): FieldFault[] => {
  const { minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf } = schema;
  const found: string[] = [];
  const isLimit = (limit: unknown): limit is number => typeof limit === "number";
  if (isLimit(multipleOf) && Number(value) % multipleOf !== 0) found.push(`a multiple of ${multipleOf}`);
  if (isLimit(minimum) && (exclusiveMinimum === true ? value <= minimum : value < minimum))
    found.push(`greater than ${exclusiveMinimum === true ? "" : "or equal to "}${minimum}`);
  if (isLimit(maximum) && (exclusiveMaximum === true ? value >= maximum : value > maximum))
    found.push(`less than ${exclusiveMaximum === true ? "" : "or equal to "}${maximum}`);
  const faults = found.map((limit) =>
    createInvalidFault(path, exactJson.stringify(value), `${path} in body should be ${limit}`),
  );
  // From 1.36 on, an integer must have the size of its format.
  const types = listTypes(schema);
  if (types.length !== 1 || types[0] !== "integer" || !selectTraits(kubernetes).hasNumberFormats) return faults;
  const format = getFormat(schema, types, kubernetes);
  const bits = format === "int32" ? 31n : 63n;
  const isInteger = typeof value === "bigint" || Number.isInteger(value);
  if (isInteger && BigInt(value) < 1n << bits && BigInt(value) >= -(1n << bits)) return faults;
  const named = format === "" ? "(default format)" : `with format ${format}`;
  return [createUnnamedFault(`Checked value must be of type integer ${named} in ${path}`), ...faults];
};

const findEnumFault = (value: unknown, schema: JsonMap, path: string, kubernetes?: string): FieldFault | undefined => {
  const values = toList(schema.enum);
  if (values.length === 0 || values.some((one) => isEnumValue(value, one))) return undefined;
  const supported = values.map((one) => JSON.stringify(typeof one === "string" ? one : exactJson.stringify(one)));
  const message = `Unsupported value: ${formatBadValue(value, kubernetes)}: supported values: ${supported.join(", ")}`;
  return { field: path, reason: "FieldValueNotSupported", message };
};

/** Go converts a value to the type of the enumerated one: a fraction becomes a whole number. */
const isEnumValue = (value: unknown, one: unknown): boolean =>
  isSame(one, value) || (typeof value === "number" && Number.isInteger(one) && Math.trunc(value) === one);

/** Returns a value as refusals show it: as JSON, and until 1.33 as Go writes it. */
export const formatBadValue = (value: unknown, kubernetes?: string): string => {
  if (selectTraits(kubernetes).showsJson) return exactJson.stringify(value);
  return value === null ? '"null"' : formatGoValue(value);
};

const formatGoValue = (value: unknown): string => {
  if (Array.isArray(value)) return `[]interface {}{${value.map(formatGoValue).join(", ")}}`;
  if (value === null) return "interface {}(nil)";
  if (!isMap(value)) return exactJson.stringify(value);
  const members = Object.keys(value)
    .sort()
    .map((key) => `${JSON.stringify(key)}:${formatGoValue(value[key])}`);
  return `map[string]interface {}{${members.join(", ")}}`;
};

const createTypeFault = (path: string, value: string, said: string): FieldFault => {
  return { field: nameField(path), reason: "FieldValueTypeInvalid", message: `Invalid value: ${value}: ${said}` };
};
const createInvalidFault = (path: string, value: string, said: string): FieldFault => {
  return { field: nameField(path), reason: "FieldValueInvalid", message: `Invalid value: ${value}: ${said}` };
};
const createUnnamedFault = (said: string): FieldFault => createInvalidFault("", '""', said);
const createCountFault = (path: string, size: number, most: number, kubernetes?: string): FieldFault => {
  const unit = most === 1 && selectTraits(kubernetes).hasSingularForms ? "item" : "items";
  return {
    field: nameField(path),
    reason: "FieldValueTooMany",
    message: `Too many: ${size}: must have at most ${most} ${unit}`,
  };
};

/** Returns the same text for JSON values that are equal, in any order of keys. */
export const toIdentity = (value: unknown): string =>
  JSON.stringify(value, (key, member: unknown) =>
    isMap(member)
      ? Object.fromEntries(Object.entries(member).toSorted(([left], [right]) => (left < right ? -1 : 1)))
      : writeInteger(key, member),
  ) ?? "";

/** Returns the members of an element that identify it in a list that is a map. */
export const pickKeys = (item: unknown, keys: readonly string[]): JsonMap =>
  Object.fromEntries(
    keys.toSorted().flatMap((key) => {
      const value = getOwn(item, key);
      return value === undefined ? [] : [[key, value]];
    }),
  );

/** Upstream writes an empty path so. */
const nameField = (path: string): string => (path === "" ? "<nil>" : path);

const isDate = (text: string): boolean =>
  /^\d{4}-\d\d-\d\d$/.test(text) && !Number.isNaN(Date.parse(text)) && new Date(text).toISOString().startsWith(text);

const isDateTime = (text: string): boolean => {
  const [date = "", time = ""] = text.toLowerCase().split("t");
  const [, hour = "", minute = "", second = ""] = /^(\d\d):(\d\d):(\d\d)(?:.\d+)?(?:z|[+-]\d\d:\d\d)$/.exec(time) ?? [];
  return isDate(date) && hour !== "" && hour <= "23" && minute <= "59" && second <= "59";
};

/** The formats of texts that the API server knows. Hyphens in their names don't count. */
const knownFormats = new Set(
  "bsonobjectid uri email hostname ipv4 ipv6 cidr mac uuid uuid3 uuid4 uuid5 isbn isbn10 isbn13 creditcard ssn hexcolor rgbcolor byte password date duration datetime k8sshortname k8slongname".split(
    " ",
  ),
);

/** The formats that are checked. Hyphens in their names don't count. */
const textFormats: Readonly<Record<string, ((text: string) => boolean) | undefined>> = {
  date: isDate,
  datetime: isDateTime,
  ipv4: isIPv4,
  ipv6: isIPv6,
  uuid: (text) => /^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$/i.test(text),
};
