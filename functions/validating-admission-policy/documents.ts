import { createPolicyReader } from "postern/admission-policies/documents/documents";
import {
  createDuplicateFault,
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
import { bool, nullType, string } from "postern/cel/types";
import type { AuditAnnotation, Validation } from "postern/kubernetes/admissionregistration/v1";
import { findKeyFaults } from "postern/objects/label";
import type { ValidatingBinding, ValidatingPolicy } from "./policies.ts";

/** Returns the faults of a policy, in the texts and the order of upstream's validation. */
const findPolicyFaults = ({ metadata, spec = {} as ValidatingPolicy["spec"] }: ValidatingPolicy): FieldFault[] => {
  const { paramKind, variables = [], validations = [], auditAnnotations = [] } = spec;
  const compiler = createPolicyCompiler({ ...(paramKind && { paramKind }) }, { hasVariables: variables.length > 0 });
  const keys = auditAnnotations.map(({ key }) => key);

  const findValidationFaults = (validation: Partial<Validation>, index: number): FieldFault[] => {
    const { expression = "", messageExpression = "", message = "", reason = "Invalid" } = validation;
    const path = (field: string) => ["spec", "validations", index, field];
    const faults: FieldFault[] = [];
    const compile = (field: string, text: string, results: (typeof bool)[], hasAuthorizer: boolean) =>
      findExpressionFaults(path(field), text, compiler.compile(text, results, hasAuthorizer).compiled);
    if (expression.trim() === "") faults.push(createRequiredFault(path("expression"), "expression is not specified"));
    else faults.push(...compile("expression", expression, [bool], true));
    if (messageExpression !== "" && messageExpression.trim() === "")
      faults.push(createInvalidFault(path("messageExpression"), messageExpression, "must be non-empty if specified"));
    else if (messageExpression !== "") faults.push(...compile("messageExpression", messageExpression, [string], false));
    if (message !== "" && message.trim() === "")
      faults.push(createInvalidFault(path("message"), message, "must be non-empty if specified"));
    else if (/[\n\r]/.test(message.trim()))
      faults.push(createInvalidFault(path("message"), message, "must not contain line breaks"));
    return [...faults, ...findChoiceFaults(path("reason"), reason, reasons)];
  };

  const findAnnotationFaults = (annotation: Partial<AuditAnnotation>, index: number): FieldFault[] => {
    const { key = "", valueExpression = "" } = annotation;
    const path = (field: string) => ["spec", "auditAnnotations", index, field];
    const qualified = `${metadata?.name}/${key}`;
    const faults = findKeyFaults(qualified).map((detail) => createInvalidFault(path("key"), qualified, detail));
    const text = valueExpression.trim();
    const at = path("valueExpression");
    if (text === "") faults.push(createRequiredFault(at, "valueExpression is not specified"));
    else if (Buffer.byteLength(text) > longestAnnotationExpression)
      // As in upstream, this fault has the type Required.
      faults.push(createRequiredFault(at, `must not exceed ${longestAnnotationExpression} bytes in length`));
    else faults.push(...findExpressionFaults(at, valueExpression, compiler.compile(text, [string, nullType]).compiled));
    return keys.indexOf(key) < index ? [...faults, createDuplicateFault(path("key"), key)] : faults;
  };
  const faults = [...findNameFaults(metadata), ...findPolicySpecFaults(spec, compiler)];
  const needed = "validations or auditAnnotations must contain at least one item";
  if (validations.length === 0 && auditAnnotations.length === 0)
    return [
      ...faults,
      createRequiredFault(["spec", "validations"], needed),
      createRequiredFault(["spec", "auditAnnotations"], needed),
    ];
  const tooMany = `must not have more than ${mostAnnotations} auditAnnotations`;
  return [
    ...faults,
    ...validations.flatMap(findValidationFaults),
    ...(auditAnnotations.length > mostAnnotations
      ? [createInvalidFault(["spec", "auditAnnotations"], auditAnnotations, tooMany)]
      : []),
    ...auditAnnotations.flatMap(findAnnotationFaults),
  ];
};

const reasons = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
/** In bytes. */
const longestAnnotationExpression = 5 * 1024;
const mostAnnotations = 20;

/** Returns what API validation refuses in a ValidatingAdmissionPolicyBinding. */
const findBindingFaults = ({ metadata, spec }: ValidatingBinding): FieldFault[] => {
  const { validationActions: actions = [] } = spec ?? {};
  const path = ["spec", "validationActions"];
  const denyAndWarn =
    "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)";
  return [
    ...findNameFaults(metadata),
    ...findBindingSpecFaults(spec ?? {}),
    ...actions.flatMap((action, index) => [
      ...findChoiceFaults([...path, index], action, ["Audit", "Deny", "Warn"]),
      ...(actions.indexOf(action) < index ? [createDuplicateFault([...path, index], action)] : []),
    ]),
    ...(actions.includes("Deny") && actions.includes("Warn") ? [createInvalidFault(path, actions, denyAndWarn)] : []),
    ...(actions.length === 0 ? [createRequiredFault(path, "at least one validation action is required")] : []),
  ];
};

/** Reads policies and bindings from documents, and validates them as upstream does. */
export const readPolicyDocuments = createPolicyReader({
  ValidatingAdmissionPolicy: {
    shape: createObjectShape({
      ...policySpecShape,
      validations: [{ expression: "text", message: "text", messageExpression: "text", reason: "text" }],
      auditAnnotations: [{ key: "text", valueExpression: "text" }],
    }),
    findFaults: findPolicyFaults,
  },
  ValidatingAdmissionPolicyBinding: {
    shape: createObjectShape({ ...bindingSpecShape, validationActions: ["text"] }),
    findFaults: findBindingFaults,
  },
});
