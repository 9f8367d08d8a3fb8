import type { ObjectReader } from "../needs.ts";
import { applyOverridePoliciesInPlace } from "../policy/override.ts";
import { parsePolicies } from "../policy/policy-documents.ts";
import {
  buildPolicyRequest,
  createPolicyCapabilities,
  createPolicyNeeds,
  isGovernedByPolicies,
  listPolicies,
  overridePolicyResources,
  type PolicySettings,
  policySettings,
  toVerdict,
  validatePolicyResources,
} from "../policy/policy-rules.ts";
import type { PolicyHttpSettings } from "../policy/references/http.ts";
import type { KinitirasPolicy } from "../policy/types.ts";
import { evaluateValidatePolicies } from "../policy/validate.ts";
import type { KubernetesObject } from "../review.ts";
import { type RequestMatch, rule } from "../rule.ts";
import type { GuardRule } from "./guard-entries.ts";

/** Policies, or a function that reads the policies of the cluster that a write is sent to. */
export type Policies =
  | readonly KinitirasPolicy[]
  | ((cluster: ObjectReader) => readonly KinitirasPolicy[] | Promise<readonly KinitirasPolicy[]>);

/**
 * What references and scripts of policies may do in a program that uses `guard`: which hosts and Secrets they may
 * read.
 */
export interface References {
  /** The hosts that policies' references may call over HTTP, with credentials; none by default. */
  http?: Partial<PolicyHttpSettings>;
  /** The Secrets that references may read, none by default: `{ group: "", resource: "secrets" }` allows all. */
  reads?: PolicySettings["reads"];
  /** Whether policies may contain scripts; true by default. */
  scripts?: boolean;
}

/** Returns the policies stored in a cluster, at most ten seconds old. */
export const readClusterPolicies = (cluster: ObjectReader): Promise<readonly KinitirasPolicy[]> =>
  listPolicies([...overridePolicyResources, ...validatePolicyResources], { settings: policySettings, reader: cluster });

/** Returns the rules policy-override and policy-validate for a guard, which apply these kinitiras policies. */
export const createPolicyRules = (policies: Policies, references: References = {}): Record<string, GuardRule> => {
  const find = typeof policies === "function" ? policies : checkPolicies(policies);
  const http = { ...policySettings.http, ...references.http };
  const settings: PolicySettings = { ...policySettings, ...references, http };
  // 10 s is the API server's default webhook timeout. Less could be too short: policies may call services, and the
  // first script waits until CUE has started.
  const common = { timeoutSeconds: 10, settings, needs };
  return {
    "policy-override": {
      rule: rule<KubernetesObject, PolicySettings, typeof needs>({
        ...common,
        summary: "Applies override policies.",
        match: matchAll("CREATE", "UPDATE"),
        // The API server mustn't call the rule twice: a policy's patch may append to a list, and would append again.
        reinvocationPolicy: "Never",
        async mutate(object, context) {
          if (!isGovernedByPolicies(context.request)) return;
          await applyOverridePoliciesInPlace(
            await find(context.reader),
            buildPolicyRequest(object, context),
            createPolicyCapabilities(context),
          );
        },
      }),
    },
    "policy-validate": {
      rule: rule<KubernetesObject, PolicySettings, typeof needs>({
        ...common,
        summary: "Asks validate policies.",
        match: matchAll("CREATE", "UPDATE", "DELETE"),
        async validate(object, context) {
          if (!isGovernedByPolicies(context.request)) return undefined;
          const { denied } = await evaluateValidatePolicies(
            await find(context.reader),
            buildPolicyRequest(object, context),
            createPolicyCapabilities(context),
          );
          return toVerdict(denied);
        },
      }),
    },
  };
};

const needs = createPolicyNeeds([...overridePolicyResources, ...validatePolicyResources]);

const matchAll = (...operations: RequestMatch["operations"]): RequestMatch[] => [
  { apiGroups: ["*"], apiVersions: ["*"], resources: ["*"], operations },
];

/** Returns a function that returns a copy of these policies. Throws if a policy is faulty. */
const checkPolicies = (ownPolicies: readonly KinitirasPolicy[]) => {
  const { policies, faults } = parsePolicies(structuredClone(ownPolicies));
  if (faults.length > 0) throw new Error(`policies: ${faults.join("; ")}`);
  return () => policies;
};
