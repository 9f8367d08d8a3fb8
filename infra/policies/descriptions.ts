import { toList, toMap, unescapeJsonPointerStep } from "#lib/json.ts";
import type { Affinity, Toleration } from "#lib/kubernetes/core/v1.ts";
import { multipliableResources } from "#lib/policy/overriders/origins.ts";
import { templateOversellFactors } from "#lib/policy/overriders/resources.ts";
import {
  allowsOnlyReplaceOperation,
  type KinitirasPolicy,
  type OriginOverrider,
  type OverrideRule,
  type OverrideTemplate,
  type PolicyCondition,
  type PolicyConstant,
  type ResourceSelector,
  type ValidatePolicyRule,
  type ValueReference,
} from "#lib/policy/types.ts";
import { findSetField } from "#lib/policy/values/constants.ts";

/** Describes what a policy of kinitiras does, in one sentence for each of its rules. The policy must have no faults. */
export const describePolicyRules = (policy: KinitirasPolicy): string[] => {
  const objects = describeObjects(policy);
  if (policy.kind === "ClusterValidatePolicy")
    return policy.spec.validateRules.map((rule) =>
      describeRule(rule, validateOperations, objects, describeValidation(rule)),
    );
  return policy.spec.overrideRules.map((rule) =>
    describeRule(rule, overrideOperations, objects, describeOverriders(rule)),
  );
};

const overrideOperations = ["CREATE", "UPDATE"];
const validateOperations = [...overrideOperations, "DELETE"];

/** Returns for instance "On CREATE of every Pod: removes /spec/hostNetwork.". */
const describeRule = (
  rule: { targetOperations?: string[] },
  possible: string[],
  objects: string,
  acts: string[],
): string => {
  const { targetOperations: wanted = [] } = rule;
  const operations = possible.filter(
    (operation) => wanted.length === 0 || wanted.includes("*") || wanted.includes(operation),
  );
  const when = operations.length > 0 ? `On ${joinWords(operations)} of` : "Never, of";
  return `${when} ${objects}: ${acts.join("; then ") || "does nothing"}.`;
};

export const joinWords = (words: string[], last = "and") =>
  words.length < 2 ? words.join() : `${words.slice(0, -1).join(", ")} ${last} ${words.at(-1)}`;

const quote = (value: unknown) => JSON.stringify(value) ?? "null";

const quoteTruncated = (value: unknown) => {
  const text = quote(value);
  return text.length > 120 ? `${text.slice(0, 117)}...` : text;
};

/** Returns which objects a policy selects, in words. */
const describeObjects = (policy: KinitirasPolicy): string => {
  const { resourceSelectors: selectors = [] } = policy.spec;
  const policyNamespace = policy.kind === "OverridePolicy" ? policy.metadata.namespace : undefined;
  const described = selectors.map((selector) => describeSelector(selector, policyNamespace));
  return described.length > 0
    ? joinWords(described, "or")
    : `every object${policyNamespace ? ` in namespace ${policyNamespace}` : ""}`;
};

/** Returns for instance "v1 Pod with labels app=web in namespace shop". */
const describeSelector = (selector: ResourceSelector, policyNamespace?: string): string => {
  const { apiVersion, kind, name, labelSelector, fieldSelector } = selector;
  const namespace = selector.namespace || policyNamespace;
  const labels = [
    ...formatPairs(labelSelector?.matchLabels),
    ...(labelSelector?.matchExpressions ?? []).map(({ key, operator, values }) =>
      formatExpression(key, operator, values),
    ),
  ];
  const fields = [
    ...formatPairs(fieldSelector?.matchFields),
    ...(fieldSelector?.matchExpressions ?? []).map(({ field, operator, value, values }) =>
      formatExpression(field, operator, value ?? values),
    ),
  ];
  // A policy's resource selector ignores labels and fields if it has a name.
  const conditions = name
    ? [` named ${quote(name)}`]
    : [
        labels.length > 0 && ` with labels ${labels.join(",")}`,
        fields.length > 0 && ` with fields ${fields.join(",")}`,
      ];
  const beside = policyNamespace && namespace !== policyNamespace ? " (which is not the policy's own)" : "";
  return [apiVersion, " ", kind, ...conditions, namespace && ` in namespace ${namespace}`, beside]
    .filter(Boolean)
    .join("");
};

export const formatPairs = (map: Readonly<Record<string, string>> = {}) =>
  Object.entries(map).map(([key, value]) => `${key}=${value}`);

export const formatExpression = (key: string, operator: string, values: string[] = []) =>
  ({
    In: `${key} in (${values.join(",")})`,
    NotIn: `${key} notin (${values.join(",")})`,
    Exists: key,
    DoesNotExist: `!${key}`,
  })[operator] ?? `${key} ${operator} (${values.join(",")})`;

/** Returns what each overrider of a rule does, such as "removes /spec/hostNetwork". */
const describeOverriders = ({ overriders: { template, cue, plaintext = [], origin = [] } }: OverrideRule): string[] => [
  ...(template ? [describeTemplate(template)] : []),
  ...(cue ? [`runs a CUE script of ${countLines(cue)} and applies its patches`] : []),
  ...plaintext.map(({ op, path, value }) =>
    op === "remove"
      ? `removes ${path}`
      : `${op === "add" ? "adds" : "replaces"} ${path} with ${quoteTruncated(value ?? null)}`,
  ),
  ...origin.map(describeOrigin),
];

const countLines = (script: string) => {
  const count = script.trim().split("\n").length;
  return count === 1 ? "one line" : `${count} lines`;
};

/** Returns what a template changes, such as "sets limits.cpu to 1 in the first container". */
const describeTemplate = (template: OverrideTemplate): string => {
  const { type, operation, resources = {}, resourcesOversell = {}, tolerations = [], affinity = {} } = template;
  const isRemoved = operation === "remove";
  switch (type) {
    case "annotations":
    case "labels":
      return describeMetadata(template, type.slice(0, -1));
    case "resources": {
      const amounts = (["requests", "limits"] as const).flatMap((list) =>
        Object.entries(resources[list] ?? {}).map(
          ([name, amount]) => `${list}.${unescapeJsonPointerStep(name)}${isRemoved ? "" : ` to ${amount}`}`,
        ),
      );
      return isRemoved
        ? `removes ${joinWords(amounts)} of the first container`
        : `sets ${joinWords(amounts)} in the first container`;
    }
    case "resourcesOversell": {
      const factors = templateOversellFactors.filter(({ factor }) => resourcesOversell[factor]);
      if (isRemoved)
        return `removes the requests of ${joinWords(factors.map(({ name }) => name))} of the first container`;
      const shares = factors.map(({ factor, name }) => `${name} to ${resourcesOversell[factor]} of its limit`);
      return `sets in the first container the requests of ${joinWords(shares)}`;
    }
    case "tolerations": {
      const all = joinWords(tolerations.map(describeToleration));
      if (operation === "add") return `adds the tolerations ${all}, unless they exist`;
      return isRemoved
        ? `removes the tolerations that match ${all}`
        : `puts the tolerations ${all} in place of those that match, or else adds them`;
    }
    case "affinity":
      return `${{ add: "adds terms to", replace: "replaces", remove: "removes" }[operation]} ${joinWords(listAffinityParts(affinity, isRemoved))}`;
  }
};

/** Describes a valid template for labels or annotations (`noun`). If it sets one, it has `value` or `valueRef`. */
const describeMetadata = ({ operation, path = "", value, valueRef }: OverrideTemplate, noun: string): string => {
  const field = findSetField(value);
  const key = unescapeJsonPointerStep(path);
  const map = Object.entries((field === "stringMap" && value?.stringMap) || {});
  // An operation `remove` always names the key in its path, never in a value.
  if (operation === "remove") return `removes ${noun} ${key}`;
  if (map.length > 0)
    return `sets ${noun} ${joinWords(map.map(([key, text]) => `${unescapeJsonPointerStep(key)} to ${quoteTruncated(text)}`))}`;
  if (field) return `sets ${noun} ${key} to ${quoteTruncated(String(value?.[field]))}`;
  return `sets ${noun} ${key} to ${valueRef ? describeReference(valueRef) : "nothing"}, where that exists`;
};

const describeToleration = ({ key = "", operator, value = "", effect, tolerationSeconds }: Toleration) =>
  `${key || "*"}${operator === "Exists" ? "" : `=${value}`}${effect ? `:${effect}` : ""}${tolerationSeconds === undefined ? "" : ` for ${tolerationSeconds} s`}`;

/**
 * Names the lists of terms in an affinity, such as "required nodeAffinity". A policy that removes these lists need not
 * give their terms, so empty lists are then named, too.
 */
const listAffinityParts = (affinity: Affinity, isRemoved: boolean): string[] =>
  Object.entries(affinity).flatMap(([part, lists]) =>
    Object.entries(lists ?? {})
      .filter(([, terms]) => isRemoved || toList(toMap(terms).nodeSelectorTerms ?? terms).length > 0)
      .map(([list]) => `${list.startsWith("required") ? "required" : "preferred"} ${part}`),
  );

/**
 * Describes an overrider in the list `origin` of a policy of kinitiras: it changes one field of a workload, which its
 * type names. The field `containerCount` is, despite its name, the index of a container.
 */
const describeOrigin = (origin: OriginOverrider): string => {
  const { type, operation, containerCount: containerIndex = 0 } = origin;
  const payload = origin[type === "resourceOversell" ? "resourcesOversell" : type];
  const isMap = type === "annotations" || type === "labels" || type === "nodeSelector";
  if (allowsOnlyReplaceOperation(type) && (operation ?? "replace") !== "replace")
    return `fails, as ${type} can only be replaced`;
  if (type === "resourceOversell") {
    const factors = describeFactors(payload);
    if (!factors) return `leaves the resources of container ${containerIndex} alone`;
    return `multiplies ${factors} of container ${containerIndex}`;
  }
  if (type === "resourceRequirements")
    return `sets the resources of container ${containerIndex} to ${quoteTruncated(payload ?? {})}`;
  if (!isMap && type !== "tolerations") {
    const value = payload ?? valuesIfUnset[type];
    return value === undefined ? `removes ${type}` : `sets ${type} to ${quoteTruncated(value)}`;
  }
  const members = isMap
    ? joinWords(formatPairs(origin[type]))
    : joinWords((origin.tolerations ?? []).map(describeToleration));
  // With `replace: true`, kinitiras ignores the operation, and sets the whole map or list.
  if (operation === "remove" && origin.replace !== true)
    return members
      ? `removes ${type} ${isMap ? joinWords(Object.keys(payload ?? {})) : members}`
      : `leaves ${type} alone`;
  if (origin.replace) return `makes ${type} ${members || "empty"} and nothing else`;
  return members ? `sets ${type} ${members}` : `leaves ${type} alone`;
};

/** The values that these fields get if a policy gives none. Other fields are removed then. */
const valuesIfUnset: Partial<Record<OriginOverrider["type"], unknown>> = { hostNetwork: false, schedulerName: "" };

/**
 * Describes the factors by which a policy of kinitiras multiplies a container's resources, for instance "requests.cpu
 * by 0.5 and limits.memory by 2". Factors of resources that kinitiras doesn't multiply are left out.
 */
const describeFactors = (factors: unknown): string =>
  joinWords(
    Object.entries(toMap(factors)).flatMap(([list, amounts]) =>
      Object.entries(toMap(amounts))
        .filter(([name]) => multipliableResources.includes(name))
        .map(([name, factor]) => `${list}.${name} by ${factor}`),
    ),
  );

const describeValidation = ({ template, cue }: ValidatePolicyRule): string[] => [
  ...(template ? [describeCondition(template.condition)] : []),
  ...(cue ? [`runs a CUE script of ${countLines(cue)} and denies if it says so`] : []),
];

/**
 * Describes a condition of kinitiras. It compares the value of `dataRef` with `value` or with that of `valueRef`, after
 * the arithmetic in `valueProcess`. If they match, the request is denied; with the affectMode "allow", if they don't.
 */
const describeCondition = (condition: PolicyCondition): string => {
  const { affectMode, message = "", dataRef, value, valueRef, valueProcess } = condition;
  const link = affectMode === "allow" ? "unless" : "if";
  const compared = valueRef ? describeReference(valueRef) : describeConstant(value);
  const isComputed = valueProcess && !condition.cond.endsWith("In"); // In and NotIn ignore valueProcess.
  const computed = isComputed ? `${compared} ${valueProcess.operation} ${valueProcess.operationWith}` : compared;
  const data = dataRef ? describeReference(dataRef) : "nothing";
  const comparison = comparisons[condition.cond].replace("…", () => computed);
  return `denies with ${quoteTruncated(message)} ${link} ${data} ${comparison}`;
};

/** The words for a condition's `cond`. */
const comparisons: Record<PolicyCondition["cond"], string> = {
  Exist: "exists",
  NotExist: "doesn't exist",
  Equal: "equals …",
  NotEqual: "exists and differs from …",
  In: "is one of …",
  NotIn: "exists and is none of …",
  Gt: "is greater than …",
  Gte: "is at least …",
  Lt: "is less than …",
  Lte: "is at most …",
};

const describeConstant = (constant: PolicyConstant = {}): string => {
  const field = findSetField(constant);
  const value = field && constant[field];
  // Policies have floats as texts. They are shown without quotes, as other numbers are.
  const isFloat = field === "float" || field === "floatSlice";
  const listed = Array.isArray(value) ? value.map((item) => (isFloat ? item : quote(item))).join(", ") : undefined;
  return listed ?? (isFloat ? String(value) : quoteTruncated(value));
};

/** Returns for instance "metadata.name of the object's owner". */
const describeReference = ({ from, path, k8s, http }: ValueReference): string => {
  switch (from) {
    case "current":
      return `${path} of the object`;
    case "old":
      return `${path} of the object as it was`;
    case "owner":
      return `${path} of the object's owner`;
    case "k8s":
      return `${path} of ${k8s ? describeReferencedObject(k8s) : "nothing"}`;
    case "http":
      return `${path} of what ${http?.method?.toUpperCase() || "GET"} ${http?.url} answers`;
  }
};

/**
 * Describes the object that a reference in a policy reads. References ignore field selectors. A reference by name fails
 * if the object doesn't exist.
 */
const describeReferencedObject = ({ fieldSelector: _, ...selector }: ResourceSelector) =>
  `${describeSelector(selector)}${selector.name ? " (which must exist)" : ""}`;
