import type { Pod } from "postern/kubernetes/core/v1";
import { get } from "postern/needs";
import { forbidden } from "postern/refusals";
import { rule } from "postern/rule";
import { featuresSince } from "./features.ts";

const buildInitContainers = (pod: "object" | "oldObject") => `${pod}.?spec.?initContainers.orValue([])`;
const buildComparison = (renderField: (pod: "object" | "oldObject") => string) =>
  `${renderField("object")} != ${renderField("oldObject")}`;

const resourceMembers = ["requests", "limits", "claims"];

export default rule({
  summary: "Refuses to resize a running pod if its node does not support the resize.",
  order: 33,
  upstreamPlugin: {
    plugin: "NodeDeclaredFeatureValidator",
    worthwhile:
      "From Kubernetes 1.36 on, the API server's plugin NodeDeclaredFeatureValidator does the same by default. The rule is for clusters that turned this plugin off.",
  },
  match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods", "pods/resize"], operations: ["UPDATE"] }],
  matchConditions: {
    "is-on-a-node": `object.?spec.?nodeName.orValue("") != ""`,
    "changes-its-spec": buildComparison((pod) => `${pod}.?metadata.?generation.orValue(0)`),
    // A matchCondition that exceeds the API server's cost limit fails. So the API server calls the rule for each pod
    // with more than 50 init containers, and the rule itself checks such pods. The rule also checks whether the CPU of
    // a Guaranteed pod changes. Requests, limits and claims of init containers are compared separately, as maps of
    // texts: for the plugin, `1000m` in place of `1` is a change, too, but API servers from 1.37 on would find these
    // equal in a comparison of whole `resources`.
    "changes-what-takes-a-feature": `${buildComparison((pod) => `${pod}.?spec.?resources.orValue(null)`)} ||
      oldObject.?status.?qosClass.orValue("") == "Guaranteed" ||
      size(${buildInitContainers("oldObject")}) > 50 ||
      ${resourceMembers
        .map((member) =>
          buildComparison((pod) => `${buildInitContainers(pod)}.map(c, c.?resources.?${member}.orValue(null))`),
        )
        .join(" ||\n      ")}`,
  },
  since: featuresSince,
  needs: { node: get("nodes") },

  async validate(pod: Pod, { request, upstream, oldObject, node }) {
    const name = pod.spec?.nodeName;
    if (!name || !oldObject || getGeneration(pod) === getGeneration(oldObject)) return;
    const required = Object.keys(upstream.features).filter((name) => upstream.features[name]?.(oldObject, pod));
    if (required.length === 0) return;

    const assigned = await node({ name });
    if (!assigned) return { refuse: forbidden(request, `node "${name}" not found`) };
    const missing = required.filter((feature) => !assigned.status?.declaredFeatures?.includes(feature)).join(", ");
    if (missing !== "")
      return {
        refuse: forbidden(request, `pod update requires features ${missing} which are not available on node "${name}"`),
      };
  },
});

const getGeneration = ({ metadata }: Pod) => metadata?.generation ?? 0;
