import { unescapeJsonPointerStep } from "../../json.ts";
import {
  allowsOnlyReplaceOperation,
  type KinitirasPolicy,
  type OverrideRule,
  type OverrideTemplate,
  policyGroup,
  type ResourceSelector,
  type ValidatePolicyRule,
} from "../types.ts";
import { findSetField, needsComparison } from "../values/constants.ts";
import { quoteValue } from "../values/texts.ts";
import { findPolicyFaults } from "./faults.ts";
import { type LocatedPolicyReference, listPolicyReferences } from "./located-values.ts";
import { findTolerationFaults } from "./pod-fields.ts";
import { findLabelKeyFault, findLabelValueFault, labelOperators } from "./selectors.ts";

/** Returns warnings about fields that are valid but probably not intended. A policy with faults has no warnings. */
export const findPolicyWarnings = (policy: unknown): string[] => {
  if (findPolicyFaults(policy).length > 0) return [];
  const validPolicy = policy as KinitirasPolicy;
  const warnings: string[] = [];
  const warn: AddWarning = (sentence) => warnings.push(sentence);
  warnOfSelectors(validPolicy, warn);
  if (validPolicy.kind === "ClusterValidatePolicy")
    for (const [index, rule] of validPolicy.spec.validateRules.entries())
      warnOfValidateRule(rule, `spec.validateRules[${index}]`, warn);
  else
    for (const [index, rule] of validPolicy.spec.overrideRules.entries())
      warnOfOverrideRule(rule, `spec.overrideRules[${index}]`, validPolicy.spec.resourceSelectors, warn);
  for (const place of listPolicyReferences(validPolicy)) warnOfReference(place, warn);
  return warnings.slice(0, 20);
};

/** Adds a warning about a kinitiras policy: a sentence that begins with the field's path. */
type AddWarning = (sentence: string) => void;

/** Warns of selectors that select everything or nothing, or that are partly ignored. */
const warnOfSelectors = (policy: KinitirasPolicy, warn: AddWarning) => {
  const { resourceSelectors: selectors = [] } = policy.spec;
  const policyNamespace = policy.kind === "OverridePolicy" ? policy.metadata.namespace : undefined;
  if (selectors.length === 0)
    warn(
      `spec.resourceSelectors is empty: the policy applies to every object${policyNamespace ? ` in namespace ${policyNamespace}` : ""}`,
    );
  for (const [index, selector] of selectors.entries()) {
    const { apiVersion, kind, namespace, name, labelSelector, fieldSelector } = selector;
    const at = `spec.resourceSelectors[${index}]`;
    if (policyNamespace && namespace && namespace !== policyNamespace)
      warn(
        `${at}.namespace is ${quoteValue(namespace)}, where the policy never applies: it applies only in namespace ${policyNamespace}`,
      );
    if (policyNamespace && clusterKinds.has(kind))
      warn(`${at}.kind is ${kind}, which is in no namespace: the policy never applies to it`);
    if (apiVersion.startsWith(`${policyGroup}/`)) warn(`${at} selects policies, to which no policy applies`);
    if (apiVersion.includes("*") || kind.includes("*")) warn(`${at} selects nothing: * is not a pattern here`);
    for (const [index, expression] of (fieldSelector?.matchExpressions ?? []).entries()) {
      const { operator } = expression;
      const expressionPath = `${at}.fieldSelector.matchExpressions[${index}]`;
      if (!labelOperators.includes(operator))
        warn(`${expressionPath}.operator is ${quoteValue(operator)}, so it selects nothing`);
      // The list may also be in `values`, its name in kinitiras' documentation; then the expression needs no `value`.
      else if (operator === "In" && !("values" in expression) && !expression.value?.length)
        warn(`${expressionPath}.value is empty, so it selects nothing`);
    }
    if (name && (labelSelector || fieldSelector)) warn(`${at}.name is set, so the selectors beside it are ignored`);
  }
};

const clusterKinds = new Set("Namespace Node PersistentVolume StorageClass ClusterRole ClusterRoleBinding".split(" "));

/** Warns of unknown operations, and of operations in `neverRun`, for which rules of this kind never run. */
const warnOfOperations = (
  operations: readonly string[] = [],
  at: string,
  neverRun: readonly string[],
  warn: AddWarning,
) => {
  for (const [index, operation] of operations.entries()) {
    const operationPath = `${at}.targetOperations[${index}]`;
    if (neverRun.includes(operation)) warn(`${operationPath} is ${operation}, for which the rule never runs`);
    else if (!knownOperations.has(operation))
      warn(`${operationPath} is ${quoteValue(operation)}, which is not an operation`);
  }
};

const knownOperations = new Set(["CREATE", "UPDATE", "DELETE", "CONNECT", "*"]);

/** Warns of parts of an override rule that do nothing, or not what they seem to do. */
const warnOfOverrideRule = (
  rule: OverrideRule,
  at: string,
  selectors: readonly ResourceSelector[] = [],
  warn: AddWarning,
) => {
  const { template, cue, plaintext = [], origin = [] } = rule.overriders;
  const place = `${at}.overriders`;
  warnOfOperations(rule.targetOperations, at, /* neverRun */ ["DELETE", "CONNECT"], warn);
  if (!template && !cue && plaintext.length === 0 && origin.length === 0)
    warn(`${place} is empty: the rule does nothing`);
  const types = [...(template ? [template.type] : []), ...origin.map(({ type }) => type)];
  const podType = types.find((type) => !isMetadataType(type));
  const otherSelector = selectors.find(({ kind }) => !podKinds.has(kind));
  if (podType && otherSelector)
    warn(`${place} changes ${podType}, which ${otherSelector.kind} doesn't have: nothing happens there`);
  const repeated = origin.find(
    ({ type }, index) => mergedTypes.has(type) && origin.findIndex((overrider) => overrider.type === type) < index,
  );
  if (repeated)
    warn(`${place}.origin has ${repeated.type} more than once: only the last of these entries takes effect`);
  for (const [index, { type, operation }] of origin.entries())
    if (operation !== undefined && operation !== "replace" && allowsOnlyReplaceOperation(type))
      warn(
        `${place}.origin[${index}].operation is ${operation}, which ${type} doesn't support: every request fails; use replace`,
      );
  if (!template) return;
  if (template.operation !== "remove") warnOfTemplate(template, `${place}.template`, warn);
  if (template.valueRef && findSetField(template.value))
    warn(`${place}.template.valueRef is ignored because value is set`);
  if (template.valueRef && !isMetadataType(template.type))
    warn(`${place}.template.valueRef is ignored: only annotations and labels use it`);
};

const isMetadataType = (type: string) => type === "annotations" || type === "labels";

/** Warns of values in a template that the API server refuses. Each request to which such a policy applies fails. */
const warnOfTemplate = (
  { type, path = "", value, tolerations = [] }: OverrideTemplate,
  at: string,
  warn: AddWarning,
) => {
  if (type === "tolerations")
    for (const fault of findTolerationFaults(tolerations, `${at}.tolerations`).slice(0, 5)) warn(fault);
  if (!isMetadataType(type)) return;
  const valueField = findSetField(value);
  const members: [place: string, key: string, value: unknown][] =
    valueField === "stringMap"
      ? Object.entries(value?.stringMap ?? {}).map(([key, text]) => [`value.stringMap[${quoteValue(key)}]`, key, text])
      : [["path", path, valueField && value?.[valueField]]];
  for (const [place, escaped, entryValue] of members.slice(0, 100)) {
    const key = unescapeJsonPointerStep(escaped);
    // Kubernetes validates annotation keys in lower case.
    const fault =
      findLabelKeyFault(type === "labels" ? key : key.toLowerCase()) ??
      (type === "labels" && typeof entryValue === "string" ? findLabelValueFault(entryValue) : undefined);
    // `fault` is the end of the sentence, for instance "must be no more than 63 bytes".
    if (fault) warn(`${at}.${place} makes ${type} that Kubernetes refuses: one ${fault}`);
  }
};

/** The types of origin overriders whose entries are added to a map of the object, such as its labels. */
const mergedTypes = new Set<string>(["annotations", "labels", "nodeSelector"]);
/** The kinds of objects that contain a pod spec. */
const podKinds = new Set(
  "Pod Deployment ReplicaSet StatefulSet DaemonSet Job CronJob ReplicationController".split(" "),
);

/** Warns of a rule that refuses nothing or never runs, and of fields that the rule's condition ignores. */
const warnOfValidateRule = (rule: ValidatePolicyRule, at: string, warn: AddWarning) => {
  warnOfOperations(rule.targetOperations, at, /* neverRun */ ["CONNECT"], warn);
  if (rule.template === undefined) {
    if (!rule.cue) warn(`${at} is empty: the rule refuses nothing`);
    return;
  }
  const { condition } = rule.template;
  const place = `${at}.template.condition`;
  const { cond, message, value, valueRef, valueProcess } = condition;
  // Exist and NotExist compare nothing, so they ignore the compared value. In and NotIn ignore only valueProcess.
  const ignoredByComparison = cond.endsWith("In") ? ["valueProcess"] : [];
  const ignoredFields = needsComparison(condition) ? ignoredByComparison : ["value", "valueRef", "valueProcess"];
  if (!message) warn(`${place}.message is empty: a refusal gives no reason`);
  if (ignoredFields.length === 0 && value && valueRef) warn(`${place}.value is ignored because valueRef is set`);
  for (const field of ignoredFields)
    if (Object.hasOwn(condition, field)) warn(`${place}.${field} is ignored: ${cond} doesn't use it`);
  const isOrderCondition = ["Gt", "Gte", "Lt", "Lte"].includes(cond);
  const needsNumber = isOrderCondition || (valueProcess && ignoredFields.length === 0);
  if (!valueRef && findSetField(value) === "boolean" && needsNumber)
    warn(`${place}.value is true or false, which can't be ordered or calculated with: every request fails`);
};

/** Warns of a reference that always fails or exposes a secret, and of fields that are ignored. */
const warnOfReference = ({ at, what: { from, http, k8s }, isUsed }: LocatedPolicyReference, warn: AddWarning) => {
  // The texts whose placeholders are filled.
  const objectTexts = [k8s?.name, k8s?.namespace, k8s?.name ? "" : JSON.stringify(k8s?.labelSelector ?? {})];
  const httpTexts = [http?.url, ...Object.values(http?.params ?? {})];
  const texts = { k8s: objectTexts, http: httpTexts }[String(from)] ?? [];
  if (isUsed && texts.some((text) => text?.includes("{{}}")))
    return warn(`${at}.${from} has {{}}, a placeholder without a path: every request fails; write {{metadata.name}}`);
  if (from === "k8s" && k8s?.fieldSelector) warn(`${at}.k8s.fieldSelector is ignored`);
  if (from !== "http" || http === undefined) return;
  const { url, method = "", header = {}, auth = {} } = http;
  const secrets = [
    ...(["password", "staticToken", "token"] as const).filter((field) => auth[field]).map((field) => `auth.${field}`),
    ...Object.keys(header)
      .filter((name) => name.toLowerCase() === "authorization")
      .map((name) => `header.${name}`),
    ...Object.entries({ url, "auth.authUrl": auth.authUrl ?? "" })
      .filter(([, address]) => /^https?:\/\/[^/?#\\]+@/i.test(address))
      .map(([field]) => `${field} before its @`),
  ];
  for (const field of secrets)
    warn(
      `${at}.http.${field} can be read by every user with the right to read policies; keep it in a secret store and name it in the setting http.credentials`,
    );
  if (!isUsed) return;
  if (/^http:/i.test(url)) warn(`${at}.http.url is not encrypted: the response can be read and changed on its way`);
  if (method.toUpperCase() === "POST")
    warn(`${at}.http.method is POST, which is not sent on a dry run: dry runs of such requests fail`);
};
