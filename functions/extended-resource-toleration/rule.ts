import type { Pod, Toleration } from "postern/kubernetes/core/v1";
import { listContainers, listContainersInCel } from "postern/objects/pod";
import { isExtendedResource } from "postern/objects/resources";
import { rule } from "postern/rule";

const containers = listContainersInCel("object", ["initContainers", "containers"]);

export default rule({
  summary: "Adds tolerations for the nodes that are reserved for the extended resources that a pod requests.",
  order: 18,
  upstreamPlugin: { plugin: "ExtendedResourceToleration" },
  match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE", "UPDATE"] }],
  matchConditions: {
    // A CEL condition that exceeds the API server's cost limit is an error. So the API server calls the rule for each
    // pod with more than 50 containers and tolerations, and the rule itself checks such pods. The last line is for
    // tolerations with tolerationSeconds: if the pod requests their extended resource, the rule replaces them.
    "requests-what-it-does-not-tolerate": `size(${containers}) + size(object.spec.?tolerations.orValue([])) > 50 ||
      ${containers}.exists(c, c.?resources.?requests.orValue({}).exists(name,
        name.contains("/") && !name.contains("kubernetes.io/") && !name.startsWith("requests.") &&
        !object.spec.?tolerations.orValue([]).exists(t,
          t.?key.orValue("") == name && t.?operator.orValue("") == "Exists" && t.?effect.orValue("") == "NoSchedule" &&
          t.?value.orValue("") == ""))) ||
      object.spec.?tolerations.orValue([]).exists(t, t.?effect.orValue("") == "NoSchedule" && has(t.tolerationSeconds))`,
  },

  mutate(pod: Pod) {
    const requests = listContainers(pod, ["initContainers", "containers"]).flatMap(({ container }) =>
      Object.keys(container.resources?.requests ?? {}),
    );
    const resources = new Set(requests.filter(isExtendedResource).sort());
    if (!pod.spec || resources.size === 0) return;

    const present = pod.spec.tolerations ?? [];
    const tolerated = new Set(present.filter(isResourceToleration).map(({ key }) => key));
    pod.spec.tolerations = [
      // As upstream does, existing tolerations of extended resources are replaced, so their tolerationSeconds are lost.
      ...present.map((toleration) =>
        isResourceToleration(toleration) && toleration.key && resources.has(toleration.key)
          ? buildToleration(toleration.key)
          : toleration,
      ),
      ...[...resources].filter((key) => !tolerated.has(key)).map(buildToleration),
    ];
  },
});

const buildToleration = (key: string): Toleration => ({ key, operator: "Exists", effect: "NoSchedule" });
const isResourceToleration = ({ operator, effect, value }: Toleration) =>
  operator === "Exists" && effect === "NoSchedule" && !value;
