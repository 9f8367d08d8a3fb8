import { faultsOf, policyKinds, policyVersion } from "./checks/policy.ts";
import { shown } from "./checks/shape.ts";
import type { Policy } from "./kinds.ts";
import { isMap, own } from "./tree.ts";

/**
 * The policies that documents of files hold, and everything that is wrong with the others. Lists are unpacked. In field
 * expressions `values` stands for `value`, as upstream's pages have it.
 */
export const policiesIn = (documents: readonly unknown[]): { policies: Policy[]; faults: string[] } => {
  const policies: Policy[] = [];
  const faults: string[] = [];
  const names = new Set<string>();
  for (const document of unpacked(documents)) {
    const wrong = isOther(document) ? [otherKind(document)] : faultsOf(document);
    const name = naming(document);
    if (wrong.length === 0 && names.has(name)) wrong.push("is there twice");
    names.add(name);
    for (const fault of wrong) faults.push(`${name}: ${fault}`);
    // Nothing is wrong with it.
    if (wrong.length === 0) policies.push(document as Policy);
  }
  return { policies, faults };
};

const unpacked = (documents: readonly unknown[]): unknown[] =>
  documents
    .flatMap((document) => {
      if (!isMap(document)) return [document];
      const [kind, items] = [own(document, "kind"), own(document, "items")];
      return typeof kind === "string" && kind.endsWith("List") && Array.isArray(items) ? items : [document];
    })
    // An empty document of YAML.
    .filter((document) => document !== null && document !== undefined);

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
