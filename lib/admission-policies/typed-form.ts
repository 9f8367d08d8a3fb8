import { getOwn, isMap, type JsonMap, toList } from "../json.ts";
import { type ObjectSchema, resolveType, type TypeReference, type ValueType } from "./schemas.ts";

/** The lists that upstream's types write also if they are empty. */
const writtenLists: Readonly<Record<string, readonly string[]>> = {
  "admissionregistration.v1.MutatingWebhook": ["admissionReviewVersions"],
  "admissionregistration.v1.ValidatingWebhook": ["admissionReviewVersions"],
  "batch.v1.PodFailurePolicy": ["rules"],
  "batch.v1.PodFailurePolicyOnExitCodesRequirement": ["values"],
  "batch.v1.SuccessPolicy": ["rules"],
  "core.v1.CephFSPersistentVolumeSource": ["monitors"],
  "core.v1.CephFSVolumeSource": ["monitors"],
  "core.v1.LimitRangeSpec": ["limits"],
  "core.v1.NodeSelector": ["nodeSelectorTerms"],
  "core.v1.PodSpec": ["containers"],
  "core.v1.ProjectedVolumeSource": ["sources"],
  "core.v1.RBDPersistentVolumeSource": ["monitors"],
  "core.v1.RBDVolumeSource": ["monitors"],
  "core.v1.TopologySelectorLabelRequirement": ["values"],
  "discovery.k8s.io/v1/EndpointSlice": ["endpoints", "ports"],
  "discovery.v1.Endpoint": ["addresses"],
  "flowcontrol.v1.NonResourcePolicyRule": ["nonResourceURLs", "verbs"],
  "flowcontrol.v1.PolicyRulesWithSubjects": ["subjects"],
  "flowcontrol.v1.ResourcePolicyRule": ["apiGroups", "namespaces", "resources", "verbs"],
  "networking.v1.HTTPIngressRuleValue": ["paths"],
  "rbac.authorization.k8s.io/v1/ClusterRole": ["rules"],
  "rbac.authorization.k8s.io/v1/Role": ["rules"],
  "rbac.v1.PolicyRule": ["verbs"],
  "storage.v1.CSINodeDriver": ["topologyKeys"],
  "storage.v1.CSINodeSpec": ["drivers"],
};

/**
 * Returns an object of a built-in kind as the API server's types write it after a change: without the fields that are a
 * list or a map and are empty or null. What didn't change stays as it is.
 */
export const toTypedForm = ({ types, root }: ObjectSchema, object: JsonMap, before: JsonMap): JsonMap =>
  dropEmptyFields(types, root, object, before) as JsonMap;

const dropEmptyFields = (
  types: ObjectSchema["types"],
  reference: TypeReference,
  value: unknown,
  before: unknown,
): unknown => {
  if (value === before) return value;
  const type = resolveType(types, reference);
  const { items, fields, values } = type;
  if (Array.isArray(value)) {
    if (items === undefined) return value;
    return value.map((element, index) => dropEmptyFields(types, items, element, toList(before)[index]));
  }
  if (!isMap(value)) return value;
  const written = typeof reference === "string" ? writtenLists[reference] : undefined;
  const kept: [string, unknown][] = [];
  for (const [key, member] of Object.entries(value)) {
    const previous = isMap(before) ? getOwn(before, key) : undefined;
    const field = getOwn(fields, key) as TypeReference | undefined;
    const inner = field ?? values;
    const result = inner === undefined ? member : dropEmptyFields(types, inner, member, previous);
    const isDropped =
      field !== undefined &&
      !isEmpty(previous) &&
      !written?.includes(key) &&
      isEmpty(result) &&
      isOmitted(resolveType(types, field));
    if (!isDropped) kept.push([key, result]);
  }
  return Object.fromEntries(kept);
};

const isEmpty = (value: unknown): boolean =>
  Array.isArray(value) ? value.length === 0 : value === null || (isMap(value) && Object.keys(value).length === 0);

/** Reports whether a type is a list or a map: an empty struct is written, and so is anything in a field of any JSON. */
const isOmitted = ({ scalar, items, fields, values }: ValueType): boolean =>
  scalar === undefined &&
  fields === undefined &&
  (items !== undefined || (values !== undefined && values !== "unknown"));
