// Applies the result of a mutation's expression to an object.
import { findTypeNameFaults } from "../cel/json.ts";
import { StructValue } from "../cel/structs.ts";
import { EvaluationError, isList, toArray, type Value } from "../cel/values.ts";
import {
  applyJsonPatchAsApiServer,
  escapeAsGo,
  FailedPatchTest,
  nullFromExpression,
  parsePatchOperations,
} from "../core/json-patch.ts";
import { Failure, getErrorMessage } from "../failure.ts";
import { isMap, type JsonMap, toMap } from "../json.ts";
import type { GroupVersionKind, Status } from "../review.ts";
import { ApplyConfigurationError, applyConfiguration } from "./merge/merge.ts";
import { toOperand, toPatch } from "./merge/patch-values.ts";
import { findSchema, hasSchemas } from "./merge/schemas.ts";
import { toTypedForm } from "./merge/typed-form.ts";
import { isBuiltInGroup } from "./typed-objects.ts";
import { PolicyStatusError } from "./types.ts";

/** An error of a mutation, with upstream's text. failurePolicy decides its effect. */
export class MutationError extends Error {}

/**
 * Applies the JSON patch that an expression returned to an object, and returns the result. A patch with a failing
 * `test` changes nothing. Throws a MutationError or a PolicyStatusError.
 */
export const applyPatchValue = (patch: Value, object: JsonMap, kind: GroupVersionKind): JsonMap => {
  const operations = parsePatchOperations(`[${isList(patch) ? toArray(patch).map(formatOperation) : ""}]`).map(
    // As in upstream, a null that an expression made equals no value in a `test`, not even a null in the object.
    (operation) => (operation.value === null ? { ...operation, value: nullFromExpression } : operation),
  );
  let patched: unknown;
  try {
    patched = applyJsonPatchAsApiServer(object, operations);
  } catch (error) {
    if (error instanceof FailedPatchTest) return object;
    throw new MutationError(`JSON Patch: ${getErrorMessage(error)}`);
  }
  if (isMap(patched)) return toMutated(patched, object, kind);
  throw new PolicyStatusError(createInternalError("a JSON patch replaced the object by a value that is no object"));
};

/**
 * Returns the object for the next mutation. Between two mutations, upstream converts an object of a built-in kind to
 * its Go type and back, which drops empty fields. `before` is the object before the mutation: toTypedForm keeps the
 * parts that the mutation didn't change.
 */
const toMutated = (mutated: JsonMap, before: JsonMap, { group }: GroupVersionKind): JsonMap =>
  isBuiltInGroup(group) ? toTypedForm(mutated, before) : mutated;

/** Formats an operation of a JSON patch as JSON. */
const formatOperation = (operation: Value): string => {
  const fields = operation instanceof StructValue ? operation.fields : new Map<string, Value>();
  const { op = "", path = "", from = "", value } = Object.fromEntries(fields);
  const members = [`"op":${JSON.stringify(op)}`, `"path":${JSON.stringify(path)}`];
  if (from !== "") members.push(`"from":${JSON.stringify(from)}`);
  if (value !== undefined) members.push(`"value":${formatOperand(value)}`);
  return `{${members.join(",")}}`;
};

/** Formats an operation's value as JSON. A typed object in field `a` of an `Object.spec` must be an `Object.spec.a`. */
const formatOperand = (value: Value): string => {
  if (value instanceof StructValue) requireTypesNamedByPath(value, value.type.name);
  const json = convert(toOperand, value, "JSONPath valueExpression evaluated to a type that could not marshal to JSON");
  // Upstream writes integers beyond ±(2^53-1), which are bigints here, as strings.
  return escapeAsGo(JSON.stringify(json, (_, member) => (typeof member === "bigint" ? String(member) : member)));
};

/**
 * Throws if a typed object in a value, such as `Object.spec{…}`, doesn't have its path as the name of its type: in the
 * field `spec`, it must be `Object.spec`. The whole value must have the type `rootType`, with which all paths begin.
 */
const requireTypesNamedByPath = (value: Value, rootType: string): void => {
  const faults = findTypeNameFaults(value, [rootType]);
  if (faults.length > 0) throw new MutationError(`type mismatch: ${faults.join("\n")}`);
};

/** Converts a value. An EvaluationError becomes a MutationError with `context` before its message. */
const convert = (convertValue: (value: Value) => unknown, value: Value, context: string): unknown => {
  try {
    return convertValue(value);
  } catch (error) {
    if (error instanceof EvaluationError) throw new MutationError(`${context}: ${error.message}`);
    throw error;
  }
};

/**
 * Merges the ApplyConfiguration that an expression returned into an object, and returns the result. The schema of the
 * kind is built in, or comes from `customKinds`. Throws a MutationError, or a Failure if the schema is unknown.
 */
export const applyConfigurationValue = (
  configuration: Value,
  object: JsonMap,
  kind: GroupVersionKind,
  customKinds: readonly object[],
): JsonMap => {
  // `configuration` must be an `Object{…}`, a typed object in its field `spec` must be an `Object.spec{…}`, and so on.
  requireTypesNamedByPath(configuration, "Object");
  const json = convert(toPatch, configuration, "invalid return type");
  const schema = findSchema(kind, customKinds);
  if (schema === undefined) throw createUnknownKindError(kind);
  try {
    return toMutated(applyConfiguration(schema, object, toMap(json)), object, kind);
  } catch (error) {
    if (error instanceof ApplyConfigurationError) throw new MutationError(error.message);
    throw error;
  }
};

const createInternalError = (text: string): Status => {
  const message = `Internal error occurred: ${text}`;
  return { code: 500, reason: "InternalError", message, details: { causes: [{ message: text }] } };
};

/** Returns the error for an unknown schema. If Postern knows the kind's group and version, it is upstream's error. */
const createUnknownKindError = ({ group, version, kind }: GroupVersionKind): Error => {
  if (hasSchemas(group, version))
    return new MutationError(
      `error applying patch: failed to convert patch object to typed object: no corresponding type for ${group}/${version}, Kind=${kind}`,
    );
  const missing = hasSchemas(group)
    ? `Postern knows no schemas of ${group}/${version}`
    : "no CustomResourceDefinition among the policies has its schema";
  return new Failure(
    500,
    `an ApplyConfiguration can't be merged into a ${kind} of ${group}/${version}, because ${missing}`,
  );
};
