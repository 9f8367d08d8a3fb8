import { getOwn, isMap, isObject } from "#lib/json.ts";
import type { KubernetesObject } from "#lib/review.ts";
import { mergeSince } from "#lib/since.ts";
import { type Preparation, podConversions, podPreparations } from "./pods.ts";
import { type DecodingReport, findKubernetesTypeDecoder, type ReadingStep } from "./typed-reading.ts";

/** An object after decoding and defaulting, with the unknown fields and the errors that decoding found. */
export interface DefaultedObject extends Omit<DecodingReport, "trail"> {
  object: KubernetesObject;
  /** True if the defaults of the object's kind are known. */
  isKnownKind: boolean;
}

/**
 * Returns a decoded copy of an object, with the API server's defaults of a minor of Kubernetes or of the newest one; an
 * object of an unknown kind, or one that the API server couldn't decode, as it is. `step` is "request" for an object in
 * a request, or "patch" for one that a webhook patched, which gets fewer defaults.
 */
export const fillDefaults = (
  object: KubernetesObject,
  kubernetes?: string,
  step: ReadingStep = "request",
): DefaultedObject => {
  const reading: DecodingReport = { trail: [], unknownFields: [], decodingErrors: [] };
  const { unknownFields, decodingErrors } = reading;
  if (minorOfDefaults.get(object) === String(kubernetes))
    return { object, isKnownKind: true, unknownFields, decodingErrors };
  const filled = findDecoder(object, kubernetes, step)?.read(object, reading) as KubernetesObject | undefined;
  const isKnownKind = filled !== undefined;
  if (decodingErrors.length > 0 || !isKnownKind) return { object, isKnownKind, unknownFields, decodingErrors };
  // A patched object may still lack some defaults. A Pod lacks none if the conversion to the internal version sets none.
  const isComplete = step === "request" || (filled.kind === "Pod" && !mergeSince(podConversions, kubernetes).Pod);
  if (isComplete) minorOfDefaults.set(filled, String(kubernetes));
  return { object: filled, isKnownKind, unknownFields, decodingErrors };
};

/** Reports whether `fillDefaults` knows the kind of an object. */
export const hasKnownDefaults = (object: KubernetesObject, kubernetes?: string): boolean =>
  findDecoder(object, kubernetes, "request") !== undefined;

/**
 * The objects that `fillDefaults` returned with all their defaults, and the minor version of Kubernetes whose defaults
 * these are. Such an object must not be changed.
 */
const minorOfDefaults = new WeakMap<KubernetesObject, string>();

const findDecoder = ({ apiVersion, kind }: KubernetesObject, kubernetes: string | undefined, step: ReadingStep) =>
  typeof apiVersion === "string" && typeof kind === "string"
    ? findKubernetesTypeDecoder(apiVersion, kind, kubernetes, step)
    : undefined;

/**
 * Returns a defaulted object as validating webhooks see it. Between mutating and validating webhooks, an API server
 * changes fields of Pods and pod templates, by its minor of Kubernetes. Custom resources and objects of other kinds
 * without known defaults stay as they are.
 */
export const prepareForStorage = (object: KubernetesObject, kubernetes?: string): KubernetesObject => {
  const { Pod, PodTemplateSpec } = mergeSince(podPreparations, kubernetes);
  const prepare = object.kind === "Pod" ? Pod : PodTemplateSpec;
  if (prepare === undefined || !hasKnownDefaults(object, kubernetes)) return object;
  const path = object.kind === "Pod" ? [] : (templatePaths.get(object.kind) ?? ["spec", "template"]);
  return preparePart(object, path, prepare) as KubernetesObject;
};

/**
 * Returns an object that a compiled-in plugin has changed, as the next webhook gets it: the conversion from the
 * internal version sets both fields with the name of a Pod's ServiceAccount, `serviceAccount` and `serviceAccountName`.
 */
export const convertFromInternal = (object: unknown, kubernetes?: string): unknown => {
  const { PodSpec: setBothNames } = mergeSince(podConversions, kubernetes);
  if (!isMap(object) || object.kind !== "Pod" || !isMap(object.spec) || setBothNames === undefined) return object;
  const spec = { ...object.spec };
  setBothNames(spec, object.spec);
  return { ...object, spec };
};

/** Returns a value with the prepared Pod or Pod template at a path. All else is shared. */
const preparePart = (value: unknown, [step, ...rest]: string[], prepare: Preparation): unknown => {
  if (!isMap(value)) return value;
  if (step !== undefined) {
    const inner = getOwn(value, step);
    return isMap(inner) ? { ...value, [step]: preparePart(inner, rest, prepare) } : value;
  }
  const part = { ...value };
  for (const [member, changed] of Object.entries(fieldsToCopy))
    if (isMap(part[member])) {
      const copy = { ...part[member] };
      for (const name of changed) if (isObject(copy[name])) copy[name] = copyElements(copy[name]);
      part[member] = copy;
    }
  prepare(part);
  return part;
};

/** The fields that `podPreparations` change. They are copied first, so that the given object stays as it is. */
const fieldsToCopy = {
  metadata: ["annotations"],
  spec: ["resources", "initContainers", "containers", "ephemeralContainers"],
};

const copyElements = (value: object): unknown =>
  Array.isArray(value) ? value.map((element) => (isMap(element) ? { ...element } : element)) : { ...value };

/** The places of pod templates in the built-in kinds that don't have them in `spec.template`. */
const templatePaths = new Map<string | undefined, string[]>([
  ["PodTemplate", ["template"]],
  ["CronJob", ["spec", "jobTemplate", "spec", "template"]],
]);
