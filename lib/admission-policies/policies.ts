// Finds policies and bindings in the setting `policies`.
import type { AnyBinding, AnyPolicy, CustomKind, PolicyObject } from "./types.ts";

export const isPolicy = <T extends PolicyObject>(object: T): object is Extract<T, AnyPolicy> =>
  object.kind.endsWith("AdmissionPolicy");

export const isBinding = <T extends PolicyObject>(object: T): object is Extract<T, AnyBinding> =>
  object.kind.endsWith("AdmissionPolicyBinding");

export const isCustomKind = <T extends PolicyObject>(object: T): object is Extract<T, CustomKind> =>
  object.kind === "CustomResourceDefinition";

/** Returns the bindings of a policy. A policy without bindings does nothing. */
export const listBindings = <T extends PolicyObject>(
  objects: readonly T[],
  { metadata }: AnyPolicy,
): Extract<T, AnyBinding>[] => objects.filter(isBinding).filter(({ spec }) => spec.policyName === metadata.name);

/** Returns the policies of a webhook entry: the policy of the variant; without a variant, all policies. */
export const listPolicies = <T extends PolicyObject>(
  objects: readonly T[],
  variant: string | undefined,
): Extract<T, AnyPolicy>[] =>
  objects.filter(isPolicy).filter(({ metadata }) => variant === undefined || variant === getVariantName(metadata.name));

/**
 * Returns the name of a policy's variant, which is the last segment in the URL of the policy's webhook entry: the
 * policy's name; if that is no valid name, its start and a hash. `mutate` and `validate` are not valid, because URLs
 * without a variant end with one of them.
 */
export const getVariantName = (policy: string): string => {
  if (/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/.test(policy) && policy !== "mutate" && policy !== "validate")
    return policy;
  return `${policy.replaceAll(".", "-").slice(0, 50).replace(/-+$/, "")}-${hashText(policy)}`;
};

/** Returns the FNV-1a hash of a text. It distinguishes names whose first 50 characters are the same. */
const hashText = (text: string): string => {
  let hash = 0x811c9dc5;
  for (const byte of Buffer.from(text)) hash = Math.imul(hash ^ byte, 0x01000193) >>> 0;
  return hash.toString(16).padStart(8, "0");
};
