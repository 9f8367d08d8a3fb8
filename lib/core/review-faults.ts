// This module is loaded only after a rule has failed. In Lambda, it is a file beside the bundle, made by
// infra/build/schemas.ts.
import builtIn from "../admission-policies/merge/built-in-schemas.json" with { type: "json" };
import {
  type ObjectSchema,
  resolveType,
  type TypeReference,
  type ValueType,
} from "../admission-policies/merge/schemas.ts";
import { getOwn, isMap } from "../json.ts";
import { joinApiVersion } from "../objects/api-version.ts";
import { toPlural } from "../recording/recorded-answers.ts";
import { matchesRequest } from "../request-match.ts";
import type { AdmissionRequest } from "../review.ts";
import { type Rule, selectPhase } from "../rule.ts";

/**
 * Returns a sentence that says why no API server sends this request to a rule; undefined if one could send it. Of a
 * custom resource, only the metadata is checked. The resource is checked only if `match` is constant: a match that is a
 * function of settings is not known here.
 */
export const findReviewFault = (request: AdmissionRequest, match: Rule["match"] | undefined): string | undefined => {
  const { kind, resource, subResource, operation, oldObject, userInfo } = request;
  for (const [path, holder] of Object.entries({ request, "request.userInfo": userInfo }))
    for (const [key, value] of Object.entries(holder))
      if (value === null && !nullable.has(key)) return `${path}.${key} must not be null`;
  const rows =
    typeof match === "function"
      ? []
      : (["mutate", "validate"] as const).flatMap((phase) => selectPhase(match, phase, {}) ?? []);
  if (rows.length > 0 && !rows.some((row) => matchesRequest(row, request)))
    return "request.resource and request.operation must be those of a row that the rule matches";
  if (operation === "UPDATE" && oldObject == null) return "request.oldObject must be an object on UPDATE";
  if (!subResource && joinApiVersion(kind) !== joinApiVersion(resource))
    return "request.kind must have the group and version of request.resource";
  const { name, type } = findKind(request);
  if (name !== undefined && name !== kind.kind) return `request.kind.kind must be ${name} for this request.resource`;
  for (const part of ["object", "oldObject"] as const) {
    const object = request[part];
    if (object == null) continue;
    const fault = findTypeFault(object, type, `request.${part}`);
    if (fault !== undefined) return fault;
    for (const [key, wanted] of Object.entries({ apiVersion: joinApiVersion(kind), kind: kind.kind }))
      if ((getOwn(object, key) ?? wanted) !== wanted) return `request.${part}.${key} must be that of request.kind`;
  }
  return undefined;
};

/** The members of a request that may be null. */
const nullable = new Set(["object", "oldObject", "options"]);

/** A bundle has only the types of the kinds that its rule matches. */
const { types } = builtIn as unknown as Pick<ObjectSchema, "types">;

const metadataType = "meta.v1.ObjectMeta";
const anyKind: ValueType = { fields: { apiVersion: "string", kind: "string", metadata: metadataType } };
const buildType = (fields: ValueType["fields"]): ValueType => ({ fields: { ...anyKind.fields, ...fields } });

const streamOptions = buildType({ command: { items: "string" }, container: "string", ports: { items: "number" } });

/** The subresources whose kind differs from their resource's kind. The OpenAPI document describes only few of them. */
const subresourceKinds: Record<string, { name?: string; type: TypeReference }> = {
  attach: { name: "PodAttachOptions", type: streamOptions },
  binding: { name: "Binding", type: buildType({ target: { fields: { kind: "string", name: "string" } } }) },
  eviction: { name: "Eviction", type: buildType({ deleteOptions: { values: "unknown" } }) },
  exec: { name: "PodExecOptions", type: streamOptions },
  portforward: { name: "PodPortForwardOptions", type: streamOptions },
  proxy: { type: buildType({ path: "string" }) },
  scale: { name: "Scale", type: buildType({ spec: { fields: { replicas: "number" } } }) },
  token: {
    name: "TokenRequest",
    type: buildType({
      spec: {
        fields: { audiences: { items: "string" }, boundObjectRef: { values: "string" }, expirationSeconds: "number" },
      },
    }),
  },
};

/** Returns the name and the type of the kind that the request's resource has. A custom resource's name isn't known. */
const findKind = ({ resource, subResource = "" }: AdmissionRequest): { name?: string; type: TypeReference } => {
  if (Object.hasOwn(subresourceKinds, subResource)) return subresourceKinds[subResource] ?? { type: anyKind };
  const start = `${joinApiVersion(resource)}/`;
  for (const type in types) {
    const name = type.slice(start.length);
    if (type.startsWith(start) && toPlural(name) === resource.resource) return { name, type };
  }
  return { type: anyKind };
};

/** The required lists of built-in types, and `rules` of RBAC. Go writes such a list as null if it is absent. */
const nullableLists = new Set(
  `addresses admissionReviewVersions apiGroups containers conversionReviewVersions drivers endpoints limits monitors
  nodeSelectorTerms nonResourceURLs paths requestMappings resources rules subjects validationActions values verbs
  versions`.split(/\s+/),
);

/** Finds a value whose type differs from its field's type, and describes it. It doesn't recurse: any depth is safe. */
const findTypeFault = (root: unknown, rootType: TypeReference, rootPath: string): string | undefined => {
  const toCheck: { value: unknown; type: TypeReference; path: string; field?: string }[] = [
    { value: root, type: rootType, path: rootPath },
  ];
  for (let next = toCheck.pop(); next !== undefined; next = toCheck.pop()) {
    const { value, path, field = "" } = next;
    const type = resolveType(types, next.type);
    const { scalar, items, fields = {}, values } = type;
    // Go writes some absent values as null: lists with certain names, the selector of a workload, and times. The type
    // of a time has the scalar "any", which means a string or a number.
    const isNullable = items === undefined ? scalar === "any" || field === "selector" : nullableLists.has(field);
    // A type that has this scalar and also allows maps is the type of a field that may have any JSON value.
    const allowsAll = scalar === "any" && values !== undefined;
    if (value === undefined || (value === null && field && isNullable) || allowsAll) continue;
    if (Array.isArray(value) && items !== undefined)
      for (const [index, inner] of value.entries())
        toCheck.push({ value: inner, type: items, path: `${path}[${index}]` });
    else if (isMap(value) && (type.fields || values !== undefined))
      for (const [key, inner] of Object.entries(value)) {
        const fieldType = getOwn(fields, key) as TypeReference | undefined;
        if (fieldType !== undefined)
          toCheck.push({ value: inner, type: fieldType, path: `${path}.${key}`, field: key });
        // The fault doesn't show the keys of maps, because the sender chose them.
        else if (values !== undefined) toCheck.push({ value: inner, type: values, path: `${path}[…]` });
      }
    else if (!isScalar(value, scalar)) return `${path} must be ${describeType(type)}, not ${describeValue(value)}`;
  }
  return undefined;
};

/** Reports whether a value has a scalar type. "any" is the type of quantities, times and IntOrString. */
const isScalar = (value: unknown, scalar: ValueType["scalar"]): boolean => {
  const found = typeof value === "bigint" ? "number" : typeof value;
  return scalar === "any" ? found === "string" || found === "number" : found === scalar;
};

const describeType = ({ scalar, items }: ValueType): string =>
  scalar === "any" ? "a string or a number" : scalar ? `a ${scalar}` : items !== undefined ? "a list" : "an object";

const describeValue = (value: unknown): string =>
  value === null ? "null" : Array.isArray(value) ? "a list" : isMap(value) ? "an object" : `a ${typeof value}`;
