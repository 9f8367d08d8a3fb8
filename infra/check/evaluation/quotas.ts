import { type EvaluateRequest, evaluateRule, type RuleDecision } from "#lib/core/evaluation.ts";
import { toMap } from "#lib/json.ts";
import type { Pod } from "#lib/kubernetes/core/v1.ts";
import type { Capabilities, ResourceType } from "#lib/needs.ts";
import { listContainers } from "#lib/objects/pod.ts";
import { formatQuantity, type Quantity, zeroQuantity } from "#lib/objects/quantity.ts";
import { addAmounts, parseAmounts, type QuantityByResource } from "#lib/objects/resources.ts";
import type { AdmissionRequest, KubernetesObject } from "#lib/review.ts";
import { type ReviewSubject, roundIntegers } from "./endpoint-calls.ts";

// Evaluates ResourceQuotas by the rule that reimplements the plugin: it charges a request to the quotas that it lists.
// To measure what an object uses, the same rule charges the object to quotas without a limit.

/** What isn't known of the use of quotas: a sentence for each namespace. */
export interface UncertainUse {
  /** Less may be in use than quotas say, so a refused request might fit. */
  mayBeLess: Map<string, string>;
  /** More may be in use than quotas say, so an admitted request might not fit. */
  mayBeMore: Map<string, string>;
}

/** What a check knows of the use of quotas. */
export interface QuotaKnowledge {
  /** False if the check knows which objects the quotas count, but not how much is in use. */
  isUseKnown: boolean;
  /**
   * Returns the requests that created all objects of a namespace so far. They are counted if the status of a quota
   * doesn't say what is in use. Absent in a check of a cluster: the status of its quotas counts the objects already.
   */
  listCreations?(namespace: string): readonly AdmissionRequest[];
  /** What may make the counted use wrong. */
  uncertainUse: UncertainUse;
}

/** Evaluates the rule that reimplements the plugin for a request. */
type Evaluate = (request: AdmissionRequest, capabilities: Capabilities) => RuleDecision | Promise<RuleDecision>;

type Amounts = Record<string, string>;
type Quota = KubernetesObject & { spec?: { hard?: unknown }; status?: { hard?: Amounts; used?: Amounts } | undefined };

const quotaResource: ResourceType = { group: "", resource: "resourcequotas" };

/** What the evaluation of one request knows: the quotas of the cluster, how much they have in use, and the object. */
interface QuotaCircumstances extends QuotaKnowledge {
  subject: ReviewSubject;
  quotas: readonly KubernetesObject[];
  /** Receives a sentence about what isn't known of the outcome. */
  tell(sentence: string): void;
}

/** Returns the function that evaluates the rule of the plugin ResourceQuota for one request. */
export const createQuotaEvaluation =
  ({ quotas, subject, tell, isUseKnown, listCreations, uncertainUse }: QuotaCircumstances): EvaluateRequest =>
  async (rule, phase, sent, context) => {
    const { podOfWorkload, stored } = subject;
    const { capabilities: opened } = context;
    if (opened === undefined) return evaluateRule(rule, phase, sent, context);
    const evaluate: Evaluate = (request, capabilities) =>
      evaluateRule(rule, phase, roundIntegers(request), { ...context, capabilities });
    // The rule charges nothing in a dry run.
    const request = { ...sent, dryRun: false };
    const { namespace = "" } = request;
    const own = quotas.filter(({ metadata }) => metadata?.namespace === namespace);
    if (podOfWorkload?.newPods === 0)
      return evaluate(
        request,
        replaceQuotas(opened, () => []),
      );
    if (!isUseKnown || (podOfWorkload && podOfWorkload.newPods === undefined)) {
      const report = ({ metadata }: Quota) =>
        tell(
          isUseKnown
            ? `how many Pods it creates, which quota ${metadata?.name} of namespace ${namespace} counts`
            : `quota ${metadata?.name} of namespace ${namespace} counts it, and is not evaluated here`,
        );
      const listed = isUseKnown && listCreations ? await opened.list(quotaResource, namespace) : own;
      const decision = await evaluate(
        request,
        replaceQuotas(opened, () => listed.map(makeUnlimited), report),
      );
      // A LimitRange or a rule that isn't known may fill in what a quota demands.
      if (decision.refused && !isUseKnown) for (const quota of listed) report(quota);
      return decision;
    }

    const list = async (): Promise<Quota[]> => {
      if (!listCreations) return stored ? takeOut(own, { ...request, object: stored }) : [...own];
      const counted: Quota[] = [];
      for (const quota of await opened.list(quotaResource, namespace))
        counted.push(isCounted(quota) ? quota : await count(quota, listCreations(namespace)));
      return counted;
    };
    const takeOut = async (all: readonly Quota[], counted: AdmissionRequest) => {
      const { isComplete, getUse } = await measure([counted], all, opened, evaluate);
      if (!isComplete) tell(`what the object has in use of the quotas of namespace ${namespace}`);
      return all.map((quota) => changeUse(quota, getUse(quota), -1n));
    };
    const count = async (quota: Quota, creations: readonly AdmissionRequest[]): Promise<Quota> => {
      const uncounted = { ...quota, status: undefined };
      const { isComplete, getUse } = await measure(creations, [uncounted], opened, evaluate);
      const unknown = `what quota ${quota.metadata?.name} of namespace ${namespace} has in use; its status in --state would say it`;
      if (!isComplete)
        for (const part of [uncertainUse.mayBeLess, uncertainUse.mayBeMore]) part.set(namespace, unknown);
      // The plugin reads limits as texts or numbers, as the manifest has them.
      const hard = quota.spec?.hard as Amounts;
      const used = { ...makeUnlimited(uncounted).status.used, ...formatAmounts(getUse(quota)) };
      const counted: Quota = { ...quota, status: { hard, used } };
      await opened.updateStatus(quotaResource, counted);
      return counted;
    };
    let isCharged = false;
    const keep = async (quota: Quota) => {
      isCharged = true;
      if (listCreations && !sent.dryRun) await opened.updateStatus(quotaResource, quota);
    };
    const listed = await list();
    if (listed.length === 0) return { outcome: { allowed: true }, refused: false, operations: 0 };
    if (podOfWorkload?.newPods !== undefined && podOfWorkload.newPods > 1) {
      const { isComplete, getUse } = await measure([request], listed, opened, evaluate, { fillsZeros: false });
      // Without an amount that a quota demands, no Pod is created.
      const others = isComplete ? countFitting(listed, getUse, BigInt(podOfWorkload.newPods - 1)) : 0n;
      for (const quota of others > 0n ? listed : [])
        if (getUse(quota).size > 0) await keep(changeUse(quota, getUse(quota), others));
    }
    const decision = await evaluate(request, replaceQuotas(opened, list, keep));
    const reason = decision.refused
      ? uncertainUse.mayBeLess.get(namespace)
      : isCharged && uncertainUse.mayBeMore.get(namespace);
    if (reason) tell(reason);
    return decision;
  };

/** Returns capabilities that list these quotas; `update` gets each one that is charged. */
const replaceQuotas = (
  capabilities: Capabilities,
  list: () => KubernetesObject[] | Promise<KubernetesObject[]>,
  update: (quota: Quota) => void | Promise<void> = () => {},
): Capabilities => ({
  ...capabilities,
  list: async (kind, ...more) =>
    kind.group === quotaResource.group && kind.resource === quotaResource.resource
      ? list()
      : capabilities.list(kind, ...more),
  updateStatus: async (_, quota) => {
    await update(quota);
    return "updated";
  },
});

/** More than any object uses. */
const unlimited = "1e1000";

/** Returns a quota that has nothing in use, and room for everything. */
const makeUnlimited = (quota: Quota) => {
  const hard = quota.status?.hard ?? toMap(quota.spec?.hard);
  const fill = (value: string): Amounts => Object.fromEntries(Object.keys(hard).map((name) => [name, value]));
  return { ...quota, status: { hard: fill(unlimited), used: fill("0") } };
};

/**
 * Measures what creations use of quotas together: the rule evaluates each with copies of the quotas without limits, and
 * adds its use to the status of the copies. `isComplete` is false if the rule refused one, so that its use isn't known.
 * With `fillsZeros`, an amount that a quota demands and an object lacks is 0: the object may be older than the quota.
 */
const measure = async (
  creations: readonly AdmissionRequest[],
  quotas: readonly Quota[],
  capabilities: Capabilities,
  evaluate: Evaluate,
  { fillsZeros = true } = {},
) => {
  const unlimitedCopies = new Map(
    quotas.map((quota): [string | undefined, Quota] => [quota.metadata?.name, makeUnlimited(quota)]),
  );
  const names = [...unlimitedCopies.values()].flatMap(({ status }) => Object.keys(status?.hard ?? {}));
  const withCopies = replaceQuotas(
    capabilities,
    () => [...unlimitedCopies.values()],
    (charged) => void unlimitedCopies.set(charged.metadata?.name, charged),
  );
  let isComplete = true;
  for (const creation of names.length === 0 ? [] : creations)
    if ((await evaluate(fillsZeros ? fillZeros(creation, names) : creation, withCopies)).refused) isComplete = false;
  const getUse = ({ metadata }: Quota): QuantityByResource => {
    const used = parseAmounts(unlimitedCopies.get(metadata?.name)?.status?.used);
    return new Map([...used].filter(([, { nanos }]) => nanos !== 0n));
  };
  return { isComplete, getUse };
};

/**
 * Sets requests or limits of 0 for the resources in `names`, such as "limits.cpu", where a Pod has none. Otherwise, the
 * rule would refuse the Pod because an amount is missing, and count nothing of it.
 */
const fillZeros = (request: AdmissionRequest, names: readonly string[]): AdmissionRequest => {
  if (request.kind.group !== "" || request.kind.kind !== "Pod") return request;
  const pod = structuredClone(request.object) as Pod;
  for (const { container } of listContainers(pod, ["containers", "initContainers"]))
    for (const name of names) {
      const [, kind = "requests", resource] = /^(?:(requests|limits)\.)?(cpu|memory)$/.exec(name) ?? [];
      if (resource === undefined) continue;
      container.resources ??= {};
      const amounts = { ...container.resources[kind as "requests" | "limits"] };
      container.resources[kind as "requests" | "limits"] = { [resource]: "0", ...amounts };
    }
  return { ...request, object: pod as KubernetesObject };
};

const isCounted = ({ spec, status }: Quota): boolean =>
  Object.keys(toMap(spec?.hard)).every((name) => Object.hasOwn(toMap(status?.used), name));

/** Returns how many equal objects, at most `most`, fit into the room of quotas. `getUse` returns one object's use. */
const countFitting = (quotas: readonly Quota[], getUse: (quota: Quota) => QuantityByResource, most: bigint): bigint => {
  const fitting = quotas.flatMap((quota) => {
    const [hard, used] = [parseAmounts(quota.status?.hard), parseAmounts(quota.status?.used)];
    return [...getUse(quota)].flatMap(([name, { nanos }]) => {
      const room = (hard.get(name) ?? zeroQuantity).nanos - (used.get(name) ?? zeroQuantity).nanos;
      if (nanos <= 0n) return [];
      return [room < 0n ? 0n : room / nanos];
    });
  });
  return [most, ...fitting].reduce((least, number) => (number < least ? number : least));
};

/** Returns a quota whose used amounts count `addedObjects` more objects, or fewer if the number is negative. */
const changeUse = (quota: Quota, usePerObject: QuantityByResource, addedObjects: bigint): Quota => {
  const used = parseAmounts(quota.status?.used);
  const multiply = ({ nanos, notation }: Quantity): Quantity => ({ nanos: nanos * addedObjects, notation });
  const sums = addAmounts(used, new Map([...usePerObject].map(([name, amount]) => [name, multiply(amount)])));
  const known = [...sums].filter(([name]) => used.has(name));
  const atLeastZero = known.map(([name, sum]): [string, Quantity] => [name, sum.nanos < 0n ? zeroQuantity : sum]);
  return { ...quota, status: { ...quota.status, used: formatAmounts(new Map(atLeastZero)) } };
};

const formatAmounts = (amounts: QuantityByResource): Amounts =>
  Object.fromEntries([...amounts].map(([name, amount]) => [name, formatQuantity(amount)]));
