import { createAuthorizationAnswers } from "postern/admission-policies/authorization";
import { typedInput } from "postern/admission-policies/expressions";
import { isGovernedResource } from "postern/admission-policies/matching";
import { listPolicies } from "postern/admission-policies/policies";
import { buildPolicyNeeds } from "postern/admission-policies/settings";
import { PolicyStatusError } from "postern/admission-policies/types";
import { buildPolicyVariants, listPolicyMatches } from "postern/admission-policies/variants";
import { isMap } from "postern/json";
import type { KubernetesObject } from "postern/review";
import { rule, type Verdict } from "postern/rule";
import { applyMutatingPolicies } from "./dispatch.ts";
import { readPolicyDocuments } from "./documents.ts";
import { compilePolicy, findExpressionFault, type MutatingPolicySettings, mutatingOperations } from "./policies.ts";
import { buildStatus } from "./report.ts";
import { findMutatingSettingsFault } from "./settings.ts";

// Values of parameters may become part of an object.
const needs = buildPolicyNeeds({ maxAge: 0 });

export default rule<KubernetesObject, MutatingPolicySettings, typeof needs, { typedVariables: readonly string[] }>({
  summary: "Changes objects as MutatingAdmissionPolicies in files beside postern.yaml say.",
  order: 36,
  upstreamPlugin: {
    plugin: "MutatingAdmissionPolicy",
    worthwhile:
      "API servers from Kubernetes 1.36 on evaluate MutatingAdmissionPolicies themselves. The rule is for older clusters, for clusters whose version lacks a CEL function, and for fleets that keep policies in one place.",
  },
  // `mutate` gets the value for the cluster's Kubernetes version as `upstream`. From 1.37 on, API servers handle some
  // CEL variables (`typedVariables`) as Go structs.
  since: { "1.0": { typedVariables: [] }, "1.37": { typedVariables: typedInput } },
  match: (settings) => listPolicyMatches(settings, mutatingOperations),
  variants: (settings) =>
    buildPolicyVariants(settings, {
      operations: mutatingOperations,
      findExpressionFault,
      isReinvoked: ({ spec }) => spec.reinvocationPolicy !== "Never",
    }),
  exactIntegers: true,
  settings: { policies: [], reads: [] },
  manifests: { policies: readPolicyDocuments },
  checkSettings: findMutatingSettingsFault,
  compileExpressions: ({ policies }, kubernetes) => {
    for (const policy of listPolicies(policies, undefined)) compilePolicy(policy, kubernetes);
  },
  needs,

  async mutate(draft: KubernetesObject, { settings, may, upstream, ...policyRequest }): Promise<Verdict> {
    const { request } = policyRequest;
    if (request.operation === "DELETE" || !isMap(request.object) || !isGovernedResource(request)) return;
    try {
      const { object, denials } = await applyMutatingPolicies(
        settings,
        policyRequest,
        createAuthorizationAnswers(may),
        upstream.typedVariables,
      );
      const [first] = denials;
      if (first) return { refuse: buildStatus(request, first, denials) };
      replaceMembers(draft, request.object, object);
    } catch (error) {
      if (error instanceof PolicyStatusError) return { refuse: error.status };
      throw error;
    }
  },
});

/** Writes what differs between two objects to the draft of the first one. */
const replaceMembers = (draft: object, before: object, after: object): void => {
  for (const key of Object.keys(before)) if (!Object.hasOwn(after, key)) Reflect.deleteProperty(draft, key);
  for (const [key, value] of Object.entries(after))
    if (Reflect.get(before, key) !== value) Reflect.set(draft, key, value);
};
