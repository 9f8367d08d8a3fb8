import type { CatalogueRule } from "../catalogue/registry.ts";
import type { RuleConfig } from "../config/config.ts";
import type { Manifest } from "../manifests/manifests.ts";
import type { TestResult } from "../testing/results.ts";
import { describeBindings } from "./admission-cases.ts";
import { partitionManifests, readAdmissionPolicies } from "./admission-policies.ts";
import { createCoverage, type UntestedExpression } from "./coverage.ts";
import { findRulesForAdmissionPolicies, findRulesForPolicies, readPolicyCases, runPolicyCase } from "./policy-cases.ts";

/** What tests of admission policies report in addition to the results of cases. */
export interface PolicyRemarks {
  warnings: string[];
  untested: UntestedExpression[];
}

/** The tests of policies in files. */
export interface PolicyTests {
  runCases(): AsyncGenerator<TestResult>;
  /** Is called after all cases have run. */
  listRemarks(): PolicyRemarks;
}

/** Reads files of cases for the policies of some manifests. Throws a Complaint for an invalid case. */
export const openPolicyTests = async (
  manifests: readonly Manifest[],
  files: readonly string[],
  catalogue: readonly CatalogueRule[],
  setups?: ReadonlyMap<string, RuleConfig>,
): Promise<PolicyTests> => {
  const parts = partitionManifests(manifests);
  // kinitiras is a policy engine; admission policies are those of Kubernetes. Different rules evaluate them.
  const kinitirasPolicies = parts.kinitiras.map(({ object }) => object);
  const admission = parts.admission.length > 0 ? await readAdmissionPolicies(parts) : undefined;
  const rules = [
    ...(kinitirasPolicies.length > 0 ? findRulesForPolicies(catalogue, kinitirasPolicies, setups) : []),
    ...(admission ? findRulesForAdmissionPolicies(admission) : []),
  ];
  const cases = await Promise.all(files.map((file) => readPolicyCases(file, rules)));
  const coverage = admission && createCoverage(admission);
  return {
    runCases: async function* () {
      for (const policyCase of cases.flat()) yield await runPolicyCase(policyCase, coverage?.add);
    },
    listRemarks: () => {
      return { warnings: admission ? describeBindings(admission) : [], untested: coverage?.list() ?? [] };
    },
  };
};
