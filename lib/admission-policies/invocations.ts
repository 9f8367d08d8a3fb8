import type { Value } from "../cel/values.ts";
import type { MatchResources } from "../kubernetes/admissionregistration/v1.ts";
import type { Namespace } from "../kubernetes/core/v1.ts";
import type { ObjectPlace, ObjectReader } from "../needs.ts";
import { getObjectNamespace } from "../objects/namespace.ts";
import { notFound } from "../refusals.ts";
import type { AdmissionRequest, Status } from "../review.ts";
import { toNamespaceObject } from "./input.ts";
import { matchesConstraints } from "./matching.ts";
import { observe } from "./observations.ts";
import { collectParameters, findParamKind } from "./parameters.ts";
import {
  type AnyBinding,
  type AnyPolicy,
  isFailingClosed,
  PolicyConfigurationError,
  PolicyStatusError,
} from "./types.ts";

/** A request, and what a policy may ask about it. */
export interface PolicyRequest {
  request: AdmissionRequest;
  variant?: string | undefined;
  reader: ObjectReader;
  discover: ObjectReader["discover"];
  namespaces(place: ObjectPlace): Promise<Namespace | undefined>;
}

/** One evaluation of a policy: under a binding that matches the request, with one value of `params`. */
export interface Invocation<B extends AnyBinding> {
  binding: B;
  params: Value;
  namespaceObject: Value;
}

/**
 * Returns the evaluations of a policy for a request, and calls `report` for each error of configuration that refuses
 * the request. Throws a PolicyStatusError if the request's namespace is missing.
 */
export async function* findInvocations<B extends AnyBinding>(
  policy: AnyPolicy,
  bindings: readonly B[],
  usesNamespace: boolean,
  { request, variant, reader, discover, namespaces }: PolicyRequest,
  report: (error: string, binding?: B) => void,
): AsyncGenerator<Invocation<B>> {
  const { paramKind, matchConstraints } = policy.spec;
  const attempt = async <T>(binding: B | undefined, act: () => Promise<T>): Promise<T | undefined> => {
    try {
      return await act();
    } catch (error) {
      if (!(error instanceof PolicyConfigurationError)) throw error;
      const what = binding ? "binding" : "policy";
      if (isFailingClosed(policy.spec)) report(`failed to configure ${what}: ${error.message}`, binding);
      observe(() => ({ policy, unmatched: error.message }));
      return undefined;
    }
  };
  const readLabels = async () => {
    const name = request.namespace ?? "";
    const namespace = await namespaces({ name });
    if (namespace === undefined) throw new PolicyConfigurationError(describeMissingNamespace(name).message);
    return namespace.metadata?.labels ?? {};
  };
  const matches = async (resources: MatchResources, binding?: B): Promise<boolean> => {
    const isMatch = await matchesConstraints(resources, request, readLabels, discover);
    observe((compared) => {
      const place = binding ? `binding ${binding.metadata.name}: spec.matchResources` : "spec.matchConstraints";
      return !isMatch && { policy, unmatched: `${place}.${compared} doesn't match the request` };
    });
    return isMatch;
  };

  // The API server has compared the namespaceSelector of the entry, which is the policy's.
  const constraints = variant === undefined ? matchConstraints : { ...matchConstraints, namespaceSelector: {} };
  if (!(await attempt(undefined, () => matches(constraints)))) return;
  const kind = paramKind && (await attempt(undefined, () => findParamKind(paramKind, discover)));
  if (paramKind && kind === undefined) return;

  const home = usesNamespace ? getObjectNamespace(request) : undefined;
  for (const binding of bindings) {
    const { matchResources = {}, paramRef } = binding.spec;
    const parameters = await attempt(binding, async () => {
      if (!(await matches(matchResources, binding))) return [];
      const found = await collectParameters(kind, paramRef, request.namespace, reader);
      observe(
        () =>
          found.length === 0 && {
            policy,
            unmatched: `binding ${binding.metadata.name}: spec.paramRef finds no parameters`,
          },
      );
      return found;
    });
    for (const params of parameters ?? []) {
      const namespace = home === undefined ? undefined : await namespaces({ name: home });
      if (home !== undefined && namespace === undefined) throw new PolicyStatusError(describeMissingNamespace(home));
      yield { binding, params, namespaceObject: namespace ? toNamespaceObject(namespace) : null };
    }
  }
}

const describeMissingNamespace = (name: string): Status => notFound({ group: "", resource: "namespaces" }, name);
