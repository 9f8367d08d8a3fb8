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

/** A request, and the functions with which its evaluation reads the cluster. */
export interface PolicyRequest {
  request: AdmissionRequest;
  /** Names the policy whose own webhook entry received the request; undefined if the entry serves all policies. */
  variant?: string | undefined;
  reader: ObjectReader;
  discover: ObjectReader["discover"];
  namespaces(place: ObjectPlace): Promise<Namespace | undefined>;
}

/** One evaluation of a policy: with a binding that matches the request, and with one value of `params`. */
export interface Invocation<B extends AnyBinding> {
  binding: B;
  params: Value;
  namespaceObject: Value;
}

/**
 * Yields the evaluations of a policy for a request. Calls `report` for each error in the configuration of the policy or
 * a binding that refuses the request. Throws a PolicyStatusError if the request's namespace doesn't exist.
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
    // matchesConstraints notes each field before it compares it; `observe` passes the last one.
    observe((lastComparedField) => {
      const place = binding ? `binding ${binding.metadata.name}: spec.matchResources` : "spec.matchConstraints";
      return !isMatch && { policy, unmatched: `${place}.${lastComparedField} doesn't match the request` };
    });
    return isMatch;
  };

  // With `variant`, the request came to the policy's own webhook entry: an API server checked its namespaceSelector.
  const constraints = variant === undefined ? matchConstraints : { ...matchConstraints, namespaceSelector: {} };
  if (!(await attempt(undefined, () => matches(constraints)))) return;
  const kind = paramKind && (await attempt(undefined, () => findParamKind(paramKind, discover)));
  if (paramKind && kind === undefined) return;

  const objectNamespace = usesNamespace ? getObjectNamespace(request) : undefined;
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
      const namespace = objectNamespace === undefined ? undefined : await namespaces({ name: objectNamespace });
      if (objectNamespace !== undefined && namespace === undefined)
        throw new PolicyStatusError(describeMissingNamespace(objectNamespace));
      yield { binding, params, namespaceObject: namespace ? toNamespaceObject(namespace) : null };
    }
  }
}

const describeMissingNamespace = (name: string): Status => notFound({ group: "", resource: "namespaces" }, name);
