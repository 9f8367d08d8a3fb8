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
import { optionalMacros, sortByMacro, standardMacros, twoVariableMacros } from "./macros.ts";
import type { Type } from "./types.ts";
import * as types from "./types.ts";

/** What the expressions of an admission policy can use, besides `object`, `oldObject`, `request` and `namespaceObject`. */
export interface PolicyScope {
  hasParams?: boolean;
  hasAuthorizer?: boolean;
  /** Whether expressions can create objects and JSON patches, as mutations do. */
  hasPatchTypes?: boolean;
  /** The types of the policy's variables that come before; without it, there is no `variables`. */
  variables?: ReadonlyMap<string, Type>;
}

const group = { group: types.string, version: types.string };
const fieldsByStruct: Readonly<Record<string, Readonly<Record<string, Type>>>> = {
  "kubernetes.GroupVersionKind": { ...group, kind: types.string },
  "kubernetes.GroupVersionResource": { ...group, resource: types.string },
  "kubernetes.UserInfo": {
    username: types.string,
    uid: types.string,
    groups: types.listOf(types.string),
    extra: types.mapOf(types.string, types.listOf(types.string)),
  },
  "kubernetes.AdmissionRequest": {
    kind: types.struct("kubernetes.GroupVersionKind"),
    resource: types.struct("kubernetes.GroupVersionResource"),
    subResource: types.string,
    requestKind: types.struct("kubernetes.GroupVersionKind"),
    requestResource: types.struct("kubernetes.GroupVersionResource"),
    requestSubResource: types.string,
    name: types.string,
    namespace: types.string,
    operation: types.string,
    userInfo: types.struct("kubernetes.UserInfo"),
    dryRun: types.bool,
    options: types.dyn,
  },
  "kubernetes.NamespaceSpec": { finalizers: types.listOf(types.string) },
  "kubernetes.NamespaceCondition": {
    status: types.string,
    type: types.string,
    lastTransitionTime: types.timestamp,
    message: types.string,
    reason: types.string,
  },
  "kubernetes.NamespaceStatus": {
    conditions: types.listOf(types.struct("kubernetes.NamespaceCondition")),
    phase: types.string,
  },
  "kubernetes.NamespaceMetadata": {
    name: types.string,
    generateName: types.string,
    namespace: types.string,
    labels: types.mapOf(types.string, types.string),
    annotations: types.mapOf(types.string, types.string),
    UID: types.string,
    creationTimestamp: types.timestamp,
    deletionGracePeriodSeconds: types.int,
    deletionTimestamp: types.timestamp,
    generation: types.int,
    resourceVersion: types.string,
    finalizers: types.listOf(types.string),
  },
  "kubernetes.Namespace": {
    metadata: types.struct("kubernetes.NamespaceMetadata"),
    spec: types.struct("kubernetes.NamespaceSpec"),
    status: types.struct("kubernetes.NamespaceStatus"),
  },
};

const structs = new Map(
  Object.entries(fieldsByStruct).map(([name, fields]): [string, StructType] => {
    const fieldTypes = new Map(Object.entries(fields));
    return [name, { name, findField: (field) => fieldTypes.get(field) }];
  }),
);

/** The type of `variables`. */
export const variablesType: Type = types.struct("kubernetes.variables");

const macros = [...standardMacros, ...optionalMacros, ...twoVariableMacros, sortByMacro].flat();
const functions: readonly FunctionDeclaration[] = [
  ...standardFunctions,
  ...timeFunctions,
  ...urlFunctions,
  ...regexFunctions,
  ...listFunctions,
  ...authorizerFunctions,
  ...optionalFunctions,
  ...quantityFunctions,
  ...stringFunctions,
  ...setFunctions,
  ...twoVariableFunctions,
  ...ipFunctions,
  ...cidrFunctions,
  ...formatFunctions,
  ...semverFunctions,
  ...extendedListFunctions,
];

/** Creates the environment of a policy's expressions. */
export const createPolicyEnvironment = (scope: PolicyScope): Environment => {
  const { hasParams = false, hasAuthorizer = false, hasPatchTypes = false, variables } = scope;
  const variablesStruct = { name: variablesType.name, findField: (name: string) => variables?.get(name) };
  return createEnvironment({
    variables: {
      object: types.dyn,
      oldObject: types.dyn,
      namespaceObject: types.struct("kubernetes.Namespace"),
      request: types.struct("kubernetes.AdmissionRequest"),
      ...(hasParams && { params: types.dyn }),
      ...(hasAuthorizer && { authorizer: authorizerType, "authorizer.requestResource": resourceCheckType }),
      ...(variables && { variables: variablesType }),
    },
    functions: hasPatchTypes ? [...functions, ...jsonPatchFunctions] : functions,
    findStruct: (name) => {
      if (name === variablesType.name && variables) return variablesStruct;
      if (hasPatchTypes && name === jsonPatchStruct.name) return jsonPatchStruct;
      if (hasPatchTypes && /^Object(?:\.|$)/.test(name)) return { name, findField: () => types.dyn };
      return structs.get(name);
    },
    macros,
  });
};

const variableKinds = new Set(["bool", "bytes", "double", "duration", "int", "null", "string", "timestamp", "uint"]);

/** Returns the type that a variable of a policy has in other expressions; undefined stands for one that is wrong. */
export const toVariableType = (type: Type | undefined): Type => {
  if (type?.kind === "list" || type?.kind === "map")
    return { ...type, parameters: type.parameters.map(toVariableType) };
  return type && variableKinds.has(type.kind) ? type : types.dyn;
};
