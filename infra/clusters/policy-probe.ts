import { randomUUID } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import { Complaint } from "../cli/complaint.ts";
import { policyNameAnnotation } from "../webhooks/native-policies.ts";
import type { ClusterApi, DeployedObject } from "./api.ts";

export type PolicyKind = "MutatingAdmissionPolicy" | "ValidatingAdmissionPolicy";

const apiVersion = "admissionregistration.k8s.io/v1";
/** The annotation that a mutating probe adds. */
const probeAnnotation = "postern.dev/probe";
/** The message with which a validating probe refuses. */
const refusal = "refused by Postern's probe";
const maxProbeWaitSeconds = 30;

/** Returns a policy and its binding. The policy matches only one webhook configuration, which does not exist. */
const buildProbe = (kind: PolicyKind, name: string): DeployedObject[] => {
  // Each probe has a new name, because API servers apply a deleted policy for another moment.
  const probeName = `probe-${randomUUID()}`;
  const labels = { "app.kubernetes.io/managed-by": "postern" };
  const metadata = { name: `${name}.${probeName}`, labels, annotations: { [policyNameAnnotation]: probeName } };
  const resources = ["validatingwebhookconfigurations"];
  const rule = { apiGroups: ["admissionregistration.k8s.io"], apiVersions: ["v1"], resources, operations: ["CREATE"] };
  const spec = {
    matchConstraints: { resourceRules: [rule] },
    matchConditions: [{ name: "is-probe", expression: `object.metadata.name == '${metadata.name}'` }],
  };
  const expression = `Object{metadata: Object.metadata{annotations: {'${probeAnnotation}': 'seen'}}}`;
  const isMutating = kind === "MutatingAdmissionPolicy";
  const effect = isMutating
    ? {
        reinvocationPolicy: "Never",
        mutations: [{ patchType: "ApplyConfiguration", applyConfiguration: { expression } }],
      }
    : { validations: [{ expression: "false", message: refusal }] };
  const bindingSpec = { policyName: metadata.name, ...(!isMutating && { validationActions: ["Deny"] }) };
  return [
    { apiVersion, kind, metadata, spec: { ...spec, ...effect } },
    { apiVersion, kind: `${kind}Binding`, metadata, spec: bindingSpec },
  ];
};

/** Waits until the API server applies policies of a kind that were just written. Throws if it doesn't. */
export const awaitPolicies = async (api: ClusterApi, kind: PolicyKind, name: string): Promise<void> => {
  if (await probePolicies(api, kind, name)) return;
  throw new Complaint(
    `cluster ${api.cluster}: its API server hasn't applied a new ${kind} for ${maxProbeWaitSeconds} s, so no webhook entry was deleted; its admission plugin ${kind} must be on`,
    1,
  );
};

/**
 * Reports whether the API server applies policies of a kind that were just written. It writes a probe policy after
 * them: API servers read changed policies in their order, so if the probe has an effect, the others have, too. The
 * effect shows in a dry run that creates a webhook configuration, for which a deployment has the right. Returns false
 * if the probe has no effect for 30 s, for instance because the admission plugin is off.
 */
export const probePolicies = async (api: ClusterApi, kind: PolicyKind, name: string): Promise<boolean> => {
  const probe = buildProbe(kind, name);
  const metadata = { name: probe[0]?.metadata.name ?? "" };
  const configuration = { apiVersion, kind: "ValidatingWebhookConfiguration" as const, metadata };
  const isApplied = async (): Promise<boolean> => {
    try {
      const { metadata } = await api.apply(configuration, { dryRun: true });
      return metadata.annotations?.[probeAnnotation] !== undefined;
    } catch (error) {
      if (error instanceof Complaint && error.message.includes(refusal)) return true;
      throw error;
    }
  };
  try {
    for (const object of probe) await api.apply(object);
    for (const end = Date.now() + 1000 * maxProbeWaitSeconds; !(await isApplied()); await wait(200))
      if (Date.now() > end) return false;
    return true;
  } finally {
    for (const { kind, metadata } of probe.reverse()) await api.remove({ kind, name: metadata.name });
  }
};
