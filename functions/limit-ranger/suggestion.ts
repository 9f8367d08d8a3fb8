import type { LimitRangeItem, PersistentVolumeClaim, Pod, ResourceRequirements } from "postern/kubernetes/core/v1";
import { listContainers } from "postern/objects/pod";
import {
  canonicalizeQuantity,
  compareQuantities,
  formatQuantity,
  type Quantity,
  requireQuantity,
} from "postern/objects/quantity";
import { listLimitOffencesOfPod } from "./bounds.ts";

/** Edits a pod so that it is within the bounds of LimitRanges. Returns advice if several edits are possible. */
export const fitPodOrAdvise = (pod: Pod, allBounds: readonly LimitRangeItem[]): string | undefined => {
  const containers = listContainers(pod, ["containers", "initContainers"]).map(({ container }) => container);
  for (const bounds of allBounds.filter(({ type }) => type === "Container"))
    for (const container of containers) fitResources(container, bounds);
  for (const bounds of allBounds.filter(({ type }) => type === "Pod")) {
    const [firstHolder, ...otherHolders] = pod.spec?.resources ? [pod.spec] : containers;
    if (listLimitOffencesOfPod(bounds, pod).length === 0 || !firstHolder) continue;
    if (otherHolders.length > 0)
      return `keep the sum of all containers' requests and limits within these bounds: ${describeBounds(bounds)}`;
    fitResources(firstHolder, bounds);
  }
};

/**
 * Edits a PersistentVolumeClaim so that its storage request is within the bounds of LimitRanges. It doesn't make an
 * existing claim smaller, because the API server refuses that.
 */
export const fitClaimToBounds = (
  { spec }: PersistentVolumeClaim,
  allBounds: readonly LimitRangeItem[],
  oldClaim: PersistentVolumeClaim | null,
): void => {
  let stated: ResourceRequirements = spec?.resources ?? {};
  for (const bounds of allBounds.filter(({ type }) => type === "PersistentVolumeClaim")) {
    // As in upstream, only the request of a claim counts, so the ratio of limit to request doesn't apply.
    const { requests } = clamp(stated, { ...bounds, maxLimitRequestRatio: {} });
    stated = { ...stated, ...(requests && { requests }) };
  }
  const requested = new Map(Object.entries(stated.requests ?? {}));
  const shrinks = Object.entries(oldClaim?.spec?.resources?.requests ?? {}).some(([resource, amount]) => {
    const current = getAmount(requested, resource);
    return current === undefined || isLarger(requireQuantity(amount), current);
  });
  if (spec && stated.requests && !shrinks) spec.resources = { ...spec.resources, requests: stated.requests };
};

const fitResources = (holder: { resources?: ResourceRequirements }, bounds: LimitRangeItem): void => {
  holder.resources = { ...holder.resources, ...clamp(holder.resources ?? {}, bounds) };
};

/** Returns requests and limits that are within bounds, and as near as possible to the stated ones. */
const clamp = (
  stated: ResourceRequirements,
  { min = {}, max = {}, maxLimitRequestRatio: ratios = {} }: LimitRangeItem,
): ResourceRequirements => {
  const [requests, limits] = [
    new Map(Object.entries(stated.requests ?? {})),
    new Map(Object.entries(stated.limits ?? {})),
  ];
  for (const resource of new Set([min, max, ratios].flatMap((bound) => Object.keys(bound)))) {
    const [least, most, ratio] = [min, max, ratios].map((bound) => getAmount(new Map(Object.entries(bound)), resource));
    let [request, limit] = [getAmount(requests, resource), getAmount(limits, resource)];
    if (least) request = request && isLarger(request, least) ? request : least;
    if (least && limit && isLarger(least, limit)) limit = least;
    if (most) limit = limit && isLarger(most, limit) ? limit : most;
    if (most && request && isLarger(request, most)) request = most;
    if (ratio) [request, limit] = [request ?? limit, limit ?? request]; // a ratio needs both: one sets the other
    const smallestRequest = ratio && limit && getSmallestRequest(limit, ratio, resource);
    if (request && smallestRequest && isLarger(smallestRequest, request)) request = smallestRequest;
    if (request) requests.set(resource, formatQuantity(request));
    if (limit) limits.set(resource, formatQuantity(limit));
  }
  return {
    ...(requests.size > 0 && { requests: Object.fromEntries(requests) }),
    ...(limits.size > 0 && { limits: Object.fromEntries(limits) }),
  };
};

const getAmount = (amounts: ReadonlyMap<string, string>, resource: string): Quantity | undefined => {
  const text = amounts.get(resource);
  return text === undefined ? undefined : requireQuantity(text);
};

const isLarger = (left: Quantity, right: Quantity) => compareQuantities(left, right) > 0;

/** Returns the smallest request that a ratio allows for a limit, in whole bytes or thousandths of a CPU. */
const getSmallestRequest = (limit: Quantity, ratio: Quantity, resource: string): Quantity | undefined => {
  if (ratio.nanos <= 0n) return undefined;
  const step = resource === "cpu" ? 1_000_000n : 1_000_000_000n;
  const divisor = ratio.nanos * step;
  const steps = (limit.nanos * 1_000_000_000n + divisor - 1n) / divisor;
  const request = { nanos: steps * step, notation: limit.notation };
  return { ...request, text: canonicalizeQuantity(request) };
};

/** Describes bounds for users: `cpu from 100m up to 2, memory limits to 2 times the requests`. */
const describeBounds = ({ min = {}, max = {}, maxLimitRequestRatio: ratios = {} }: LimitRangeItem): string => {
  const [least, most] = [new Map(Object.entries(min)), new Map(Object.entries(max))];
  const ranges = [...new Set([...least.keys(), ...most.keys()])].map((resource) =>
    [
      resource,
      ...(least.has(resource) ? [`from ${least.get(resource)}`] : []),
      ...(most.has(resource) ? [`up to ${most.get(resource)}`] : []),
    ].join(" "),
  );
  const factors = Object.entries(ratios).map(
    ([resource, ratio]) => `${resource} limits to ${ratio} times the requests`,
  );
  return [...ranges, ...factors].join(", ");
};
