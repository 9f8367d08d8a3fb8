import type { AccessAnswer, AccessQuestion } from "postern/needs";
import type { AdmissionRequest, UserInfo } from "postern/review";
import type { Policy, Use } from "./policy.ts";

interface Grants {
  /** Reports whether the settings grant the policy, without an access review. */
  isNamed(policy: Policy): boolean;
  mayUse(policy: Policy): Promise<boolean>;
}

export const grantsFor = (
  { userInfo, namespace = "" }: AdmissionRequest,
  serviceAccountName: string | undefined,
  may: ((access: AccessQuestion) => Promise<AccessAnswer>) | undefined,
): Grants => {
  // The account comes first, because most grants are for accounts.
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
