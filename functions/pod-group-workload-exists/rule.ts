import { get } from "postern/needs";
import { forbidden } from "postern/refusals";
import type { KubernetesObject } from "postern/review";
import { rule } from "postern/rule";

/** A PodGroup of scheduling.k8s.io/v1alpha2, a version that Kubernetes 1.37 no longer has. */
interface PodGroup extends KubernetesObject {
  spec?: { podGroupTemplateRef?: { workload?: { workloadName?: string; podGroupTemplateName?: string } } };
}

interface Workload extends KubernetesObject {
  metadata?: KubernetesObject["metadata"] & { deletionTimestamp?: string };
  spec?: { podGroupTemplates?: { name?: string }[] };
}

export default rule({
  summary: "Refuses pod groups that name a workload or a template that doesn't exist.",
  order: 32,
  upstreamPlugin: {
    plugin: "PodGroupWorkloadExists",
    worthwhile:
      "In Kubernetes 1.36, the API server's plugin PodGroupWorkloadExists does the same if the API server serves pod groups. Kubernetes 1.37 doesn't have this plugin. The rule is for clusters with 1.36 that turned the plugin off.",
  },
  match: [
    {
      apiGroups: ["scheduling.k8s.io"],
      apiVersions: ["v1alpha2"],
      resources: ["podgroups"],
      operations: ["CREATE"],
    },
  ],
  matchConditions: { "is-made-of-a-template": "object.?spec.?podGroupTemplateRef.?workload.hasValue()" },
  needs: {
    workloads: get<Workload>({ group: "scheduling.k8s.io", version: "v1alpha2", resource: "workloads" }),
  },

  async validate(group: PodGroup, { request, workloads }) {
    const reference = group.spec?.podGroupTemplateRef?.workload;
    if (!reference) return;

    const { workloadName = "", podGroupTemplateName = "" } = reference;
    const workload = await workloads({ name: workloadName, namespace: request.namespace });
    const refuseRequest = (why: string) => ({ refuse: forbidden(request, `PodGroup rejected: ${why}`) });
    if (!workload) return refuseRequest(`Workload "${workloadName}" not found`);
    if (workload.metadata?.deletionTimestamp) return refuseRequest(`Workload "${workloadName}" is being deleted`);
    if (!workload.spec?.podGroupTemplates?.some(({ name }) => name === podGroupTemplateName))
      return refuseRequest(`PodGroupTemplate "${podGroupTemplateName}" not found in Workload "${workloadName}"`);
  },

  async suggest(group: PodGroup, { request, workloads }) {
    const { workloadName = "" } = group.spec?.podGroupTemplateRef?.workload ?? {};
    const workload = await workloads({ name: workloadName, namespace: request.namespace });
    if (!workload) return `create Workload ${JSON.stringify(workloadName)} first`;
    if (workload.metadata?.deletionTimestamp) return;
    const names = (workload.spec?.podGroupTemplates ?? []).slice(0, 3).map(({ name }) => JSON.stringify(name));
    if (names.length > 0) return `use a template of the workload, for instance ${names.join(" or ")}`;
  },
});
