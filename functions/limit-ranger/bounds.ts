import type { LimitRangeItem, PersistentVolumeClaim, Pod } from "postern/kubernetes/core/v1";
import { listContainers } from "postern/objects/pod";
import {
  formatQuantity,
  type Quantity,
  roundToUnits,
  roundUpToThousandths,
  zeroQuantity,
} from "postern/objects/quantity";
import { computePodAmounts, parseAmounts, type QuantityByResource } from "postern/objects/resources";

/** Returns sentences about the bounds of a LimitRange that a pod breaks, in upstream's words. */
export const listLimitOffencesOfPod = (bounds: LimitRangeItem, pod: Pod): string[] => {
  if (bounds.type === "Pod")
    return listOffences(bounds, {
      requests: computePodAmounts(pod, "requests", isCpuOrMemory),
      limits: computePodAmounts(pod, "limits", isCpuOrMemory),
    });
  if (bounds.type !== "Container") return [];
  return listContainers(pod, ["containers", "initContainers"]).flatMap(({ container: { resources } }) =>
    listOffences(bounds, { requests: parseAmounts(resources?.requests), limits: parseAmounts(resources?.limits) }),
  );
};

/**
 * Returns the bounds of a LimitRange that a PersistentVolumeClaim breaks, in upstream's words. Only the claim's
 * request counts, not its limit.
 */
export const listClaimOffences = (bounds: LimitRangeItem, { spec }: PersistentVolumeClaim): string[] => {
  if (bounds.type !== "PersistentVolumeClaim") return [];
  const { maxLimitRequestRatio: _, ...ofRequests } = bounds;
  return listOffences(ofRequests, { requests: parseAmounts(spec?.resources?.requests), limits: new Map() });
};

/** Reports whether the pod-level amounts of a resource count. As in kube-apiserver's plugin, huge pages don't count. */
const isCpuOrMemory = (resource: string) => resource === "cpu" || resource === "memory";

/** The amounts of a pod, container or claim that are compared with one bound of an item in a LimitRange. */
interface AmountSet {
  resource: string;
  /** The type of the item: Pod, Container or PersistentVolumeClaim. */
  type: string;
  /** The item's minimum, maximum, or largest ratio of limit to request. */
  bound: Quantity;
  request: Quantity | undefined;
  limit: Quantity | undefined;
}

/** Returns how amounts break a LimitRange, such as "maximum cpu usage per Pod is 1, but limit is 2". */
const listOffences = (
  { type, min, max, maxLimitRequestRatio }: LimitRangeItem,
  { requests, limits }: { requests: QuantityByResource; limits: QuantityByResource },
): string[] => {
  const compare = (
    bounds: Record<string, string> | undefined,
    describeOffence: (amounts: AmountSet) => string | undefined,
  ) =>
    [...parseAmounts(bounds)]
      .sort(([left], [right]) => (left < right ? -1 : 1))
      .flatMap(
        ([resource, bound]) =>
          describeOffence({ resource, type, bound, request: requests.get(resource), limit: limits.get(resource) }) ??
          [],
      );
  return [...compare(min, checkMinimum), ...compare(max, checkMaximum), ...compare(maxLimitRequestRatio, checkRatio)];
};

/** Returns how an amount breaks `min` of a LimitRange, in upstream's words; undefined if it doesn't. */
const checkMinimum = (amounts: AmountSet): string | undefined => {
  const { resource, type, bound, request, limit } = amounts;
  const minimum = `minimum ${resource} usage per ${type} is ${formatQuantity(bound)}`;
  const size = toComparableSizes(amounts);
  if (!request) return `${minimum}.  No request is specified`;
  if (size.request < size.bound) return `${minimum}, but request is ${formatQuantity(request)}`;
  if (limit && size.limit < size.bound) return `${minimum}, but limit is ${formatQuantity(limit)}`;
};

/** Returns how an amount breaks `max` of a LimitRange, in upstream's words; undefined if it doesn't. */
const checkMaximum = (amounts: AmountSet): string | undefined => {
  const { resource, type, bound, request, limit } = amounts;
  const maximum = `maximum ${resource} usage per ${type} is ${formatQuantity(bound)}`;
  const capped = type === "PersistentVolumeClaim" ? "request" : "limit";
  const size = toComparableSizes(amounts);
  if (!amounts[capped]) return `${maximum}.  No ${capped} is specified`;
  if (limit && size.limit > size.bound) return `${maximum}, but limit is ${formatQuantity(limit)}`;
  if (request && size.request > size.bound) return `${maximum}, but request is ${formatQuantity(request)}`;
};

/** Returns how the ratio of limit to request breaks `maxLimitRequestRatio`; undefined if it doesn't. */
const checkRatio = (amounts: AmountSet): string | undefined => {
  const { resource, type, bound } = amounts;
  const maximumRatio = `${resource} max limit to request ratio per ${type} is ${formatQuantity(bound)}`;
  const size = toComparableSizes(amounts);
  if (size.request === 0n) return `${maximumRatio}, but no request is specified or request is 0`;
  if (size.limit === 0n) return `${maximumRatio}, but no limit is specified or limit is 0`;
  // The ratio of limit to request is computed in floating point, as upstream does, to get the same rounding.
  const ratio = Number(size.limit) / Number(size.request);
  // Upstream compares in thousandths, except with bounds that are too large for that.
  const isTooHigh =
    roundToUnits(bound) <= mostInThousandths
      ? ratio * 1000 > Number(roundUpToThousandths(bound))
      : ratio > Number(roundToUnits(bound));
  if (isTooHigh) return `${maximumRatio}, but provided ratio is ${formatRatio(ratio)}`;
};

/** The largest amount that upstream can count in thousandths, with 64 bits. */
const mostInThousandths = (2n ** 63n - 1n) / 1000n;

/** Returns amounts in thousandths, rounded up, or in whole units if one of them is too large for that. */
const toComparableSizes = ({ request = zeroQuantity, limit = zeroQuantity, bound }: AmountSet) => {
  const measure = [request, limit, bound].every((amount) => roundToUnits(amount) <= mostInThousandths)
    ? roundUpToThousandths
    : roundToUnits;
  return { request: measure(request), limit: measure(limit), bound: measure(bound) };
};

/**
 * Formats a ratio with six decimals as Go does. A number halfway between two results is rounded to the even digit by
 * Go, and up by JavaScript. Only odd multiples of 1/128, such as 0.0078125, are exactly halfway.
 */
const formatRatio = (ratio: number) => {
  const isHalfway = Math.abs((ratio * 128) % 2) === 1;
  const roundedDown = ratio.toFixed(7).slice(0, -1);
  return isHalfway && /[02468]$/.test(roundedDown) ? roundedDown : ratio.toFixed(6);
};
