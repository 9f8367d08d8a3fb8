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

/** Policies, or a function that reads policies from the cluster to which a write is sent. */
export type Policies =
  | readonly KinitirasPolicy[]
  | ((cluster: ObjectReader) => readonly KinitirasPolicy[] | Promise<readonly KinitirasPolicy[]>);

/** What policies may call and read by references to values elsewhere (`valueRef`, `dataRef`) and by scripts. */
export interface References {
  /** The hosts that references and scripts may call, and the credentials for them. By default, none. */
  http?: Partial<PolicyHttpSettings>;
  /** By default, references may not read Secrets. `{ group: "", resource: "secrets" }` allows to read all Secrets. */
  reads?: PolicySettings["reads"];
  /** Whether policies may contain scripts. By default, true. */
  scripts?: boolean;
}

/** Returns the policies that are stored in a cluster. The answer may be up to ten seconds old. */
export const readClusterPolicies = (cluster: ObjectReader): Promise<readonly KinitirasPolicy[]> =>
  listPolicies([...overridePolicyResources, ...validatePolicyResources], { settings: policySettings, reader: cluster });

/** Returns the rules policy-override and policy-validate for a guard. They apply these policies. */
export const createPolicyRules = (policies: Policies, references: References = {}): Record<string, GuardRule> => {
  const getPolicies = typeof policies === "function" ? policies : createCheckedPolicyGetter(policies);
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
        // The rule must not be called twice for one object: a policy's patch that appends to a list would append again.
        reinvocationPolicy: "Never",
        async mutate(object, context) {
          if (!isGovernedByPolicies(context.request)) return;
          await applyOverridePoliciesInPlace(
            await getPolicies(context.reader),
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
            await getPolicies(context.reader),
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

/** Wraps fixed policies (a copy) in a function, like one that reads a cluster's. Throws if a policy has a fault. */
const createCheckedPolicyGetter = (fixedPolicies: readonly KinitirasPolicy[]) => {
  const { policies, faults } = parsePolicies(structuredClone(fixedPolicies));
  if (faults.length > 0) throw new Error(`policies: ${faults.join("; ")}`);
  return () => policies;
};
