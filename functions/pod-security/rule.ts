import type { Namespace, Pod } from "postern/kubernetes/core/v1";
import { get, list } from "postern/needs";
import { describeNamespaceCreation } from "postern/objects/namespace";
import { type FieldError, forbidden, formatFieldError, joinErrors, notFound } from "postern/refusals";
import type { AdmissionRequest } from "postern/review";
import { rule, type Verdict } from "postern/rule";
import type { PodSubject } from "./checks/check-builders.ts";
import { checkPodSecurityNamespace, maximumCheckedPods } from "./namespace.ts";
import {
  changesContainersOrImages,
  getTemplate,
  hasExemptRuntimeClass,
  type PodTemplateHolder,
  toSubject,
} from "./pods.ts";
import {
  arePodSecurityModesPrivileged,
  formatLevelAndVersion,
  getDefaultPolicy,
  type NamespacePolicy,
  type PodSecurityMode,
  parseNamespacePolicy,
  podSecurityModes,
} from "./policy.ts";
import { getNamespaceLabelsOfEntry } from "./selections.ts";
import {
  defaultPodSecuritySettings,
  findSettingsFault,
  type PodSecuritySettings,
  podSecurityLevelChoices,
} from "./settings.ts";
import { listOffences, newestStandards } from "./standards.ts";
import { fixPod, suggestLabelCorrection } from "./suggestion.ts";
import { buildPodSecurityVariants, podSecurityMatches } from "./variants.ts";

export default rule({
  summary: "Checks pods against the Pod Security Standards that the labels of their namespace choose.",
  order: 12,
  upstreamPlugin: {
    plugin: "PodSecurity",
    worthwhile:
      "The API server's plugin PodSecurity does the same by default. The rule is for clusters in which you can't set the plugin's defaults and exemptions, and for clusters that turned this plugin off.",
    settings: { namesExistingPods: true },
  },
  match: podSecurityMatches,
  variants: buildPodSecurityVariants,
  guards: true, // a security rule: hardening makes it fail closed
  settings: defaultPodSecuritySettings,
  choices: podSecurityLevelChoices,
  checkSettings: findSettingsFault,
  since: newestStandards, // the newest version of the Pod Security Standards, by version of Kubernetes
  needs: {
    // The namespace is read without the cache: a pod that is admitted by outdated labels would stay in the cluster.
    current: get("namespaces", { maxAge: 0 }),
    recent: get("namespaces"),
    // One pod more is listed than is checked, to find out whether there are more.
    pods: list("pods", { most: maximumCheckedPods + 1 }),
  },

  validate(object: Pod & Namespace & PodTemplateHolder, context): Verdict | Promise<Verdict> {
    const { request, oldObject, settings, upstream, variant = "", current, recent } = context;
    if (request.resource.resource === "namespaces") return checkPodSecurityNamespace(object, context);
    const isPod = request.resource.resource === "pods";
    if (isPod && oldObject && !changesContainersOrImages(object, oldObject)) return undefined;
    const pod = isPod ? object : getTemplate(object);
    if (!pod || isExempt(request, settings) || hasExemptRuntimeClass(pod, settings)) return undefined;

    const subject = toSubject(pod);
    const defaults = getDefaultPolicy(settings);
    // The name of the webhook entry contains the levels in the namespace's labels, so the namespace needn't be read.
    const labels = getNamespaceLabelsOfEntry(variant);
    if (labels)
      return evaluatePod(
        subject,
        { policy: parseNamespacePolicy(labels, defaults).policy, faults: [] },
        request,
        upstream,
      );

    const name = request.namespace ?? "";
    return (isPod ? current : recent)({ name }).then((namespace): Verdict => {
      if (namespace) {
        const parsed = parseNamespacePolicy(namespace.metadata?.labels ?? {}, defaults);
        return evaluatePod(subject, parsed, request, upstream);
      }
      const refusal = notFound({ group: "", resource: "namespaces" }, name);
      const error = `failed to lookup namespace "${name}": ${refusal.message}`;
      return isPod ? { refuse: refusal, audit: { error } } : { audit: { error } };
    });
  },

  async suggest(object: Pod & Namespace, { request, settings, upstream, variant = "", current }) {
    const defaults = getDefaultPolicy(settings);
    if (request.resource.resource === "namespaces") return suggestLabelCorrection(object, defaults);
    // Nothing is suggested for an update: the fields that Pod Security checks can't be changed in an existing pod.
    if (request.operation !== "CREATE") return;
    const namespace = getNamespaceLabelsOfEntry(variant) ? undefined : await current({ name: request.namespace ?? "" });
    const labels = getNamespaceLabelsOfEntry(variant) ?? (namespace && (namespace.metadata?.labels ?? {}));
    if (!labels) return describeNamespaceCreation(request.namespace);
    const { enforce } = parseNamespacePolicy(labels, defaults).policy;
    fixPod(object, listOffences(toSubject(object), enforce, upstream.newestVersion));
  },
});

const isExempt = ({ namespace = "", userInfo }: AdmissionRequest, { exemptions }: PodSecuritySettings) =>
  exemptions.namespaces.includes(namespace) || exemptions.usernames.includes(userInfo.username ?? "");

/** Refuses a pod, or adds a warning or an audit annotation, as the namespace's policy says for each mode. */
const evaluatePod = (
  subject: PodSubject,
  { policy, faults }: { policy: NamespacePolicy; faults: readonly FieldError[] },
  request: AdmissionRequest,
  { newestVersion }: { newestVersion: string },
): Verdict => {
  const isPod = request.resource.resource === "pods";
  if (faults.length === 0 && arePodSecurityModesPrivileged(policy, isPod ? podSecurityModes : ["audit", "warn"]))
    return undefined;

  const describeViolation = (mode: PodSecurityMode): string | undefined => {
    const offences = listOffences(subject, policy[mode], newestVersion);
    if (offences.length === 0) return undefined;
    const described = offences.map(({ reason, detail }) => (detail === "" ? reason : `${reason} (${detail})`));
    return `PodSecurity "${formatLevelAndVersion(policy[mode])}": ${described.join(", ")}`;
  };
  const enforceViolation = isPod ? describeViolation("enforce") : undefined;
  const auditViolation = describeViolation("audit");
  const labelErrors = faults.map((fault) => `${fault.field}: ${formatFieldError(fault)}`);
  const audit = {
    ...(labelErrors.length > 0 && { error: `Failed to parse policy: ${joinErrors(labelErrors)}` }),
    ...(isPod && { "enforce-policy": formatLevelAndVersion(policy.enforce) }),
    ...(auditViolation && { "audit-violations": `would violate ${auditViolation}` }),
  };
  if (enforceViolation)
    return { refuse: forbidden(request, `violates ${enforceViolation}`, request.name ?? ""), audit };
  const warnViolation = describeViolation("warn");
  return { audit, warnings: warnViolation ? [`would violate ${warnViolation}`] : [] };
};
