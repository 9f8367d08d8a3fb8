import type { Affinity, Toleration } from "kubernetes-types/core/v1.d.ts";
import { isMap } from "../../json.ts";
import { goQuoted } from "../../objects/go-quoted.ts";
import { keyFaults, valueFaults } from "../../objects/label.ts";
import { parseQuantity } from "../../objects/quantity.ts";
import { quoteValue } from "../values/texts.ts";
import { labelSelector } from "./selectors.ts";
import { atLeast, blame, type Check, listOf, mapOf, required, text, texts, textThat, whole } from "./shape-checks.ts";

const quantity: Check = (value, at, faults) => {
  if (Number.isInteger(value)) return;
  textThat((given) =>
    parseQuantity(given) === undefined ? `must be a quantity such as 500m or 1Gi, not ${quoteValue(given)}` : undefined,
  )(value, at, faults);
};

export const resources: Check = atLeast({ requests: mapOf(quantity), limits: mapOf(quantity) });

export const tolerations: Check = listOf(
  atLeast<Toleration>({ key: text, operator: text, value: text, effect: text, tolerationSeconds: whole }),
);

const effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/** Returns faults in upstream's words, which come from Kubernetes; `place` is upstream's name of the field. */
export const tolerationFaults = (tolerations: readonly Toleration[], place: string): string[] =>
  tolerations.slice(0, 100).flatMap((toleration, index) => {
    const { key = "", operator = "", value = "", effect = "", tolerationSeconds } = toleration;
    const at = `${place}[${index}]`;
    const invalid = (field: string, shown: string, detail: string) =>
      `${at}.${field}: Invalid value: ${shown}: ${detail}`;
    const faults = key === "" ? [] : limited(key, keyFaults).map((fault) => invalid("key", quoted(key), fault));
    if (key === "" && operator !== "Exists")
      faults.push(
        invalid(
          "operator",
          quoted(operator),
          'operator must be Exists when `key` is empty, which means "match all values and all keys"',
        ),
      );
    if (tolerationSeconds !== undefined && effect !== "NoExecute")
      faults.push(invalid("effect", quoted(effect), "effect must be 'NoExecute' when `tolerationSeconds` is set"));
    if (operator === "Equal" || operator === "") {
      const wrong = limited(value, valueFaults);
      if (wrong.length > 0) faults.push(invalid("operator", quoted(value), wrong.join(";")));
    } else if (operator === "Exists") {
      if (value !== "")
        faults.push(invalid("operator", asGo(toleration), "value must be empty when `operator` is 'Exists'"));
    } else faults.push(`${at}.operator: Unsupported value: ${quoted(operator)}: supported values: "Equal", "Exists"`);
    if (effect !== "" && !effects.includes(effect))
      faults.push(
        `${at}.effect: Unsupported value: ${quoted(effect)}: supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"`,
      );
    return faults;
  });

const quoted = (text: string) => goQuoted(text.slice(0, 300));

const asGo = ({ key = "", operator = "", value = "", effect = "", tolerationSeconds }: Toleration) =>
  `v1.Toleration{Key:${quoted(key)}, Operator:${quoted(operator)}, Value:${quoted(value)}, Effect:${quoted(effect)}, TolerationSeconds:${tolerationSeconds ?? "(*int64)(nil)"}}`;

/** Checks the first 1000 characters only: a longer text is invalid for its length. */
const limited = (text: string, faultsOf: (text: string) => string[]) => faultsOf(text.slice(0, 1000));

const oneOfKubernetes = (...words: string[]): Check =>
  required(
    textThat((value) =>
      words.includes(value) ? undefined : `must be one of ${words.join(", ")}, not ${quoteValue(value)}`,
    ),
  );

const requirement = atLeast({
  key: required(text),
  operator: oneOfKubernetes("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"),
  values: texts,
});
const nodeTerm = atLeast({ matchExpressions: listOf(requirement), matchFields: listOf(requirement) });
const podTerm = atLeast({
  labelSelector,
  namespaceSelector: labelSelector,
  namespaces: texts,
  topologyKey: required(text),
});
const podLists = {
  requiredDuringSchedulingIgnoredDuringExecution: listOf(podTerm),
  preferredDuringSchedulingIgnoredDuringExecution: listOf(
    atLeast({ weight: required(whole), podAffinityTerm: required(podTerm) }),
  ),
};

export const affinity: Check = atLeast<Affinity>({
  nodeAffinity: atLeast({
    requiredDuringSchedulingIgnoredDuringExecution: atLeast({ nodeSelectorTerms: required(listOf(nodeTerm)) }),
    preferredDuringSchedulingIgnoredDuringExecution: listOf(
      atLeast({ weight: required(whole), preference: required(nodeTerm) }),
    ),
  }),
  podAffinity: atLeast(podLists),
  podAntiAffinity: atLeast(podLists),
});

export const affinityLists = ({ nodeAffinity, podAffinity, podAntiAffinity }: Affinity): number[] =>
  [nodeAffinity, podAffinity, podAntiAffinity]
    .flatMap((part) => (isMap(part) ? Object.values(part) : []))
    .map((list) => (Array.isArray(list) ? list.length : Object(Object(list).nodeSelectorTerms).length || 0));

export const topologySpreadConstraints: Check = (value, at, faults) => {
  const before = faults.length;
  listOf(
    atLeast({
      maxSkew: required(whole),
      topologyKey: required(text),
      whenUnsatisfiable: oneOfKubernetes("DoNotSchedule", "ScheduleAnyway"),
      labelSelector,
    }),
  )(value, at, faults);
  if (!Array.isArray(value) || faults.length > before) return;
  const keys = value.map(({ topologyKey, whenUnsatisfiable }) => JSON.stringify([topologyKey, whenUnsatisfiable]));
  const seen = new Set<string>();
  for (const [index, key] of keys.entries())
    if (seen.size === seen.add(key).size)
      blame(faults, `${at}[${index}]`, "has the same topologyKey and whenUnsatisfiable as one before it");
};
