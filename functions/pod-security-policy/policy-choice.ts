import type { Pod } from "kubernetes-types/core/v1.d.ts";
import type { AccessAnswer, AccessQuestion } from "postern/needs";
import type { AdmissionRequest, UserInfo } from "postern/review";
import { filled } from "./defaults.ts";
import { offences } from "./pod-offences.ts";
import type { Policy, Use } from "./policy.ts";

export interface Around {
  request: AdmissionRequest;
  oldObject: Pod | null;
  settings: { policies: Policy[]; accessReviews: boolean };
  may(access: AccessQuestion): Promise<AccessAnswer>;
}

export type Choice = { policy: string; pod: Pod } | { refusal: string };

/** Longer refusals are cut, because a response that is too long fails. */
const longest = 65_536;

/** Prefers a policy that changes nothing. As in upstream, a policy that `mayFill` rules out lists no offence. */
export const choose = async (
  pod: Pod,
  { request, settings: { policies, accessReviews }, may }: Around,
  { mayFill, first }: { mayFill(filledPod: Pod): boolean; first?: string | undefined },
): Promise<Choice> => {
  const { isNamed, mayUse } = grantsFor(request, pod.spec?.serviceAccountName, accessReviews ? may : undefined);
  const usable = accessReviews ? [...policies] : policies.filter(isNamed);
  usable.sort(byName(first));
  const against: { policy: Policy; filledPod: Pod }[] = [];
  let second: Choice | undefined;
  for (const policy of usable) {
    const filledPod = filled(policy, pod);
    if (!offences(policy, filledPod).next().done) {
      against.push({ policy, filledPod });
      continue;
    }
    const isFilled = filledPod !== pod;
    if (isFilled && (second || !mayFill(filledPod))) continue;
    if (!(await mayUse(policy))) continue;
    second = { policy: policy.metadata.name, pod: filledPod };
    if (!isFilled) return second;
  }
  if (second) return second;

  // The refusal lists only policies that the user or the account may use.
  const known = await Promise.all(against.map(({ policy }) => mayUse(policy)));
  const told = against.filter((_, index) => known[index]);
  return { refusal: `unable to validate against any pod security policy: [${listed(told)}]` };
};

const byName =
  (first: string | undefined) =>
  ({ metadata: { name: one } }: Policy, { metadata: { name: other } }: Policy) => {
    if (one === first || other === first) return one === first ? -1 : 1;
    return one < other ? -1 : 1;
  };

const listed = (against: { policy: Policy; filledPod: Pod }[]): string => {
  let text = "";
  for (const { policy, filledPod } of against)
    for (const offence of offences(policy, filledPod)) {
      text += `${text && " "}${offence}`;
      if (text.length > longest) return `${text.slice(0, longest)} …`;
    }
  return text;
};

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
