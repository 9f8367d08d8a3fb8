import type { LimitRangeItem, PersistentVolumeClaim } from "kubernetes-types/core/v1.d.ts";
import { listContainers } from "postern/objects/pod";
import { canonical, compareQuantities, printed, type Quantity, quantity } from "postern/objects/quantity";
import type { SharingPod, Stated } from "postern/objects/resources";
import { offencesOfPod } from "./bounds.ts";

/** Brings a pod within the bounds, or returns advice if no single edit does that. */
export const bringPod = (pod: SharingPod, all: readonly LimitRangeItem[]): string | undefined => {
  const containers = listContainers(pod, ["containers", "initContainers"]).map(({ container }) => container);
  for (const bounds of all.filter(({ type }) => type === "Container"))
    for (const container of containers) bring(container, bounds);

  for (const bounds of all.filter(({ type }) => type === "Pod")) {
    const [only, ...more] = pod.spec?.resources ? [pod.spec] : containers;
    if (offencesOfPod(bounds, pod).length === 0 || !only) continue;
    if (more.length > 0)
      return `keep what all containers together request, and their limits, within these bounds: ${spoken(bounds)}`;
    bring(only, bounds);
  }
};

/** Brings a claim within the bounds. Only the request counts, and an existing claim can't shrink. */
export const bringClaim = (
  { spec }: PersistentVolumeClaim,
  all: readonly LimitRangeItem[],
  before: PersistentVolumeClaim | null,
): void => {
  let stated: Stated = spec?.resources ?? {};
  for (const bounds of all.filter(({ type }) => type === "PersistentVolumeClaim")) {
    const { requests } = within(stated, { ...bounds, maxLimitRequestRatio: {} });
    stated = { ...stated, ...(requests && { requests }) };
  }
  const now = new Map(Object.entries(stated.requests ?? {}));
  const shrinks = Object.entries(before?.spec?.resources?.requests ?? {}).some(([resource, amount]) => {
    const left = amountIn(now, resource);
    return left === undefined || larger(quantity(amount), left);
  });
  if (spec && stated.requests && !shrinks) spec.resources = { ...spec.resources, requests: stated.requests };
};

const bring = (one: { resources?: Stated }, bounds: LimitRangeItem): void => {
  one.resources = { ...one.resources, ...within(one.resources ?? {}, bounds) };
};

const within = (stated: Stated, { min = {}, max = {}, maxLimitRequestRatio: ratios = {} }: LimitRangeItem): Stated => {
  const [requests, limits] = [
    new Map(Object.entries(stated.requests ?? {})),
    new Map(Object.entries(stated.limits ?? {})),
  ];
  for (const resource of new Set([min, max, ratios].flatMap((bound) => Object.keys(bound)))) {
    const [least, most, ratio] = [min, max, ratios].map((bound) => amountIn(new Map(Object.entries(bound)), resource));
    let [request, limit] = [amountIn(requests, resource), amountIn(limits, resource)];
    if (least) request = request && larger(request, least) ? request : least;
    if (least && limit && larger(least, limit)) limit = least;
    if (most) limit = limit && larger(most, limit) ? limit : most;
    if (most && request && larger(request, most)) request = most;
    if (ratio) [request, limit] = [request ?? limit, limit ?? request];
    const share = ratio && limit && shareOf(limit, ratio, resource);
    if (request && share && larger(share, request)) request = share;
    if (request) requests.set(resource, printed(request));
    if (limit) limits.set(resource, printed(limit));
  }
  return {
    ...(requests.size > 0 && { requests: Object.fromEntries(requests) }),
    ...(limits.size > 0 && { limits: Object.fromEntries(limits) }),
  };
};

const amountIn = (amounts: ReadonlyMap<string, string>, resource: string): Quantity | undefined => {
  const text = amounts.get(resource);
  return text === undefined ? undefined : quantity(text);
};

const larger = (one: Quantity, other: Quantity) => compareQuantities(one, other) > 0;

/** The smallest request that the ratio allows for a limit, in whole bytes or thousandths of a CPU. */
const shareOf = (limit: Quantity, ratio: Quantity, resource: string): Quantity | undefined => {
  if (ratio.nanos <= 0n) return undefined;
  const step = resource === "cpu" ? 1_000_000n : 1_000_000_000n;
  const divisor = ratio.nanos * step;
  const steps = (limit.nanos * 1_000_000_000n + divisor - 1n) / divisor;
  const share = { nanos: steps * step, notation: limit.notation };
  return { ...share, text: canonical(share) };
};

const spoken = ({ min = {}, max = {}, maxLimitRequestRatio: ratios = {} }: LimitRangeItem): string => {
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
