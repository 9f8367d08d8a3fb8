import { compareQuantities, isQuantity } from "postern/objects/quantity";

export type QuantityTextByResource = Record<string, string>;

export interface DefaultResourceSettings {
  requests: QuantityTextByResource;
  limits: QuantityTextByResource;
  initContainers: boolean;
}

/** The requests and limits of a container or of a whole pod. */
interface RequestsAndLimits {
  requests?: QuantityTextByResource;
  limits?: QuantityTextByResource;
}

/** Returns the defaults to add to a container; `ofPod` are the amounts that the pod sets for all its containers. */
export const selectMissingDefaults = (
  ofContainer: RequestsAndLimits,
  ofPod: RequestsAndLimits,
  { requests, limits }: DefaultResourceSettings,
) => {
  // A container's limit becomes its request, too. If the pod has an amount, the sum of defaults could exceed that.
  const mayHaveDefault = (resource: string) =>
    ![ofContainer.limits, ofPod.requests, ofPod.limits].some((amounts) => hasAmount(amounts, resource));
  return {
    requests: pick(requests, (resource) => mayHaveDefault(resource) && !hasAmount(ofContainer.requests, resource)),
    limits: pick(
      limits,
      (resource, limit) => mayHaveDefault(resource) && !isRequestAbove(ofContainer.requests, resource, limit),
    ),
  };
};

const hasAmount = (amounts: QuantityTextByResource | undefined, resource: string) =>
  Object.hasOwn(amounts ?? {}, resource);

/** Reports whether a request exceeds a limit. An invalid request counts as too large; the API server refuses it. */
const isRequestAbove = (requests: QuantityTextByResource | undefined, resource: string, limit: string) => {
  if (!hasAmount(requests, resource)) return false;
  const request = String(requests?.[resource]);
  return !isQuantity(request) || compareQuantities(request, limit) > 0;
};

const pick = (
  amounts: QuantityTextByResource,
  isWanted: (resource: string, amount: string) => boolean,
): QuantityTextByResource =>
  Object.fromEntries(Object.entries(amounts).filter(([resource, amount]) => isWanted(resource, amount)));

/** Returns what is wrong with the settings, such as a request above the limit; undefined if nothing is wrong. */
export const findSettingsFault = ({ requests, limits }: DefaultResourceSettings): string | undefined => {
  const namedAmounts = Object.entries({ requests, limits }).flatMap(([kind, amounts]) =>
    Object.entries(amounts).map(([resource, amount]) => ({ resource, amount, name: `${kind}.${resource}` })),
  );
  if (namedAmounts.length === 0) return "must name at least one resource under requests or limits";

  const unknownResource = namedAmounts.find(({ resource }) => !isContainerResource(resource));
  if (unknownResource)
    return `has ${unknownResource.name}, which is no resource of containers; use, for instance, cpu, memory or example.com/gpu`;

  const invalidAmount = namedAmounts.find(({ amount }) => !isAmount(amount));
  if (invalidAmount)
    return `must have a quantity in quotes as ${invalidAmount.name}, such as "500m" or "1Gi", not ${JSON.stringify(invalidAmount.amount)}`;
  for (const [resource, request] of Object.entries(requests)) {
    const limit = hasAmount(limits, resource) ? limits[resource] : undefined;
    const difference = limit === undefined ? undefined : compareQuantities(request, limit);
    if (difference !== undefined && difference > 0)
      return `has requests.${resource} ${request} above limits.${resource} ${limit}`;
    if (!canOvercommit(resource) && difference !== 0)
      return `must have the same amount as requests.${resource} and limits.${resource}: nodes can't overcommit it`;
  }
};

const isAmount = (amount: unknown) =>
  typeof amount === "string" && isQuantity(amount) && compareQuantities(amount, "0") >= 0;

const nativeResources = ["cpu", "memory", "ephemeral-storage"];
const canOvercommit = (resource: string) => nativeResources.includes(resource);

/** Reports whether the API accepts a resource in containers, such as `cpu`, `hugepages-2Mi` or `example.com/gpu`. */
const isContainerResource = (resource: string) =>
  nativeResources.includes(resource) ||
  /^(hugepages-|[a-z0-9][a-z0-9.-]*\/)[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$/.test(resource);
