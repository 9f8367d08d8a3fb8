import { createDraft, applyPatch as patched } from "../patch.ts";
import type { KubernetesObject, Operation, Patch } from "../review.ts";
import type { Policy, Reach } from "./kinds.ts";
import { type Applied, override } from "./override.ts";
import { bookOf } from "./policy-index.ts";

export interface Application {
  policies: readonly Policy[];
  object: KubernetesObject;
  oldObject?: KubernetesObject;
  operation: Operation;
  /** The request's namespace; an object that is being created may not have one yet. */
  namespace?: string;
  dryRun?: boolean;
  reach: Reach;
}

/** Applies policies to a copy of an object. Returns the result, the patch that leads to it and the rules that ran. */
export const applyPolicies = async ({
  policies,
  object,
  reach,
  ...request
}: Application): Promise<{ object: KubernetesObject; patch: Patch; applied: Applied[] }> => {
  const { value, changes } = createDraft(object);
  const applied = await override(bookOf(policies), { ...request, object: value }, reach);
  const patch = changes();
  // override keeps kind and metadata valid, so the result is still a KubernetesObject.
  return { object: patched(object, patch) as KubernetesObject, patch, applied };
};
