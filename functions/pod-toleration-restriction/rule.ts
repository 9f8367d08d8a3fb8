import type { Namespace, Pod, Toleration } from "postern/kubernetes/core/v1";
import { get, type ObjectPlace } from "postern/needs";
import { describeNamespaceCreation } from "postern/objects/namespace";
import { listContainers } from "postern/objects/pod";
import { parseQuantity } from "postern/objects/quantity";
import { createTolerationCheck, mergeTolerations } from "postern/objects/toleration";
import { notFound } from "postern/refusals";
import type { AdmissionRequest, Status } from "postern/review";
import { rule } from "postern/rule";
import { findTolerationFault, parseTolerations } from "./tolerations.ts";

/** The tolerations that pods get (`default`) and may have (`whitelist`) in a namespace without the annotations. */
interface Settings {
  default: Toleration[];
  whitelist: Toleration[];
}

const settings: Settings = { default: [], whitelist: [] };

export default rule({
  summary:
    "Adds the default tolerations of a namespace to its pods, and refuses tolerations that the namespace does not allow.",
  order: 16,
  upstreamPlugin: { plugin: "PodTolerationRestriction" },
  match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE", "UPDATE"] }],
  guards: true, // a security rule: hardening makes it fail closed
  settings,
  checkSettings(settings) {
    for (const key of ["default", "whitelist"] as const)
      for (const [index, toleration] of settings[key].entries()) {
        const fault = findTolerationFault(toleration);
        if (fault) return `must list tolerations under ${key}; ${key}[${index}] ${fault}`;
      }
  },
  since: { "1.0": { countsPodResources: false }, "1.34": { countsPodResources: true } },
  needs: {
    // `mutate` reads the Namespace without the cache, as a pod keeps a toleration that an outdated annotation adds.
    current: get("namespaces", { maxAge: 0 }),
    recent: get("namespaces"),
  },

  async mutate(pod: Pod, { current: namespaces, upstream, ...rest }) {
    const { spec } = pod;
    if (!spec) return;
    const context = { ...rest, namespaces };
    // On an update, the list of defaults is empty. The settings' defaults apply to a namespace without the annotation.
    const { refuse, tolerations: defaults = context.settings.default } =
      context.request.operation === "CREATE" ? await readAnnotation("defaultTolerations", context) : noTolerations;
    if (refuse) return { refuse };

    const added = [...defaults, ...(isBestEffort(pod, upstream.countsPodResources) ? [] : [memoryPressure])];
    if (added.length > 0) spec.tolerations = mergeTolerations(spec.tolerations ?? [], added);
    return checkTolerations(pod, context);
  },

  async validate(pod: Pod, { recent: namespaces, ...rest }) {
    return checkTolerations(pod, { ...rest, namespaces });
  },

  async suggest({ spec }: Pod, { current: namespaces, ...rest }) {
    const context = { ...rest, namespaces };
    const { request, settings } = context;
    if (!(await namespaces({ name: request.namespace ?? "" }))) return describeNamespaceCreation(request.namespace);
    // An update can't remove tolerations of an existing pod, so there is nothing to suggest.
    if (request.operation !== "CREATE") return;
    const { refuse, tolerations: allowed = settings.whitelist } = await readAnnotation("tolerationsWhitelist", context);
    const kept = (spec?.tolerations ?? []).filter(createTolerationCheck(allowed));
    if (refuse || !spec?.tolerations) return;
    if (kept.length > 0) spec.tolerations = kept;
    else delete spec.tolerations;
  },
});

interface TolerationContext {
  request: AdmissionRequest;
  settings: Settings;
  namespaces(place: ObjectPlace): Promise<Namespace | undefined>;
}

/** Refuses a pod with tolerations that the whitelist of its namespace, or of the settings, doesn't allow. */
const checkTolerations = async ({ spec }: Pod, context: TolerationContext) => {
  const tolerations = spec?.tolerations ?? [];
  if (tolerations.length === 0) return;
  const { refuse, tolerations: namespaceWhitelist } = await readAnnotation("tolerationsWhitelist", context);
  if (refuse) return { refuse };
  const allowed = namespaceWhitelist ?? context.settings.whitelist;
  const scope = namespaceWhitelist ? "namespace" : "cluster";
  if (allowed.length > 0 && !tolerations.every(createTolerationCheck(allowed)))
    return `pod tolerations (possibly merged with namespace default tolerations) conflict with its ${scope} whitelist`;
};

/** Returns the tolerations in an annotation of the namespace, none if it has no such annotation, or a refusal. */
const readAnnotation = async (
  key: "defaultTolerations" | "tolerationsWhitelist",
  { request: { namespace: name = "" }, namespaces }: TolerationContext,
): Promise<{ tolerations?: Toleration[]; refuse?: string | Status }> => {
  const namespace = await namespaces({ name });
  if (namespace === undefined) return { refuse: notFound({ group: "", resource: "namespaces" }, name) };

  const annotation = `scheduler.alpha.kubernetes.io/${key}`;
  const text = namespace.metadata?.annotations?.[annotation];
  if (text === undefined) return {};
  const tolerations = parseTolerations(text);
  return tolerations
    ? { tolerations }
    : { refuse: `namespace "${name}" must have a JSON list of tolerations in its annotation ${annotation}` };
};

const noTolerations: Awaited<ReturnType<typeof readAnnotation>> = { tolerations: [] };

/** The toleration that pods with resource requests get: they may run on nodes under memory pressure. */
const memoryPressure: Toleration = {
  key: "node.kubernetes.io/memory-pressure",
  operator: "Exists",
  effect: "NoSchedule",
};

/** Reports whether a pod's QoS class is BestEffort. As upstream, `status.qosClass` decides if it is set. */
const isBestEffort = (pod: Pod, countsPodResources: boolean) => {
  const { spec, status } = pod;
  if (status?.qosClass) return status.qosClass === "BestEffort";
  const stated =
    spec?.resources && countsPodResources
      ? [spec.resources]
      : listContainers(pod, ["containers", "initContainers"]).map(({ container }) => container.resources ?? {});
  const amounts = stated.flatMap(({ requests, limits }) => [requests, limits]);
  return !amounts.some((amount) => isPositive(amount?.cpu) || isPositive(amount?.memory));
};

const isPositive = (amount = "0") => (parseQuantity(amount)?.nanos ?? 0n) > 0n;
