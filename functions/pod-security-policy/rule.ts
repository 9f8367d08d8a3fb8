import type { Pod } from "kubernetes-types/core/v1.d.ts";
import { accessReview } from "postern/needs";
import { forbidden } from "postern/refusals";
import { rule } from "postern/rule";
import { filled, isOnlyInNewDebuggers } from "./defaults.ts";
import { offences } from "./pod-offences.ts";
import { type Around, choose, grantsFor } from "./policy-choice.ts";
import { faultOf } from "./settings-check.ts";
import { relieve } from "./suggestion.ts";

const annotation = "kubernetes.io/psp";

const settings: Around["settings"] = { policies: [], accessReviews: false };

const debugging = {
  apiGroups: [""],
  apiVersions: ["v1"],
  resources: ["pods/ephemeralcontainers"],
  operations: ["UPDATE"],
} as const;

/** An update of other parts, such as finalizers or owners, needs no policy. */
const judged = [["spec"], ["metadata", "labels"], ["metadata", "annotations"]];

export default rule({
  summary: "Lets a pod be only what a pod security policy allows that its user or its service account may use.",
  match: {
    mutate: [{ ...debugging, resources: ["pods"], operations: ["CREATE"] }, debugging],
    validate: [{ ...debugging, resources: ["pods"], operations: ["CREATE", "UPDATE"] }, debugging],
  },
  matchConditions: {
    "changes-what-is-judged": `oldObject == null || ${judged.map(inCel).join(" || ")}`,
  },
  guards: true,
  settings,
  checkSettings: faultOf,
  needs: { may: accessReview() },

  async mutate(draft: Pod, around) {
    const { request, oldObject } = around;
    // Equal to the draft but faster to read: there may be hundreds of policies.
    const pod: Pod = Object(request.object);
    if (!changes(pod, oldObject)) return;
    const mayFill = (filled: Pod) => !oldObject || isOnlyInNewDebuggers(pod, filled, oldObject);
    const choice = await choose(pod, around, { mayFill });
    if ("refusal" in choice) return { refuse: forbidden(request, choice.refusal) };

    const { metadata = {}, spec } = choice.pod;
    if (spec && spec !== pod.spec) draft.spec = spec;
    if (!oldObject)
      draft.metadata = { ...metadata, annotations: { ...metadata.annotations, [annotation]: choice.policy } };
    return { audit: { "admit-policy": choice.policy } };
  },

  async validate(pod: Pod, around) {
    if (!changes(pod, around.oldObject)) return;
    const first = pod.metadata?.annotations?.[annotation];
    const choice = await choose(pod, around, { mayFill: () => false, first });
    if ("refusal" in choice) return { refuse: forbidden(around.request, choice.refusal) };
    return { audit: { "validate-policy": choice.policy } };
  },

  async suggest(draft: Pod, { request, settings, may }) {
    // An existing pod can't be changed.
    if (request.operation !== "CREATE") return;
    const ways = grantsFor(request, draft.spec?.serviceAccountName, settings.accessReviews ? may : undefined);
    const usable = await Promise.all(
      settings.policies.map(async (policy) => ((await ways.mayUse(policy)) ? [policy] : [])),
    );
    const nearest = usable.flat().map((policy) => {
      const pod: Pod = structuredClone(Object(request.object));
      // A pod that set everything itself still does so after the edit.
      const isWhole = filled(policy, pod) === pod;
      relieve(pod, policy);
      const whole = filled(policy, pod);
      return { pod: isWhole ? whole : pod, isEnough: offences(policy, whole).next().done };
    });
    Object.assign(draft, nearest.find(({ isEnough }) => isEnough)?.pod);
  },
});

const changes = (pod: Pod, oldObject: Pod | null) => {
  const part = (of: Pod, path: string[]) =>
    JSON.stringify(path.reduce<unknown>((whole, key) => Object(whole)[key], of) ?? {});
  return oldObject === null || judged.some((path) => part(pod, path) !== part(oldObject, path));
};

function inCel(path: string[]) {
  const part = (of: string) => `${of}.?${path.join(".?")}.orValue({})`;
  return `${part("object")} != ${part("oldObject")}`;
}
