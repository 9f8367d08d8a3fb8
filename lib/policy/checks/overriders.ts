import {
  allowsOnlyReplaceOperation,
  type OriginOverrider,
  type OverrideTemplate,
  originOverriderTypes,
} from "../types.ts";
import { findSetField } from "../values/constants.ts";
import { parseDecimal } from "../values/decimals.ts";
import { quoteValue } from "../values/texts.ts";
import { checkConstant } from "./conditions.ts";
import {
  checkOverrideAffinity,
  checkResources,
  checkTolerations,
  checkTopologySpreadConstraints,
  countTermsPerAffinityList,
  findTolerationFaults,
} from "./pod-fields.ts";
import { checkReference } from "./references.ts";
import {
  acceptAnything,
  type CrossFieldCheck,
  checkBoolean,
  checkEachListElement,
  checkEachMapValue,
  checkFields,
  checkNonNegativeInteger,
  checkOneOf,
  checkRequired,
  checkText,
  checkTextMap,
  createTextCheck,
  type ValueCheck,
} from "./shape-checks.ts";

const checkOperation: ValueCheck = checkOneOf("add", "replace", "remove");

/** Checks the list `plaintext`: operations of a JSON patch. */
export const checkOverriderPatches: ValueCheck = checkEachListElement(
  checkFields({
    path: checkRequired(
      createTextCheck((value) =>
        value.startsWith("/")
          ? undefined
          : `must be a JSON pointer, which begins with a slash, not ${quoteValue(value)}`,
      ),
    ),
    op: checkRequired(checkOperation),
    value: acceptAnything,
  }),
);

const checkFactor: ValueCheck = createTextCheck((value) =>
  (parseDecimal(value)?.numerator ?? -1n) >= 0n
    ? undefined
    : `must be a decimal number such as "0.5", not ${quoteValue(value)}`,
);

const findFractionFault = (value: string): string | undefined => {
  const { numerator, denominator } = parseDecimal(value) ?? { numerator: 0n, denominator: 1n };
  return numerator > 0n && numerator < denominator
    ? undefined
    : `must be a decimal number between 0 and 1, such as "0.5", not ${quoteValue(value)}`;
};

type AddFieldFault = Parameters<CrossFieldCheck<OverrideTemplate>>[1];

/** Checks the fields that a template of annotations or labels needs. */
const checkMetadataTemplate = (
  { type, operation, path, value, valueRef }: OverrideTemplate,
  reportFault: AddFieldFault,
) => {
  const constantField = findSetField(value);
  if (constantField?.endsWith("Slice"))
    return reportFault(`value.${constantField}`, `is a list; ${type} take text, a number or true or false`);
  // A value of type stringMap contains the keys to set, so the field `path` isn't needed.
  if (!path && (constantField !== "stringMap" || operation === "remove"))
    reportFault("path", `is missing; it is the key among the ${type}`);
  if (constantField === undefined && valueRef === undefined && operation !== "remove")
    // "an add", but "a replace"
    reportFault("value", `is missing; an ${operation} of ${type} needs value or valueRef`.replace("an r", "a r"));
};

/** Checks of the fields that a template of each type needs. */
const payloadChecks: Record<
  OverrideTemplate["type"],
  (template: OverrideTemplate, reportFault: AddFieldFault) => void
> = {
  annotations: checkMetadataTemplate,
  labels: checkMetadataTemplate,
  resources({ resources }, reportFault) {
    const names = [resources?.requests, resources?.limits].flatMap((amounts) => Object.keys(amounts ?? {}));
    if (names.length === 0) reportFault("resources", "is missing; it lists the requests and limits of the template");
  },
  resourcesOversell({ operation, resourcesOversell: factors = {} }, reportFault) {
    const setFactors = Object.entries(factors).filter(([, factor]) => factor !== "");
    if (setFactors.length === 0)
      reportFault("resourcesOversell", "is missing; it has at least one of cpuFactor, memoryFactor and diskFactor");
    // The operation `remove` uses only the names of the factors, not their values.
    if (operation === "remove") return;
    for (const [name, factor] of setFactors) {
      const fault = findFractionFault(factor);
      if (fault) reportFault(`resourcesOversell.${name}`, fault);
    }
  },
  tolerations({ tolerations = [] }, reportFault) {
    if (tolerations.length === 0) reportFault("tolerations", "is missing; it lists the tolerations of the template");
  },
  affinity({ operation, affinity = {} }, reportFault) {
    const terms = countTermsPerAffinityList(affinity).filter((terms) => terms > 0 || operation === "remove");
    if (terms.length === 0) reportFault("affinity", "is missing; at least one of its lists must have a term");
  },
};

/** Checks an overrider's `template`. */
export const checkTemplate: ValueCheck = checkFields<OverrideTemplate>(
  {
    type: checkRequired(checkOneOf(...Object.keys(payloadChecks))),
    operation: checkRequired(checkOperation),
    path: checkText,
    value: checkConstant,
    valueRef: checkReference,
    resources: checkResources,
    resourcesOversell: checkFields({ cpuFactor: checkText, memoryFactor: checkText, diskFactor: checkText }),
    tolerations: checkTolerations,
    affinity: checkOverrideAffinity,
  },
  (template, reportFault) => payloadChecks[template.type](template, reportFault),
);

/** The fields of an element of `origin`. */
const originFields: Record<keyof OriginOverrider, ValueCheck> = {
  type: checkRequired(checkOneOf(...originOverriderTypes)),
  operation: checkOperation,
  replace: checkBoolean,
  containerCount: checkNonNegativeInteger,
  annotations: checkTextMap,
  labels: checkTextMap,
  nodeSelector: checkTextMap,
  hostNetwork: checkBoolean,
  schedulerName: checkText,
  resourceRequirements: checkResources,
  resourcesOversell: checkFields({ requests: checkEachMapValue(checkFactor), limits: checkEachMapValue(checkFactor) }),
  affinity: checkOverrideAffinity,
  tolerations: checkTolerations,
  topologySpreadConstraints: checkTopologySpreadConstraints,
};

const checkOverrider: ValueCheck = checkFields<OriginOverrider>(
  originFields,
  ({ type, operation, replace }, reportFault) => {
    if (operation === undefined && replace !== true && !allowsOnlyReplaceOperation(type))
      reportFault("operation", "is missing");
  },
);

/** Checks a policy's origin overriders. For faults that kinitiras reports, the messages are those of kinitiras. */
export const checkOriginOverriders: ValueCheck = (value, at, faults) => {
  const faultsBefore = faults.length;
  checkEachListElement(checkOverrider)(value, at, faults);
  if (!Array.isArray(value) || faults.length > faultsBefore) return;
  // The cast is safe, because checkEachListElement has checked the shape of each overrider.
  const overriders = value as OriginOverrider[];
  // In kinitiras, containerCount is the index of the container that an overrider changes.
  const listContainerIndexes = (type: OriginOverrider["type"]) =>
    new Set(overriders.filter((overrider) => overrider.type === type).map(({ containerCount = 0 }) => containerCount));
  const indexesWithRequirements = listContainerIndexes("resourceRequirements");
  if ([...listContainerIndexes("resourceOversell")].some((index) => indexesWithRequirements.has(index)))
    faults.push(
      "cop is invalid: in the same cop, there cannot be a unified containerCount in OverrideRuleOriginResourceRequirements and OverrideRuleOriginResourceOversell",
    );
  // After 100 faults, no more are searched: a hostile policy could cause an answer of megabytes.
  for (const { type, tolerations = [] } of overriders)
    if (type === "tolerations" && faults.length < 100)
      for (const fault of findTolerationFaults(tolerations, "spec.affinity.toleration")) faults.push(fault);
};
