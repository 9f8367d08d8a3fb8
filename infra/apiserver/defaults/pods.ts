import type { JsonMap } from "#lib/json.ts";
import type { Pod } from "#lib/kubernetes/core/v1.ts";
import { parseImage } from "#lib/objects/image.ts";
import { computePeakUse, parseAmounts, type QuantityByResource } from "#lib/objects/resources.ts";
import { formatRoundedResourceAmount } from "./scalars.ts";

/**
 * Fills in the API server's defaults in decoded fields, in place. Only in the undecoded `original` do an absent list
 * and an empty list differ.
 */
type Defaulter = (fields: JsonMap, original: JsonMap) => void;

/** The functions that fill in defaults, by the Go type of the decoded fields. */
export type Defaulters = Readonly<Record<string, Defaulter | undefined>>;

/** Returns a member that is a map; for an absent member, an empty map that isn't added to `fields`. */
export const getMember = (fields: JsonMap, member: string): JsonMap => (fields[member] ?? {}) as JsonMap;
export const getList = (fields: JsonMap, member: string): JsonMap[] => (fields[member] ?? []) as JsonMap[];

/** Defaults of Pods and their parts that depend on other fields; fixed values are in presets.json. */
export const podDefaulters: Defaulters = {
  Container: (container) => finishContainer(container),
  EphemeralContainer: (container) => finishContainer(container),
  ImageVolumeSource: (source) => {
    source.pullPolicy ??= choosePullPolicy(source.reference);
  },
  Volume: (volume) => {
    if (Object.keys(volume).every((member) => member === "name")) volume.emptyDir = {};
  },
  PodSpec: (spec) => {
    // serviceAccount is the older name of serviceAccountName.
    const account = spec.serviceAccountName ?? spec.serviceAccount;
    if (account !== undefined) Object.assign(spec, { serviceAccountName: account, serviceAccount: account });
  },
  PodTemplateSpec: (template) => removeOldAnnotations(template),
  Pod: (pod, original) => {
    removeOldAnnotations(pod);
    const spec = getMember(pod, "spec");
    const containers = [...getList(spec, "initContainers"), ...getList(spec, "containers")];
    for (const container of containers) defaultRequests(getMember(container, "resources"));
    completePodResources(spec, getMember(original, "spec"));
    spec.enableServiceLinks ??= true;
    if (Number(spec.terminationGracePeriodSeconds) < 0) spec.terminationGracePeriodSeconds = 1;
    if (spec.hostNetwork)
      for (const port of containers.flatMap((container) => getList(container, "ports")))
        if (port.containerPort) port.hostPort ??= port.containerPort;
  },
};

const getAmounts = (fields: JsonMap, member: string): Record<string, string> =>
  (fields[member] ?? {}) as Record<string, string>;

const finishContainer = (container: JsonMap): void => {
  container.imagePullPolicy ??= choosePullPolicy(container.image);
  container.terminationMessagePath ??= "/dev/termination-log";
  container.terminationMessagePolicy ??= "File";
};

/** Returns the default imagePullPolicy for an image; IfNotPresent if the image reference can't be parsed. */
const choosePullPolicy = (reference: unknown): string => {
  const image = parseImage(String(reference ?? ""));
  return image && (image.tag ?? (image.digest ? "" : "latest")) === "latest" ? "Always" : "IfNotPresent";
};

/** Annotations that fields have replaced; the API server drops them. */
const oldAnnotations = ["alpha", "beta"].flatMap((stage) =>
  ["init-containers", "init-container-statuses"].map((name) => `pod.${stage}.kubernetes.io/${name}`),
);

const removeOldAnnotations = (object: JsonMap): void => {
  const metadata = getMember(object, "metadata");
  const annotations = getMember(metadata, "annotations");
  for (const key of oldAnnotations) delete annotations[key];
  if (Object.keys(annotations).length === 0) delete metadata.annotations;
};

const defaultRequests = (resources: JsonMap): void => {
  if (resources.limits !== undefined)
    resources.requests = { ...getMember(resources, "limits"), ...getMember(resources, "requests") };
};

const isHuge = (resource: string) => resource.startsWith("hugepages-");
const isShared = (resource: string) => resource === "cpu" || resource === "memory" || isHuge(resource);

/**
 * Adds missing pod-level limits and requests (`spec.resources`) to a pod that sets some of them: the sums of its
 * containers. `original` has the
 * amounts before rounding.
 */
const completePodResources = (spec: JsonMap, original: JsonMap): void => {
  const resources = getMember(spec, "resources");
  const [limits, requests] = [getAmounts(resources, "limits"), getAmounts(resources, "requests")];
  if (Object.keys(limits).length + Object.keys(requests).length === 0) return;

  const limited = formatAmounts(
    sumContainers(original, "limits"),
    (resource) => isHuge(resource) && !Object.hasOwn(requests, resource),
  );
  const allLimits = { ...limited, ...limits };
  if (Object.keys(allLimits).length === 0) return;
  resources.limits = allLimits;

  const requested = formatAmounts(
    sumContainers(original, "requests"),
    (resource) => resource === "cpu" || resource === "memory",
  );
  const limitsAsked = Object.entries(allLimits).filter(([resource]) => isShared(resource));
  const allRequests = { ...Object.fromEntries(limitsAsked), ...requested, ...requests };
  if (Object.keys(allRequests).length > 0) resources.requests = allRequests;
};

const formatAmounts = (amounts: QuantityByResource, isMeant: (resource: string) => boolean): Record<string, string> =>
  Object.fromEntries(
    [...amounts].filter(([name]) => isMeant(name)).map(([name, amount]) => [name, formatRoundedResourceAmount(amount)]),
  );

/** Sums the containers' requests or limits as `computePeakUse` does; a missing request counts as the limit. */
const sumContainers = (spec: JsonMap, kind: "requests" | "limits"): QuantityByResource => {
  // A null container counts as an empty one.
  const [containers, initContainers] = ["containers", "initContainers"].map((list) => getList(spec, list).map(Object));
  const pod: Pod = Object({ spec: { containers, initContainers } });
  return computePeakUse(pod, ({ resources }) => {
    const { limits, requests }: Record<string, JsonMap | null | undefined> = Object(resources);
    const amounts = Object.entries(kind === "limits" ? (limits ?? {}) : { ...limits, ...requests });
    return parseAmounts(Object.fromEntries(amounts.map(([name, amount]) => [name, String(amount ?? 0).trim()])));
  });
};
