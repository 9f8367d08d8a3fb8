import { toMap } from "postern/json";
import type { Pod } from "postern/kubernetes/core/v1";
import { accessReview } from "postern/needs";
import { forbidden } from "postern/refusals";
import { rule } from "postern/rule";
import { addPolicyDefaults, fillsOnlyNewEphemeralContainers } from "./defaults.ts";
import { listPodOffences } from "./pod-offences.ts";
import { choosePolicy, createPodSecurityPolicyUseChecks, type PodSecurityPolicyContext } from "./policy-choice.ts";
import { findSecurityPolicySettingsFault } from "./settings-check.ts";
import { fixPodForSecurityPolicy } from "./suggestion.ts";

const annotation = "kubernetes.io/psp";

const settings: PodSecurityPolicyContext["settings"] = { policies: [], accessReviews: false };

const ephemeralContainers = {
  apiGroups: [""],
  apiVersions: ["v1"],
  resources: ["pods/ephemeralcontainers"],
  operations: ["UPDATE"],
} as const;

/** The parts of a pod that are checked; updates of other parts, such as finalizers or owners, need no policy. */
const checkedPaths = [["spec"], ["metadata", "labels"], ["metadata", "annotations"]];

export default rule({
  summary: "Requires that a pod fits a pod security policy that its user or its service account may use.",
  // From `ephemeralContainers`, a match for pods takes only the API group and version.
  match: {
    mutate: [{ ...ephemeralContainers, resources: ["pods"], operations: ["CREATE"] }, ephemeralContainers],
    validate: [{ ...ephemeralContainers, resources: ["pods"], operations: ["CREATE", "UPDATE"] }, ephemeralContainers],
  },
  matchConditions: {
    "changes-what-is-judged": `oldObject == null || ${checkedPaths.map(buildComparison).join(" || ")}`,
  },
  guards: true, // a security rule: hardening makes it fail closed
  settings,
  checkSettings: findSecurityPolicySettingsFault,
  needs: { may: accessReview() },

  async mutate(draft: Pod, context) {
    const { request, oldObject } = context;
    // `request.object` equals the draft, but is faster to read. Speed matters, as there may be hundreds of policies.
    const pod = request.object as Pod;
    if (!changesCheckedParts(pod, oldObject)) return;
    const mayFill = (filled: Pod) => !oldObject || fillsOnlyNewEphemeralContainers(pod, filled, oldObject);
    const choice = await choosePolicy(pod, context, { mayFill });
    if ("refusal" in choice) return { refuse: forbidden(request, choice.refusal) };

    const { metadata = {}, spec } = choice.pod;
    if (spec && spec !== pod.spec) draft.spec = spec;
    if (!oldObject)
      draft.metadata = { ...metadata, annotations: { ...metadata.annotations, [annotation]: choice.policy } };
    return { audit: { "admit-policy": choice.policy } };
  },

  async validate(pod: Pod, context) {
    if (!changesCheckedParts(pod, context.oldObject)) return;
    const first = pod.metadata?.annotations?.[annotation];
    const choice = await choosePolicy(pod, context, { mayFill: () => false, first });
    if ("refusal" in choice) return { refuse: forbidden(context.request, choice.refusal) };
    return { audit: { "validate-policy": choice.policy } };
  },

  async suggest(draft: Pod, { request, settings, may }) {
    // No change is suggested for an existing pod, because most fields of its spec can't be changed.
    if (request.operation !== "CREATE") return;
    const grants = createPodSecurityPolicyUseChecks(
      request,
      draft.spec?.serviceAccountName,
      settings.accessReviews ? may : undefined,
    );
    const usable = await Promise.all(
      settings.policies.map(async (policy) => ((await grants.mayUse(policy)) ? [policy] : [])),
    );
    const fixedPods = usable.flat().map((policy) => {
      const pod = structuredClone(request.object as Pod);
      // The fix may require further defaults. A pod that had all defaults gets these here; others get them in `mutate`.
      const hasDefaults = addPolicyDefaults(policy, pod) === pod;
      fixPodForSecurityPolicy(pod, policy);
      const filledPod = addPolicyDefaults(policy, pod);
      return { pod: hasDefaults ? filledPod : pod, isEnough: listPodOffences(policy, filledPod).next().done };
    });
    Object.assign(draft, fixedPods.find(({ isEnough }) => isEnough)?.pod);
  },
});

const changesCheckedParts = (pod: Pod, oldObject: Pod | null) => {
  const printPart = (object: Pod, path: string[]) =>
    JSON.stringify(path.reduce<unknown>((parent, key) => toMap(parent)[key], object) ?? {});
  return oldObject === null || checkedPaths.some((path) => printPart(pod, path) !== printPart(oldObject, path));
};

function buildComparison(path: string[]) {
  const buildPart = (object: string) => `${object}.?${path.join(".?")}.orValue({})`;
  return `${buildPart("object")} != ${buildPart("oldObject")}`;
}
