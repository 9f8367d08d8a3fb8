import type { PersistentVolumeClaim } from "postern/kubernetes/core/v1";
import { list } from "postern/needs";
import { findDefaultClass } from "postern/objects/default-class";
import { rule } from "postern/rule";

/** The annotation that was used before the field storageClassName existed. A claim with any value has a class. */
const olderAnnotation = "volume.beta.kubernetes.io/storage-class";

export default rule({
  summary: "Sets the default storage class in a claim that names no class.",
  order: 19,
  upstreamPlugin: { plugin: "DefaultStorageClass" },
  match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["persistentvolumeclaims"], operations: ["CREATE"] }],
  matchConditions: {
    "names-no-class": `!object.?spec.?storageClassName.hasValue() &&
      !object.?metadata.?annotations[?"${olderAnnotation}"].hasValue()`,
  },
  // Storage classes are read without the cache, because the class of a claim can't be corrected later.
  needs: { classes: list("storageclasses", { maxAge: 0 }) },

  async mutate(claim: PersistentVolumeClaim, { classes }) {
    // An empty class name is kept: the claim asks for a volume without a class.
    if (claim.spec?.storageClassName !== undefined || claim.metadata?.annotations?.[olderAnnotation] !== undefined)
      return;

    const name = findDefaultClass(await classes(), defaultAnnotations);
    if (name) claim.spec = { ...claim.spec, storageClassName: name };
  },
});

/** The annotations that mark a default class. */
const defaultAnnotations = [
  "storageclass.kubernetes.io/is-default-class",
  "storageclass.beta.kubernetes.io/is-default-class",
];
