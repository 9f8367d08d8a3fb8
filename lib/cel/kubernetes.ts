// The environment of CEL expressions in Kubernetes' admission: matchConditions and policies.
import { parseMinor } from "../since.ts";
import { check, formatIssues } from "./checker.ts";
import { createEnvironment, type Environment, type StructType } from "./environment.ts";
import type { FunctionDeclaration } from "./functions.ts";
import { authorizerFunctions, authorizerType, resourceCheckType } from "./libraries/authorizer.ts";
import { cidrFunctions } from "./libraries/cidr.ts";
import { extendedListFunctions } from "./libraries/extended-lists.ts";
import { formatFunctions } from "./libraries/format.ts";
import { ipFunctions } from "./libraries/ip.ts";
import { jsonPatchFunctions, jsonPatchStruct } from "./libraries/json-patch.ts";
import { listFunctions } from "./libraries/lists.ts";
import { optionalFunctions } from "./libraries/optionals.ts";
import { quantityFunctions } from "./libraries/quantity.ts";
import { regexFunctions } from "./libraries/regex.ts";
import { semverFunctions } from "./libraries/semver.ts";
import { setFunctions } from "./libraries/sets.ts";
import { standardFunctions } from "./libraries/standard.ts";
import { stringFunctions } from "./libraries/strings.ts";
import { timeFunctions } from "./libraries/time.ts";
import { twoVariableFunctions } from "./libraries/two-variables.ts";
import { urlFunctions } from "./libraries/url.ts";
import { type Macro, optionalMacros, sortByMacro, standardMacros, twoVariableMacros } from "./macros.ts";
import { parse } from "./parser.ts";
import { type Budget, compile, type Program, type Variables } from "./program.ts";
import * as types from "./types.ts";
import { isSameType, type Type } from "./types.ts";
import { EvaluationError, type Value } from "./values.ts";

/** Which variables and functions an expression may use. */
export interface ExpressionContext {
  /** The cluster's minor version, such as `1.35`; without it, the newest. */
  kubernetes?: string;
  hasParams?: boolean;
  hasAuthorizer?: boolean;
  /** Whether the expression makes a mutation, so that it knows `Object` and `JSONPatch`. */
  isMutation?: boolean;
  /** The static types of a policy's own variables; undefined if it may have none. */
  variables?: ReadonlyMap<string, Type>;
}

/** The most that one expression may cost, and all matchConditions of a webhook or a policy together. */
export const mostExpressionCost = 1_000_000;
export const mostConditionsCost = 2_500_000;

/** In upstream's order, which is that of the overloads of functions that several libraries have. */
const functions: readonly FunctionDeclaration[] = [
  ...[standardFunctions, timeFunctions, urlFunctions, regexFunctions, listFunctions, authorizerFunctions],
  ...[optionalFunctions, quantityFunctions, stringFunctions, setFunctions, ipFunctions, cidrFunctions],
  ...[formatFunctions, twoVariableFunctions],
].flat();
const macros: readonly Macro[] = [...standardMacros, ...optionalMacros, ...twoVariableMacros];

/**
 * The first minor versions that accept these functions in new expressions: the versions after those that brought them,
 * so that a cluster can be set back by one. 1.33 accepts all others.
 */
const semverSince = 34;
const extendedListsSince = 35;

const { bool, dyn, int, listOf, mapOf, string, struct, timestamp } = types;

const kind = { group: string, version: string, kind: string };
const resource = { group: string, version: string, resource: string };
const structs: Readonly<Record<string, Readonly<Record<string, Type>>>> = {
  "kubernetes.GroupVersionKind": kind,
  "kubernetes.GroupVersionResource": resource,
  "kubernetes.UserInfo": {
    username: string,
    uid: string,
    groups: listOf(string),
    extra: mapOf(string, listOf(string)),
  },
  "kubernetes.AdmissionRequest": {
    kind: struct("kubernetes.GroupVersionKind"),
    resource: struct("kubernetes.GroupVersionResource"),
    subResource: string,
    requestKind: struct("kubernetes.GroupVersionKind"),
    requestResource: struct("kubernetes.GroupVersionResource"),
    requestSubResource: string,
    name: string,
    namespace: string,
    operation: string,
    userInfo: struct("kubernetes.UserInfo"),
    dryRun: bool,
    options: dyn,
  },
  "kubernetes.NamespaceSpec": { finalizers: listOf(string) },
  "kubernetes.NamespaceCondition": {
    status: string,
    type: string,
    lastTransitionTime: timestamp,
    message: string,
    reason: string,
  },
  "kubernetes.NamespaceStatus": { conditions: listOf(struct("kubernetes.NamespaceCondition")), phase: string },
  "kubernetes.NamespaceMetadata": {
    name: string,
    generateName: string,
    namespace: string,
    labels: mapOf(string, string),
    annotations: mapOf(string, string),
    UID: string,
    creationTimestamp: timestamp,
    deletionGracePeriodSeconds: int,
    deletionTimestamp: timestamp,
    generation: int,
    resourceVersion: string,
    finalizers: listOf(string),
  },
  "kubernetes.Namespace": {
    metadata: struct("kubernetes.NamespaceMetadata"),
    spec: struct("kubernetes.NamespaceSpec"),
    status: struct("kubernetes.NamespaceStatus"),
  },
};
const variablesType = struct("kubernetes.variables");

/** Returns the environment of expressions of one kind. */
export const createAdmissionEnvironment = ({
  kubernetes,
  hasParams = false,
  hasAuthorizer = false,
  isMutation = false,
  variables,
}: ExpressionContext): Environment => {
  const isSince = (minor: number) => kubernetes === undefined || parseMinor(kubernetes) >= minor;
  const hasExtendedLists = isSince(extendedListsSince);
  const findStruct = (name: string): StructType | undefined => {
    if (name === variablesType.name && variables) return { name, findField: (field) => variables.get(field) };
    if (isMutation && (name === "Object" || name.startsWith("Object."))) return { name, findField: () => dyn };
    if (isMutation && name === jsonPatchStruct.name) return jsonPatchStruct;
    const fields = Object.hasOwn(structs, name) ? structs[name] : undefined;
    return fields && { name, findField: (field) => (Object.hasOwn(fields, field) ? fields[field] : undefined) };
  };
  return createEnvironment({
    variables: {
      object: dyn,
      oldObject: dyn,
      namespaceObject: struct("kubernetes.Namespace"),
      request: struct("kubernetes.AdmissionRequest"),
      ...(hasParams && { params: dyn }),
      ...(hasAuthorizer && { authorizer: authorizerType, "authorizer.requestResource": resourceCheckType }),
      ...(variables && { variables: variablesType }),
    },
    functions: [
      ...functions,
      ...(isSince(semverSince) ? semverFunctions : []),
      ...(hasExtendedLists ? extendedListFunctions : []),
      ...(isMutation ? jsonPatchFunctions : []),
    ],
    macros: hasExtendedLists ? [...macros, ...sortByMacro] : macros,
    findStruct,
  });
};

/** A compiled expression, or upstream's error. */
export type CompiledExpression = { program: Program } | { error: string };

/** Compiles an expression whose type must be one of `results`; without `results`, it may have any type. */
export const compileExpression = (
  text: string,
  environment: Environment,
  results: readonly Type[] | undefined,
): CompiledExpression => {
  const parsed = parse(text, environment.macros);
  if (Array.isArray(parsed)) return { error: `compilation failed: ${formatIssues(parsed, text)}` };
  const checked = check(parsed as Exclude<typeof parsed, readonly unknown[]>, environment);
  if (!("expression" in checked)) return { error: `compilation failed: ${formatIssues(checked, text)}` };
  const { type } = checked;
  if (results && !results.some((result) => isSameType(result, type))) {
    const names = results.map(formatRuntimeType);
    const wanted = names.length === 1 ? names[0] : `one of [${names.join(" ")}]`;
    return { error: `must evaluate to ${wanted} but got ${formatRuntimeType(type)}` };
  }
  try {
    return { program: compile(checked, environment) };
  } catch (error) {
    if (error instanceof EvaluationError) return { error: `program instantiation failed: ${error.message}` };
    throw error;
  }
};

/** Returns a type by the names that types have at run time, such as `google.protobuf.Duration`. */
export const formatRuntimeType = ({ name, parameters }: Type): string =>
  parameters.length === 0 ? name : `${name}(${parameters.map(formatRuntimeType).join(", ")})`;

/** What an expression resulted in; `exhausted` is upstream's error if it cost more than what all of a set may cost. */
export type ExpressionResult = { value: Value } | { error: string } | { exhausted: string };

/**
 * Evaluates an expression, and deducts its cost from what the expressions of a set may cost together. `takeFurtherCost`
 * returns the cost of the variables that had to be computed for it.
 */
export const evaluateExpression = (
  text: string,
  compiled: CompiledExpression,
  variables: Variables,
  set: Budget,
  takeFurtherCost = () => 0,
): ExpressionResult => {
  if ("error" in compiled) return { error: `compilation error: ${compiled.error}` };
  const outcome = compiled.program.evaluate(variables, { left: mostExpressionCost });
  const cost = outcome.cost + takeFurtherCost();
  if (cost > set.left)
    return {
      exhausted: "validation failed due to running out of cost budget, no further validation rules will be run",
    };
  set.left -= cost;
  return "error" in outcome ? { error: `expression '${text}' resulted in error: ${outcome.error}` } : outcome;
};
