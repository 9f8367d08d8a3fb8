import { draft, applied as patched } from "../patch.ts";
import type { KubernetesObject, Operation, Patch } from "../review.ts";
import type { Policy, Reach } from "./kinds.ts";
import { type Applied, override } from "./override.ts";
import { bookOf } from "./policy-index.ts";

/** A request, and the policies that are to be applied to it. */
export interface Application {
  policies: readonly Policy[];
  object: KubernetesObject;
  oldObject?: KubernetesObject;
  operation: Operation;
  /** The request's, which an object that is being created may not have yet. */
  namespace?: string;
  dryRun?: boolean;
  reach: Reach;
}

/** What policies make of an object, the patch that leads there, and which rules they did it by. The object given stays as it is. */
export const applyPolicies = async ({
  policies,
  object,
  reach,
  ...request
}: Application): Promise<{ object: KubernetesObject; patch: Patch; applied: Applied[] }> => {
  const { value, changes } = draft(object);
  const applied = await override(bookOf(policies), { ...request, object: value }, reach);
  const patch = changes();
  // A patch that leaves an object its kind and metadata leaves it an object.
  return { object: patched(object, patch) as KubernetesObject, patch, applied };
};
