import { type AuthorizationAnswers, createAuthorizerVariables } from "postern/admission-policies/authorization";
import { createRequestVariables, toNamespaceObject } from "postern/admission-policies/input";
import { matchesConstraints } from "postern/admission-policies/matching";
import { collectParameters, findParamKind } from "postern/admission-policies/parameters";
import { isFailingClosed, PolicyConfigurationError } from "postern/admission-policies/types";
import type { MatchResources } from "postern/kubernetes/admissionregistration/v1";
import type { Namespace } from "postern/kubernetes/core/v1";
import type { ObjectReader } from "postern/needs";
import { getObjectNamespace } from "postern/objects/namespace";
import { notFound } from "postern/refusals";
import type { AdmissionRequest, Status } from "postern/review";
import { evaluatePolicy, type PolicyResult } from "./evaluation.ts";
import { compilePolicy, type ValidatingBinding, type ValidatingPolicy } from "./policies.ts";
import type { PolicyReport } from "./report.ts";

export interface DispatchContext {
  request: AdmissionRequest;
  variant?: string | undefined;
  reader: ObjectReader;
  discover: ObjectReader["discover"];
  namespaces(name: string): Promise<Namespace | undefined>;
  answers: AuthorizationAnswers;
}

/** Evaluates a policy under its bindings, and adds what it says to the report. Returns a status if that fails. */
export const applyPolicy = async (
  policy: ValidatingPolicy,
  bindings: readonly ValidatingBinding[],
  { request, variant, reader, discover, namespaces, answers }: DispatchContext,
  report: PolicyReport,
): Promise<Status | undefined> => {
  const { paramKind, matchConstraints } = policy.spec;
  /** Reports a configuration error as failurePolicy has it. */
  const attempt = async <T>(binding: ValidatingBinding | undefined, act: () => Promise<T>): Promise<T | undefined> => {
    try {
      return await act();
    } catch (error) {
      if (!(error instanceof PolicyConfigurationError)) throw error;
      if (isFailingClosed(policy.spec)) report.addConfigurationError(policy, binding, error.message);
      return undefined;
    }
  };
  const readLabels = async () => {
    const name = request.namespace ?? "";
    const namespace = await namespaces(name);
    if (namespace === undefined) throw new PolicyConfigurationError(describeMissingNamespace(name).message);
    return namespace.metadata?.labels ?? {};
  };
  const matches = (resources: MatchResources) => matchesConstraints(resources, request, readLabels, discover);

  // The API server has compared the selectors of the entry, which are the policy's.
  const constraints =
    variant === undefined ? matchConstraints : { ...matchConstraints, namespaceSelector: {}, objectSelector: {} };
  if (!(await attempt(undefined, () => matches(constraints)))) return undefined;
  const kind = paramKind && (await attempt(undefined, () => findParamKind(paramKind, discover)));
  if (paramKind && kind === undefined) return undefined;

  const home = compilePolicy(policy).usesNamespace ? getObjectNamespace(request) : undefined;
  const input = createRequestVariables(request);
  for (const binding of bindings) {
    const { matchResources = {}, paramRef } = binding.spec;
    const parameters = await attempt(binding, async () =>
      (await matches(matchResources)) ? collectParameters(kind, paramRef, request.namespace, reader) : [],
    );
    for (const params of parameters ?? []) {
      const namespace = home === undefined ? undefined : await namespaces(home);
      if (home !== undefined && namespace === undefined) return describeMissingNamespace(home);
      const namespaceObject = namespace ? toNamespaceObject(namespace) : null;
      let result: PolicyResult;
      do {
        const authorizer = createAuthorizerVariables(request, answers.decide);
        result = evaluatePolicy(policy, { ...input, ...authorizer, params, namespaceObject });
      } while (await answers.askMissing());
      report.add(policy, binding, result);
    }
  }
  return undefined;
};

const describeMissingNamespace = (name: string): Status => notFound({ group: "", resource: "namespaces" }, name);
