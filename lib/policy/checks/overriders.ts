import { isOnlyReplaced, type OriginOverrider, type OverrideTemplate, originTypes } from "../types.ts";
import { findSetField } from "../values/constants.ts";
import { parseDecimal } from "../values/decimals.ts";
import { quoteValue } from "../values/texts.ts";
import { constant } from "./conditions.ts";
import {
  affinity,
  affinityLists,
  resources,
  tolerationFaults,
  tolerations,
  topologySpreadConstraints,
} from "./pod-fields.ts";
import { reference } from "./references.ts";
import {
  type Across,
  anything,
  type Check,
  count,
  fields,
  listOf,
  mapOf,
  oneOf,
  required,
  text,
  textMap,
  textThat,
  truth,
} from "./shape-checks.ts";

const operation: Check = oneOf("add", "replace", "remove");

export const plaintext: Check = listOf(
  fields({
    path: required(
      textThat((value) =>
        value.startsWith("/")
          ? undefined
          : `must be a JSON pointer, which begins with a slash, not ${quoteValue(value)}`,
      ),
    ),
    op: required(operation),
    value: anything,
  }),
);

const factor: Check = textThat((value) =>
  (parseDecimal(value)?.numerator ?? -1n) >= 0n
    ? undefined
    : `must be a decimal number such as "0.5", not ${quoteValue(value)}`,
);

const fractionFault = (value: string): string | undefined => {
  const { numerator, denominator } = parseDecimal(value) ?? { numerator: 0n, denominator: 1n };
  return numerator > 0n && numerator < denominator
    ? undefined
    : `must be a decimal number between 0 and 1, such as "0.5", not ${quoteValue(value)}`;
};

type Blame = Parameters<Across<OverrideTemplate>>[1];

const metadata = ({ type, operation, path, value, valueRef }: OverrideTemplate, blame: Blame) => {
  const kind = findSetField(value);
  if (kind?.endsWith("Slice")) return blame(`value.${kind}`, `is a list; ${type} take text, a number or true or false`);
  // A stringMap has its own keys, so path isn't read.
  if (!path && (kind !== "stringMap" || operation === "remove"))
    blame("path", `is missing; it is the key among the ${type}`);
  if (kind === undefined && valueRef === undefined && operation !== "remove")
    blame("value", `is missing; an ${operation} of ${type} needs value or valueRef`.replace("an r", "a r"));
};

const payload: Record<OverrideTemplate["type"], (template: OverrideTemplate, blame: Blame) => void> = {
  annotations: metadata,
  labels: metadata,
  resources({ resources }, blame) {
    const names = [resources?.requests, resources?.limits].flatMap((amounts) => Object.keys(amounts ?? {}));
    if (names.length === 0) blame("resources", "is missing; it lists the requests and limits that are meant");
  },
  resourcesOversell({ operation, resourcesOversell: factors = {} }, blame) {
    const given = Object.entries(factors).filter(([, factor]) => factor !== "");
    if (given.length === 0)
      blame("resourcesOversell", "is missing; it has at least one of cpuFactor, memoryFactor and diskFactor");
    // With remove, a factor only names its resource.
    if (operation === "remove") return;
    for (const [name, factor] of given) {
      const fault = fractionFault(factor);
      if (fault) blame(`resourcesOversell.${name}`, fault);
    }
  },
  tolerations({ tolerations = [] }, blame) {
    if (tolerations.length === 0) blame("tolerations", "is missing; it lists the tolerations that are meant");
  },
  affinity({ operation, affinity = {} }, blame) {
    const terms = affinityLists(affinity).filter((terms) => terms > 0 || operation === "remove");
    if (terms.length === 0) blame("affinity", "is missing; at least one of its lists must have a term");
  },
};

export const template: Check = fields<OverrideTemplate>(
  {
    type: required(oneOf(...Object.keys(payload))),
    operation: required(operation),
    path: text,
    value: constant,
    valueRef: reference,
    resources,
    resourcesOversell: fields({ cpuFactor: text, memoryFactor: text, diskFactor: text }),
    tolerations,
    affinity,
  },
  (given, blame) => payload[given.type](given, blame),
);

const originFields: Record<keyof OriginOverrider, Check> = {
  type: required(oneOf(...originTypes)),
  operation,
  replace: truth,
  containerCount: count,
  annotations: textMap,
  labels: textMap,
  nodeSelector: textMap,
  hostNetwork: truth,
  schedulerName: text,
  resourceRequirements: resources,
  resourcesOversell: fields({ requests: mapOf(factor), limits: mapOf(factor) }),
  affinity,
  tolerations,
  topologySpreadConstraints,
};

const overrider: Check = fields<OriginOverrider>(originFields, ({ type, operation, replace }, blame) => {
  if (operation === undefined && replace !== true && !isOnlyReplaced(type)) blame("operation", "is missing");
});

/** Checks origin overriders. What upstream refuses gets upstream's message. */
export const origin: Check = (value, at, faults) => {
  const before = faults.length;
  listOf(overrider)(value, at, faults);
  if (!Array.isArray(value) || faults.length > before) return;
  // The shape was checked.
  const given = value as OriginOverrider[];
  const containersOf = (type: OriginOverrider["type"]) =>
    new Set(given.filter((one) => one.type === type).map(({ containerCount = 0 }) => containerCount));
  const required = containersOf("resourceRequirements");
  if ([...containersOf("resourceOversell")].some((container) => required.has(container)))
    faults.push(
      "cop is invalid: in the same cop, there cannot be a unified containerCount in OverrideRuleOriginResourceRequirements and OverrideRuleOriginResourceOversell",
    );
  for (const { type, tolerations = [] } of given)
    if (type === "tolerations" && faults.length < 100)
      for (const fault of tolerationFaults(tolerations, "spec.affinity.toleration")) faults.push(fault);
};
