import type { Namespace, Pod } from "kubernetes-types/core/v1.d.ts";
import { get, list } from "postern/needs";
import { creationOf } from "postern/objects/namespace";
import { aggregate, type FieldError, fieldErrorBody, forbidden, notFound } from "postern/refusals";
import type { AdmissionRequest } from "postern/review";
import { rule, type Verdict } from "postern/rule";
import type { Subject } from "./checks/check-builders.ts";
import { judgeNamespace, most } from "./namespace.ts";
import { isSignificant, isSparedByClass, subjectOf, templateOf, type Workload } from "./pods.ts";
import { defaultPolicy, judgesNothing, type Mode, modes, type Policy, policyOf, shown } from "./policy.ts";
import { labelsOfEntry } from "./selections.ts";
import { faultOf, type Settings, settings } from "./settings.ts";
import { offencesOf } from "./standards.ts";
import { levelInstead, mend } from "./suggestion.ts";
import { match, variants } from "./variants.ts";

export default rule({
  summary: "Keeps pods to the Pod Security Standards that their namespace asks for.",
  order: 12,
  upstreamPlugin: {
    plugin: "PodSecurity",
    defaultOn: true,
    worthwhile:
      "Every API server does this itself unless it was told not to: it is for clusters whose defaults and exemptions nobody can set, or that turned PodSecurity off.",
    settings: { namesExistingPods: true },
  },
  match,
  variants,
  guards: true,
  settings,
  checkSettings: faultOf,
  needs: {
    // Read without the cache: a pod that outdated labels admit would stay.
    current: get("namespaces", { maxAge: 0 }),
    recent: get("namespaces"),
    // One more than is checked, to know whether there are more.
    pods: list("pods", { most: most + 1 }),
  },

  validate(object: Pod & Namespace & Workload, around): Verdict | Promise<Verdict> {
    const { request, oldObject, settings, variant = "", current, recent } = around;
    if (request.resource.resource === "namespaces") return judgeNamespace(object, around);
    const isPod = request.resource.resource === "pods";
    if (isPod && oldObject && !isSignificant(object, oldObject)) return undefined;
    const pod = isPod ? object : templateOf(object);
    if (!pod || isExempt(request, settings) || isSparedByClass(pod, settings)) return undefined;

    const subject = subjectOf(pod);
    const defaults = defaultPolicy(settings);
    // The name of the webhook entry implies the labels, so the namespace needn't be read.
    const labels = labelsOfEntry(variant);
    if (labels) return judge(subject, policyOf(labels, defaults).policy, [], request);

    const name = request.namespace ?? "";
    return (isPod ? current : recent)(name).then((namespace): Verdict => {
      if (namespace) {
        const { policy, faults } = policyOf(namespace.metadata?.labels ?? {}, defaults);
        return judge(subject, policy, faults, request);
      }
      const refusal = notFound({ group: "", resource: "namespaces" }, name);
      const error = `failed to lookup namespace "${name}": ${refusal.message}`;
      return isPod ? { refuse: refusal, audit: { error } } : { audit: { error } };
    });
  },

  async suggest(object: Pod & Namespace, { request, settings, variant = "", current }) {
    const defaults = defaultPolicy(settings);
    if (request.resource.resource === "namespaces") return levelInstead(object, defaults);
    // These fields of an existing pod can't be changed.
    if (request.operation !== "CREATE") return;
    const namespace = labelsOfEntry(variant) ? undefined : await current(request.namespace ?? "");
    const labels = labelsOfEntry(variant) ?? (namespace && (namespace.metadata?.labels ?? {}));
    if (!labels) return creationOf(request.namespace);
    mend(object, offencesOf(subjectOf(object), policyOf(labels, defaults).policy.enforce));
  },
});

const isExempt = ({ namespace = "", userInfo }: AdmissionRequest, { exemptions }: Settings) =>
  exemptions.namespaces.includes(namespace) || exemptions.usernames.includes(userInfo.username ?? "");

const judge = (subject: Subject, policy: Policy, faults: readonly FieldError[], request: AdmissionRequest): Verdict => {
  const isPod = request.resource.resource === "pods";
  if (faults.length === 0 && judgesNothing(policy, isPod ? modes : ["audit", "warn"])) return undefined;

  const violation = (mode: Mode): string | undefined => {
    const offences = offencesOf(subject, policy[mode]);
    if (offences.length === 0) return undefined;
    const told = offences.map(({ reason, detail }) => (detail === "" ? reason : `${reason} (${detail})`));
    return `PodSecurity "${shown(policy[mode])}": ${told.join(", ")}`;
  };
  const [refused, noted] = [isPod ? violation("enforce") : undefined, violation("audit")];
  const unread = faults.map((fault) => `${fault.field}: ${fieldErrorBody(fault)}`);
  const audit = {
    ...(unread.length > 0 && { error: `Failed to parse policy: ${aggregate(unread)}` }),
    ...(isPod && { "enforce-policy": shown(policy.enforce) }),
    ...(noted && { "audit-violations": `would violate ${noted}` }),
  };
  if (refused) return { refuse: forbidden(request, `violates ${refused}`, request.name ?? ""), audit };
  const warned = violation("warn");
  return { audit, warnings: warned ? [`would violate ${warned}`] : [] };
};
