// The fields of policies and bindings, and their types. As upstream does, unknown fields and other types are refused.
import { isMap } from "../../json.ts";
import { type FieldFault, type FieldPath, formatFieldPath } from "./faults.ts";

/** The type of a field: text, any value, a map of texts, a list of elements of a type, or a map with these members. */
export type FieldShape = "text" | "any" | "texts" | readonly [FieldShape] | { readonly [member: string]: FieldShape };

const selector: FieldShape = {
  matchLabels: "texts",
  matchExpressions: [{ key: "text", operator: "text", values: ["text"] }],
};
const texts: FieldShape = ["text"];
/** The members of an admission policy's rules, and their types. */
const rules: FieldShape = [
  {
    apiGroups: texts,
    apiVersions: texts,
    resources: texts,
    operations: texts,
    resourceNames: texts,
    scope: "text",
  },
];
const matchResourcesShape: FieldShape = {
  namespaceSelector: selector,
  objectSelector: selector,
  resourceRules: rules,
  excludeResourceRules: rules,
  matchPolicy: "text",
};
const namedExpressions: FieldShape = [{ name: "text", expression: "text" }];
/** The fields of the specs of both kinds of policies. */
export const policySpecShape = {
  paramKind: { apiVersion: "text", kind: "text" },
  matchConstraints: matchResourcesShape,
  matchConditions: namedExpressions,
  variables: namedExpressions,
  failurePolicy: "text",
} satisfies FieldShape;
/** The fields of the specs of both kinds of bindings. */
export const bindingSpecShape = {
  policyName: "text",
  paramRef: { name: "text", namespace: "text", selector, parameterNotFoundAction: "text" },
  matchResources: matchResourcesShape,
} satisfies FieldShape;

/** Returns the shape of an object with a spec of this shape. */
export const createObjectShape = (spec: FieldShape): FieldShape => {
  return { apiVersion: "text", kind: "text", metadata: "any", spec, status: "any" };
};

/** Finds values whose type is wrong, and unknown fields. */
export const findShapeFaults = (value: unknown, shape: FieldShape, path: FieldPath = []): FieldFault[] => {
  const createFault = (what: string): FieldFault[] => [
    { path, sentence: `${formatFieldPath(path) || "it"} must be ${what}` },
  ];
  if (shape === "any") return [];
  if (shape === "text") return typeof value === "string" ? [] : createFault("a text");
  if (isListShape(shape)) {
    if (!Array.isArray(value)) return createFault("a list");
    return value.flatMap((element, index) => findShapeFaults(element, shape[0], [...path, index]));
  }
  if (!isMap(value)) return createFault("a map");
  return Object.entries(value).flatMap(([key, member]) => {
    const memberPath = [...path, key];
    if (shape === "texts") return findShapeFaults(member, "text", memberPath);
    const memberShape = Object.hasOwn(shape, key) ? shape[key] : undefined;
    if (memberShape !== undefined) return findShapeFaults(member, memberShape, memberPath);
    return [{ path: memberPath, sentence: `strict decoding error: unknown field "${formatFieldPath(memberPath)}"` }];
  });
};

const isListShape = (shape: FieldShape): shape is readonly [FieldShape] => Array.isArray(shape);
