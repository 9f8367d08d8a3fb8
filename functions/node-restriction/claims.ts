import type { PersistentVolumeClaim } from "kubernetes-types/core/v1.d.ts";
import { getOwn, isSame } from "postern/json";
import { type Around, type Offence, quoted } from "./kubelet.ts";

/** A kubelet may only report in a claim's status that it has enlarged the volume. */
export const admitClaim = (claim: PersistentVolumeClaim, { node, request, oldObject, settings }: Around): Offence => {
  if (request.subResource !== "status") return "may only update PVC status";
  if (request.operation !== "UPDATE") return `unexpected operation ${quoted(request.operation)}`;
  const free = settings.recoverVolumeExpansionFailure ? [...always, ...recovering] : always;
  const changed = changes(oldObject, claim, "", free);
  if (changed.length > 0)
    return `node ${quoted(node)} is not allowed to update fields other than status.quantity and status.conditions: ${changed.join(", ")}`;
};

const always = ["metadata.resourceVersion", "metadata.managedFields", "status.capacity", "status.conditions"];
const recovering = ["status.allocatedResources", "status.allocatedResourceStatuses"];

/** Returns the paths that differ. Skips the `free` ones first, because managedFields can be arbitrarily deep. */
const changes = (before: unknown, after: unknown, path: string, free: readonly string[]): string[] => {
  if (free.includes(path)) return [];
  if (!isMap(before ?? {}) || !isMap(after ?? {})) return isSame(before, after) ? [] : [path];
  const [one, other] = [Object(before ?? {}), Object(after ?? {})];
  const keys = new Set([...Object.keys(one), ...Object.keys(other)]);
  return [...keys].flatMap((key) => changes(getOwn(one, key), getOwn(other, key), path ? `${path}.${key}` : key, free));
};

const isMap = (value: unknown) => typeof value === "object" && !Array.isArray(value);
