import { isSame, type JsonMap, toMap } from "#lib/json.ts";
import type { Pod } from "#lib/kubernetes/core/v1.ts";
import { parseImage } from "#lib/objects/image.ts";
import { compareQuantities } from "#lib/objects/quantity.ts";
import { computePeakUse, parseAmounts, type QuantityByResource } from "#lib/objects/resources.ts";
import type { Since } from "#lib/since.ts";
import { formatRoundedResourceAmount } from "./scalars.ts";

/**
 * Fills in the API server's defaults in decoded fields, in place. `original` has the fields before decoding, which
 * drops empty lists and rounds amounts.
 */
export type Defaulter = (fields: JsonMap, original: JsonMap) => void;

/** The functions that fill in defaults, by the Go type of the decoded fields. */
export type Defaulters = Readonly<Record<string, Defaulter | undefined>>;

/** Returns a member that is a map; for an absent member, an empty map that isn't added to `fields`. */
export const getMember = (fields: JsonMap, member: string): JsonMap => (fields[member] ?? {}) as JsonMap;
export const getList = (fields: JsonMap, member: string): JsonMap[] => (fields[member] ?? []) as JsonMap[];

/**
 * Defaults of Pods and their parts that depend on other fields, by the minor that changed them: the newest entry of a
 * type replaces the older ones. Fixed values are in presets.json.
 */
export const podDefaulters: Since<Defaulters> = {
  "1.0": {
    Container: (container) => setContainerDefaults(container),
    EphemeralContainer: (container) => setContainerDefaults(container),
    Volume: (volume) => {
      if (Object.keys(volume).every((member) => member === "name")) volume.emptyDir = {};
    },
    Pod: (pod) => setPodDefaults(pod),
  },
  "1.34": {
    Pod: (pod, original) => {
      setPodDefaults(pod);
      completePodResources(getMember(pod, "spec"), getMember(original, "spec"));
    },
  },
  "1.35": {
    ImageVolumeSource: (source) => {
      source.pullPolicy ??= choosePullPolicy(source.reference);
    },
  },
  "1.37": {
    // Pod-level resources are completed later, by `podPreparations`.
    Pod: (pod) => {
      setPodDefaults(pod);
      limitGracePeriod(pod);
    },
    PodSpec: (spec) => copyServiceAccount(spec),
    PodStatus: (status) => copyPodIp(status),
  },
};

/** Effects of the conversion of Pods and their parts to the API server's internal version and back. */
export const podConversions: Since<Defaulters> = {
  "1.0": {
    Pod: (pod) => {
      removeOldAnnotations(pod);
      limitGracePeriod(pod);
    },
    PodTemplateSpec: (template) => removeOldAnnotations(template),
    PodSpec: (spec) => copyServiceAccount(spec),
    PodStatus: (status) => copyPodIp(status),
  },
  // Since 1.37, `podDefaulters` and `podPreparations` make these changes.
  "1.37": { Pod: undefined, PodTemplateSpec: undefined, PodSpec: undefined, PodStatus: undefined },
};

const deletePodResources = (pod: JsonMap): void => {
  delete getMember(pod, "spec").resources;
};

/** Changes a Pod or a Pod template in place. */
export type Preparation = (object: JsonMap) => void;

/** What the API server changes in Pods and templates after mutating webhooks and before validating ones. */
export const podPreparations: Since<Readonly<Record<string, Preparation | undefined>>> = {
  // Before 1.34, the feature gate of pod-level resources (`spec.resources`) is off, so the field is dropped. AppArmor
  // profiles are also copied from fields to annotations, for older kubelets.
  "1.0": {
    Pod: (pod) => {
      deletePodResources(pod);
      copyAppArmorFieldsToAnnotations(pod);
      copyAppArmorAnnotationsToFields(pod);
    },
    PodTemplateSpec: deletePodResources,
  },
  "1.34": { Pod: (pod) => copyAppArmorAnnotationsToFields(pod), PodTemplateSpec: undefined },
  "1.37": {
    Pod: (pod) => {
      removeOldAnnotations(pod);
      copyAppArmorAnnotationsToFields(pod);
      completeAllPodResources(getMember(pod, "spec"));
    },
    PodTemplateSpec: (template) => removeOldAnnotations(template),
  },
};

/** The deprecated annotation of a container's AppArmor profile, without the container's name. */
const appArmorAnnotation = "container.apparmor.security.beta.kubernetes.io/";

/** Returns the containers whose annotations and fields may state AppArmor profiles: all, but none on Windows. */
const listAppArmorContainers = (spec: JsonMap): JsonMap[] =>
  getMember(spec, "os").name === "windows"
    ? []
    : ["initContainers", "containers", "ephemeralContainers"].flatMap((list) => getList(spec, list));

const getAppArmorProfile = (fields: JsonMap) => getMember(fields, "securityContext").appArmorProfile;

/** Copies AppArmor profiles from annotations to containers without a profile, unless the pod has the same profile. */
const copyAppArmorAnnotationsToFields = (pod: JsonMap): void => {
  const annotations = getMember(getMember(pod, "metadata"), "annotations");
  if (Object.keys(annotations).length === 0) return;
  const spec = getMember(pod, "spec");
  for (const container of listAppArmorContainers(spec)) {
    const annotation = annotations[`${appArmorAnnotation}${container.name}`];
    const profile = annotation === undefined ? undefined : parseAppArmorAnnotation(String(annotation));
    if (profile && !getAppArmorProfile(container) && !isSame(profile, getAppArmorProfile(spec)))
      container.securityContext = { ...getMember(container, "securityContext"), appArmorProfile: profile };
  }
};

const parseAppArmorAnnotation = (text: string): JsonMap | undefined => {
  if (text === "unconfined") return { type: "Unconfined" };
  if (text === "runtime/default") return { type: "RuntimeDefault" };
  const [, localhostProfile = ""] = /^localhost\/(.*)$/s.exec(text) ?? [];
  const isValid = localhostProfile.trim() === localhostProfile && Buffer.byteLength(localhostProfile) <= 4095;
  return localhostProfile && isValid ? { type: "Localhost", localhostProfile } : undefined;
};

/** Adds an annotation with the AppArmor profile of each container that has no such annotation yet. */
const copyAppArmorFieldsToAnnotations = (pod: JsonMap): void => {
  const spec = getMember(pod, "spec");
  const metadata = getMember(pod, "metadata");
  const added = listAppArmorContainers(spec).flatMap((container) => {
    const text = formatAppArmorProfile(toMap(getAppArmorProfile(container) ?? getAppArmorProfile(spec)));
    return text === undefined ? [] : [[`${appArmorAnnotation}${container.name}`, text]];
  });
  if (added.length > 0) metadata.annotations = { ...Object.fromEntries(added), ...getMember(metadata, "annotations") };
};

const formatAppArmorProfile = ({ type, localhostProfile }: JsonMap): string | undefined => {
  if (type === "Unconfined") return "unconfined";
  if (type === "RuntimeDefault") return "runtime/default";
  return type === "Localhost" && typeof localhostProfile === "string" ? `localhost/${localhostProfile}` : undefined;
};

/** Sets the defaults of a Pod that depend on its other fields, such as host ports with hostNetwork. */
const setPodDefaults = (pod: JsonMap): void => {
  const spec = getMember(pod, "spec");
  const containers = [...getList(spec, "initContainers"), ...getList(spec, "containers")];
  for (const container of containers) defaultRequests(getMember(container, "resources"));
  spec.enableServiceLinks ??= true;
  if (spec.hostNetwork)
    for (const port of containers.flatMap((container) => getList(container, "ports")))
      if (port.containerPort) port.hostPort ??= port.containerPort;
};

const limitGracePeriod = (pod: JsonMap): void => {
  const spec = getMember(pod, "spec");
  if (Number(spec.terminationGracePeriodSeconds) < 0) spec.terminationGracePeriodSeconds = 1;
};

/** Keeps serviceAccount and serviceAccountName the same: one is the older name of the other. */
const copyServiceAccount = (spec: JsonMap): void => {
  const account = spec.serviceAccountName ?? spec.serviceAccount;
  if (account !== undefined) Object.assign(spec, { serviceAccountName: account, serviceAccount: account });
};

/** Repeats the first of `podIPs` in `podIP`; if they differ, `podIP` wins. */
const copyPodIp = (status: JsonMap): void => {
  const [first] = getList(status, "podIPs");
  if (status.podIP !== undefined && first?.ip !== status.podIP) status.podIPs = [{ ip: status.podIP }];
  else if (first?.ip) status.podIP = first.ip;
};

const getAmounts = (fields: JsonMap, member: string): Record<string, string> =>
  (fields[member] ?? {}) as Record<string, string>;

const setContainerDefaults = (container: JsonMap): void => {
  container.imagePullPolicy ??= choosePullPolicy(container.image);
  container.terminationMessagePath ??= "/dev/termination-log";
  container.terminationMessagePolicy ??= "File";
};

/** Returns the default imagePullPolicy for an image; IfNotPresent if the image reference can't be parsed. */
const choosePullPolicy = (reference: unknown): string => {
  const text = String(reference ?? "");
  // Most images have another tag, or a digest, so that they needn't be parsed.
  if (/[:@][^/]*$/.test(text) && !text.includes(":latest")) return "IfNotPresent";
  const image = parseImage(text);
  return image && (image.tag ?? (image.digest ? "" : "latest")) === "latest" ? "Always" : "IfNotPresent";
};

/** Annotations that fields have replaced; the API server drops them. */
const oldAnnotations = ["alpha", "beta"].flatMap((stage) =>
  ["init-containers", "init-container-statuses"].map((name) => `pod.${stage}.kubernetes.io/${name}`),
);

const removeOldAnnotations = (object: JsonMap): void => {
  const metadata = getMember(object, "metadata");
  if (metadata.annotations === undefined) return;
  const annotations = getMember(metadata, "annotations");
  for (const key of oldAnnotations) delete annotations[key];
  if (Object.keys(annotations).length === 0) delete metadata.annotations;
};

const defaultRequests = (resources: JsonMap): void => {
  if (resources.limits !== undefined)
    resources.requests = { ...getMember(resources, "limits"), ...getMember(resources, "requests") };
};

const isHuge = (resource: string) => resource.startsWith("hugepages-");
const isCpuOrMemory = (resource: string) => resource === "cpu" || resource === "memory";
/** Reports whether `spec.resources` of a Pod may have a resource. */
const isPodLevelResource = (resource: string) => isCpuOrMemory(resource) || isHuge(resource);

/**
 * Completes pod-level resources (`spec.resources`) with the containers' sums. First adds limits of huge pages. If there
 * are pod-level limits after this, adds the missing requests. `original` is the spec before amounts were rounded.
 */
const completePodResources = (spec: JsonMap, original: JsonMap): void => {
  const resources = getMember(spec, "resources");
  addHugePageLimits(resources, original);
  if (Object.keys(getAmounts(resources, "limits")).length > 0) addRequests(resources, original);
};

/**
 * Completes the limits and requests of a whole Pod (`spec.resources`) as API servers do since 1.37: adds limits of huge
 * pages, then missing requests. Last, a resource that has a request, but no limit, gets a limit if each container has
 * one for it: the sum of the containers' limits, or the request if that is larger.
 */
const completeAllPodResources = (spec: JsonMap): void => {
  const resources = getMember(spec, "resources");
  if (Object.keys({ ...getAmounts(resources, "limits"), ...getAmounts(resources, "requests") }).length === 0) return;
  addHugePageLimits(resources, spec);
  addRequests(resources, spec);
  const containers = [...getList(spec, "initContainers"), ...getList(spec, "containers")];
  const [limits, requests] = [getAmounts(resources, "limits"), getAmounts(resources, "requests")];
  const sums = filterAmounts(
    sumContainers(spec, "limits"),
    (name) =>
      isPodLevelResource(name) &&
      Object.hasOwn(requests, name) &&
      !Object.hasOwn(limits, name) &&
      containers.every((container) => Object.hasOwn(getAmounts(getMember(container, "resources"), "limits"), name)),
  );
  const added = Object.entries(sums).map(([name, sum]) => [name, maximizeAmount(sum, requests[name])]);
  if (added.length > 0) resources.limits = { ...limits, ...Object.fromEntries(added) };
};

const maximizeAmount = (amount: string, other = "0"): string => (compareQuantities(other, amount) > 0 ? other : amount);

/** Adds pod-level limits of huge pages to a pod that has pod-level limits or requests. */
const addHugePageLimits = (resources: JsonMap, podSpec: JsonMap): void => {
  const [limits, requests] = [getAmounts(resources, "limits"), getAmounts(resources, "requests")];
  if (Object.keys(limits).length + Object.keys(requests).length === 0) return;
  const limited = filterAmounts(
    sumContainers(podSpec, "limits"),
    (resource) => isHuge(resource) && !Object.hasOwn(requests, resource),
  );
  const all = { ...limited, ...limits };
  if (Object.keys(all).length > 0) resources.limits = all;
};

/** Adds missing pod-level requests: the sums of the containers' requests, or else the pod-level limits. */
const addRequests = (resources: JsonMap, podSpec: JsonMap): void => {
  // A request of huge pages is always its limit, so it needs no sum.
  const sums = filterAmounts(sumContainers(podSpec, "requests"), isCpuOrMemory);
  const podLimits = Object.entries(getAmounts(resources, "limits")).filter(([name]) => isPodLevelResource(name));
  const requests = { ...Object.fromEntries(podLimits), ...sums, ...getAmounts(resources, "requests") };
  if (Object.keys(requests).length > 0) resources.requests = requests;
};

const filterAmounts = (amounts: QuantityByResource, isKept: (resource: string) => boolean): Record<string, string> =>
  Object.fromEntries(
    [...amounts].filter(([name]) => isKept(name)).map(([name, amount]) => [name, formatRoundedResourceAmount(amount)]),
  );

/** Sums the containers' requests or limits as `computePeakUse` does; a missing request counts as the limit. */
const sumContainers = (spec: JsonMap, kind: "requests" | "limits"): QuantityByResource => {
  // A null container counts as an empty one.
  const [containers, initContainers] = ["containers", "initContainers"].map((list) => getList(spec, list).map(toMap));
  const pod: Pod = toMap({ spec: { containers, initContainers } });
  return computePeakUse(pod, ({ resources }) => {
    const [limits, requests] = [getAmounts(toMap(resources), "limits"), getAmounts(toMap(resources), "requests")];
    const amounts = Object.entries(kind === "limits" ? limits : { ...limits, ...requests });
    return parseAmounts(Object.fromEntries(amounts.map(([name, amount]) => [name, String(amount ?? 0).trim()])));
  });
};
