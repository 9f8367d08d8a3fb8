import { toMap } from "../json.ts";
import { unpackLists } from "../objects/list-items.ts";
import { findPolicyFaults, kinitirasApiVersion, kinitirasPolicyKinds } from "./checks/faults.ts";
import { formatPolicyName } from "./policy-failures.ts";
import type { KinitirasPolicy } from "./types.ts";
import { quoteValue } from "./values/texts.ts";

/**
 * Returns the policies in documents of files, and all faults of the other documents. Lists are unpacked. Field
 * expressions may have `values` in place of `value`, as in upstream's documentation.
 */
export const parsePolicies = (documents: readonly unknown[]): { policies: KinitirasPolicy[]; faults: string[] } => {
  const all = checkPolicyDocuments(documents);
  return {
    policies: all.flatMap(({ policy }) => policy ?? []),
    faults: all.flatMap(({ name, faults }) => faults.map((fault) => `${name}: ${fault}`)),
  };
};

export interface CheckedKinitirasDocument {
  name: string;
  policy?: KinitirasPolicy;
  faults: string[];
  /** The index of the policy's YAML document among all given documents. */
  document: number;
  /** The path from the document to this item, if the document is a list; otherwise empty. */
  path: readonly (string | number)[];
}

/** Checks documents that should be kinitiras policies; each item of a List is checked as a document of its own. */
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
  if (typeof apiVersion !== "string" || typeof kind !== "string") return undefined;
  if (apiVersion === kinitirasApiVersion && kinitirasPolicyKinds.includes(kind)) return undefined;
  return `is ${quoteValue(kind)} of ${quoteValue(apiVersion)}, which is no policy; ${kinitirasPolicyKinds.join(", ")} of ${kinitirasApiVersion} are`;
};
