import { isMap, toList, toMap } from "postern/json";
import type { Namespace } from "postern/kubernetes/core/v1";
import type { ObjectPlace } from "postern/needs";
import { splitApiVersion } from "postern/objects/api-version";
import type { UserInfo } from "postern/review";
import type { CountedKind } from "./kinds.ts";
import type { Quota } from "./settings.ts";

export const coversCluster = ({ clusters }: Quota, cluster: string): boolean => clusters?.includes(cluster) ?? true;

/** Returns the quotas that cover a namespace of a cluster. */
export const selectQuotas = async (
  quotas: readonly Quota[],
  cluster: string,
  namespace: string,
  getNamespace: (place: ObjectPlace) => Promise<Namespace | undefined>,
): Promise<Quota[]> => {
  const named = quotas.filter(
    (quota) => coversCluster(quota, cluster) && (quota.namespaces?.includes(namespace) ?? true),
  );
  if (named.every(({ namespaceLabels }) => namespaceLabels === undefined)) return named;
  const labels = toMap((await getNamespace({ name: namespace }))?.metadata?.labels);
  return named.filter(({ namespaceLabels = {} }) =>
    Object.entries(namespaceLabels).every(([key, value]) => Object.hasOwn(labels, key) && labels[key] === value),
  );
};

interface Users {
  users?: readonly string[];
  groups?: readonly string[];
}

/** Reports whether lists of users and groups contain a user, or one of the user's groups. */
export const includesUser = ({ users = [], groups = [] }: Users, { username, groups: groupsOfUser = [] }: UserInfo) =>
  users.some((name) => name === username) || groups.some((group) => groupsOfUser.includes(group));

/** Reports whether a quota counts objects that a user writes. A quota without users and groups counts all objects. */
export const countsUser = (quota: Quota, user: UserInfo): boolean =>
  (quota.users === undefined && quota.groups === undefined) || includesUser(quota, user);

/** An object of a counted kind that controls another one. */
export interface CountedOwner {
  kind: CountedKind;
  version: string;
  name: string;
  uid: unknown;
}

/** Returns the controller of an object, by its owner references, if the controller is of a counted kind. */
export const findCountedOwner = (object: unknown, kinds: readonly CountedKind[]): CountedOwner | undefined => {
  for (const reference of toList(toMap(toMap(object).metadata).ownerReferences).filter(isMap)) {
    const { group, version } = splitApiVersion(String(reference.apiVersion));
    const kind = kinds.find((counted) => counted.group === group && counted.kind === reference.kind);
    if (kind && reference.controller === true) {
      const { name, uid } = reference;
      return { kind, version, name: String(name), uid };
    }
  }
};
