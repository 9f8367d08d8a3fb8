import { isMap, toMap } from "../../json.ts";
import { unpackLists } from "../../objects/list-items.ts";
import type { ManifestFault, ParsedManifests } from "../../rule.ts";
import type { FieldFault } from "./faults.ts";
import { type FieldShape, findShapeFaults } from "./field-shapes.ts";

/** A kind of object that a policy setting of a rule accepts: the types of its fields, and upstream's validation. */
export interface PolicyKind {
  shape: FieldShape;
  findFaults(object: never): readonly FieldFault[];
  /** Returns the part of an object that a rule needs. By default, the whole object. */
  select?(object: never): object;
}

const apiVersion = "admissionregistration.k8s.io/v1";

/** The kinds that files of policies may contain, with their apiVersions. */
const apiVersionsByKind: Readonly<Record<string, string>> = {
  ValidatingAdmissionPolicy: apiVersion,
  ValidatingAdmissionPolicyBinding: apiVersion,
  MutatingAdmissionPolicy: apiVersion,
  MutatingAdmissionPolicyBinding: apiVersion,
  CustomResourceDefinition: "apiextensions.k8s.io/v1",
};

/**
 * Returns a function that reads objects of these kinds from documents. It unpacks lists, skips objects of the other
 * kinds in `apiVersionsByKind`, and reports all other documents as faults.
 */
export const createPolicyReader =
  (kinds: Readonly<Record<string, PolicyKind>>) =>
  (documents: readonly unknown[]): ParsedManifests => {
    const objects: object[] = [];
    const faults: ManifestFault[] = [];
    for (const { value, document, path } of unpackLists(documents)) {
      const object = dropNulls(value);
      const { kind, metadata, ...rest } = toMap(object);
      const expectedVersion =
        typeof kind === "string" && Object.hasOwn(apiVersionsByKind, kind) ? apiVersionsByKind[kind] : undefined;
      const policyKind = expectedVersion === undefined ? undefined : kinds[String(kind)];
      const report = (fault: FieldFault) => {
        const name = `${typeof kind === "string" ? kind : "a document"} ${toMap(metadata).name ?? ""}`.trim();
        faults.push({ sentence: `${name}: ${fault.sentence}`, document, path: [...path, ...fault.path] });
      };
      const isKnownKind = expectedVersion !== undefined && rest.apiVersion === expectedVersion;
      // The object has one of the kinds in `apiVersionsByKind`, but another rule reads this kind.
      if (isKnownKind && policyKind === undefined) continue;
      if (policyKind === undefined || !isKnownKind) {
        const kindNames = Object.keys(kinds).join(" or ");
        const advice = policyKind ? "" : "; other objects belong in other files";
        report({ path: ["kind"], sentence: `must be a ${kindNames} of ${apiVersion}${advice}` });
        continue;
      }
      const shapeFaults = findShapeFaults(object, policyKind.shape);
      // The casts are safe: the object has the kind's fields.
      const found = shapeFaults.length > 0 ? shapeFaults : policyKind.findFaults(object as never);
      // Of some kinds, `select` keeps only the part that the rule needs.
      if (found.length === 0) objects.push(policyKind.select?.(object as never) ?? (object as object));
      else found.forEach(report);
    }
    return { objects, faults };
  };

/** Returns a copy without members that are null: upstream treats them as absent. */
const dropNulls = (value: unknown): unknown => {
  if (Array.isArray(value)) return value.map(dropNulls);
  if (!isMap(value)) return value;
  const members = Object.entries(value).filter(([, member]) => member !== null);
  return Object.fromEntries(members.map(([key, member]) => [key, dropNulls(member)]));
};
