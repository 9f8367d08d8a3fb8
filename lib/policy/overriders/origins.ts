import { getErrorMessage } from "../../failure.ts";
import {
  applyToEach,
  cloneDeep,
  deleteMember,
  getOwn,
  isMap,
  isText,
  type JsonMap,
  readListIfSet,
  readOptionalMap,
  requireTexts,
  setMemberToCopy,
} from "../../json.ts";
import type { KubernetesObject } from "../../review.ts";
import { allowsOnlyReplaceOperation, type OriginOverrider } from "../types.ts";
import { findPodSpec } from "./pod-spec.ts";
import { multiplyTruncated, parseTemplateQuantity, requireFactor } from "./resources.ts";

/** A field to set, or to delete if `value` is undefined. */
interface FieldChange {
  parent: JsonMap;
  key: string;
  value: unknown;
}

/**
 * Applies origin overriders in place, and reports whether anything changed. As in kinitiras, each overrider is computed
 * from the original object, not from the result of earlier overriders. If two set the same field, the last one wins.
 */
export const applyOriginOverriders = (object: KubernetesObject, overriders: readonly OriginOverrider[]): boolean => {
  const changes = overriders.map((overrider, index) => {
    try {
      return computeChange(object, overrider);
    } catch (error) {
      throw new Error(`origin[${index}]: ${getErrorMessage(error)}`, { cause: error });
    }
  });
  return applyToEach(
    changes.filter((change) => change !== undefined),
    ({ parent, key, value }) => (value === undefined ? deleteMember(parent, key) : setMemberToCopy(parent, key, value)),
  );
};

/** Returns the change of an overrider to an object; undefined if the object has no metadata or no pod spec. */
const computeChange = (object: KubernetesObject, overrider: OriginOverrider): FieldChange | undefined => {
  if (!isMap(overrider)) throw new Error("an overrider must be a map");
  const { type }: OriginOverrider = overrider;
  if (!Object.hasOwn(computations, type))
    throw new Error(`type must be one of ${Object.keys(computations).join(", ")}`);
  const allowsOnlyReplace = allowsOnlyReplaceOperation(type);
  // An overrider may leave out `operation` if its type allows only `replace`, or if it has `replace: true`, which
  // replaces the whole field.
  const operation = overrider.operation ?? (allowsOnlyReplace || overrider.replace === true ? "replace" : undefined);
  if (operation !== "replace" && (allowsOnlyReplace || (operation !== "add" && operation !== "remove")))
    throw new Error("unsupported operator type error");
  const isOfMetadata = type === "annotations" || type === "labels";
  const parent = isOfMetadata ? readOptionalMap(object.metadata, "metadata") : findPodSpec(object);
  return parent && computations[type](parent, overrider);
};

type ComputeChange = (parent: JsonMap, overrider: OriginOverrider) => FieldChange;

/** Returns a function that replaces a field by the overrider's value, or by `defaultValue` if there is no value. */
const createReplacement =
  (
    key: "hostNetwork" | "schedulerName" | "affinity" | "topologySpreadConstraints",
    isValid: (value: unknown) => boolean,
    expected: string,
    defaultValue?: unknown,
  ): ComputeChange =>
  (parent, overrider) => {
    const value = overrider[key] ?? defaultValue;
    if (value !== undefined && !isValid(value)) throw new Error(`${key} must be ${expected}`);
    return { parent, key, value };
  };

/** Returns a function that replaces, adds or removes entries of a map of texts. */
const createTextMerge =
  (key: "annotations" | "labels" | "nodeSelector"): ComputeChange =>
  (parent, overrider) => {
    const texts = requireTexts(overrider[key], key);
    const present = readOptionalMap(getOwn(parent, key), key);
    const toChange = (value: JsonMap | undefined) => ({ parent, key, value });
    if (overrider.replace === true) return toChange(texts);
    if (overrider.operation !== "remove") return toChange(texts || present ? { ...present, ...texts } : undefined);
    const kept = Object.entries(present ?? {}).filter(([name]) => !Object.hasOwn(texts ?? {}, name));
    return toChange(present && Object.fromEntries(kept));
  };

/** Replaces, adds or removes tolerations. An added toleration replaces one with the same identity. */
const mergeTolerations: ComputeChange = (parent, overrider) => {
  const tolerations = readListIfSet(overrider.tolerations, "tolerations");
  if (tolerations?.every(isMap) === false) throw new Error("tolerations must be maps");
  const present = readListIfSet(getOwn(parent, "tolerations"), "tolerations") ?? [];
  const identities = new Set(tolerations?.map(identifyToleration));
  const others = present.filter((toleration) => !identities.has(identifyToleration(toleration)));
  const toChange = (value: unknown[] | undefined) => ({ parent, key: "tolerations", value });
  if (overrider.replace === true) return toChange(tolerations);
  if (overrider.operation !== "remove")
    return toChange(tolerations || present.length > 0 ? [...(tolerations ?? []), ...others] : undefined);
  return toChange(others.length > 0 ? others : undefined);
};

/** Returns a toleration's identity: all fields except tolerationSeconds. A missing field is equal to an empty one. */
const identifyToleration = (toleration: unknown): string => {
  const { key = "", operator = "", value = "", effect = "" } = readOptionalMap(toleration, "a toleration") ?? {};
  return JSON.stringify([key, operator, value, effect]);
};

/** Returns the container with the index `containerCount`. */
const requireContainer = (podSpec: JsonMap, { containerCount = 0 }: OriginOverrider): JsonMap => {
  const containers = readListIfSet(getOwn(podSpec, "containers"), "containers") ?? [];
  if (containers.length === 0) throw new Error("containers not found in pod spec");
  if (!Number.isInteger(containerCount) || containerCount < 0)
    throw new Error("containerCount must be a whole number from 0 on");
  if (containerCount >= containers.length)
    throw new Error("containerCount cannot be greater than the number of containers in the pod");
  const container = readOptionalMap(containers[containerCount], `containers[${containerCount}]`);
  if (container === undefined) throw new Error(`containers[${containerCount}] must be a map`);
  return container;
};

const replaceResources: ComputeChange = (podSpec, overrider) => {
  const value = readOptionalMap(overrider.resourceRequirements, "resourceRequirements") ?? {};
  return { parent: requireContainer(podSpec, overrider), key: "resources", value };
};

/** The only resources of a container that `resourcesOversell` can multiply. */
export const multipliableResources = ["cpu", "memory", "storage", "ephemeral-storage"];

/** Multiplies the requests and limits of a container by the overrider's factors. */
const multiplyResources: ComputeChange = (podSpec, overrider) => {
  const parent = requireContainer(podSpec, overrider);
  const factors = readOptionalMap(overrider.resourcesOversell, "resourcesOversell");
  const resources = cloneDeep(readOptionalMap(getOwn(parent, "resources"), "resources"));
  for (const list of ["requests", "limits"]) {
    const quantities = readOptionalMap(getOwn(resources, list), `resources.${list}`) ?? {};
    const factorsOfList = readOptionalMap(getOwn(factors, list), `resourcesOversell.${list}`);
    for (const name of multipliableResources) {
      const [factor, quantity] = [getOwn(factorsOfList, name), getOwn(quantities, name)];
      if (factor == null || quantity == null) continue;
      requireFactor(factor, `resourcesOversell.${list}.${name}`);
      const parsed = parseTemplateQuantity(quantity, `resources.${list}.${name}`);
      const isCpu = name === "cpu";
      if (parsed.nanos !== 0n) quantities[name] = multiplyTruncated(parsed, Number(factor), isCpu);
    }
  }
  return { parent, key: "resources", value: resources };
};

const isBoolean = (value: unknown) => typeof value === "boolean";

// The arguments of createReplacement: the field, a test of its value, the valid values in words, and the default value.
const computations: Record<OriginOverrider["type"], ComputeChange> = {
  annotations: createTextMerge("annotations"),
  labels: createTextMerge("labels"),
  nodeSelector: createTextMerge("nodeSelector"),
  tolerations: mergeTolerations,
  hostNetwork: createReplacement("hostNetwork", isBoolean, "true or false", false),
  schedulerName: createReplacement("schedulerName", isText, "a text", ""),
  affinity: createReplacement("affinity", isMap, "a map"),
  topologySpreadConstraints: createReplacement("topologySpreadConstraints", Array.isArray, "a list"),
  resourceRequirements: replaceResources,
  resourceOversell: multiplyResources,
};
