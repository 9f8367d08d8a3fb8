// Finds Pods that still run after their workload was deleted, made smaller or suspended. Its controller may need long
// to delete them, and grace periods and finalizers delay the deletion.
import type { ObjectReader } from "postern/needs";
import type { KubernetesObject } from "postern/review";
import { type CountedOwner, findCountedOwner } from "./coverage.ts";
import type { CountedKind } from "./kinds.ts";
import { hasEnded, isBeingDeleted, isPodKind } from "./measure.ts";
import { getValue } from "./paths.ts";

/** Reads the object that an owner reference names; returns undefined if this object is gone or being deleted. */
export type ReadOwner = (owner: CountedOwner, namespace: string) => Promise<KubernetesObject | undefined>;

/** Returns a ReadOwner that reads each owner once, and throws if it has to read more than `most` owners. */
export const createOwnerReader = ({ get }: Pick<ObjectReader, "get">, most = Number.POSITIVE_INFINITY): ReadOwner => {
  const owners = new Map<string, Promise<KubernetesObject | undefined>>();
  return async ({ kind: { group, resource }, version, name, uid }, namespace) => {
    // Authors of objects can write anything as the version. An invalid version could lead to an error other than 404,
    // which would end the recount of the kind.
    if (!/^v[a-z0-9]{1,62}$/.test(version)) return undefined;
    const key = [group, version, resource, namespace, name].join("/");
    if (!owners.has(key) && owners.size === most) throw new Error(`${namespace} has Pods of more than ${most} owners`);
    const reading = owners.get(key) ?? get({ group, resource, version }, name, namespace);
    owners.set(key, reading);
    const found = await reading;
    return found && getValue(found, "metadata.uid") === uid && !isBeingDeleted(found) ? found : undefined;
  };
};

/**
 * Reports whether an object is counted as a part of its owner, and not separately. A Pod that is being deleted counts
 * separately, because its owner may have replaced it already.
 */
export const isCountedWithOwner = async (
  object: unknown,
  kind: CountedKind,
  owner: CountedOwner,
  namespace: string,
  readOwner: ReadOwner,
): Promise<boolean> =>
  !(isPodKind(kind) && isBeingDeleted(object)) && (await readOwner(owner, namespace)) !== undefined;

/** The most Pods of a namespace that the rule reads before it refuses a request because a quota is full. */
const mostPods = 500;
/** The most owners of Pods that the rule reads before it refuses a request because a quota is full. */
const mostOwners = 100;
/** The longest chain of owners that is followed, such as Pod, Job, CronJob. Two objects may own each other. */
const mostSteps = 5;
const pods = { group: "", resource: "pods", version: "v1" };

/**
 * Counts the running Pods of a namespace by objects with reservations: the Pod itself, or one of its owners. Pods whose
 * owner can't be found have the key "". Returns undefined if the namespace has too many Pods.
 */
export const countRunningPods = async (
  namespace: string,
  kinds: readonly CountedKind[],
  { get, list }: ObjectReader,
  isReserved: (object: string) => boolean,
): Promise<Map<string, number> | undefined> => {
  const listed = await list(pods, namespace, { most: mostPods });
  if (listed.length === mostPods) return undefined;
  const readOwner = createOwnerReader({ get }, mostOwners);
  const podKind = kinds.find(isPodKind); // never undefined, because settings can't remove this built-in kind
  /** Follows the chain of owners. Returns the key of the first object with a reservation, or of the last object. */
  const findCounted = async (object: unknown, key: string, steps = 0): Promise<string> => {
    const owner = isReserved(key) ? undefined : findCountedOwner(object, kinds);
    if (!owner) return key;
    const found = steps < mostSteps ? await readOwner(owner, namespace) : undefined;
    const { group, resource } = owner.kind;
    return found ? findCounted(found, [group, resource, namespace, owner.name].join("/"), steps + 1) : "";
  };
  const running = listed.filter((pod) => !podKind || !hasEnded(pod, podKind));
  const counted = await Promise.all(
    running.map((pod) => findCounted(pod, ["", "pods", namespace, pod.metadata?.name].join("/"))),
  );
  return new Map([...Map.groupBy(counted, (key) => key)].map(([key, all]) => [key, all.length]));
};
