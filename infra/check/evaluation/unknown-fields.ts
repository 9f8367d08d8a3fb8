import { formatFieldPath } from "#lib/admission-policies/documents/faults.ts";
import { getOwn, isMap, toList, toMap } from "#lib/json.ts";
import type { AdmissionRequest } from "#lib/review.ts";
import type { Phase } from "#lib/rule.ts";
import type { FieldPath } from "../../manifests/manifests.ts";
import type { Assumption } from "./assumptions.ts";

// What an API server fills in by its clients, its storage and its addresses isn't known here. A rule that reads such a
// field can't decide. The field has a getter that tells so, and isn't among the object's enumerable members.

/** The fields of a Pod that plugins fill in from other objects, by the resource of these objects. */
const filledFromObjects: Record<string, FieldPath[]> = {
  priorityclasses: [
    ["spec", "priority"],
    ["spec", "preemptionPolicy"],
  ],
  runtimeclasses: ["overhead", "nodeSelector", "tolerations"].map((field) => ["spec", field]),
  serviceaccounts: [["spec", "imagePullSecrets"]],
  nodes: ["zone", "region"].map((label) => ["metadata", "labels", `topology.kubernetes.io/${label}`]),
};

/**
 * Returns a request whose unknown fields call `tell` when a rule reads them. With `mayCopyObject`, a rule may read
 * fields only to copy them. So fields that every object has, such as managedFields, don't call `tell` then. A Pod's
 * fields that plugins fill in from the objects in `assumed`, such as its priority from a PriorityClass, still do.
 */
export const hideUnknownFields = (
  request: AdmissionRequest,
  { phase, mayCopyObject, assumed }: { phase: Phase; mayCopyObject: boolean; assumed: readonly Assumption[] },
  tell: (sentence: string) => void,
): AdmissionRequest => {
  const { object, oldObject, options, operation, resource } = request;
  const isCreation = operation === "CREATE";
  const isService = resource.group === "" && resource.resource === "services";
  const listMissingFields = (value: unknown, isStored: boolean): FieldPath[] => {
    const metadata = ["managedFields", ...(isStored ? ["generation"] : [])].map((field) => ["metadata", field]);
    const all = [...metadata, ...(isService && isStored ? listServiceFields(value) : [])];
    return all.filter((path) => path.reduce<unknown>(getOwn, value) === undefined);
  };
  const isPod = resource.group === "" && resource.resource === "pods" && isCreation;
  const filledIn = isPod ? assumed.flatMap((one) => (one.name ? (filledFromObjects[one.resource] ?? []) : [])) : [];
  // An update gets the generation of the stored object, or that plus 1.
  const lacksGeneration = operation === "UPDATE" && getOwn(toMap(oldObject).metadata, "generation") === undefined;
  const hide = (value: unknown, paths: FieldPath[]) =>
    paths.reduce(
      (all, path) => hideField(all, path, () => tell(`what the API server fills in as ${formatFieldPath(path)}`)),
      value,
    );
  const withoutFilledIn = hide(object, filledIn) as AdmissionRequest["object"];
  if (mayCopyObject) return { ...request, object: withoutFilledIn };
  const missingFields = listMissingFields(object, !isCreation || phase === "validate");
  if (lacksGeneration) missingFields.push(["metadata", "generation"]);
  return {
    ...request,
    object: hide(withoutFilledIn, missingFields) as AdmissionRequest["object"],
    oldObject: hide(oldObject, listMissingFields(oldObject, /* isStored */ true)) as AdmissionRequest["oldObject"],
    options: (getOwn(options, "fieldManager") === undefined
      ? hideField(options, ["fieldManager"], () => tell("which field manager the client names"))
      : options) as AdmissionRequest["options"],
  };
};

/** Returns the fields of a Service that the API server allocates. */
const listServiceFields = (service: unknown): FieldPath[] => {
  const { type, allocateLoadBalancerNodePorts, externalTrafficPolicy, ports } = toMap(toMap(service).spec);
  if (type === "ExternalName") return [];
  const hasNodePorts = type === "NodePort" || (type === "LoadBalancer" && allocateLoadBalancerNodePorts !== false);
  const isLocal = type === "LoadBalancer" && externalTrafficPolicy === "Local";
  const fields = [
    "clusterIP",
    "clusterIPs",
    "ipFamilies",
    "ipFamilyPolicy",
    ...(isLocal ? ["healthCheckNodePort"] : []),
  ];
  return [
    ...fields.map((field) => ["spec", field]),
    ...(hasNodePorts ? toList(ports).map((_, index) => ["spec", "ports", index, "nodePort"]) : []),
  ];
};

/**
 * Returns a copy of a value that calls `onRead` when a rule reads the field at a path, and doesn't list the field among
 * its members. Returns the value itself if it doesn't have the parent of the field.
 */
const hideField = (value: unknown, path: FieldPath, onRead: () => void): unknown => {
  const [step = "", ...rest] = path;
  if (Array.isArray(value)) return value.map((item, index) => (index === step ? hideField(item, rest, onRead) : item));
  if (!isMap(value)) return value;
  const copy: object = { ...value };
  // The spread doesn't copy the getters of fields that were hidden before, because they aren't enumerable.
  for (const name of Object.getOwnPropertyNames(value))
    if (!Object.hasOwn(copy, name))
      Object.defineProperty(copy, name, Object.getOwnPropertyDescriptor(value, name) as PropertyDescriptor);
  const hidden = { get: onRead, enumerable: false, configurable: true };
  if (rest.length === 0) return Object.defineProperty(copy, step, hidden);
  const inner = getOwn(value, step);
  return inner === undefined ? value : Object.assign(copy, { [step]: hideField(inner, rest, onRead) });
};
