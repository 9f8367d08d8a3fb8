import type { Job } from "postern/kubernetes/batch/v1";
import type { OwnerReference } from "postern/kubernetes/meta/v1";
import { discovery, get, list, type ResourceType } from "postern/needs";
import { forbidden } from "postern/refusals";
import type { KubernetesObject } from "postern/review";
import { rule } from "postern/rule";

/** A PodGroup of scheduling.k8s.io/v1alpha2, a version that Kubernetes 1.37 no longer has. */
interface PodGroup extends KubernetesObject {
  metadata?: KubernetesObject["metadata"] & { ownerReferences?: OwnerReference[] };
  spec?: { schedulingPolicy?: { gang?: object } };
}

const podGroups: ResourceType = { group: "scheduling.k8s.io", version: "v1alpha2", resource: "podgroups" };

export default rule({
  summary: "Refuses to change the parallelism of a Job whose pods are scheduled as a gang.",
  order: 34,
  upstreamPlugin: {
    plugin: "JobValidation",
    worthwhile:
      "In Kubernetes 1.36, the API server's plugin JobValidation does the same if the API server serves pod groups. Kubernetes 1.37 doesn't have this plugin. The rule is for clusters with 1.36 that turned the plugin off.",
  },
  match: [{ apiGroups: ["batch"], apiVersions: ["v1"], resources: ["jobs"], operations: ["UPDATE"] }],
  matchConditions: {
    "changes-its-parallelism": "object.?spec.?parallelism.orValue(1) != oldObject.?spec.?parallelism.orValue(1)",
  },
  needs: {
    served: discovery(),
    group: get<PodGroup>(podGroups),
    groups: list(podGroups),
  },

  async validate(job: Job, { request, oldObject, served, group, groups }) {
    if (!oldObject || getParallelism(job) === getParallelism(oldObject)) return;
    // Pod groups are alpha; most clusters don't serve them.
    const kinds = (await served(`${podGroups.group}/${podGroups.version}`)) ?? [];
    if (!kinds.some(({ resource }) => resource === podGroups.resource)) return;

    const { namespace = "" } = request;
    const name = oldObject.spec?.template?.spec?.schedulingGroup?.podGroupName;
    const podGroupsOfJob: (PodGroup | undefined)[] =
      name === undefined
        ? (await groups(namespace)).filter((podGroup) => isControlledBy(podGroup, oldObject))
        : [await group({ name, namespace })];
    const gang = podGroupsOfJob.find((podGroup) => podGroup?.spec?.schedulingPolicy?.gang);
    if (gang)
      return {
        refuse: forbidden(
          request,
          `cannot change parallelism for a Job referencing gang-scheduled PodGroup "${gang.metadata?.name}"`,
        ),
      };
  },

  suggest({ spec }: Job, { oldObject }) {
    const before = oldObject?.spec?.parallelism;
    if (spec && before !== undefined) spec.parallelism = before;
    else delete spec?.parallelism;
  },
});

const getParallelism = ({ spec }: Job) => spec?.parallelism ?? 1;

const isControlledBy = ({ metadata }: PodGroup, owner: Job): boolean => {
  const controller = metadata?.ownerReferences?.find((reference) => reference.controller);
  return controller !== undefined && controller.uid === owner.metadata?.uid;
};
