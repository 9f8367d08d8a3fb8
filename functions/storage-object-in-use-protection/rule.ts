import type { KubernetesObject } from "postern/review";
import { rule } from "postern/rule";

const protections: Record<string, string> = {
  persistentvolumes: "kubernetes.io/pv-protection",
  persistentvolumeclaims: "kubernetes.io/pvc-protection",
  volumeattributesclasses: "kubernetes.io/vac-protection",
};

export default rule({
  summary: "Delays the deletion of volumes, claims and volume attributes classes until they are no longer used.",
  order: 20,
  upstreamPlugin: { plugin: "StorageObjectInUseProtection" },
  match: [
    {
      apiGroups: [""],
      apiVersions: ["v1"],
      resources: ["persistentvolumes", "persistentvolumeclaims"],
      operations: ["CREATE"],
    },
    // VolumeAttributesClasses have two versions, because older clusters serve only v1beta1.
    {
      apiGroups: ["storage.k8s.io"],
      apiVersions: ["v1", "v1beta1"],
      resources: ["volumeattributesclasses"],
      operations: ["CREATE"],
    },
  ],
  matchConditions: {
    "is-not-protected": `!(${JSON.stringify(protections)}[request.resource.resource]
      in object.?metadata.?finalizers.orValue([]))`,
  },

  mutate(object: KubernetesObject, { request }) {
    const protection = protections[request.resource.resource];
    const finalizers = object.metadata?.finalizers ?? [];
    if (!protection || finalizers.includes(protection)) return;

    object.metadata = { ...object.metadata, finalizers: [...finalizers, protection] };
  },
});
