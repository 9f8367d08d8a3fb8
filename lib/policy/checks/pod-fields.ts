import { isMap, toList, toMap } from "../../json.ts";
import type { Affinity, Toleration } from "../../kubernetes/core/v1.ts";
import { quoteAsGo } from "../../objects/go/quoted.ts";
import { findKeyFaults, findValueFaults } from "../../objects/label.ts";
import { parseQuantity } from "../../objects/quantity.ts";
import { quoteValue } from "../values/texts.ts";
import { checkLabelSelector } from "./selectors.ts";
import {
  addFault,
  checkEachListElement,
  checkEachMapValue,
  checkFieldsAllowingUnknown,
  checkInteger,
  checkRequired,
  checkText,
  checkTexts,
  createTextCheck,
  type ValueCheck,
} from "./shape-checks.ts";

/** Checks an amount: a whole number, or a quantity such as 500m. */
const checkQuantity: ValueCheck = (value, at, faults) => {
  if (Number.isInteger(value)) return;
  createTextCheck((quantity) =>
    parseQuantity(quantity) === undefined
      ? `must be a quantity such as 500m or 1Gi, not ${quoteValue(quantity)}`
      : undefined,
  )(value, at, faults);
};

export const checkResources: ValueCheck = checkFieldsAllowingUnknown({
  requests: checkEachMapValue(checkQuantity),
  limits: checkEachMapValue(checkQuantity),
});

/** Checks a list of tolerations. Unknown fields are allowed, as in Pods of newer versions. */
export const checkTolerations: ValueCheck = checkEachListElement(
  checkFieldsAllowingUnknown<Toleration>({
    key: checkText,
    operator: checkText,
    value: checkText,
    effect: checkText,
    tolerationSeconds: checkInteger,
  }),
);

const effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/**
 * Returns the faults of the tolerations in the field `place`, in the words of Kubernetes' validation, which reports a
 * wrong value as a fault of `operator`. To limit the time and the length of the messages, it checks only the first 100
 * tolerations, and only the first characters of long texts.
 */
export const findTolerationFaults = (tolerations: readonly Toleration[], place: string): string[] =>
  tolerations.slice(0, 100).flatMap((toleration, index) => {
    const { key = "", operator = "", value = "", effect = "", tolerationSeconds } = toleration;
    const at = `${place}[${index}]`;
    const formatInvalid = (field: string, shown: string, detail: string) =>
      `${at}.${field}: Invalid value: ${shown}: ${detail}`;
    const faults =
      key === ""
        ? []
        : findFaultsAtStart(key, findKeyFaults).map((fault) => formatInvalid("key", quoteStart(key), fault));
    if (key === "" && operator !== "Exists")
      faults.push(
        formatInvalid(
          "operator",
          quoteStart(operator),
          'operator must be Exists when `key` is empty, which means "match all values and all keys"',
        ),
      );
    if (tolerationSeconds !== undefined && effect !== "NoExecute")
      faults.push(
        formatInvalid("effect", quoteStart(effect), "effect must be 'NoExecute' when `tolerationSeconds` is set"),
      );
    if (operator === "Equal" || operator === "") {
      const wrong = findFaultsAtStart(value, findValueFaults);
      if (wrong.length > 0) faults.push(formatInvalid("operator", quoteStart(value), wrong.join(";")));
    } else if (operator === "Exists") {
      if (value !== "")
        faults.push(
          formatInvalid("operator", formatGoToleration(toleration), "value must be empty when `operator` is 'Exists'"),
        );
    } else
      faults.push(`${at}.operator: Unsupported value: ${quoteStart(operator)}: supported values: "Equal", "Exists"`);
    if (effect !== "" && !effects.includes(effect))
      faults.push(
        `${at}.effect: Unsupported value: ${quoteStart(effect)}: supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"`,
      );
    return faults;
  });

const quoteStart = (text: string) => quoteAsGo(text.slice(0, 300));

const formatGoToleration = ({ key = "", operator = "", value = "", effect = "", tolerationSeconds }: Toleration) =>
  `v1.Toleration{Key:${quoteStart(key)}, Operator:${quoteStart(operator)}, Value:${quoteStart(value)}, Effect:${quoteStart(effect)}, TolerationSeconds:${tolerationSeconds ?? "(*int64)(nil)"}}`;

/** Finds faults only in a text's first 1000 characters, to limit the time. A longer text is invalid in any case. */
const findFaultsAtStart = (text: string, findFaults: (text: string) => string[]) => findFaults(text.slice(0, 1000));

const checkKubernetesEnum = (...words: string[]): ValueCheck =>
  checkRequired(
    createTextCheck((value) =>
      words.includes(value) ? undefined : `must be one of ${words.join(", ")}, not ${quoteValue(value)}`,
    ),
  );

const checkRequirement = checkFieldsAllowingUnknown({
  key: checkRequired(checkText),
  operator: checkKubernetesEnum("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"),
  values: checkTexts,
});
const checkNodeTerm = checkFieldsAllowingUnknown({
  matchExpressions: checkEachListElement(checkRequirement),
  matchFields: checkEachListElement(checkRequirement),
});
const checkPodTerm = checkFieldsAllowingUnknown({
  labelSelector: checkLabelSelector,
  namespaceSelector: checkLabelSelector,
  namespaces: checkTexts,
  topologyKey: checkRequired(checkText),
});
const podListChecks = {
  requiredDuringSchedulingIgnoredDuringExecution: checkEachListElement(checkPodTerm),
  preferredDuringSchedulingIgnoredDuringExecution: checkEachListElement(
    checkFieldsAllowingUnknown({ weight: checkRequired(checkInteger), podAffinityTerm: checkRequired(checkPodTerm) }),
  ),
};

/** Checks an affinity that a policy adds to Pods. */
export const checkOverrideAffinity: ValueCheck = checkFieldsAllowingUnknown<Affinity>({
  nodeAffinity: checkFieldsAllowingUnknown({
    requiredDuringSchedulingIgnoredDuringExecution: checkFieldsAllowingUnknown({
      nodeSelectorTerms: checkRequired(checkEachListElement(checkNodeTerm)),
    }),
    preferredDuringSchedulingIgnoredDuringExecution: checkEachListElement(
      checkFieldsAllowingUnknown({ weight: checkRequired(checkInteger), preference: checkRequired(checkNodeTerm) }),
    ),
  }),
  podAffinity: checkFieldsAllowingUnknown(podListChecks),
  podAntiAffinity: checkFieldsAllowingUnknown(podListChecks),
});

/** Returns the number of terms in each list of an affinity. */
export const countTermsPerAffinityList = ({ nodeAffinity, podAffinity, podAntiAffinity }: Affinity): number[] =>
  [nodeAffinity, podAffinity, podAntiAffinity]
    .flatMap((part) => (isMap(part) ? Object.values(part) : []))
    .map((list) => (Array.isArray(list) ? list : toList(toMap(list).nodeSelectorTerms)).length);

/** Checks topologySpreadConstraints. Two may not have the same key and action. */
export const checkTopologySpreadConstraints: ValueCheck = (value, at, faults) => {
  const faultsBefore = faults.length;
  checkEachListElement(
    checkFieldsAllowingUnknown({
      maxSkew: checkRequired(checkInteger),
      topologyKey: checkRequired(checkText),
      whenUnsatisfiable: checkKubernetesEnum("DoNotSchedule", "ScheduleAnyway"),
      labelSelector: checkLabelSelector,
    }),
  )(value, at, faults);
  if (!Array.isArray(value) || faults.length > faultsBefore) return;
  const keys = value.map(({ topologyKey, whenUnsatisfiable }) => JSON.stringify([topologyKey, whenUnsatisfiable]));
  const earlierKeys = new Set<string>();
  for (const [index, key] of keys.entries()) {
    if (earlierKeys.has(key))
      addFault(faults, `${at}[${index}]`, "has the same topologyKey and whenUnsatisfiable as an earlier constraint");
    earlierKeys.add(key);
  }
};
