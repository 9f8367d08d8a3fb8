import { randomUUID } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import { Complaint } from "../cli/complaint.ts";
import { policyNameAnnotation } from "../webhooks/native-policies.ts";
import type { ClusterApi, DeployedObject } from "./api.ts";

export type PolicyKind = "MutatingAdmissionPolicy" | "ValidatingAdmissionPolicy";

const apiVersion = "admissionregistration.k8s.io/v1";
const mark = "postern.dev/probe";
const refusal = "refused by Postern's probe";
const probeSeconds = 30;

/** Returns a policy that concerns only one configuration, which does not exist, and the policy's binding. */
const buildProbe = (kind: PolicyKind, name: string): DeployedObject[] => {
  // API servers apply the policy of an earlier probe for a moment after its deletion.
  const probeName = `probe-${randomUUID()}`;
  const labels = { "app.kubernetes.io/managed-by": "postern" };
  const metadata = { name: `${name}.${probeName}`, labels, annotations: { [policyNameAnnotation]: probeName } };
  const resources = ["validatingwebhookconfigurations"];
  const rule = { apiGroups: ["admissionregistration.k8s.io"], apiVersions: ["v1"], resources, operations: ["CREATE"] };
  const spec = {
    matchConstraints: { resourceRules: [rule] },
    matchConditions: [{ name: "is-probe", expression: `object.metadata.name == '${metadata.name}'` }],
  };
  const expression = `Object{metadata: Object.metadata{annotations: {'${mark}': 'seen'}}}`;
  const isMutating = kind === "MutatingAdmissionPolicy";
  const effect = isMutating
    ? {
        reinvocationPolicy: "Never",
        mutations: [{ patchType: "ApplyConfiguration", applyConfiguration: { expression } }],
      }
    : { validations: [{ expression: "false", message: refusal }] };
  const bound = { policyName: metadata.name, ...(!isMutating && { validationActions: ["Deny"] }) };
  return [
    { apiVersion, kind, metadata, spec: { ...spec, ...effect } },
    { apiVersion, kind: `${kind}Binding`, metadata, spec: bound },
  ];
};

/**
 * Throws if the API server doesn't apply the policies of a kind that were written before; waits for it as `probePolicies`
 * does.
 */
export const awaitPolicies = async (api: ClusterApi, kind: PolicyKind, name: string): Promise<void> => {
  if (await probePolicies(api, kind, name)) return;
  throw new Complaint(
    `cluster ${api.cluster}: its API server hasn't applied a new ${kind} for ${probeSeconds} s, so no webhook entry was deleted; its admission plugin ${kind} must be on`,
    1,
  );
};

/**
 * Reports whether the API server applies the policies of a kind that were written before: it sees changed policies in
 * their order, and a probe's policy is the last one. Policies don't concern policies, but webhook configurations, so a dry
 * run needs no other rights than a deployment. Returns false if the probe has no effect for 30 s, for instance because the
 * admission plugin is off.
 */
export const probePolicies = async (api: ClusterApi, kind: PolicyKind, name: string): Promise<boolean> => {
  const probe = buildProbe(kind, name);
  const [{ metadata: { name: ownName = "" } = {} } = {}] = probe;
  const configuration = { apiVersion, kind: "ValidatingWebhookConfiguration" as const, metadata: { name: ownName } };
  const isApplied = async (): Promise<boolean> => {
    try {
      const { metadata } = await api.apply(configuration, { dryRun: true });
      return metadata.annotations?.[mark] !== undefined;
    } catch (error) {
      if (error instanceof Complaint && error.message.includes(refusal)) return true;
      throw error;
    }
  };
  try {
    for (const object of probe) await api.apply(object);
    for (const end = Date.now() + 1000 * probeSeconds; !(await isApplied()); await wait(200))
      if (Date.now() > end) return false;
    return true;
  } finally {
    for (const { kind, metadata } of probe.reverse()) await api.remove({ kind, name: metadata.name });
  }
};
