import type { CertificateSigningRequest } from "postern/kubernetes/certificates/v1";
import { buildSignerConditions, buildSignerExpression } from "postern/objects/certificates/signer-conditions";
import { forbidden } from "postern/refusals";
import { rule } from "postern/rule";

export default rule({
  summary: "Lets users approve or deny a certificate signing request only if they may approve requests to its signer.",
  order: 25,
  upstreamPlugin: { plugin: "CertificateApproval" },
  match: [
    {
      apiGroups: ["certificates.k8s.io"],
      apiVersions: ["v1"],
      resources: ["certificatesigningrequests/approval"],
      operations: ["UPDATE"],
    },
  ],
  // Uses the old object's signer: API validation refuses a changed signer only after this rule.
  authorizedBy: buildSignerConditions("approve", buildSignerExpression("oldObject")),
  guards: true, // a security rule: hardening makes it fail closed

  // The API server calls the rule only for users without the permission that `authorizedBy` asks for.
  validate(_: CertificateSigningRequest, { request, oldObject }) {
    const signer = JSON.stringify(oldObject?.spec?.signerName ?? "");
    return { refuse: forbidden(request, `user not permitted to approve requests with signerName ${signer}`) };
  },
});
