import { forbidden } from "postern/refusals";
import { rule } from "postern/rule";

export default rule({
  summary: "Refuses every change, except changes that the cluster needs to keep working.",
  order: 41,
  upstreamPlugin: { plugin: "AlwaysDeny", settings: { spare: { resources: [], namespaces: [] } } },
  match: [{ apiGroups: ["*"], apiVersions: ["*"], resources: ["*/*"], operations: ["*"] }],
  matchConditions: ({ spare }) => ({
    "is-not-in-a-spared-namespace": `!(request.?namespace.orValue("") in ${JSON.stringify(spare.namespaces)})`,
    "is-not-a-spared-resource": `!(request.resource.resource + "." + request.resource.group in ${printResources(spare.resources)})`,
    "is-not-of-a-spared-group": `!("*." + request.resource.group in ${printResources(spare.resources)})`,
  }),
  settings: {
    spare: {
      resources: ["leases.coordination.k8s.io", "nodes", "*.authentication.k8s.io", "*.authorization.k8s.io"],
      namespaces: ["kube-system", "kube-node-lease"],
    },
  },
  exemptionRequired: true,

  // kube-apiserver's AlwaysDeny also refuses in the mutating phase, before the object is validated.
  mutate(_object, { request, settings: { spare } }) {
    const { group, resource } = request.resource;
    if (spare.namespaces.includes(request.namespace ?? "")) return;
    if (completeNames(spare.resources).some((name) => name === `${resource}.${group}` || name === `*.${group}`)) return;

    return { refuse: forbidden(request, "admission control is denying all modifications") };
  },
});

/** Completes names to `resource.group`. The name of the core group is empty, so `nodes` becomes `nodes.`. */
const completeNames = (resources: readonly string[]) =>
  resources.map((name) => (name.includes(".") ? name : `${name}.`));
const printResources = (resources: readonly string[]) => JSON.stringify(completeNames(resources));
