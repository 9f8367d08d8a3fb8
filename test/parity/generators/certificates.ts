import fc, { type Arbitrary } from "fast-check";
import type { JsonMap } from "#lib/json.ts";
import { generateAuthorityCertificate, generatePrivateKey } from "../../../infra/keys/certificates.ts";
import {
  buildCertificateRequest,
  encodeBase64,
  encodeX509NameAttribute,
  encodeX509NameSet,
  toPem,
} from "./certificate-requests.ts";
import { assignUser, buildPatchStep, buildScenario, deleteNowStep, generateCreateStep } from "./scenario-parts.ts";
import {
  addSometimes,
  type FieldEdit,
  generateFieldEdit,
  pickOne,
  type RequestSequence,
  type RequestUser,
  type SequenceRequest,
} from "./steps.ts";

// Generates requests for certificates, approvals, signatures and attestations, by several users and for several
// signers.

/** The names of signers; the user jane has rights for two of them (surroundings.yaml). */
const signers = ["example.com/known", "example.com/other", "example.org/any", "example.org/more"];
const clientSigner = "kubernetes.io/kube-apiserver-client";

const [jane, node1, node2] = ["jane", "system:node:n1", "system:node:n2"].map((name) =>
  encodeX509NameAttribute("CN", name),
) as [Buffer, Buffer, Buffer];
const [developers, masters, nodes] = ["developers", "system:masters", "system:nodes"].map((name) =>
  encodeX509NameAttribute("O", name),
) as [Buffer, Buffer, Buffer];
/** Builds a certificate request in PEM. The subject has these sets of attributes. */
const buildPem = (...subject: Buffer[][]) =>
  toPem(buildCertificateRequest(...subject.map((attributes) => encodeX509NameSet(...attributes))));
/** Certificate requests in PEM, by what is special about their subject. The last three are no valid requests. */
export const testCertificateRequestPems = {
  plain: buildPem([developers], [jane]),
  masters: buildPem([masters], [jane]),
  mastersAndDevelopers: buildPem([jane, developers, masters]),
  node: buildPem([nodes], [node1]),
  otherNode: buildPem([nodes], [node2]),
  twoNodes: buildPem([node1], [node2]),
  cut: toPem(buildCertificateRequest(encodeX509NameSet(masters)).subarray(0, 20)),
  noPem: "hello",
  certificate: toPem(buildCertificateRequest(encodeX509NameSet(masters)), "CERTIFICATE"),
};
/** Generates one of the named certificate requests, encoded as in `spec.request`. */
export const pickCertificateRequest = (...names: (keyof typeof testCertificateRequestPems)[]) =>
  pickOne(...names.map((name) => encodeBase64(testCertificateRequestPems[name])));

const bundles = await Promise.all([1, 2].map(async () => generateAuthorityCertificate(await generatePrivateKey())));

/** The users of changes: mostly users with fewer rights than `admin`. */
const tenant = pickOne<RequestUser>("jane", "jane", "admin", "system:node:n1");
const buildChange = (...edits: Arbitrary<FieldEdit>[]) =>
  assignUser(tenant, buildPatchStep(pickOne("json", "merge"), undefined, ...edits));
const buildSubresourceChange = (subresource: string, ...edits: Arbitrary<FieldEdit>[]) =>
  assignUser(tenant, buildPatchStep(pickOne("json", "merge"), subresource, ...edits));
/**
 * Builds sequences about an object whose name begins with `namePrefix`. Mostly `admin`, who has every right, creates
 * the object, and mostly users with fewer rights change it.
 */
const buildTenantScenario = (
  kind: RequestSequence["kind"],
  body: Arbitrary<JsonMap>,
  changes: Arbitrary<SequenceRequest>[],
  namePrefix?: string,
) =>
  buildScenario(kind, generateCreateStep(body), changes, {
    generateName: false,
    last: deleteNowStep,
    ...(namePrefix !== undefined && { namePrefix }),
  });

const labelEdit = generateFieldEdit("metadata.labels.app", pickOne("x", "y"));
/**
 * The fixed times of conditions. If the API server set the times, plugins would see fractions of a second, which
 * webhooks don't see.
 */
const [lastUpdateTime, lastTransitionTime] = ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"];
const setConditions = (type: string) =>
  generateFieldEdit(
    "status.conditions",
    pickOne([{ type, status: "True", reason: "Test", lastUpdateTime, lastTransitionTime }]),
  );

export const generateSigningRequestObject = (signerName: Arbitrary<string>, request: Arbitrary<string>) =>
  fc.record({ signerName, request }).map((spec): JsonMap => {
    const [apiVersion, kind] = ["certificates.k8s.io/v1", "CertificateSigningRequest"];
    return { apiVersion, kind, metadata: {}, spec: { ...spec, usages: ["client auth"] } };
  });
/** Generates ClusterTrustBundles of a signer. */
const buildTrustBundle = (signerName: string | undefined) =>
  fc
    .record({ trustBundle: pickOne(...bundles), finalizers: addSometimes(pickOne(["example.com/keep"])) })
    .map(({ trustBundle, finalizers }): JsonMap => {
      const [apiVersion, kind] = ["certificates.k8s.io/v1beta1", "ClusterTrustBundle"];
      const spec = { trustBundle, ...(signerName !== undefined && { signerName }) };
      return { apiVersion, kind, metadata: { ...(finalizers && { finalizers }) }, spec };
    });
/** Changes of a ClusterTrustBundle: of its certificates, finalizers and labels. */
const bundleChanges = [
  buildChange(generateFieldEdit("spec.trustBundle", pickOne(...bundles))),
  buildChange(generateFieldEdit("metadata.finalizers", pickOne(["example.com/keep"], ["foregroundDeletion"]))),
  buildChange(labelEdit),
];

/** Request sequences about CertificateSigningRequests and ClusterTrustBundles, by topic. */
export const certificateScenarios = {
  approvals: buildTenantScenario(
    "certificatesigningrequests",
    generateSigningRequestObject(pickOne(...signers), pickCertificateRequest("plain")),
    [
      buildSubresourceChange("approval", setConditions("Approved"), setConditions("Denied"), labelEdit),
      buildSubresourceChange(
        "approval",
        setConditions("Approved"),
        generateFieldEdit("spec.signerName", pickOne(...signers)),
      ),
      buildSubresourceChange("status", setConditions("Failed")),
    ],
  ),
  signatures: buildTenantScenario(
    "certificatesigningrequests",
    generateSigningRequestObject(pickOne(...signers), pickCertificateRequest("plain")),
    [
      buildSubresourceChange("approval", setConditions("Approved")),
      buildSubresourceChange(
        "status",
        generateFieldEdit("status.certificate", pickOne(...bundles.map(encodeBase64))),
        setConditions("Failed"),
        labelEdit,
      ),
      buildSubresourceChange(
        "status",
        setConditions("Failed"),
        generateFieldEdit("spec.signerName", pickOne(...signers)),
      ),
    ],
  ),
  attestations: fc.oneof(
    ...["example.com/known", "example.com/other", "example.org/any"].map((signer) =>
      buildTenantScenario(
        "clustertrustbundles",
        buildTrustBundle(signer),
        bundleChanges,
        `${signer.replace("/", ":")}:`,
      ).map(varyCreator),
    ),
    buildTenantScenario("clustertrustbundles", buildTrustBundle(undefined), bundleChanges).map(varyCreator),
  ),
  subjects: buildTenantScenario(
    "certificatesigningrequests",
    generateSigningRequestObject(
      pickOne(clientSigner, clientSigner, clientSigner, "example.com/known"),
      pickCertificateRequest("plain", "masters", "mastersAndDevelopers", "cut", "noPem", "certificate"),
    ),
    [buildSubresourceChange("approval", labelEdit)],
  ),
};

/** Gives the first step the user of the second one, because otherwise nearly all objects would be created by admin. */
function varyCreator(sequence: RequestSequence): RequestSequence {
  const [first, second] = sequence.steps;
  return first && second ? { ...sequence, steps: sequence.steps.with(0, { ...first, user: second.user }) } : sequence;
}
