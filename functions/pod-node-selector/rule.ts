import type { Namespace, Pod } from "postern/kubernetes/core/v1";
import { get } from "postern/needs";
import { findConflict, type Labels, type LengthUnit, labelUnitSince } from "postern/objects/label";
import { describeNamespaceCreation } from "postern/objects/namespace";
import { forbidden, notFound } from "postern/refusals";
import type { AdmissionRequest, Status } from "postern/review";
import { rule } from "postern/rule";
import { parseSelector } from "./selector.ts";

const annotation = "scheduler.alpha.kubernetes.io/node-selector";

/** The node labels that pods may select, by namespace; clusterDefaultNodeSelector replaces a missing annotation. */
type Config = Record<string, string>;
const settings: { podNodeSelectorPluginConfig: Config } = { podNodeSelectorPluginConfig: {} };

export default rule({
  summary: "Restricts the pods of a namespace to the nodes that are chosen for this namespace.",
  order: 13,
  upstreamPlugin: { plugin: "PodNodeSelector" },
  match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE"] }],
  guards: true, // a security rule: hardening makes it fail closed
  settings,
  checkSettings({ podNodeSelectorPluginConfig }) {
    for (const [name, text] of Object.entries<unknown>(podNodeSelectorPluginConfig)) {
      const parsed = typeof text === "string" ? parseSelector(text) : `${JSON.stringify(text)} is not a string`;
      if (typeof parsed === "string")
        return `must have selectors such as "pool=default,disk=ssd" under podNodeSelectorPluginConfig; of ${name}: ${parsed}`;
    }
  },
  since: labelUnitSince, // messages call the unit of a label's length "characters", from Kubernetes 1.35 on "bytes"
  needs: {
    // To add labels to a pod's node selector, the Namespace is read without the cache, because the pod keeps them.
    current: get("namespaces", { maxAge: 0 }),
    recent: get("namespaces"),
  },

  async mutate(pod: Pod, { request, current, ...context }) {
    const namespaceNodes = getNodes(request, await current({ name: request.namespace ?? "" }), context);
    if ("refuse" in namespaceNodes) return namespaceNodes;

    const podSelector = pod.spec?.nodeSelector ?? {};
    const merged = { ...namespaceNodes.nodes, ...podSelector };
    const refusal = checkSelector(request, pod, merged, namespaceNodes);
    if (refusal) return refusal;
    if (pod.spec && Object.keys(merged).length > Object.keys(podSelector).length) pod.spec.nodeSelector = merged;
  },

  async validate(pod: Pod, { request, recent, ...context }) {
    const namespaceNodes = getNodes(request, await recent({ name: request.namespace ?? "" }), context);
    return "refuse" in namespaceNodes
      ? namespaceNodes
      : checkSelector(request, pod, pod.spec?.nodeSelector ?? {}, namespaceNodes);
  },

  async suggest({ spec }: Pod, { request, current, ...context }) {
    const namespace = await current({ name: request.namespace ?? "" });
    if (!namespace) return describeNamespaceCreation(request.namespace);
    const namespaceNodes = getNodes(request, namespace, context);
    if ("refuse" in namespaceNodes || !spec) return;
    const { nodes, allowed } = namespaceNodes;
    const { nodeSelector = {} } = spec;
    const correctedSelector = Object.entries({ ...nodeSelector, ...nodes }).filter(([key]) =>
      Object.hasOwn(nodeSelector, key),
    );
    const isAllowed = ([key, value]: [string, string]) => isAllowedSelector(allowed, { [key]: value });
    const kept = Object.keys(allowed).length > 0 ? correctedSelector.filter(isAllowed) : correctedSelector;
    if (kept.length > 0) spec.nodeSelector = Object.fromEntries(kept);
    else delete spec.nodeSelector;
  },
});

interface NamespaceNodes {
  /** The node labels that the namespace chooses for its pods. */
  nodes: Labels;
  /** The node labels that pods of the namespace may select; an empty map allows any. */
  allowed: Labels;
}

/** Returns the nodes that the settings and the annotation choose for a namespace; a refusal if they are invalid. */
const getNodes = (
  { namespace: name = "" }: AdmissionRequest,
  namespace: Namespace | undefined,
  context: { settings: { podNodeSelectorPluginConfig: Config }; upstream: { labelUnit: LengthUnit } },
): NamespaceNodes | { refuse: string | Status } => {
  if (namespace === undefined) return { refuse: notFound({ group: "", resource: "namespaces" }, name) };

  const { podNodeSelectorPluginConfig: config } = context.settings;
  const { labelUnit } = context.upstream;
  const getText = (key: string) => (Object.hasOwn(config, key) && config[key]) || "";
  // An empty annotation selects all nodes. The default is only for namespaces without the annotation.
  const text = namespace.metadata?.annotations?.[annotation] ?? getText("clusterDefaultNodeSelector");
  const nodes = parseSelector(text, labelUnit);
  const allowed = parseSelector(getText(name), labelUnit);
  if (typeof nodes === "string") return { refuse: nodes };
  return typeof allowed === "string" ? { refuse: allowed } : { nodes, allowed };
};

const checkSelector = (request: AdmissionRequest, pod: Pod, selector: Labels, { nodes, allowed }: NamespaceNodes) => {
  const refuseRequest = (text: string) => ({ refuse: forbidden(request, text, pod.metadata?.name ?? "") });
  if (findConflict(nodes, selector) !== undefined)
    return refuseRequest("pod node label selector conflicts with its namespace node label selector");
  if (Object.keys(allowed).length > 0 && !isAllowedSelector(allowed, selector))
    return refuseRequest("pod node label selector labels conflict with its namespace whitelist");
};

const isAllowedSelector = (allowed: Labels, selector: Labels) =>
  Object.keys(selector).every((key) => Object.hasOwn(allowed, key) && allowed[key] === selector[key]);
