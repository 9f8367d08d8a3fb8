import { createAuthorizationAnswers } from "postern/admission-policies/authorization";
import { isGovernedResource } from "postern/admission-policies/matching";
import { accessReview, discovery, get, onlyIf, reader } from "postern/needs";
import type { KubernetesObject } from "postern/review";
import { rule, type Verdict } from "postern/rule";
import { applyPolicy } from "./dispatch.ts";
import { readPolicyDocuments } from "./documents.ts";
import { getVariantName, isPolicy, listBindings } from "./policies.ts";
import { PolicyReport } from "./report.ts";
import {
  asksAuthorizer,
  defaultPolicySettings,
  discoversResources,
  findSettingsFault,
  listParameterResources,
  readsNamespaces,
} from "./settings.ts";
import { buildPolicyVariants, listPolicyMatches } from "./variants.ts";

export default rule({
  summary: "Refuses requests by ValidatingAdmissionPolicies in files beside postern.yaml.",
  order: 38,
  upstreamPlugin: {
    plugin: "ValidatingAdmissionPolicy",
    worthwhile:
      "Every API server since 1.30 evaluates such policies itself. The rule is for older clusters, for clusters whose version lacks a CEL function, and for fleets that keep policies in one place.",
  },
  since: { "1.0": { mostFailures: 1 }, "1.37": { mostFailures: 50 } },
  match: listPolicyMatches,
  variants: buildPolicyVariants,
  timeoutSeconds: 5,
  exactIntegers: true,
  settings: defaultPolicySettings,
  manifests: { policies: readPolicyDocuments },
  checkSettings: findSettingsFault,
  needs: {
    reader: reader(listParameterResources),
    discover: onlyIf(discoversResources, discovery()),
    namespaces: onlyIf(readsNamespaces, get("namespaces")),
    may: onlyIf(asksAuthorizer, accessReview()),
  },

  async validate(
    _: KubernetesObject,
    { request, settings: { policies }, variant, may, upstream, ...context },
  ): Promise<Verdict> {
    if (!isGovernedResource(request)) return;
    const isCalled = (name: string) => variant === undefined || variant === getVariantName(name);
    const report = new PolicyReport(upstream.mostFailures);
    const dispatch = { ...context, request, variant, answers: createAuthorizationAnswers(may) };
    for (const policy of policies.filter(isPolicy).filter(({ metadata }) => isCalled(metadata.name))) {
      const refuse = await applyPolicy(policy, listBindings(policies, policy), dispatch, report);
      if (refuse) return { refuse };
    }
    return report.toVerdict(request);
  },
});
