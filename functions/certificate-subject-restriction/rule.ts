import type { CertificateSigningRequest } from "postern/kubernetes/certificates/v1";
import { parseCertificateSubject } from "postern/objects/certificates/certificate-request";
import { forbidden } from "postern/refusals";
import { rule } from "postern/rule";

const signer = "kubernetes.io/kube-apiserver-client";
const masters = "system:masters";

export default rule({
  summary: "Refuses requests for client certificates in the group system:masters.",
  order: 28,
  upstreamPlugin: { plugin: "CertificateSubjectRestriction" },
  match: [
    {
      apiGroups: ["certificates.k8s.io"],
      apiVersions: ["v1"],
      resources: ["certificatesigningrequests"],
      operations: ["CREATE"],
    },
  ],
  matchConditions: { "is-for-a-client": `object.?spec.?signerName.orValue("") == "${signer}"` },
  guards: true, // a security rule: hardening makes it fail closed

  validate({ spec }: CertificateSigningRequest, { request }) {
    if (spec?.signerName !== signer) return;
    const parsed = parseCertificateSubject(spec.request);
    if ("fault" in parsed) return { refuse: forbidden(request, `failed to parse CSR: ${parsed.fault}`) };
    if (parsed.subject.organizations.includes(masters))
      return { refuse: forbidden(request, `use of ${signer} signer with ${masters} group is not allowed`) };
  },

  suggest({ spec }: CertificateSigningRequest) {
    const parsed = parseCertificateSubject(spec?.request);
    if ("subject" in parsed)
      return `request another organization than ${masters}, and bind that group to the ClusterRole that it needs`;
  },
});
