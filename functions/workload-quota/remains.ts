// What still runs of a workload that is gone, smaller or suspended: its controller may need long to delete Pods, and
// grace periods and finalizers keep them.
import type { ObjectReader } from "postern/needs";
import type { KubernetesObject } from "postern/review";
import { type CountedOwner, findCountedOwner } from "./coverage.ts";
import type { CountedKind } from "./kinds.ts";
import { hasEnded, isBeingDeleted, isPodKind } from "./measure.ts";
import { getValue } from "./paths.ts";

/** Returns the object that an owner reference means; undefined if that object is gone or being deleted. */
export type ReadOwner = (owner: CountedOwner, namespace: string) => Promise<KubernetesObject | undefined>;

/** Returns a ReadOwner that reads each owner once, and fails at more than `most` of them. */
export const createOwnerReader = ({ get }: Pick<ObjectReader, "get">, most = Number.POSITIVE_INFINITY): ReadOwner => {
  const owners = new Map<string, Promise<KubernetesObject | undefined>>();
  return async ({ kind: { group, resource }, version, name, uid }, namespace) => {
    // The author of an object writes its owner references. An answer other than 404 would end the recount of the kind.
    if (!/^v[a-z0-9]{1,62}$/.test(version)) return undefined;
    const key = [group, version, resource, namespace, name].join("/");
    if (!owners.has(key) && owners.size === most) throw new Error(`${namespace} has Pods of more than ${most} owners`);
    const reading = owners.get(key) ?? get({ group, resource, version }, name, namespace);
    owners.set(key, reading);
    const found = await reading;
    return found && getValue(found, "metadata.uid") === uid && !isBeingDeleted(found) ? found : undefined;
  };
};

/** Reports whether an object is counted with its owner, and not by itself. */
export const isCountedWithOwner = async (
  object: unknown,
  kind: CountedKind,
  owner: CountedOwner,
  namespace: string,
  readOwner: ReadOwner,
): Promise<boolean> =>
  !(isPodKind(kind) && isBeingDeleted(object)) && (await readOwner(owner, namespace)) !== undefined;

/** The most Pods of a namespace, and the most owners of them, that are read before a refusal. */
const [mostPods, mostOwners] = [500, 100];
/** The most owners from a Pod upwards. Two objects may name each other. */
const mostSteps = 5;
const pods = { group: "", resource: "pods", version: "v1" };

/**
 * Counts the Pods of a namespace that run, by the keys of the objects with whose reservations they are counted. Pods for
 * which no such object is known have the key "". Returns undefined if there are too many to look at.
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
  const kind = kinds.find(isPodKind);
  /** Returns the key of the first object from this one upwards that has a reservation, or of the last one. */
  const findCounted = async (object: unknown, key: string, steps = 0): Promise<string> => {
    const owner = isReserved(key) ? undefined : findCountedOwner(object, kinds);
    if (!owner) return key;
    const found = steps < mostSteps ? await readOwner(owner, namespace) : undefined;
    const { group, resource } = owner.kind;
    return found ? findCounted(found, [group, resource, namespace, owner.name].join("/"), steps + 1) : "";
  };
  const running = listed.filter((pod) => !kind || !hasEnded(pod, kind));
  const counted = await Promise.all(
    running.map((pod) => findCounted(pod, ["", "pods", namespace, pod.metadata?.name].join("/"))),
  );
  return new Map([...Map.groupBy(counted, (key) => key)].map(([key, all]) => [key, all.length]));
};
