import { isSame } from "postern/json";
import type { CertificateSigningRequest } from "postern/kubernetes/certificates/v1";
import { buildSignerConditions, buildSignerExpression } from "postern/objects/certificates/signer-conditions";
import { forbidden } from "postern/refusals";
import { rule } from "postern/rule";

const buildComparison = (field: string, none: string) =>
  `object.?status.?${field}.orValue(${none}) != oldObject.?status.?${field}.orValue(${none})`;

export default rule({
  summary: "Lets users issue a certificate, or mark its request as failed, only if they may sign for the signer.",
  order: 26,
  upstreamPlugin: { plugin: "CertificateSigning" },
  match: [
    {
      apiGroups: ["certificates.k8s.io"],
      apiVersions: ["v1"],
      resources: ["certificatesigningrequests/status"],
      operations: ["UPDATE"],
    },
  ],
  matchConditions: {
    "changes-what-signers-write": `${buildComparison("certificate", '""')} || ${buildComparison("conditions", "[]")}`,
  },
  authorizedBy: buildSignerConditions("sign", buildSignerExpression("oldObject")), // skips users with this right
  guards: true, // a security rule: hardening makes it fail closed

  validate({ status }: CertificateSigningRequest, { request, oldObject }) {
    const before = oldObject?.status;
    if (
      isSame(status?.certificate ?? "", before?.certificate ?? "") &&
      isSame(status?.conditions ?? [], before?.conditions ?? [])
    )
      return;
    const signer = JSON.stringify(oldObject?.spec?.signerName ?? "");
    return { refuse: forbidden(request, `user not permitted to sign requests with signerName ${signer}`) };
  },
});
