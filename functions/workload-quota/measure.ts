import { isMap, isTextOrNumber, lookUp, toList, toMap } from "postern/json";
import type { Container, Pod } from "postern/kubernetes/core/v1";
import type { RuntimeClass } from "postern/kubernetes/node/v1";
import type { ObjectPlace } from "postern/needs";
import { parseQuantity, type Quantity, requireQuantity, zeroQuantity } from "postern/objects/quantity";
import {
  addAmounts,
  computePodAmounts,
  isPodLevelResource,
  parseAmounts,
  type QuantityByResource,
  sumAmounts,
} from "postern/objects/resources";
import type { CountedKind, PodGroup, RequiredValue } from "./kinds.ts";
import { fillPath, getValue, listWildcardKeys } from "./paths.ts";
import { buildSparkTemplate } from "./spark.ts";

/** What a workload uses: its name for counting objects, the number of its Pods, and requests and limits of all Pods. */
export interface Measure {
  /** The object's name in quotas, such as `count/deployments.apps`. */
  countName: string;
  pods: bigint;
  requests: QuantityByResource;
  limits: QuantityByResource;
}

/** The measure of an object that uses nothing, and doesn't even count as an object. */
export const nothing: Measure = { countName: "", pods: 0n, requests: new Map(), limits: new Map() };

/** Returns the name under which quotas limit the number of objects of a kind, such as `count/deployments.apps`. */
export const getCountName = ({ group, resource }: Pick<CountedKind, "group" | "resource">): string =>
  `count/${resource}${group && `.${group}`}`;

type GetRuntimeClass = (place: ObjectPlace) => Promise<RuntimeClass | undefined>;

/** Returns what a workload uses, or a sentence that says which part of it can't be counted. */
export const measureWorkload = async (
  object: unknown,
  kind: CountedKind,
  getRuntimeClass: GetRuntimeClass,
): Promise<Measure | string> => {
  const countName = getCountName(kind);
  // If an object is being deleted, the objects that it controls are counted separately.
  const isLeaving = isBeingDeleted(object) && !isPodKind(kind);
  if (isSuspended(object, kind) || hasEnded(object, kind) || isLeaving) return { ...nothing, countName };
  let pods = 0n;
  const requests: QuantityByResource[] = [];
  const limits: QuantityByResource[] = [];
  let templates = 0;
  for (const group of kind.pods) {
    const { template, notation: templateNotation } = group;
    const listPath = template.slice(0, template.lastIndexOf("*") + 1);
    for (const keys of listWildcardKeys(object, listPath)) {
      const place = fillPath(template, keys);
      const value = lookUp(object, place)?.value ?? undefined;
      // A template that is no element of a list or map may be absent.
      if (value === undefined && listPath === "") continue;
      if (!isMap(value)) return `${place.join(".")} must be a Pod template`;
      templates++;
      const podCount = countPods(object, group, keys);
      if (typeof podCount === "string") return podCount;
      const podTemplate = templateNotation === "spark" ? buildSparkTemplate(object, value, place) : value;
      if (typeof podTemplate === "string") return podTemplate;
      const pod = await measurePod(podTemplate, place.join("."), getRuntimeClass);
      if (typeof pod === "string") return pod;
      const multiply = (amounts: QuantityByResource) =>
        new Map([...amounts].map(([name, { nanos, notation }]) => [name, { nanos: nanos * podCount, notation }]));
      pods += podCount;
      requests.push(multiply(pod.requests));
      limits.push(multiply(pod.limits));
    }
  }
  // An empty list of templates is valid, such as `tasks: []` in a Volcano job. A missing list is not valid.
  const hasTemplateList = ({ template }: PodGroup) =>
    template.includes("*") && getValue(object, template.replace(/\.?\*.*/, "")) !== undefined;
  if (templates === 0 && !kind.mayHaveNoTemplate && !kind.pods.some(hasTemplateList))
    return `${kind.pods.map(({ template }) => template).join(" or ")} must be a Pod template`;
  return { countName, pods, requests: sumAmounts(requests), limits: sumAmounts(limits) };
};

/** Reports whether an object fulfils all of these conditions. */
export const hasValues = (object: unknown, required: readonly RequiredValue[]): boolean =>
  required.every(({ path, values }) => values.includes(getValue(object, path)));

/** Reports whether an object was deleted, but still exists because of finalizers, dependents or a grace period. */
export const isBeingDeleted = (object: unknown): boolean => getValue(object, "metadata.deletionTimestamp") != null;

export const isPodKind = ({ group, resource }: CountedKind): boolean => group === "" && resource === "pods";

const isSuspended = (object: unknown, { suspended }: CountedKind): boolean =>
  suspended !== undefined && hasValues(object, suspended);

/** Reports whether an object has ended: it has no Pods any more, and will make none. */
export const hasEnded = (object: unknown, { phase, conditions = [], endsOnlyIf = [] }: CountedKind): boolean =>
  hasValues(object, endsOnlyIf) &&
  ((phase?.ended.some((ended) => ended === getValue(object, phase.path)) ?? false) ||
    toList(getValue(object, "status.conditions"))
      .map(toMap)
      .some(({ type, status }) => status === "True" && conditions.some((condition) => condition === type)));

/**
 * Returns the number of Pods of a group: the product of its `factors`; or a sentence about an invalid number.
 * `minimum` bounds the first number: a Ray worker group has at least `minReplicas` × `numOfHosts` Pods. `maximum`
 * bounds the last: each of a JobSet's Jobs has at most `completions` Pods.
 */
const countPods = (
  object: unknown,
  { factors, minimum, maximum }: PodGroup,
  keys: readonly (string | number)[],
): bigint | string => {
  let pods = 1n;
  const getBound = (path: string | undefined) => {
    const bound = path === undefined ? undefined : lookUp(object, fillPath(path, keys))?.value;
    return isReplicaCount(bound) ? bound : undefined;
  };
  for (const [index, path] of factors.entries()) {
    const place = fillPath(path, keys);
    const value = lookUp(object, place)?.value ?? 1;
    if (!isReplicaCount(value))
      return `${place.join(".")} must be a whole number from 0 to 2147483647, not ${JSON.stringify(value)}`;
    const [isFirst, isLast] = [index === 0, index === factors.length - 1];
    const raised = isFirst ? Math.max(value, getBound(minimum) ?? 0) : value;
    pods *= BigInt(isLast ? Math.min(raised, getBound(maximum) ?? raised) : raised);
  }
  return pods;
};

const isReplicaCount = (value: unknown): value is number =>
  Number.isInteger(value) && Number(value) >= 0 && Number(value) < 2 ** 31;

/** Returns the requests and limits of one Pod of a template, as the scheduler counts them. */
const measurePod = async (
  template: unknown,
  path: string,
  getRuntimeClass: GetRuntimeClass,
): Promise<Pick<Measure, "requests" | "limits"> | string> => {
  const spec = toMap(toMap(template).spec);
  const at = path === "" ? "spec" : `${path}.spec`;
  const faults: string[] = [];
  const readAmounts = (value: unknown, place: string): Record<string, string> => {
    const entries = Object.entries(toMap(value)).map(([name, written]) => {
      const amount = isTextOrNumber(written) ? parseQuantity(written) : undefined;
      if (amount && amount.nanos >= 0n) return [name, String(written)];
      faults.push(`${place}.${name} must be a quantity from 0 such as 500m, not ${JSON.stringify(written)}`);
      return [name, "0"];
    });
    return Object.fromEntries(entries);
  };
  const readResources = (value: unknown, place: string) => {
    const { requests, limits } = toMap(value);
    return {
      requests: readAmounts(requests, `${place}.resources.requests`),
      limits: readAmounts(limits, `${place}.resources.limits`),
    };
  };
  const readContainers = (name: "containers" | "initContainers"): Container[] =>
    toList(spec[name]).map((value, index) => {
      const { restartPolicy, resources } = toMap(value);
      const { requests, limits } = readResources(resources, `${at}.${name}[${index}]`);
      const sidecarPolicy = restartPolicy === "Always" && { restartPolicy };
      // The API server sets missing requests of a Pod to its limits, but not in a template.
      return { name: "", ...sidecarPolicy, resources: { limits, requests: { ...limits, ...requests } } };
    });
  const resources = readResources(spec.resources, at);
  const pod: Pod = {
    spec: { initContainers: readContainers("initContainers"), containers: readContainers("containers"), resources },
  };
  const className = spec.runtimeClassName;
  const runtimeClass =
    spec.overhead == null && typeof className === "string" ? await getRuntimeClass({ name: className }) : undefined;
  const overhead = readAmounts(spec.overhead ?? runtimeClass?.overhead?.podFixed, `${at}.overhead`);
  if (faults.length > 0) return faults.slice(0, 3).join("; ");

  const requests = computePodAmounts(pod, "requests");
  // If neither the Pod nor a container requests a resource, the whole Pod's limit counts as the request.
  const requestsFromLimits = [...parseAmounts(resources.limits)].filter(
    ([name]) => isPodLevelResource(name) && !requests.has(name),
  );
  const limits = computePodAmounts(pod, "limits");
  const added = parseAmounts(overhead);
  return {
    requests: addAmounts(new Map([...requests, ...requestsFromLimits]), added),
    limits: addAmounts(limits, new Map([...added].filter(([name]) => limits.has(name)))),
  };
};

const standardResources = ["cpu", "memory", "ephemeral-storage"];
const isHugePages = (name: string) => name.startsWith("hugepages-");

/** Parses a name in a quota's `hard`: `requests.cpu` becomes `["requests", "cpu"]`. Undefined for an invalid name. */
const parseName = (name: string): ["count" | "pods" | "requests" | "limits", string] | undefined => {
  if (name === "pods") return ["pods", ""];
  if (/^count\/[a-z0-9]+(\.[a-z0-9.-]+)?$/.test(name)) return ["count", name];
  const [, part, resource = ""] = /^(requests|limits)\.(.+)$/.exec(name) ?? [];
  if (part === undefined) return standardResources.includes(name) || isHugePages(name) ? ["requests", name] : undefined;
  if (standardResources.includes(resource)) return [part === "limits" ? "limits" : "requests", resource];
  const isRequest = isHugePages(resource) || /^[a-z0-9][a-z0-9.-]*\/[A-Za-z0-9][A-Za-z0-9._-]*$/.test(resource);
  return part === "requests" && isRequest ? ["requests", resource] : undefined;
};

/** Reports whether a name is valid in a quota's `hard`. */
export const isQuotaName = (name: string): boolean => parseName(name) !== undefined;

/** Returns the amount that a workload uses of a name in a quota's `hard`, such as `requests.cpu`. */
export const getAmount = (measure: Measure, name: string): Quantity => {
  const parsed = parseName(name);
  if (parsed === undefined) return zeroQuantity;
  const [part, resource] = parsed;
  if (part === "count") return requireQuantity(measure.countName !== "" && measure.countName === resource ? "1" : "0");
  if (part === "pods") return requireQuantity(`${measure.pods}`);
  return measure[part].get(resource) ?? zeroQuantity;
};

/** Reports whether a measure is larger than another one in at least one amount. */
export const isMore = (one: Measure, other: Measure): boolean =>
  one.pods > other.pods ||
  // A measure counts 1 for its `countName`, such as `count/pods`, and 0 for other names. The empty measure has none.
  (one.countName !== "" && one.countName !== other.countName) ||
  (["requests", "limits"] as const).some((part) =>
    [...one[part]].some(([name, { nanos }]) => nanos > (other[part].get(name) ?? zeroQuantity).nanos),
  );
