import fc, { type Arbitrary } from "fast-check";
import type { JsonMap } from "#lib/json.ts";
import { authority, privateKey } from "../../keys/certificates.ts";
import { asSpec, named, part, pem, requestFor } from "./certificate-requests.ts";
import { at, type Edit, maybe, one, type Sequence, type Step, type User } from "./steps.ts";
import { by, creation, patch, removal, story } from "./stories.ts";

// Generates requests for certificates, approvals, signatures and attestations, by several users and for several signers.

/** jane has rights for two of them (surroundings.yaml). */
const signers = ["example.com/known", "example.com/other", "example.org/any", "example.org/more"];
const client = "kubernetes.io/kube-apiserver-client";

const masters = part("O", "system:masters");
export const requests = {
  plain: pem(requestFor(named(part("O", "developers")), named(part("CN", "jane")))),
  masters: pem(requestFor(named(masters), named(part("CN", "jane")))),
  both: pem(requestFor(named(part("CN", "jane"), part("O", "developers"), masters))),
  node: pem(requestFor(named(part("O", "system:nodes")), named(part("CN", "system:node:n1")))),
  otherNode: pem(requestFor(named(part("O", "system:nodes")), named(part("CN", "system:node:n2")))),
  twice: pem(requestFor(named(part("CN", "system:node:n1")), named(part("CN", "system:node:n2")))),
  cut: pem(requestFor(named(masters)).subarray(0, 20)),
  nothing: "hello",
  certificate: pem(requestFor(named(masters)), "CERTIFICATE"),
};
export const requestsAmong = (...names: (keyof typeof requests)[]) =>
  one(...names.map((name) => asSpec(requests[name])));

const bundles = await Promise.all([1, 2].map(async () => authority(await privateKey())));

const tenant = one<User>("jane", "jane", "admin", "system:node:n1");
const change = (subresource: string | undefined, ...edits: Arbitrary<Edit>[]) =>
  by(tenant, patch(one("json", "merge"), subresource, ...edits));
const lasting = (kind: Sequence["kind"], body: Arbitrary<JsonMap>, changes: Arbitrary<Step>[], prefix?: string) =>
  story(kind, creation(body), changes, { generateName: false, last: removal, ...(prefix !== undefined && { prefix }) });

const label = at("metadata.labels.app", one("x", "y"));
/** Times that the API server fills in are finer upstream than any webhook sees them. */
const [lastUpdateTime, lastTransitionTime] = ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"];
const conditions = (type: string) =>
  at("status.conditions", one([{ type, status: "True", reason: "Test", lastUpdateTime, lastTransitionTime }]));

export const signingRequest = (signerName: Arbitrary<string>, request: Arbitrary<string>) =>
  fc.record({ signerName, request }).map((spec): JsonMap => {
    const [apiVersion, kind] = ["certificates.k8s.io/v1", "CertificateSigningRequest"];
    return { apiVersion, kind, metadata: {}, spec: { ...spec, usages: ["client auth"] } };
  });
const bundle = (signerName: string | undefined) =>
  fc.record({ trustBundle: one(...bundles), finalizers: maybe(one(["example.com/keep"])) }).map((given): JsonMap => {
    const { trustBundle, finalizers } = given;
    const [apiVersion, kind] = ["certificates.k8s.io/v1beta1", "ClusterTrustBundle"];
    const spec = { trustBundle, ...(signerName !== undefined && { signerName }) };
    return { apiVersion, kind, metadata: { ...(finalizers && { finalizers }) }, spec };
  });
const ofBundles = [
  change(undefined, at("spec.trustBundle", one(...bundles))),
  change(undefined, at("metadata.finalizers", one(["example.com/keep"], ["foregroundDeletion"]))),
  change(undefined, label),
];

export const certificateScenes = {
  approvals: lasting("certificatesigningrequests", signingRequest(one(...signers), requestsAmong("plain")), [
    change("approval", conditions("Approved"), conditions("Denied"), label),
    change("approval", conditions("Approved"), at("spec.signerName", one(...signers))),
    change("status", conditions("Failed")),
  ]),
  signatures: lasting("certificatesigningrequests", signingRequest(one(...signers), requestsAmong("plain")), [
    change("approval", conditions("Approved")),
    change("status", at("status.certificate", one(...bundles.map(asSpec))), conditions("Failed"), label),
    change("status", conditions("Failed"), at("spec.signerName", one(...signers))),
  ]),
  attestations: fc.oneof(
    ...["example.com/known", "example.com/other", "example.org/any"].map((signer) =>
      lasting("clustertrustbundles", bundle(signer), ofBundles, `${signer.replace("/", ":")}:`).map(byTenants),
    ),
    lasting("clustertrustbundles", bundle(undefined), ofBundles).map(byTenants),
  ),
  subjects: lasting(
    "certificatesigningrequests",
    signingRequest(
      one(client, client, client, "example.com/known"),
      requestsAmong("plain", "masters", "both", "cut", "nothing", "certificate"),
    ),
    [change("approval", label)],
  ),
};

/** Lets the second step's user make the object, too: the creator varies as well. */
function byTenants(sequence: Sequence): Sequence {
  const [first, second] = sequence.steps;
  return first && second ? { ...sequence, steps: sequence.steps.with(0, { ...first, user: second.user }) } : sequence;
}
