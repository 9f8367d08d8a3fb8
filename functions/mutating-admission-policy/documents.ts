import { createPolicyReader } from "postern/admission-policies/documents/documents";
import {
  createInvalidFault,
  createRequiredFault,
  type FieldFault,
  findChoiceFaults,
  findExpressionFaults,
} from "postern/admission-policies/documents/faults";
import {
  bindingSpecShape,
  createObjectShape,
  policySpecShape,
} from "postern/admission-policies/documents/field-shapes";
import {
  findBindingSpecFaults,
  findNameFaults,
  findPolicySpecFaults,
} from "postern/admission-policies/documents/validation";
import { createPolicyCompiler } from "postern/admission-policies/expressions";
import type { CustomKind } from "postern/admission-policies/types";
import { isMap, isText, toMap } from "postern/json";
import type { Mutation } from "postern/kubernetes/admissionregistration/v1";
import {
  applyConfigurationType,
  jsonPatchType,
  type MutatingBinding,
  type MutatingPolicy,
  mutatingOperations,
} from "./policies.ts";

const operations = ["*", ...mutatingOperations].sort();

/** Returns the faults of a policy, in the texts and the order of upstream's validation. */
const findPolicyFaults = ({ metadata, spec = {} as MutatingPolicy["spec"] }: MutatingPolicy): FieldFault[] => {
  const { paramKind, variables = [], mutations = [], reinvocationPolicy = "" } = spec;
  const options = { isMutation: true, hasVariables: variables.length > 0 };
  const compiler = createPolicyCompiler({ ...(paramKind && { paramKind }) }, options);

  const findMutationFaults = (mutation: Partial<Mutation>, index: number): FieldFault[] => {
    const path = ["spec", "mutations", index];
    const { patchType = "" } = mutation;
    if (patchType === "") return [createRequiredFault([...path, "patchType"])];
    if (patchType !== "JSONPatch" && patchType !== "ApplyConfiguration")
      return findChoiceFaults([...path, "patchType"], patchType, ["ApplyConfiguration", "JSONPatch"]);
    // `own` is the member that a mutation of this type must have, `other` the member that it must not have.
    const [own, other, type] =
      patchType === "JSONPatch"
        ? (["jsonPatch", "applyConfiguration", jsonPatchType] as const)
        : (["applyConfiguration", "jsonPatch", applyConfigurationType] as const);
    const findOwnFaults = (): FieldFault[] => {
      if (mutation[own] === undefined)
        return [createRequiredFault([...path, own], `must be specified when patchType is ${patchType}`)];
      const text = (mutation[own].expression ?? "").trim();
      const at = [...path, own, "expression"];
      return text === ""
        ? [createRequiredFault(at)]
        : findExpressionFaults(at, text, compiler.compile(text, [type]).compiled);
    };
    const excess = `must not be specified when patchType is ${patchType}`;
    return [
      ...findOwnFaults(),
      // Upstream's message shows the member's name in braces in place of its value.
      ...(mutation[other] ? [createInvalidFault([...path, other], `{${other}}`, excess)] : []),
    ];
  };
  const at = ["spec", "reinvocationPolicy"];
  return [
    ...findNameFaults(metadata),
    ...findPolicySpecFaults(spec, compiler, operations),
    ...(mutations.length === 0
      ? [createRequiredFault(["spec", "mutations"], "mutations must contain at least one item")]
      : mutations.flatMap(findMutationFaults)),
    ...(reinvocationPolicy === ""
      ? [createRequiredFault(at)]
      : findChoiceFaults(at, reinvocationPolicy, ["IfNeeded", "Never"])),
  ];
};

const findBindingFaults = ({ metadata, spec }: MutatingBinding): FieldFault[] => [
  ...findNameFaults(metadata),
  ...findBindingSpecFaults(spec ?? {}, operations),
];

/** Returns what is wrong with a CustomResourceDefinition among the policies' documents. */
const findCustomKindFaults = ({ metadata, spec }: Partial<CustomKind>): FieldFault[] => {
  const { group, names, versions } = toMap(spec);
  const { kind, plural } = toMap(names);
  const isComplete = [group, kind, plural].every(isText) && Array.isArray(versions);
  return [
    ...findNameFaults(metadata),
    ...(isComplete
      ? []
      : [{ path: ["spec"], sentence: "spec must have group, names.kind, names.plural and versions" }]),
  ];
};

/** Returns the parts of a CustomResourceDefinition that the rule needs. Other parts would make the bundle larger. */
const selectSchemas = ({ kind, metadata: { name }, spec: { group, names, versions } }: CustomKind): CustomKind => {
  const selectVersion = (version: object) => {
    const { name, served, schema } = toMap(version);
    return { name, served, schema: dropDescriptions(schema) };
  };
  const spec = { group, names: { kind: names.kind, plural: names.plural }, versions: versions.map(selectVersion) };
  return { kind, metadata: { name }, spec };
};

/** Returns a schema without descriptions. A property with the name "description" has a map as value, and stays. */
const dropDescriptions = (schema: unknown): unknown => {
  if (Array.isArray(schema)) return schema.map(dropDescriptions);
  if (!isMap(schema)) return schema;
  const members = Object.entries(schema).filter(([key, value]) => key !== "description" || typeof value !== "string");
  return Object.fromEntries(members.map(([key, value]) => [key, dropDescriptions(value)]));
};

/** Reads policies, bindings and CustomResourceDefinitions. Validates policies and bindings as upstream does. */
export const readPolicyDocuments = createPolicyReader({
  MutatingAdmissionPolicy: {
    shape: createObjectShape({
      ...policySpecShape,
      mutations: [{ patchType: "text", applyConfiguration: { expression: "text" }, jsonPatch: { expression: "text" } }],
      reinvocationPolicy: "text",
    }),
    findFaults: findPolicyFaults,
  },
  MutatingAdmissionPolicyBinding: {
    shape: createObjectShape(bindingSpecShape),
    findFaults: findBindingFaults,
  },
  CustomResourceDefinition: { shape: "any", findFaults: findCustomKindFaults, select: selectSchemas },
});
