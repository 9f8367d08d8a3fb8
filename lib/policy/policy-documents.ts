import { toMap } from "../json.ts";
import { unpackLists } from "../objects/list-items.ts";
import { findPolicyFaults, kinitirasApiVersion, kinitirasPolicyKinds } from "./checks/faults.ts";
import { formatPolicyName } from "./policy-failures.ts";
import type { KinitirasPolicy } from "./types.ts";
import { quoteValue } from "./values/texts.ts";

/**
 * Returns the valid policies in documents, and the faults of the other documents. Lists are unpacked. Expressions of
 * field selectors may have `values` instead of `value`, as in upstream's documentation.
 */
export const parsePolicies = (documents: readonly unknown[]): { policies: KinitirasPolicy[]; faults: string[] } => {
  const checkedDocuments = checkPolicyDocuments(documents);
  return {
    policies: checkedDocuments.flatMap(({ policy }) => policy ?? []),
    faults: checkedDocuments.flatMap(({ name, faults }) => faults.map((fault) => `${name}: ${fault}`)),
  };
};

/** A document, or an item of a List. It has a policy if it has no faults. */
export interface CheckedKinitirasDocument {
  name: string;
  policy?: KinitirasPolicy;
  faults: string[];
  /** The index of the policy's YAML document among all given documents. */
  document: number;
  /** The path of this item in the document, if the document is a List; otherwise empty. */
  path: readonly (string | number)[];
}

/** Checks documents that should be kinitiras policies. Each item of a List is checked like a document. */
export const checkPolicyDocuments = (documents: readonly unknown[]): CheckedKinitirasDocument[] => {
  const names = new Set<string>();
  return unpackLists(documents).map(({ value, ...place }) => {
    const kindFault = findKindFault(value);
    const faults = kindFault ? [kindFault] : findPolicyFaults(value);
    const name = formatPolicyName(value);
    if (faults.length === 0 && names.has(name)) faults.push("is there twice");
    names.add(name);
    return { name, faults, ...place, ...(faults.length === 0 && { policy: value as KinitirasPolicy }) };
  });
};

const findKindFault = (document: unknown): string | undefined => {
  const { apiVersion, kind } = toMap(document);
  // findPolicyFaults reports a missing apiVersion or kind.
  if (typeof apiVersion !== "string" || typeof kind !== "string") return undefined;
  if (apiVersion === kinitirasApiVersion && kinitirasPolicyKinds.includes(kind)) return undefined;
  return `is ${quoteValue(kind)} of ${quoteValue(apiVersion)}, which is no policy; the kinds of policies are ${kinitirasPolicyKinds.join(", ")} of ${kinitirasApiVersion}`;
};
