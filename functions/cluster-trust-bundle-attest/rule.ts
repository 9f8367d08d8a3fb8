import { isSame } from "postern/json";
import type { ClusterTrustBundle } from "postern/kubernetes/certificates/v1";
import { buildSignerConditions, buildSignerExpression } from "postern/objects/certificates/signer-conditions";
import { forbidden } from "postern/refusals";
import { rule } from "postern/rule";

export default rule({
  summary: "Lets users write a signer's trust bundle only if they may attest for the signer.",
  order: 27,
  upstreamPlugin: {
    plugin: "ClusterTrustBundleAttest",
    worthwhile:
      "In API servers that serve trust bundles, the plugin ClusterTrustBundleAttest does the same by default. The rule is for clusters that turned this plugin off.",
  },
  match: [
    {
      apiGroups: ["certificates.k8s.io"],
      apiVersions: ["*"],
      resources: ["clustertrustbundles"],
      operations: ["CREATE", "UPDATE"],
    },
  ],
  matchConditions: { "is-of-a-signer": `${buildSignerExpression("object")} != ""` },
  // The API server asks whether the user may attest. It calls `validate` only for users who may not.
  authorizedBy: buildSignerConditions("attest", buildSignerExpression("object")),
  guards: true, // a security rule: hardening makes it fail closed

  validate(bundle: ClusterTrustBundle, { request, oldObject }) {
    const signer = bundle.spec?.signerName;
    if (!signer || (oldObject && isSame(pickAttestedFields(bundle), pickAttestedFields(oldObject)))) return;
    return { refuse: forbidden(request, `user not permitted to attest for signerName ${JSON.stringify(signer)}`) };
  },
});

/** Returns a ClusterTrustBundle without the fields that the garbage collector and storage migration change. */
const pickAttestedFields = ({ metadata = {}, ...bundle }: ClusterTrustBundle) => {
  const { ownerReferences: _, finalizers: __, selfLink: ___, managedFields: ____, ...rest } = metadata;
  return { ...bundle, metadata: rest };
};
