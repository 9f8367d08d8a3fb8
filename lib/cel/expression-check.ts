// Declares the variables and types of Kubernetes' admission, and parses and checks expressions. In bundles,
// checked-expressions.ts replaces this file.
import { type CheckedExpression, check, formatIssues } from "./checker/checker.ts";
import { type AdmissionEnvironment, describeContext, type ExpressionContext, formatRuntimeType } from "./contexts.ts";
import type { Environment, StructType } from "./environment.ts";
import { authorizerType, resourceCheckType } from "./libraries/kubernetes/authorizer.ts";
import { jsonPatchStruct } from "./libraries/kubernetes/json-patch.ts";
import { type Macro, optionalMacros, sortByMacro, standardMacros, twoVariableMacros } from "./parser/macros.ts";
import { parse } from "./parser/parser.ts";
import * as types from "./types.ts";
import { isSameType, type Type } from "./types.ts";

const { bool, dyn, int, listOf, mapOf, string, struct, timestamp } = types;

const kind = { group: string, version: string, kind: string };
const resource = { group: string, version: string, resource: string };
/** The types of the variables `request` and `namespaceObject`, and of their members. */
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

const macros: readonly Macro[] = [...standardMacros, ...optionalMacros, ...twoVariableMacros];

/** Returns the variables, macros and structures that expressions in a context can use. */
export const createDeclarations = (
  { hasParams = false, hasAuthorizer = false, isMutation = false, variables }: ExpressionContext,
  hasSortBy = false,
) => ({
  variables: {
    object: dyn,
    oldObject: dyn,
    namespaceObject: struct("kubernetes.Namespace"),
    request: struct("kubernetes.AdmissionRequest"),
    ...(hasParams && { params: dyn }),
    ...(hasAuthorizer && { authorizer: authorizerType, "authorizer.requestResource": resourceCheckType }),
    ...(variables && { variables: variablesType }),
  },
  macros: hasSortBy ? [...macros, ...sortByMacro] : macros,
  findStruct: (name: string): StructType | undefined => {
    if (name === variablesType.name && variables) return { name, findField: (field) => variables.get(field) };
    if (isMutation && (name === "Object" || name.startsWith("Object."))) return { name, findField: () => dyn };
    if (isMutation && name === jsonPatchStruct.name) return jsonPatchStruct;
    const fields = Object.hasOwn(structs, name) ? structs[name] : undefined;
    return fields && { name, findField: (field) => (Object.hasOwn(fields, field) ? fields[field] : undefined) };
  },
});

/** A checked expression, or upstream's error. */
export type CheckResult = CheckedExpression | { readonly error: string };

/** Parses and checks an expression. Its type must be one of `results`; without `results`, it may have any type. */
export const checkExpression = (
  text: string,
  environment: AdmissionEnvironment,
  results: readonly Type[] | undefined,
): CheckResult => {
  const result = parseAndCheck(text, environment, results);
  collected?.push({ text, context: describeContext(environment.context, results), result });
  return result;
};

/** Parses and checks an expression. Its type must be one of `results`, if given. */
const parseAndCheck = (text: string, environment: Environment, results: readonly Type[] | undefined): CheckResult => {
  const parsed = parse(text, environment.macros, environment.hasQuotedNames);
  if (Array.isArray(parsed)) return { error: `compilation failed: ${formatIssues(parsed, text)}` };
  const checked = check(parsed as Exclude<typeof parsed, readonly unknown[]>, environment);
  if (!("expression" in checked)) return { error: `compilation failed: ${formatIssues(checked, text)}` };
  const { type } = checked;
  if (!results || results.some((result) => isSameType(result, type))) return checked;
  const names = results.map(formatRuntimeType);
  const wanted = names.length === 1 ? names[0] : `one of [${names.join(" ")}]`;
  return { error: `must evaluate to ${wanted} but got ${formatRuntimeType(type)}` };
};

/** An expression that was checked, the key of its context, and the result. */
export interface CollectedCheck {
  readonly text: string;
  readonly context: string;
  readonly result: CheckResult;
}

let collected: CollectedCheck[] | undefined;

/** Calls `act`, and returns all expressions that were checked during the call. */
export const collectChecks = (act: () => void): readonly CollectedCheck[] => {
  const checks: CollectedCheck[] = [];
  collected = checks;
  try {
    act();
  } finally {
    collected = undefined;
  }
  return checks;
};
