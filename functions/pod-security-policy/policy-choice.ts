import type { Pod } from "postern/kubernetes/core/v1";
import type { AccessAnswer, AccessQuestion } from "postern/needs";
import type { AdmissionRequest, UserInfo } from "postern/review";
import { addPolicyDefaults } from "./defaults.ts";
import { listPodOffences } from "./pod-offences.ts";
import type { PodSecurityPolicyObject, PodSecurityPolicyUsers } from "./policy.ts";

/** The data, besides the pod, by which the PodSecurityPolicy for the pod is chosen. */
export interface PodSecurityPolicyContext {
  request: AdmissionRequest;
  oldObject: Pod | null;
  settings: { policies: PodSecurityPolicyObject[]; accessReviews: boolean };
  may(access: AccessQuestion): Promise<AccessAnswer>;
}

/** The policy that admits a pod, and the pod with that policy's defaults; or why no policy admits it. */
export type PodSecurityPolicyChoice = { policy: string; pod: Pod } | { refusal: string };

/** The most characters of a refusal. A longer refusal is cut, because the API server fails at too long responses. */
const longestRefusal = 65_536;

/**
 * Chooses the PodSecurityPolicy for a pod, preferably one that changes nothing in the pod. `mayFill` decides whether a
 * policy may change the pod into `filledPod`; as in upstream, a refusal doesn't mention policies for which it returns
 * false. The policy with the name `first` is tried before all others.
 */
export const choosePolicy = async (
  pod: Pod,
  { request, settings: { policies, accessReviews }, may }: PodSecurityPolicyContext,
  { mayFill, first }: { mayFill(filledPod: Pod): boolean; first?: string | undefined },
): Promise<PodSecurityPolicyChoice> => {
  const { isListed, mayUse } = createPodSecurityPolicyUseChecks(
    request,
    pod.spec?.serviceAccountName,
    accessReviews ? may : undefined,
  );
  // An access review may let the user use any policy. `mayUse` sends it as late as possible, for a policy that fits.
  const candidates = accessReviews ? [...policies] : policies.filter(isListed);
  candidates.sort(compareNames(first));
  const refusing: { policy: PodSecurityPolicyObject; filledPod: Pod }[] = [];
  let filledChoice: PodSecurityPolicyChoice | undefined;
  for (const policy of candidates) {
    const filledPod = addPolicyDefaults(policy, pod);
    if (!listPodOffences(policy, filledPod).next().done) {
      refusing.push({ policy, filledPod });
      continue;
    }
    const isFilled = filledPod !== pod;
    if (isFilled && (filledChoice || !mayFill(filledPod))) continue;
    if (!(await mayUse(policy))) continue;
    const choice = { policy: policy.metadata.name, pod: filledPod };
    if (!isFilled) return choice;
    filledChoice = choice;
  }
  if (filledChoice) return filledChoice;

  // The refusal lists only policies that the user or the account may use.
  const areUsable = await Promise.all(refusing.map(({ policy }) => mayUse(policy)));
  const visible = refusing.filter((_, index) => areUsable[index]);
  return { refusal: `unable to validate against any pod security policy: [${listRefusals(visible)}]` };
};

/** Compares policies by name. The policy with the name `first` precedes all others. */
const compareNames =
  (first: string | undefined) =>
  ({ metadata: left }: PodSecurityPolicyObject, { metadata: right }: PodSecurityPolicyObject) => {
    if (left.name === first || right.name === first) return left.name === first ? -1 : 1;
    return left.name < right.name ? -1 : 1;
  };

/** Returns how the pod, filled with each policy's defaults, breaks this policy: one text of limited length for all. */
const listRefusals = (refusing: { policy: PodSecurityPolicyObject; filledPod: Pod }[]): string => {
  let text = "";
  for (const { policy, filledPod } of refusing)
    for (const offence of listPodOffences(policy, filledPod)) {
      text += `${text && " "}${offence}`;
      if (text.length > longestRefusal) return `${text.slice(0, longestRefusal)} …`;
    }
  return text;
};

interface Grants {
  /** Reports whether the rule's settings, without an access review, let the user or account use a policy. */
  isListed(policy: PodSecurityPolicyObject): boolean;
  mayUse(policy: PodSecurityPolicyObject): Promise<boolean>;
}

/** Returns checks whether the user or the pod's service account may use a PodSecurityPolicy. */
export const createPodSecurityPolicyUseChecks = (
  { userInfo, namespace = "" }: AdmissionRequest,
  serviceAccountName: string | undefined,
  may: ((access: AccessQuestion) => Promise<AccessAnswer>) | undefined,
): Grants => {
  // The pod's service account is tried before the user, because most grants are for accounts.
  const users = serviceAccountName ? [getAccountUser(namespace, serviceAccountName), userInfo] : [userInfo];
  const isListed = ({ use = {} }: PodSecurityPolicyObject) =>
    (!use.namespaces?.length || use.namespaces.includes(namespace)) && users.some((user) => isGranted(user, use));

  const mayUse = async (policy: PodSecurityPolicyObject) => {
    if (isListed(policy)) return true;
    const { name } = policy.metadata;
    for (const user of may ? users : [])
      for (const group of ["policy", "extensions"])
        if ((await may?.({ user, verb: "use", group, resource: "podsecuritypolicies", namespace, name }))?.allowed)
          return true;
    return false;
  };
  return { isListed, mayUse };
};

const prefix = "system:serviceaccount:";

const getAccountUser = (namespace: string, name: string): UserInfo => {
  const groups = ["system:serviceaccounts", `system:serviceaccounts:${namespace}`];
  return { username: `${prefix}${namespace}:${name}`, groups };
};

const isGranted = ({ username = "", groups = [] }: UserInfo, use: PodSecurityPolicyUsers) =>
  use.users?.includes(username) ||
  use.serviceAccounts?.some((account) => username === `${prefix}${account}`) ||
  groups.some((group) => use.groups?.includes(group));
