import type { KubernetesObject } from "postern/review";
import { rule } from "postern/rule";

interface ReplicatedObject extends KubernetesObject {
  spec?: { replicas?: number };
}

interface Settings {
  minimum: number;
  allowZero: boolean;
  /** The rule applies only in these namespaces, and only if they have all of these labels. Empty: in all namespaces. */
  namespaces: string[];
  namespaceLabels: Record<string, string>;
}

const settings: Settings = { minimum: 2, allowZero: false, namespaces: [], namespaceLabels: {} };

export default rule({
  summary: "Refuses Deployments and StatefulSets with too few replicas.",
  match: [
    {
      apiGroups: ["apps"],
      apiVersions: ["v1"],
      resources: ["deployments", "statefulsets", "deployments/scale", "statefulsets/scale"],
      operations: ["CREATE", "UPDATE"],
    },
  ],
  // The namespaceSelector chooses namespaces by label, because a review doesn't contain the namespace's labels.
  namespaceSelector: ({ namespaceLabels }: Settings) => ({ matchLabels: namespaceLabels }),
  matchConditions: ({ minimum, namespaces }) => ({
    "has-too-few-replicas": `object.?spec.?replicas.orValue(has(request.subResource) ? 0 : 1) < ${minimum}`,
    ...(namespaces.length > 0 && {
      "is-in-a-chosen-namespace": `request.?namespace.orValue("") in ${JSON.stringify(namespaces)}`,
    }),
  }),
  settings,
  // Example elements: they say that these settings, which are empty by default, contain texts.
  elements: { namespaces: "", namespaceLabels: "" },
  checkSettings({ minimum, namespaces }) {
    if (minimum < 1) return `must have a whole number of at least 1 as minimum, not ${minimum}`;
    const noName = namespaces.find((name) => !namespaceName.test(name));
    if (noName !== undefined) return `must list names of namespaces under namespaces, not "${noName}"`;
  },

  validate(object: ReplicatedObject, { request, oldObject, settings: { minimum, allowZero, namespaces } }) {
    if (namespaces.length > 0 && !namespaces.includes(request.namespace ?? "")) return;

    // If `replicas` is absent, it is 0 in a Scale, because the API server omits zeros there. In workloads, it is 1.
    const getReplicas = ({ spec }: ReplicatedObject) => spec?.replicas ?? (request.subResource === "scale" ? 0 : 1);
    const isEnough = (replicas: number) => replicas >= minimum || (allowZero && replicas === 0);

    const replicas = getReplicas(object);
    const before = oldObject && getReplicas(oldObject);
    const hadTooFew = before !== null && !isEnough(before);
    if (isEnough(replicas) || (hadTooFew && replicas >= before)) return;

    return `spec.replicas must be ${allowZero ? "0 or " : ""}at least ${minimum}, not ${replicas}`;
  },

  suggest(object: ReplicatedObject, { settings: { minimum } }) {
    object.spec = { ...object.spec, replicas: minimum };
  },
});

const namespaceName = /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/;
