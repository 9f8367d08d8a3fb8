import type { PersistentVolumeClaim } from "postern/kubernetes/core/v1";
import { get } from "postern/needs";
import { compareQuantities } from "postern/objects/quantity";
import { forbidden } from "postern/refusals";
import { rule } from "postern/rule";

const buildSize = (claim: "object" | "oldObject") => `${claim}.?spec.?resources.?requests[?"storage"].orValue("0")`;

export default rule({
  summary: "Lets a claim grow only if its storage class allows volume expansion.",
  order: 23,
  upstreamPlugin: { plugin: "PersistentVolumeClaimResize" },
  match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["persistentvolumeclaims"], operations: ["UPDATE"] }],
  matchConditions: { "changes-its-size": `${buildSize("object")} != ${buildSize("oldObject")}` },
  needs: { storageClass: get("storageclasses") },

  async validate(claim: PersistentVolumeClaim, { request, oldObject, storageClass }) {
    if (!oldObject || compareQuantities(getSize(claim), getSize(oldObject)) <= 0) return;
    if (oldObject.status?.phase !== "Bound")
      return { refuse: forbidden(request, "Only bound persistent volume claims can be expanded") };

    const name = getClassName(claim);
    const canGrow =
      name !== "" && name === getClassName(oldObject) && (await storageClass({ name }))?.allowVolumeExpansion;
    if (!canGrow) return { refuse: forbidden(request, unsupported) };
  },

  async suggest(claim: PersistentVolumeClaim, { oldObject, storageClass }) {
    if (!oldObject) return;
    const keepSize = `keep spec.resources.requests.storage at ${getSize(oldObject)}`;
    if (oldObject.status?.phase !== "Bound") return `${keepSize} until the claim is bound`;
    const name = getClassName(oldObject);
    if (name === "" || name !== getClassName(claim) || !(await storageClass({ name }))) return keepSize;
    return `${keepSize}, or set allowVolumeExpansion of StorageClass ${JSON.stringify(name)} to true if its driver can expand volumes`;
  },
});

const unsupported =
  "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize";

const getSize = ({ spec }: PersistentVolumeClaim) => spec?.resources?.requests?.storage ?? "0";

/** Returns a claim's storage class; the older annotation takes precedence over the field. */
const getClassName = ({ metadata, spec }: PersistentVolumeClaim) =>
  metadata?.annotations?.["volume.beta.kubernetes.io/storage-class"] ?? spec?.storageClassName ?? "";
