import { isSame } from "postern/json";
import type { RuntimeClass } from "postern/kubernetes/node/v1";
import type { ObjectPlace, ObjectReader } from "postern/needs";
import type { AdmissionRequest, KubernetesObject } from "postern/review";
import { findCountedOwner, includesUser } from "./coverage.ts";
import type { CountedKind } from "./kinds.ts";
import { hasEnded, hasValues, isMore, type Measure, measureWorkload, nothing } from "./measure.ts";
import { getValue, withValue } from "./paths.ts";
import type { WorkloadQuotaSettings } from "./settings.ts";

/** What a request changes about the use of quotas. */
export interface Change {
  /** What the object uses afterwards. */
  measure: Measure;
  /** True if the request may use more of a quota, false if it may only release some. */
  grows: boolean;
  /** False if the object counts only if it has been counted before. */
  isNew: boolean;
  isOwned: boolean;
}

export interface ObjectReads {
  workloads: ObjectReader;
  runtimeClasses(place: ObjectPlace): Promise<RuntimeClass | undefined>;
}

/**
 * Returns what a request changes; undefined if that is nothing, and a sentence if it can't be counted.
 *
 * An update that doesn't make the object larger needs no charge: the API server only stores it in place of the old
 * object of this review. If another update comes first, the API server asks again.
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
    return owner && !owner.kind.ownsIf ? undefined : { measure: nothing, grows: false, isNew: false, isOwned: false };
  }

  let [after, before]: [unknown, unknown] = [object, request.operation === "UPDATE" ? oldObject : null];
  if (request.subResource === "scale") {
    if (kind.scale === undefined) return undefined;
    before = await workloads.get(request.resource, request.name ?? "", request.namespace);
    if (!before) return undefined;
    after = withValue(before, kind.scale, getValue(object, "spec.replicas") ?? 0);
  }
  if (request.subResource === "status") {
    // An API server changes no spec by a status request; a forged review might.
    if (before) after = withValue(object, "spec", getValue(before, "spec"));
    if (!hasEnded(after, kind) && !hasEnded(before, kind)) return undefined;
  }

  const owner = findCountedOwner(after, kinds);
  const [isOwned, wasOwned] = [owner !== undefined, findCountedOwner(before, kinds) !== undefined];
  const isByController = includesUser(controllers, request.userInfo);
  if (owner && isByController && !wasOwned) {
    if (before) return { measure: nothing, grows: false, isNew: false, isOwned };
    const { group, resource, ownsIf } = owner.kind;
    const found =
      ownsIf && (await workloads.get({ group, resource, version: owner.version }, owner.name, request.namespace));
    if (!ownsIf || (found && hasValues(found, ownsIf))) return undefined;
  }

  const measure = await measureWorkload(after, kind, runtimeClasses);
  const countedBefore = before !== null && (isOwned || !wasOwned);
  const measured = countedBefore ? await measureWorkload(before, kind, runtimeClasses) : nothing;
  if (typeof measure === "string")
    return isSame(getValue(after, "spec"), getValue(before, "spec")) ? undefined : measure;
  const old = typeof measured === "string" ? nothing : measured;
  const grows = isMore(measure, old) || (isOwned && !wasOwned);
  if (!grows && !isMore(old, measure)) return undefined;
  return { measure, grows, isNew: !(isOwned && wasOwned && isByController), isOwned };
};
