import type { Access, Permission } from "postern/needs";
import type { Request, UserInfo } from "postern/review";
import type { Policy, Use } from "./policy.ts";

interface Grants {
  /** What the settings alone say. */
  isNamed(policy: Policy): boolean;
  mayUse(policy: Policy): Promise<boolean>;
}

/** Which policies the user of a request may use, or the pod's service account. */
export const grantsFor = (
  { userInfo, namespace = "" }: Request,
  serviceAccountName: string | undefined,
  may: ((access: Access) => Promise<Permission>) | undefined,
): Grants => {
  // The account first, for it is the usual one.
  const users = serviceAccountName ? [accountOf(namespace, serviceAccountName), userInfo] : [userInfo];
  const isNamed = ({ use = {} }: Policy) =>
    (!use.namespaces?.length || use.namespaces.includes(namespace)) && users.some((user) => isAmong(user, use));

  const mayUse = async (policy: Policy) => {
    if (isNamed(policy)) return true;
    const { name } = policy.metadata;
    for (const user of may ? users : [])
      for (const group of ["policy", "extensions"])
        if ((await may?.({ user, verb: "use", group, resource: "podsecuritypolicies", namespace, name }))?.allowed)
          return true;
    return false;
  };
  return { isNamed, mayUse };
};

const prefix = "system:serviceaccount:";

const accountOf = (namespace: string, name: string): UserInfo => {
  const groups = ["system:serviceaccounts", `system:serviceaccounts:${namespace}`];
  return { username: `${prefix}${namespace}:${name}`, groups };
};

const isAmong = ({ username = "", groups = [] }: UserInfo, use: Use) =>
  use.users?.includes(username) ||
  use.serviceAccounts?.some((account) => username === `${prefix}${account}`) ||
  groups.some((group) => use.groups?.includes(group));
