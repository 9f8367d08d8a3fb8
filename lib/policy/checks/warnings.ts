import { unescapeStep } from "../../json.ts";
import {
  type OverrideRule,
  type OverrideTemplate,
  type Policy,
  policyGroup,
  type Selector,
  type ValidateRule,
} from "../kinds.ts";
import { compares, settled } from "../values/constants.ts";
import { onlyReplacing } from "./overriders.ts";
import { referencesIn } from "./places.ts";
import { tolerationFaults } from "./pods.ts";
import { faultsOf } from "./policy.ts";
import { labelKeyFault, labelValueFault, operators } from "./selectors.ts";
import { shown } from "./shape.ts";

/** Warns of valid but probably unintended fields, one sentence each; returns none for a policy with faults. */
export const warningsOf = (policy: unknown): string[] => {
  if (faultsOf(policy).length > 0) return [];
  const sound = policy as Policy;
  const perRule =
    sound.kind === "ClusterValidatePolicy"
      ? sound.spec.validateRules.flatMap((rule, index) => ofValidateRule(rule, `spec.validateRules[${index}]`))
      : sound.spec.overrideRules.flatMap((rule, index) =>
          ofOverrideRule(rule, `spec.overrideRules[${index}]`, sound.spec.resourceSelectors),
        );
  return [...ofSelectors(sound), ...perRule, ...ofReferences(sound)].slice(0, 20);
};

const ofSelectors = (policy: Policy): string[] => {
  const { resourceSelectors: selectors = [] } = policy.spec;
  const own = policy.kind === "OverridePolicy" ? policy.metadata.namespace : undefined;
  if (selectors.length === 0)
    return [`spec.resourceSelectors is empty: the policy concerns every object${own ? ` in namespace ${own}` : ""}`];
  return selectors.flatMap(({ apiVersion, kind, namespace, name, labelSelector, fieldSelector }, index) => {
    const at = `spec.resourceSelectors[${index}]`;
    return [
      ...(own && namespace && namespace !== own
        ? [`${at}.namespace is ${shown(namespace)}, where the policy never applies: it concerns namespace ${own} alone`]
        : []),
      ...(own && clusterKinds.has(kind)
        ? [`${at}.kind is ${kind}, which is in no namespace: the policy never applies to it`]
        : []),
      ...(apiVersion.startsWith(`${policyGroup}/`) ? [`${at} takes policies, which no policy ever concerns`] : []),
      ...([apiVersion, kind].some((word) => word.includes("*")) ? [`${at} takes nothing: * is no pattern there`] : []),
      ...(fieldSelector?.matchExpressions ?? []).flatMap((expression, index) => {
        const { operator } = expression;
        const here = `${at}.fieldSelector.matchExpressions[${index}]`;
        if (!operators.includes(operator))
          return [`${here}.operator is ${shown(operator)}, with which it takes nothing`];
        return operator === "In" && !("values" in expression) && !expression.value?.length
          ? [`${here}.value is empty, with which it takes nothing`]
          : [];
      }),
      ...(name && (labelSelector || fieldSelector)
        ? [`${at}.name decides alone; the selectors beside it are ignored`]
        : []),
    ];
  });
};

const clusterKinds = new Set([
  "Namespace",
  "Node",
  "PersistentVolume",
  "StorageClass",
  "ClusterRole",
  "ClusterRoleBinding",
]);

const ofOperations = (operations: readonly string[] = [], at: string, never: readonly string[]): string[] =>
  operations.flatMap((operation, index) => {
    const here = `${at}.targetOperations[${index}]`;
    if (never.includes(operation)) return [`${here} is ${operation}, at which the rule never runs`];
    return known.has(operation) ? [] : [`${here} is ${shown(operation)}, which no operation is called`];
  });

const known = new Set(["CREATE", "UPDATE", "DELETE", "CONNECT", "*"]);

const ofOverrideRule = (rule: OverrideRule, at: string, selectors: readonly Selector[] = []): string[] => {
  const { template, cue, plaintext = [], origin = [] } = rule.overriders;
  const place = `${at}.overriders`;
  const types = [...(template ? [template.type] : []), ...origin.map(({ type }) => type)];
  const onPods = types.filter((type) => !["annotations", "labels"].includes(type));
  const without = selectors.filter(({ kind }) => !podKinds.has(kind)).map(({ kind }) => kind);
  const repeated = types
    .slice(template ? 1 : 0)
    .filter((type, index, all) => merged.has(type) && all.indexOf(type) < index);
  return [
    ...ofOperations(rule.targetOperations, at, ["DELETE", "CONNECT"]),
    ...(template || cue || plaintext.length > 0 || origin.length > 0
      ? []
      : [`${place} is empty: the rule does nothing`]),
    ...(onPods[0] && without[0]
      ? [`${place} changes ${onPods[0]}, which ${without[0]} doesn't have: nothing happens there`]
      : []),
    ...(repeated[0]
      ? [
          `${place}.origin has ${repeated[0]} more than once, and of such entries the last one's keys win over the whole map`,
        ]
      : []),
    ...origin.flatMap(({ type, operation }, index) =>
      operation === undefined || operation === "replace" || !onlyReplacing.has(type)
        ? []
        : [
            `${place}.origin[${index}].operation is ${operation}, which ${type} doesn't take: every request fails; replace works`,
          ],
    ),
    ...(template && template.operation !== "remove" ? refusedByKubernetes(template, `${place}.template`) : []),
    ...(template && settled(template.value) && template.valueRef
      ? [`${place}.template.valueRef is ignored: value is there, too`]
      : []),
    ...(template?.valueRef && !["annotations", "labels"].includes(template.type)
      ? [`${place}.template.valueRef is ignored: only annotations and labels take it`]
      : []),
  ];
};

/** Warns of values that the API server refuses, so that every request with this template fails. */
const refusedByKubernetes = ({ type, path = "", value, tolerations = [] }: OverrideTemplate, at: string): string[] => {
  if (type === "tolerations") return tolerationFaults(tolerations, `${at}.tolerations`).slice(0, 5);
  if (type !== "annotations" && type !== "labels") return [];
  const kind = settled(value);
  const pairs: [place: string, key: string, value: unknown][] =
    kind === "stringMap"
      ? Object.entries(value?.stringMap ?? {}).map(([key, text]) => [
          `value.stringMap[${shown(key)}]`,
          unescapeStep(key),
          text,
        ])
      : [["path", unescapeStep(path), kind && value?.[kind]]];
  return pairs.slice(0, 100).flatMap(([place, key, given]) => {
    // Kubernetes validates annotation keys in lower case.
    const fault =
      labelKeyFault(type === "labels" ? key : key.toLowerCase()) ??
      (type === "labels" && typeof given === "string" ? labelValueFault(given) : undefined);
    return fault ? [`${at}.${place} makes ${type} that Kubernetes refuses: one ${fault}`] : [];
  });
};

const merged = new Set<string>(["annotations", "labels", "nodeSelector"]);
const podKinds = new Set([
  ...["Pod", "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"],
  ...["Job", "CronJob", "ReplicationController"],
]);

const ofValidateRule = (rule: ValidateRule, at: string): string[] => {
  const operations = ofOperations(rule.targetOperations, at, ["CONNECT"]);
  if (rule.template === undefined)
    return rule.cue ? operations : [...operations, `${at} is empty: the rule refuses nothing`];
  const { condition } = rule.template;
  const place = `${at}.template.condition`;
  const { cond, message, value, valueRef, valueProcess } = condition;
  const ignored = !compares(condition)
    ? ["value", "valueRef", "valueProcess"]
    : /In$/.test(cond)
      ? ["valueProcess"]
      : [];
  return [
    ...operations,
    ...(message ? [] : [`${place}.message is empty: whoever is refused isn't told why`]),
    ...(ignored.length === 0 && value && valueRef ? [`${place}.value is ignored: valueRef is there, too`] : []),
    ...ignored
      .filter((field) => Object.hasOwn(condition, field))
      .map((field) => `${place}.${field} is ignored: ${cond} has no use for it`),
    ...(!valueRef && settled(value) === "boolean" && (valueProcess ? ignored.length === 0 : /^[GL]te?$/.test(cond))
      ? [`${place}.value is true or false, which has no order and can't be reckoned with: every request fails`]
      : []),
  ];
};

const ofReferences = (policy: Policy): string[] =>
  referencesIn(policy).flatMap(({ at, what: { from, http, k8s }, isUsed }) => {
    const filled =
      from === "k8s"
        ? [k8s?.name, k8s?.namespace, k8s?.name ? "" : JSON.stringify(k8s?.labelSelector ?? {})]
        : from === "http"
          ? [http?.url, ...Object.values(http?.params ?? {})]
          : [];
    if (isUsed && filled.some((text) => text?.includes("{{}}")))
      return [`${at}.${from} has {{}}, a placeholder without a path: every request fails; write {{metadata.name}}`];
    if (from === "k8s" && k8s?.fieldSelector) return [`${at}.k8s.fieldSelector is ignored`];
    if (from !== "http" || http === undefined) return [];
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
    return [
      ...secrets.map(
        (field) =>
          `${at}.http.${field} can be read by everybody who may read policies; keep it in a secret store and name it in the setting http.credentials`,
      ),
      ...(isUsed && /^http:/i.test(url)
        ? [`${at}.http.url is not encrypted: whoever is in between can read and change what it says`]
        : []),
      ...(isUsed && method.toUpperCase() === "POST"
        ? [`${at}.http.method is POST, which is not sent on a dry run: dry runs of such requests fail`]
        : []),
    ];
  });
