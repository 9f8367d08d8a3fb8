import type { Namespace, Pod } from "postern/kubernetes/core/v1";
import { invalid } from "postern/refusals";
import type { AdmissionRequest } from "postern/review";
import type { Verdict } from "postern/rule";
import { sortUnique } from "./checks/check-builders.ts";
import { hasExemptRuntimeClass, toSubject } from "./pods.ts";
import {
  arePodSecurityModesPrivileged,
  formatLevelAndVersion,
  getDefaultPolicy,
  hasLabel,
  isStricter,
  type NamespaceLabels,
  type NamespacePolicy,
  type PodSecurityLevelAndVersion,
  parseNamespacePolicy,
  podSecurityModes,
} from "./policy.ts";
import type { PodSecuritySettings } from "./settings.ts";
import { listOffences } from "./standards.ts";

interface NamespaceContext {
  request: AdmissionRequest;
  oldObject: Namespace | null;
  settings: PodSecuritySettings;
  upstream: { newestVersion: string }; // of the Pod Security Standards that the cluster's API server knows
  pods(namespace: string): Promise<Pod[]>;
}

/** Checks the Pod Security labels of a namespace that is being written. */
export const checkPodSecurityNamespace = (
  namespace: Namespace,
  context: NamespaceContext,
): Verdict | Promise<Verdict> => {
  const { request, oldObject, settings } = context;
  const { name = "" } = request;
  const labels = namespace.metadata?.labels ?? {};
  const defaults = getDefaultPolicy(settings);
  const { policy, faults } = parseNamespacePolicy(labels, defaults);
  const before = oldObject && parseNamespacePolicy(oldObject.metadata?.labels ?? {}, defaults);

  // If an update doesn't change the invalid labels of a namespace, the labels must not block the update.
  if (faults.length > 0 && JSON.stringify(faults) !== JSON.stringify(before?.faults))
    return { refuse: invalid(request, name, faults) };
  if (before && !isMoreDemanding(policy.enforce, before.policy.enforce)) return undefined;
  if (settings.exemptions.namespaces.includes(name)) return warnIfExempt(name, labels, policy, defaults);
  if (before) return warnOfExistingPods(name, policy.enforce, context);
};

/** Reports whether a level has to be checked: it forbids something, and it is stricter or has another version. */
const isMoreDemanding = (demanded: PodSecurityLevelAndVersion, previous: PodSecurityLevelAndVersion) =>
  demanded.level !== "privileged" &&
  (demanded.version !== previous.version || isStricter(demanded.level, previous.level));

/** Returns a warning if the labels of an exempt namespace ask for checks, because they have no effect. */
const warnIfExempt = (
  name: string,
  labels: NamespaceLabels,
  policy: NamespacePolicy,
  defaults: NamespacePolicy,
): Verdict => {
  const isDefault = podSecurityModes.every((mode) => {
    const [wanted, fallback] = [policy[mode], defaults[mode]];
    return (
      formatLevelAndVersion(wanted) === formatLevelAndVersion(fallback) ||
      (wanted.level === "privileged" && fallback.level === "privileged")
    );
  });
  if (isDefault || arePodSecurityModesPrivileged(policy)) return undefined;

  const wantedModes = podSecurityModes.filter(
    (mode) => policy[mode].level !== "privileged" && (hasLabel(labels, mode) || hasLabel(labels, `${mode}-version`)),
  );
  const described = wantedModes.map((mode) => `${mode}=${formatLevelAndVersion(policy[mode])}`).join(", ");
  return {
    warnings: [`namespace "${name}" is exempt from Pod Security, and the policy (${described}) will be ignored`],
  };
};

/**
 * The most existing pods that are checked when a namespace gets a stricter level: if the check takes too long, the API
 * server may refuse the label.
 */
export const maximumCheckedPods = 500;

/**
 * Returns warnings about existing pods that violate a namespace's new level. It never refuses the level, even if pods
 * violate it or can't be listed.
 */
const warnOfExistingPods = async (
  name: string,
  demand: PodSecurityLevelAndVersion,
  { settings, upstream, pods }: NamespaceContext,
): Promise<Verdict> => {
  const listed = await pods(name).catch(() => undefined);
  if (listed === undefined) return { warnings: ["failed to list pods while checking new PodSecurity enforce level"] };

  const checked = listed.slice(0, maximumCheckedPods).filter((pod) => !hasExemptRuntimeClass(pod, settings));
  const violating = Map.groupBy(checked, (pod) =>
    listOffences(toSubject(pod), demand, upstream.newestVersion)
      .map(({ reason }) => reason)
      .join(", "),
  );
  violating.delete("");
  const lines = [...violating].map(([reasons, pods]) => `${describePods(pods)}: ${reasons}`);
  return {
    warnings: [
      ...(listed.length > maximumCheckedPods
        ? [`new PodSecurity enforce level only checked against the first ${maximumCheckedPods} existing pods`]
        : []),
      ...(violating.size > 0
        ? [
            `existing pods in namespace "${name}" violate the new PodSecurity enforce level "${formatLevelAndVersion(demand)}"`,
          ]
        : []),
      ...(settings.namesExistingPods ? sortUnique(lines) : []),
    ],
  };
};

/** Returns the name of the first pod, and the number of others: `a (and 2 other pods)`. */
const describePods = (pods: readonly Pod[]): string => {
  const [first = ""] = sortUnique(pods.map(({ metadata }) => metadata?.name ?? ""));
  const others = pods.length - 1;
  return others === 0 ? first : `${first} (and ${others} other ${others === 1 ? "pod" : "pods"})`;
};
