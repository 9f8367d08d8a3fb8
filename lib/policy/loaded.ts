import { isMap, own } from "../json.ts";
import { faultsOf, policyKinds, policyVersion } from "./checks/policy.ts";
import { shown } from "./checks/shape.ts";
import type { Policy } from "./kinds.ts";

/**
 * The policies that documents of files hold, and everything that is wrong with the others. Lists are unpacked. In field
 * expressions `values` stands for `value`, as upstream's pages have it.
 */
export const policiesIn = (documents: readonly unknown[]): { policies: Policy[]; faults: string[] } => {
  const all = checkDocuments(documents);
  return {
    policies: all.flatMap(({ policy }) => policy ?? []),
    faults: all.flatMap(({ name, faults }) => faults.map((fault) => `${name}: ${fault}`)),
  };
};

/** What one document, or one item of a list, holds: a policy, or everything that is wrong with it. */
export interface CheckedDocument {
  name: string;
  policy?: Policy;
  faults: string[];
  /** The index of the document. */
  document: number;
  /** The steps from the document to the item of its list; none where the document is no list. */
  path: readonly (string | number)[];
}

/** Checks each policy among documents of files, as `policiesIn` does. */
export const checkDocuments = (documents: readonly unknown[]): CheckedDocument[] => {
  const names = new Set<string>();
  return unpacked(documents).map(({ value, ...place }) => {
    const faults = isOther(value) ? [otherKind(value)] : faultsOf(value);
    const name = naming(value);
    if (faults.length === 0 && names.has(name)) faults.push("is there twice");
    names.add(name);
    // Without faults, it is a policy.
    return { name, faults, ...place, ...(faults.length === 0 && { policy: value as Policy }) };
  });
};

const unpacked = (documents: readonly unknown[]) =>
  documents
    .flatMap((value, document) => {
      const [kind, items] = isMap(value) ? [own(value, "kind"), own(value, "items")] : [];
      const isList = typeof kind === "string" && kind.endsWith("List") && Array.isArray(items);
      if (!isList) return [{ value, document, path: [] }];
      return items.map((item: unknown, index) => ({ value: item, document, path: ["items", index] }));
    })
    // An empty document of YAML.
    .filter(({ value }) => value !== null && value !== undefined);

const isOther = (document: unknown): boolean => {
  const { apiVersion, kind } = header(document);
  return (
    typeof apiVersion === "string" &&
    typeof kind === "string" &&
    !(apiVersion === policyVersion && policyKinds.includes(kind))
  );
};

const otherKind = (document: unknown): string => {
  const { apiVersion, kind } = header(document);
  return `is ${shown(kind)} of ${shown(apiVersion)}, which is no policy; ${policyKinds.join(", ")} of ${policyVersion} are`;
};

const header = (document: unknown) => {
  const map = isMap(document) ? document : {};
  return { apiVersion: own(map, "apiVersion"), kind: own(map, "kind"), metadata: own(map, "metadata") };
};

const naming = (document: unknown): string => {
  const { kind, metadata } = header(document);
  const [namespace, name] = isMap(metadata) ? [own(metadata, "namespace"), own(metadata, "name")] : [];
  const named =
    typeof name === "string" ? (typeof namespace === "string" ? `${namespace}/${name}` : name) : "without a name";
  return `${typeof kind === "string" ? kind.slice(0, 60) : "a document"} ${named.slice(0, 320)}`;
};
