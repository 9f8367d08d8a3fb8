import { isSame } from "postern/json";
import type { RuntimeClass } from "postern/kubernetes/node/v1";
import type { ObjectPlace, ObjectReader } from "postern/needs";
import type { AdmissionRequest, KubernetesObject } from "postern/review";
import { findCountedOwner, includesUser } from "./coverage.ts";
import type { CountedKind } from "./kinds.ts";
import { hasEnded, hasValues, isMore, type Measure, measureWorkload, nothing } from "./measure.ts";
import { getValue, withValue } from "./paths.ts";
import type { WorkloadQuotaSettings } from "./settings.ts";

/** The change of an object's use of quotas by a request. */
export interface Change {
  /** The amounts that the object uses after the request. */
  measure: Measure;
  /** True if the request may use more of a quota; false if it can only use less. */
  grows: boolean;
  /**
   * False for a request that must not add an object to the ledger, such as the update of a Pod by its controller: the
   * object is then counted only if it already has a reservation.
   */
  mayReserve: boolean;
  /** True if an object of a counted kind controls the object. */
  isOwned: boolean;
}

/** How `findChange` reads objects from the cluster: workloads of any kind, and a RuntimeClass by its name (`place`). */
export interface ObjectReads {
  workloads: ObjectReader;
  runtimeClasses(place: ObjectPlace): Promise<RuntimeClass | undefined>;
}

/**
 * Returns the change by a request; undefined if it changes no use, and a sentence if the object can't be counted.
 *
 * An update that doesn't make the object larger needs no charge. The API server stores it only if the stored object is
 * still the old object of this review. If another update came first, the API server sends a new review.
 */
export const findChange = async (
  object: KubernetesObject,
  oldObject: KubernetesObject | null,
  kind: CountedKind,
  kinds: readonly CountedKind[],
  request: AdmissionRequest,
  controllers: WorkloadQuotaSettings["controllers"],
  { workloads, runtimeClasses }: ObjectReads,
): Promise<Change | string | undefined> => {
  if (request.operation === "DELETE") {
    const owner = findCountedOwner(object, kinds);
    // An object that is counted with its owner has no reservation to release. For some kinds of owners, this holds only
    // if the owner has certain values (`includesOwnedOnlyIf`), so there may be a reservation.
    return owner && !owner.kind.includesOwnedOnlyIf
      ? undefined
      : { measure: nothing, grows: false, mayReserve: false, isOwned: false };
  }

  let [after, before]: [unknown, unknown] = [object, request.operation === "UPDATE" ? oldObject : null];
  if (request.subResource === "scale") {
    if (kind.scale === undefined) return undefined;
    before = await workloads.get(request.resource, request.name ?? "", request.namespace);
    if (!before) return undefined;
    after = withValue(before, kind.scale, getValue(object, "spec.replicas") ?? 0);
  }
  if (request.subResource === "status") {
    // In a request for the status, the API server ignores changes of the spec. A forged review may have such a change.
    if (before) after = withValue(object, "spec", getValue(before, "spec"));
    if (!hasEnded(after, kind) && !hasEnded(before, kind)) return undefined;
  }

  // Whether an object of a counted kind controls the object after the request, and before it.
  const owner = findCountedOwner(after, kinds);
  const [isOwned, wasOwned] = [owner !== undefined, findCountedOwner(before, kinds) !== undefined];
  const isByController = includesUser(controllers, request.userInfo);
  if (owner && isByController && !wasOwned) {
    // A controller adopts an existing object: from now on, it is counted with its owner, and uses nothing by itself.
    if (before) return { measure: nothing, grows: false, mayReserve: false, isOwned };
    // A controller creates an object: it is counted with its owner, unless that lacks values of `includesOwnedOnlyIf`.
    const { group, resource, includesOwnedOnlyIf } = owner.kind;
    const ownerObject =
      includesOwnedOnlyIf &&
      (await workloads.get({ group, resource, version: owner.version }, owner.name, request.namespace));
    if (!includesOwnedOnlyIf || (ownerObject && hasValues(ownerObject, includesOwnedOnlyIf))) return undefined;
  }

  const measure = await measureWorkload(after, kind, runtimeClasses);
  // An update is compared with the old object. An update that removes the owner is compared with nothing, as a creation
  // is: until then, the object was counted only with its owner.
  const isCompared = before !== null && (isOwned || !wasOwned);
  const oldMeasureOrFault = isCompared ? await measureWorkload(before, kind, runtimeClasses) : nothing;
  if (typeof measure === "string")
    return isSame(getValue(after, "spec"), getValue(before, "spec")) ? undefined : measure;
  const oldMeasure = typeof oldMeasureOrFault === "string" ? nothing : oldMeasureOrFault;
  // A user's update that adds an owner is charged like growth, or the object would no longer be counted by itself.
  const grows = isMore(measure, oldMeasure) || (isOwned && !wasOwned);
  if (!grows && !isMore(oldMeasure, measure)) return undefined;
  // A controller's update of an object that it owned before is no reason to count the object separately from its owner.
  return { measure, grows, mayReserve: !(isOwned && wasOwned && isByController), isOwned };
};
