import type { NodeSelectorTerm, PersistentVolume } from "postern/kubernetes/core/v1";
import { aws } from "postern/needs";
import { forbidden } from "postern/refusals";
import { rule } from "postern/rule";
import { findVolumeZone } from "./ebs.ts";

const betaLabels = "failure-domain.beta.kubernetes.io";
const labels = "topology.kubernetes.io";

/** The id of a volume that a provisioner hasn't created yet. */
const placeholder = "placeholder-for-provisioning";

export default rule({
  summary: "Labels new EBS persistent volumes with their zone and region, and keeps their pods in that zone.",
  match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["persistentvolumes"], operations: ["CREATE"] }],
  matchConditions: {
    "is-an-ebs-volume": `object.spec.?awsElasticBlockStore.?volumeID.orValue("${placeholder}") != "${placeholder}"`,
  },
  timeoutSeconds: 5,
  settings: { region: "", topologyLabels: false },
  checkSettings({ region }) {
    if (!/^[a-z]{2,4}(-[a-z]{2,16}){1,3}-\d{1,2}$/.test(region))
      return `must have the region of the cluster's volumes, for instance eu-west-1, not "${region}"`;
  },
  needs: { describe: aws("ec2:DescribeVolumes") },

  async mutate(volume: PersistentVolume, { request, settings: { region, topologyLabels }, describe }) {
    const { volumeID = placeholder } = volume.spec?.awsElasticBlockStore ?? {};
    if (!volume.spec || volumeID === placeholder) return;

    const zoneOrMistake = await findVolumeZone(volumeID, region, describe);
    if ("mistake" in zoneOrMistake)
      return { refuse: forbidden(request, `error querying AWS EBS volume ${volumeID}: ${zoneOrMistake.mistake}`) };

    const location = { region, zone: zoneOrMistake.zone };
    const added = (topologyLabels ? [betaLabels, labels] : [betaLabels]).flatMap((prefix) =>
      Object.entries(location).map(([name, value]) => [`${prefix}/${name}`, value] as const),
    );
    volume.metadata = { ...volume.metadata, labels: { ...volume.metadata?.labels, ...Object.fromEntries(added) } };

    const { nodeAffinity } = volume.spec;
    const present = nodeAffinity?.required?.nodeSelectorTerms ?? [];
    const terms: NodeSelectorTerm[] = present.length > 0 ? present : [{}];
    // A volume that already restricts one of these labels keeps its own node affinity.
    if (
      terms.some(({ matchExpressions = [] }) =>
        matchExpressions.some(({ key }) => added.some(([name]) => name === key)),
      )
    )
      return;
    const wanted = added.map(([key, value]) => ({ key, operator: "In", values: [value] }));
    const nodeSelectorTerms = terms.map((term) => ({
      ...term,
      matchExpressions: [...(term.matchExpressions ?? []), ...wanted],
    }));
    volume.spec.nodeAffinity = { ...nodeAffinity, required: { ...nodeAffinity?.required, nodeSelectorTerms } };
  },
});
