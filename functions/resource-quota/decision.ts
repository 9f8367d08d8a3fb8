import type { ResourceQuota } from "postern/kubernetes/core/v1";
import type { LengthUnit } from "postern/objects/label";
import {
  compareQuantities,
  formatQuantity,
  type Quantity,
  subtractQuantities,
  zeroQuantity,
} from "postern/objects/quantity";
import { addAmounts, parseAmounts, type QuantityByResource } from "postern/objects/resources";
import { forbidden, formatGroupResource } from "postern/refusals";
import type { AdmissionRequest, KubernetesObject, Status } from "postern/review";
import type { Evaluator } from "./evaluator.ts";
import { findScopeFault, formatScopes, listScopes, type Scope } from "./scopes.ts";
import type { LimitedResource } from "./settings.ts";

/** A request, its object, and the evaluator that measures how much of a quota the object uses. */
export interface QuotaRequest {
  request: AdmissionRequest;
  object: KubernetesObject;
  oldObject: KubernetesObject | null;
  evaluator: Evaluator<object>;
  /** The unit in which a message states the length of a label. */
  labelLengthUnit: LengthUnit;
}

/** A refusal, or the quotas that the request changes, with the amounts that are used afterwards. */
export type QuotaDecision = { refuse: string | Status } | { charged: ResourceQuota[] };

interface MatchingQuota {
  quota: ResourceQuota;
  /** The names in the quota's `hard` that limit objects of this kind. */
  names: string[];
}

const nothing: QuotaDecision = { charged: [] };

/**
 * Decides on a request as upstream does. If `enforcesQuotas` is false, it checks only whether there is a quota for
 * `limitedResources`, and not how much of the quota is used.
 */
export const decideOnRequest = async (
  quotas: readonly ResourceQuota[],
  quotaRequest: QuotaRequest,
  limitedResources: readonly LimitedResource[],
  enforcesQuotas: boolean,
): Promise<QuotaDecision> => {
  const { request, object, oldObject, evaluator } = quotaRequest;
  const refuse = (text: string): QuotaDecision => ({ refuse: forbidden(request, text) });
  const result = findMatchingQuotas(quotas, quotaRequest, enforcesQuotas);
  // Upstream answers this error with a 500 without a reason, which a webhook can't send.
  if ("error" in result) return { refuse: result.error };
  if ("fault" in result) return refuse(result.fault);
  const { matching, scopes } = result;

  const usage = await evaluator.measure(object);
  const negative = [...usage].filter(([, { nanos }]) => nanos < 0n).map(([name]) => name);
  if (negative.length > 0) return refuse(`quota usage is negative for resource(s): ${negative.sort().join()}`);
  if (request.operation === "UPDATE" && !oldObject)
    return refuse("unable to get previous usage since prior version of object was not found");
  const before = request.operation === "UPDATE" && oldObject?.metadata?.resourceVersion ? oldObject : undefined;
  const growth = before ? subtractUsage(usage, await evaluator.measure(before)) : usage;
  const charges = matching.map(({ quota }) => ({
    quota,
    // If a quota didn't count the old object, it is charged for the whole object.
    charge: deleteZeros(before && matches(quota, before, evaluator) ? growth : usage),
  }));
  // If no quota counts the object, `growth` says whether the request uses more than before.
  const amounts = matching.length > 0 ? charges.map(({ charge }) => charge) : [deleteZeros(growth)];
  if (amounts.every(({ size }) => size === 0)) return nothing;

  const limited = findUncovered(quotaRequest, usage, matching, scopes, limitedResources);
  if (limited.names.length > 0) return refuse(`insufficient quota to consume: ${limited.names.join()}`);
  if (limited.scopes.length > 0)
    return { refuse: `insufficient quota to match these scopes: ${formatScopes(limited.scopes)}` };
  return enforcesQuotas ? chargeQuotas(charges, request) : nothing;
};

/**
 * Returns the quotas that count an object, and those scopes of all quotas that include the object; or the reason of a
 * refusal: an `error` where upstream fails (500), a `fault` where it forbids the request (403).
 */
const findMatchingQuotas = (
  quotas: readonly ResourceQuota[],
  { object, evaluator, labelLengthUnit }: QuotaRequest,
  enforcesQuotas: boolean,
): { matching: MatchingQuota[]; scopes: Scope[] } | { error: string } | { fault: string } => {
  const matching: MatchingQuota[] = [];
  const scopes: Scope[] = [];
  for (const quota of quotas) {
    const name = quota.metadata?.name;
    const scopesOfQuota = listScopes(quota);
    // Upstream parses the values of this scope only. A message about a too long value names `labelLengthUnit`.
    for (const scope of scopesOfQuota.filter(({ scopeName }) => scopeName === evaluator.scopes?.classScope)) {
      const fault = findScopeFault(scope, labelLengthUnit);
      if (fault) return { error: `error matching scopes of quota ${name}, err: ${fault}` };
    }
    scopes.push(...scopesOfQuota.filter((scope) => evaluator.scopes?.includes(scope, object)));
    if (!matches(quota, object, evaluator)) continue;
    const { hard = {}, used = {} } = quota.status ?? {};
    const names = evaluator.selectNames(Object.keys(hard));
    const lack = enforcesQuotas && evaluator.findLack?.(object, names);
    if (lack) return { fault: `failed quota: ${name}: ${lack}` };
    if (enforcesQuotas && names.some((resource) => !Object.hasOwn(used, resource)))
      return { fault: `status unknown for quota: ${name}, resources: ${names.sort().join()}` };
    matching.push({ quota, names });
  }
  return { matching, scopes };
};

/** Reports whether a quota counts an object: by a name in its `hard`, and by its scopes. */
const matches = (quota: ResourceQuota, object: object, { selectNames, scopes }: Evaluator<object>): boolean =>
  selectNames(Object.keys(quota.status?.hard ?? {})).length > 0 &&
  listScopes(quota).every((scope) => scopes?.includes(scope, object));

/** Returns the names and scopes for which the settings require a quota, and which no quota covers. */
const findUncovered = (
  { request, object, evaluator }: QuotaRequest,
  usage: QuantityByResource,
  matching: readonly MatchingQuota[],
  scopes: readonly Scope[],
  limitedResources: readonly LimitedResource[],
): { names: string[]; scopes: Scope[] } => {
  const parts = limitedResources
    .filter(
      ({ apiGroup = "", resource }) =>
        formatGroupResource({ group: apiGroup, resource }) === formatGroupResource(request.resource),
    )
    .flatMap(({ matchContains = [] }) => matchContains);
  const names = [...usage].flatMap(([name, { nanos }]) =>
    nanos > 0n && parts.some((part) => name.includes(part)) ? [name] : [],
  );
  // As in upstream, the scopes of all limited resources apply, also of limited resources that name another resource.
  const limited = limitedResources
    .flatMap(({ matchScopes = [] }) => matchScopes)
    .filter((scope) => evaluator.scopes?.includes(scope, object));
  return {
    names: names.filter((name) => !matching.some((covering) => covering.names.includes(name))).sort(),
    scopes: limited.filter(({ scopeName }) => !scopes.some((covering) => covering.scopeName === scopeName)),
  };
};

/** Returns the quotas with the amounts that are used after the request; or a refusal if they exceed a quota. */
const chargeQuotas = (
  charges: readonly { quota: ResourceQuota; charge: QuantityByResource }[],
  request: AdmissionRequest,
): QuotaDecision => {
  const charged: ResourceQuota[] = [];
  for (const { quota, charge } of charges) {
    const [hard, used] = [parseAmounts(quota.status?.hard), parseAmounts(quota.status?.used)];
    const requested = new Map([...charge].filter(([name]) => hard.has(name)));
    const sums = addAmounts(used, requested);
    const exceeded = [...requested.keys()].filter((name) => compareQuantities(get(sums, name), get(hard, name)) > 0);
    // The update of a status is never refused, because a status reports amounts that already exist.
    if (exceeded.length > 0 && request.subResource !== "status") {
      const format = (amounts: QuantityByResource) => formatAmounts(exceeded.sort(), amounts);
      const text = `exceeded quota: ${quota.metadata?.name}, requested: ${format(requested)}, used: ${format(used)}, limited: ${format(hard)}`;
      return { refuse: forbidden(request, text) };
    }
    if (requested.size === 0) continue;
    const written = Object.fromEntries([...sums].map(([name, amount]) => [name, formatQuantity(amount)]));
    charged.push({ ...quota, status: { ...quota.status, used: written } });
  }
  return { charged };
};

const get = (amounts: QuantityByResource, name: string): Quantity => amounts.get(name) ?? zeroQuantity;

const formatAmounts = (names: readonly string[], amounts: QuantityByResource): string =>
  names.map((name) => `${name}=${formatQuantity(get(amounts, name))}`).join();

/** Returns the growth of each amount. A smaller amount has the growth zero: only the quota controller lowers `used`. */
const subtractUsage = (usage: QuantityByResource, before: QuantityByResource): QuantityByResource =>
  new Map(
    [...usage].map(([name, amount]) => {
      const growth = subtractQuantities(amount, get(before, name));
      return [name, growth.nanos > 0n ? growth : zeroQuantity];
    }),
  );

const deleteZeros = (amounts: QuantityByResource): QuantityByResource =>
  new Map([...amounts].filter(([, { nanos }]) => nanos !== 0n));
