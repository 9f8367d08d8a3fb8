// Upstream's validation of the fields that both kinds of policies have. It runs when postern.yaml is read, not in
// functions.
import { findDns1035LabelFaults } from "../../cel/libraries/kubernetes/format.ts";
import { reservedWords } from "../../cel/parser/parser.ts";
import { keywords } from "../../cel/parser/tokens.ts";
import { bool } from "../../cel/types.ts";
import { toMap } from "../../json.ts";
import type {
  MatchResources,
  NamedRuleWithOperations,
  ParamKind,
  ParamRef,
} from "../../kubernetes/admissionregistration/v1.ts";
import { findKeyFaults, findSubdomainFaults, findValueFaults } from "../../objects/label.ts";
import type { LabelSelector } from "../../objects/selection.ts";
import { createPolicyCompiler, type PolicyCompiler } from "../expressions.ts";
import type { BindingSpec, PolicySpec } from "../types.ts";
import {
  createDuplicateFault,
  createForbiddenFault,
  createInvalidFault,
  createRequiredFault,
  createTooManyFault,
  type FieldFault,
  type FieldPath,
  findChoiceFaults,
  findExpressionFaults,
} from "./faults.ts";

/** Returns the faults of an object's name. */
export const findNameFaults = (metadata: unknown): FieldFault[] => {
  const { name } = toMap(metadata);
  const path = ["metadata", "name"];
  if (typeof name !== "string" || name === "") return [createRequiredFault(path, "name or generateName is required")];
  return findSubdomainFaults(name).map((detail) => createInvalidFault(path, name, detail));
};

/** Returns the faults of the fields that both kinds of policies have. Adds the policy's variables to the compiler. */
export const findPolicySpecFaults = (
  spec: PolicySpec,
  compiler: PolicyCompiler,
  supportedOperations?: readonly string[],
): FieldFault[] => {
  const { failurePolicy = "Fail", paramKind, matchConstraints, matchConditions = [], variables = [] } = spec;
  const constraints = ["spec", "matchConstraints"];
  return [
    ...findChoiceFaults(["spec", "failurePolicy"], failurePolicy, ["Fail", "Ignore"]),
    ...(paramKind ? findParamKindFaults(paramKind, ["spec", "paramKind"]) : []),
    ...(matchConstraints === undefined
      ? [createRequiredFault(constraints)]
      : findMatchResourcesFaults(matchConstraints, constraints)),
    ...(matchConstraints !== undefined && (matchConstraints.resourceRules ?? []).length === 0
      ? [createRequiredFault([...constraints, "resourceRules"])]
      : []),
    ...findUnsupportedOperationFaults(matchConstraints, supportedOperations, constraints),
    ...findConditionFaults(matchConditions, paramKind, ["spec", "matchConditions"]),
    ...variables.flatMap((variable, index) => findVariableFaults(variable, compiler, ["spec", "variables", index])),
  ];
};

/** Returns the faults of the fields that both kinds of bindings have. */
export const findBindingSpecFaults = (
  { policyName, paramRef, matchResources }: Partial<BindingSpec>,
  supportedOperations?: readonly string[],
): FieldFault[] => {
  const path = ["spec", "policyName"];
  return [
    ...(policyName
      ? findSubdomainFaults(policyName).map((detail) => createInvalidFault(path, policyName, detail))
      : [createRequiredFault(path)]),
    ...(paramRef ? findParamRefFaults(paramRef, ["spec", "paramRef"]) : []),
    ...(matchResources ? findMatchResourcesFaults(matchResources, ["spec", "matchResources"]) : []),
    ...findUnsupportedOperationFaults(matchResources, supportedOperations, ["spec", "matchResources"]),
  ];
};

/** Returns the faults of the kind of parameters: of its apiVersion (group and version), and of its kind. */
const findParamKindFaults = ({ apiVersion = "", kind = "" }: ParamKind, path: FieldPath): FieldFault[] => {
  const [first = "", second, ...more] = apiVersion.split("/");
  const [group, version] = second === undefined ? ["", first] : [first, second];
  const versionPath = [...path, "apiVersion"];
  const faults: FieldFault[] = [];
  if (apiVersion === "") faults.push(createRequiredFault(versionPath));
  else if (more.length > 0)
    faults.push(createInvalidFault(versionPath, apiVersion, `unexpected GroupVersion string: ${apiVersion}`));
  else {
    const groupFaults = group === "" ? [] : findSubdomainFaults(group);
    if (groupFaults.length > 0) faults.push(createInvalidFault(versionPath, group, groupFaults.join(",")));
    const versionFaults = version === "" ? ["version must be specified"] : findDns1035LabelFaults(version);
    if (versionFaults.length > 0)
      faults.push(createInvalidFault(versionPath, version || apiVersion, versionFaults.join(",")));
  }
  const kindFaults = findDns1035LabelFaults(kind.toLowerCase());
  if (kind === "") faults.push(createRequiredFault([...path, "kind"]));
  else if (kindFaults.length > 0) {
    const detail = `may have mixed case, but should otherwise match: ${kindFaults.join(",")}`;
    faults.push(createInvalidFault([...path, "kind"], kind, detail));
  }
  return faults;
};

const allOperations = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];

/** Returns a fault for each operation that this kind of policies doesn't support. */
const findUnsupportedOperationFaults = (
  { resourceRules = [] }: MatchResources = {},
  supported: readonly string[] = allOperations,
  path: FieldPath,
): FieldFault[] =>
  supported === allOperations
    ? []
    : resourceRules.flatMap(({ operations = [] }, ruleIndex) =>
        operations.flatMap((operation, operationIndex) =>
          // Upstream's sentence names a path without indexes, so the fault gets its own path, with indexes, afterwards.
          findChoiceFaults([...path, "resourceRules", "operations"], operation, supported).map((fault) => {
            return { ...fault, path: [...path, "resourceRules", ruleIndex, "operations", operationIndex] };
          }),
        ),
      );

/** Returns what API validation refuses in a policy's matchConstraints or a binding's matchResources. */
const findMatchResourcesFaults = (
  { matchPolicy = "Equivalent", namespaceSelector, objectSelector, ...rules }: MatchResources,
  path: FieldPath,
): FieldFault[] => [
  ...findChoiceFaults([...path, "matchPolicy"], matchPolicy, ["Equivalent", "Exact"]),
  ...findSelectorFaults(namespaceSelector as LabelSelector | undefined, [...path, "namespaceSelector"]),
  ...findSelectorFaults(objectSelector as LabelSelector | undefined, [...path, "objectSelector"]),
  ...(["resourceRules", "excludeResourceRules"] as const).flatMap((list) =>
    (rules[list] ?? []).flatMap((rule, index) => findRuleFaults(rule, [...path, list, index])),
  ),
];

const operators = ["In", "NotIn", "Exists", "DoesNotExist"];

/** Returns the faults of a label selector. */
const findSelectorFaults = ({ matchLabels = {}, matchExpressions = [] }: LabelSelector = {}, path: FieldPath) => [
  ...Object.entries(matchLabels).flatMap(([key, value]) => [
    ...findKeyFaults(key).map((detail) => createInvalidFault([...path, "matchLabels"], key, detail)),
    ...findValueFaults(value).map((detail) => createInvalidFault([...path, "matchLabels"], value, detail)),
  ]),
  ...matchExpressions.flatMap(({ key = "", operator, values = [] }, index) => {
    const expressionPath = [...path, "matchExpressions", index];
    const faults: FieldFault[] = [];
    if (!operators.includes(operator))
      faults.push(createInvalidFault([...expressionPath, "operator"], operator ?? "", "not a valid selector operator"));
    else if (operator.endsWith("In") && values.length === 0)
      faults.push(
        createRequiredFault([...expressionPath, "values"], "must be specified when `operator` is 'In' or 'NotIn'"),
      );
    else if (!operator.endsWith("In") && values.length > 0) {
      const detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
      faults.push(createForbiddenFault([...expressionPath, "values"], detail));
    }
    faults.push(...findKeyFaults(key).map((detail) => createInvalidFault([...expressionPath, "key"], key, detail)));
    for (const [valueIndex, value] of values.entries())
      faults.push(
        ...findValueFaults(value).map((detail) =>
          createInvalidFault([...expressionPath, "values", valueIndex], value, detail),
        ),
      );
    return faults;
  }),
];

/** Returns the faults of a rule of matchConstraints or matchResources, in upstream's order. */
const findRuleFaults = (rule: NamedRuleWithOperations, path: FieldPath): FieldFault[] => {
  const { apiGroups = [], apiVersions = [], resources = [], operations = [], resourceNames = [], scope = "*" } = rule;
  const requireAny = (list: readonly string[], key: string) =>
    list.length === 0 ? [createRequiredFault([...path, key])] : [];
  const refuseBesideStar = (list: readonly string[], key: string, what: string) =>
    list.length > 1 && list.includes("*")
      ? [createInvalidFault([...path, key], list, `if '*' is present, must not specify other ${what}`)]
      : [];
  return [
    ...resourceNames.flatMap((name, index) => {
      const at = [...path, "resourceNames", index];
      const isRepeated = resourceNames.indexOf(name) < index;
      return [
        ...findPathSegmentFaults(name).map((detail) => createInvalidFault(at, name, detail)),
        ...(isRepeated ? [createDuplicateFault(at, name)] : []),
      ];
    }),
    ...requireAny(operations, "operations"),
    ...refuseBesideStar(operations, "operations", "operations"),
    ...operations.flatMap((operation, index) =>
      findChoiceFaults([...path, "operations", index], operation, allOperations),
    ),
    ...requireAny(apiGroups, "apiGroups"),
    ...refuseBesideStar(apiGroups, "apiGroups", "API groups"),
    ...requireAny(apiVersions, "apiVersions"),
    ...refuseBesideStar(apiVersions, "apiVersions", "API versions"),
    ...apiVersions.flatMap((version, index) =>
      version === "" ? [createRequiredFault([...path, "apiVersions", index])] : [],
    ),
    ...requireAny(resources, "resources"),
    ...findResourceFaults(resources, [...path, "resources"]),
    ...findChoiceFaults([...path, "scope"], scope, ["*", "Cluster", "Namespaced"]),
  ];
};

/** Returns the faults of the list `resources` of a rule: empty texts, and resources that an entry with `*` includes. */
const findResourceFaults = (resources: readonly string[], path: FieldPath): FieldFault[] => {
  const faults: FieldFault[] = [];
  /** The resources of entries such as `pods/*`. */
  const withAllSubresources = new Set<string>();
  // The subresources of entries such as */scale.
  const ofAllResources = new Set<string>();
  let hasOtherResource = false;
  for (const [index, text] of resources.entries()) {
    const at = [...path, index];
    const slash = text.indexOf("/");
    if (text === "") faults.push(createRequiredFault(at));
    // As upstream does, each text without a slash overwrites the result: only the last one counts.
    else if (slash < 0) hasOtherResource = text !== "*";
    else {
      const [resource, subresource] = [text.slice(0, slash), text.slice(slash + 1)];
      if (withAllSubresources.has(resource))
        faults.push(createInvalidFault(at, text, `if '${resource}/*' is present, must not specify ${text}`));
      if (ofAllResources.has(subresource))
        faults.push(createInvalidFault(at, text, `if '*/${subresource}' is present, must not specify ${text}`));
      if (subresource === "*") withAllSubresources.add(resource);
      if (resource === "*") ofAllResources.add(subresource);
    }
  }
  if (resources.length > 1 && resources.includes("*/*"))
    faults.push(createInvalidFault(path, resources, "if '*/*' is present, must not specify other resources"));
  if (resources.includes("*") && hasOtherResource) {
    const detail = "if '*' is present, must not specify other resources without subresources";
    faults.push(createInvalidFault(path, resources, detail));
  }
  return faults;
};

const findPathSegmentFaults = (name: string): string[] => {
  if (name === "." || name === "..") return [`may not be '${name}'`];
  return ["/", "%"]
    .filter((character) => name.includes(character))
    .map((character) => `may not contain '${character}'`);
};

const maxConditions = 64;

/** Returns what API validation refuses in a policy's matchConditions. */
const findConditionFaults = (
  conditions: NonNullable<PolicySpec["matchConditions"]>,
  paramKind: ParamKind | undefined,
  path: FieldPath,
): FieldFault[] => {
  if (conditions.length === 0) return [];
  // Upstream's validation refuses `variables` in conditions, although the evaluation would have values for them.
  const compiler = createPolicyCompiler({ ...(paramKind && { paramKind }) }, { hasVariables: false });
  const tooMany = conditions.length > maxConditions ? [createTooManyFault(path, conditions.length, maxConditions)] : [];
  return tooMany.concat(
    conditions.flatMap(({ name = "", expression = "" }, index) => {
      const at = [...path, index];
      const text = expression.trim();
      const isRepeated = name !== "" && conditions.findIndex((other) => other.name === name) < index;
      return [
        ...(text === ""
          ? [createRequiredFault([...at, "expression"])]
          : findExpressionFaults([...at, "expression"], text, compiler.compile(text, [bool]).compiled)),
        ...(name === ""
          ? [createRequiredFault([...at, "name"])]
          : findKeyFaults(name).map((detail) => createInvalidFault([...at, "name"], name, detail))),
        ...(isRepeated ? [createDuplicateFault([...at, "name"], name)] : []),
      ];
    }),
  );
};

const identifier = /^[_a-zA-Z][_a-zA-Z0-9]*$/;

/** Returns what API validation refuses in a variable of a policy. */
const findVariableFaults = (
  { name = "", expression = "" }: { name?: string; expression?: string },
  compiler: PolicyCompiler,
  path: FieldPath,
): FieldFault[] => {
  const faults: FieldFault[] = [];
  if (name.trim() === "") faults.push(createRequiredFault([...path, "name"], "name is not specified"));
  else if (!identifier.test(name) || keywords.has(name) || reservedWords.has(name))
    faults.push(createInvalidFault([...path, "name"], name, "must be a valid CEL identifier"));
  if (expression.trim() === "")
    return [...faults, createRequiredFault([...path, "expression"], "expression is not specified")];
  const { compiled } = compiler.addVariable(name, expression);
  return [...faults, ...findExpressionFaults([...path, "expression"], expression, compiled)];
};

/** Returns what API validation refuses in a binding's paramRef. */
const findParamRefFaults = (
  { name = "", selector, parameterNotFoundAction = "" }: ParamRef,
  path: FieldPath,
): FieldFault[] => {
  const action = [...path, "parameterNotFoundAction"];
  const exclusive = "name and selector are mutually exclusive";
  return [
    ...(name === "" ? [] : findPathSegmentFaults(name)).map((detail) =>
      createInvalidFault([...path, "name"], name, detail),
    ),
    ...(name !== "" && selector ? [createForbiddenFault([...path, "name"], exclusive)] : []),
    ...findSelectorFaults(selector as LabelSelector | undefined, [...path, "selector"]),
    ...(name !== "" && selector ? [createForbiddenFault([...path, "selector"], exclusive)] : []),
    ...(name === "" && !selector ? [createRequiredFault(path, "one of name or selector must be specified")] : []),
    ...(parameterNotFoundAction === ""
      ? [createRequiredFault(action)]
      : findChoiceFaults(action, parameterNotFoundAction, ["Deny", "Allow"])),
  ];
};
