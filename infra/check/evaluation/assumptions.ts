import type { Capabilities } from "#lib/needs.ts";
import type { KubernetesObject } from "#lib/review.ts";

/** What check assumes of a cluster without --state/--live: an object exists, or all of a kind are in the manifests. */
export interface Assumption {
  resource: string;
  namespace?: string | undefined;
  /** The name of an object that exists. Without it, no objects of the resource exist but those of the manifests. */
  name?: string;
}

/** Gets a sentence about what isn't known of the cluster. Without `scope`, each outcome of the rule is uncertain. */
export type Tell = (sentence: string, scope?: UncertaintyScope) => void;

/** Which outcome of a rule is uncertain because something isn't known of the cluster, and what is assumed instead. */
export interface UncertaintyScope {
  /** The only uncertain outcome. If absent, `assumed` is relied on, and both outcomes are taken as certain. */
  uncertainOutcome?: "admitted" | "refused";
  /** For instance, that an object exists; its content may still make a refusal uncertain. Absent: nothing assumed. */
  assumed?: Assumption;
}

/** By resource, what a missing object contains by assumption, if a manifest names it and a plugin reads it. */
const assumedContents: Record<string, { apiVersion: string; kind: string; [member: string]: unknown }> = {
  nodes: { apiVersion: "v1", kind: "Node" },
  priorityclasses: { apiVersion: "scheduling.k8s.io/v1", kind: "PriorityClass", value: 0 },
  runtimeclasses: { apiVersion: "node.k8s.io/v1", kind: "RuntimeClass" },
  serviceaccounts: { apiVersion: "v1", kind: "ServiceAccount" },
};

const mayBeInInput = "may be among the manifests or in --state";

const formatPlaceOf = (namespace: string | undefined) => (namespace ? ` in namespace ${namespace}` : "");

/**
 * Returns the capabilities of a rule, or of the named plugin, that know only the manifests. By assumption, lists have
 * no other objects, and an object that a plugin reads by its name exists. `tell` gets each assumption and what isn't
 * known. With `isStrict`, nothing is assumed.
 */
export const restrictToManifests = (
  capabilities: Capabilities,
  {
    plugin,
    isStrict,
    isAssumedNamespace,
    tell,
  }: {
    plugin: string | undefined;
    isStrict: boolean;
    /** Reports whether an object is a Namespace that is only assumed to exist, so that its labels aren't known. */
    isAssumedNamespace(object: KubernetesObject): boolean;
    tell: Tell;
  },
): Capabilities => ({
  ...capabilities,
  list: async (kind, namespace, ...more) => {
    const listed = await capabilities.list(kind, namespace, ...more);
    // A plugin of policies lists their parameters. That there are none can't be assumed: they decide the outcome.
    const lacksParameters = plugin?.endsWith("AdmissionPolicy") === true && listed.length === 0;
    const sentence = `which ${kind.resource} exist${formatPlaceOf(namespace)}; they ${mayBeInInput}`;
    if (isStrict || lacksParameters) tell(sentence);
    else tell(sentence, { assumed: { resource: kind.resource, namespace } });
    return listed;
  },
  get: async (kind, name, namespace, ...more) => {
    const { resource } = kind;
    const found = await capabilities.get(kind, name, namespace, ...more);
    const whether = `whether ${resource} "${name}" exists; that ${mayBeInInput}`;
    if (found !== undefined) {
      // Plugins such as NamespaceLifecycle only ask whether a namespace exists; other plugins read its labels.
      if (isStrict && isAssumedNamespace(found))
        tell(plugin?.startsWith("Namespace") ? whether : `what labels namespace ${name} has; that ${mayBeInInput}`);
      return found;
    }
    const what = `what ${resource} "${name}" contains; that ${mayBeInInput}`;
    const content = plugin === undefined || isStrict ? undefined : assumedContents[resource];
    if (content === undefined) {
      // If no content is assumed, both outcomes are uncertain. None is assumed with `isStrict`, for a resource that
      // `assumedContents` lacks, or for a rule (which has no `plugin`), because a rule reads an object for its content.
      tell(isStrict ? whether : what);
      return undefined;
    }
    // The plugin might not refuse the request if the object has other content.
    tell(what, { uncertainOutcome: "refused", assumed: { resource, namespace, name } });
    return { ...content, metadata: { name, ...(namespace && { namespace }) } };
  },
  ledger: (rule, reach) => {
    const ledger = capabilities.ledger(rule, reach);
    const change: typeof ledger.change = async (...question) => {
      // The rule might not admit the request if the cluster's ledger has other entries.
      tell(`what the ledger of ${rule} has`, { uncertainOutcome: "admitted" });
      return ledger.change(...question);
    };
    return { ...ledger, change };
  },
});

/** Describes an assumption in a sentence. */
export const describeAssumption = ({ resource, namespace, name }: Assumption): string => {
  if (name === undefined) return `only the ${resource} of the manifests exist${formatPlaceOf(namespace)}`;
  if (resource === "namespaces") return `namespace ${name} exists, without labels of its own`;
  return `${formatAssumedObject({ resource, namespace, name })} exists`;
};

/** Names an assumed object, for instance `ServiceAccount shop/web`. */
export const formatAssumedObject = ({ resource, namespace, name }: Assumption) =>
  `${assumedContents[resource]?.kind ?? resource} ${namespace ? `${namespace}/` : ""}${name}`;
