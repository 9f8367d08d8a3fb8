import type { Namespace, Pod } from "kubernetes-types/core/v1.d.ts";
import { invalid } from "postern/refusals";
import type { AdmissionRequest } from "postern/review";
import type { Verdict } from "postern/rule";
import { sorted } from "./checks/check-builders.ts";
import { isSparedByClass, subjectOf } from "./pods.ts";
import {
  type Demand,
  defaultPolicy,
  hasLabel,
  isStricter,
  judgesNothing,
  type Labels,
  modes,
  type Policy,
  policyOf,
  shown,
} from "./policy.ts";
import type { Settings } from "./settings.ts";
import { offencesOf } from "./standards.ts";

interface Around {
  request: AdmissionRequest;
  oldObject: Namespace | null;
  settings: Settings;
  pods(namespace: string): Promise<Pod[]>;
}

export const judgeNamespace = (namespace: Namespace, around: Around): Verdict | Promise<Verdict> => {
  const { request, oldObject, settings } = around;
  const { name = "" } = request;
  const labels = namespace.metadata?.labels ?? {};
  const defaults = defaultPolicy(settings);
  const { policy, faults } = policyOf(labels, defaults);
  const before = oldObject && policyOf(oldObject.metadata?.labels ?? {}, defaults);

  // Faults that were there before must not block other changes.
  if (faults.length > 0 && JSON.stringify(faults) !== JSON.stringify(before?.faults))
    return { refuse: invalid(request, name, faults) };
  if (before && !isTighter(policy.enforce, before.policy.enforce)) return undefined;
  if (settings.exemptions.namespaces.includes(name)) return exemptWarning(name, labels, policy, defaults);
  if (before) return existing(name, policy.enforce, around);
};

const isTighter = (now: Demand, before: Demand) =>
  now.level !== "privileged" && (now.version !== before.version || isStricter(now.level, before.level));

const exemptWarning = (name: string, labels: Labels, policy: Policy, defaults: Policy): Verdict => {
  const isAsUsual = modes.every((mode) => {
    const [asked, usual] = [policy[mode], defaults[mode]];
    return shown(asked) === shown(usual) || (asked.level === "privileged" && usual.level === "privileged");
  });
  if (isAsUsual || judgesNothing(policy)) return undefined;

  const asked = modes.filter(
    (mode) => policy[mode].level !== "privileged" && (hasLabel(labels, mode) || hasLabel(labels, `${mode}-version`)),
  );
  const told = asked.map((mode) => `${mode}=${shown(policy[mode])}`).join(", ");
  return {
    warnings: [`namespace "${name}" is exempt from Pod Security, and the policy (${told}) will be ignored`],
  };
};

/** The most pods that are checked: the API server waits, and may refuse the label if that takes too long. */
export const most = 500;

/** Only warns: existing pods or a failed list must not prevent a stricter level. */
const existing = async (name: string, demand: Demand, { settings, pods }: Around): Promise<Verdict> => {
  const all = await pods(name).catch(() => undefined);
  if (all === undefined) return { warnings: ["failed to list pods while checking new PodSecurity enforce level"] };

  const judged = all.slice(0, most).filter((pod) => !isSparedByClass(pod, settings));
  const violating = Map.groupBy(judged, (pod) =>
    offencesOf(subjectOf(pod), demand)
      .map(({ reason }) => reason)
      .join(", "),
  );
  violating.delete("");
  const lines = [...violating].map(([reasons, pods]) => `${among(pods)}: ${reasons}`);
  return {
    warnings: [
      ...(all.length > most
        ? [`new PodSecurity enforce level only checked against the first ${most} existing pods`]
        : []),
      ...(violating.size > 0
        ? [`existing pods in namespace "${name}" violate the new PodSecurity enforce level "${shown(demand)}"`]
        : []),
      ...(settings.namesExistingPods ? sorted(lines) : []),
    ],
  };
};

const among = (pods: readonly Pod[]): string => {
  const [first = ""] = sorted(pods.map(({ metadata }) => metadata?.name ?? ""));
  const others = pods.length - 1;
  return others === 0 ? first : `${first} (and ${others} other ${others === 1 ? "pod" : "pods"})`;
};
