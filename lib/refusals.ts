import { getOwn, isObject } from "./json.ts";
import type { AdmissionRequest, Status } from "./review.ts";

/** Returns a resource with its group, such as `deployments.apps`; `pods` for the core group. */
export const formatGroupResource = ({ group, resource }: { group: string; resource: string }): string =>
  group === "" ? resource : `${resource}.${group}`;

/** Returns the name that the API server shows: of the request, else of the object, else generateName, else Unknown. */
export const getObjectName = ({ name, object }: AdmissionRequest): string => {
  if (name) return name;
  if (!isObject(object)) return "Unknown";
  const metadata = getOwn(object, "metadata");
  if (!isObject(metadata)) return "Unknown/errorGettingName";
  for (const key of ["name", "generateName"]) {
    const value = getOwn(metadata, key);
    if (typeof value === "string" && value !== "") return value;
  }
  return "Unknown";
};

const buildDetails = ({ group, resource }: { group: string; resource: string }, name: string) => {
  return { ...(name && { name }), ...(group && { group }), kind: resource };
};

/**
 * Returns a status 403 with the message `pods "a" is forbidden: <text>`, as admission plugins do. An empty `name`
 * leaves out the quoted name. (A rule that returns a text instead of a status refuses with only that text.)
 */
export const forbidden = (request: AdmissionRequest, text: string, name = getObjectName(request)): Status => ({
  code: 403,
  reason: "Forbidden",
  message: `${formatGroupResource(request.resource)}${name && ` "${name}"`} is forbidden: ${text}`,
  details: buildDetails(request.resource, name),
});

/** Returns a status 404 with the message `namespaces "x" not found`. */
export const notFound = (resource: { group: string; resource: string }, name: string): Status => ({
  code: 404,
  reason: "NotFound",
  message: `${formatGroupResource(resource)} "${name}" not found`,
  details: buildDetails(resource, name),
});

/** A fault of one field, worded like the API server's validation errors. */
export interface FieldError {
  field: string;
  type: "Required value" | "Invalid value" | "Unsupported value" | "Forbidden";
  value?: unknown;
  detail?: string;
}

const causes: Record<FieldError["type"], string> = {
  "Required value": "FieldValueRequired",
  "Invalid value": "FieldValueInvalid",
  "Unsupported value": "FieldValueNotSupported",
  Forbidden: "FieldValueForbidden",
};

/** Returns `<Type>: <value>: <detail>`; Required and Forbidden show no value. */
export const formatFieldError = ({ type, value, detail }: FieldError): string => {
  const shown = type === "Forbidden" || type === "Required value" ? [] : [JSON.stringify(value ?? null)];
  return [type, ...shown, ...(detail ? [detail] : [])].join(": ");
};

/** Joins errors as Go does: `a` for one error, `[a, b]` for several. Equal errors appear once. */
export const joinErrors = (texts: readonly string[]): string => {
  const distinct = [...new Set(texts)];
  return distinct.length === 1 ? String(distinct[0]) : `[${distinct.join(", ")}]`;
};

/** Returns a status 422 as API validation does, with the message `Pod "a" is invalid: <errors>`. */
export const invalid = ({ kind }: AdmissionRequest, name: string, errors: readonly FieldError[]): Status => {
  const groupKind = kind.group === "" ? kind.kind : `${kind.kind}.${kind.group}`;
  return {
    code: 422,
    reason: "Invalid",
    message: `${groupKind} "${name}" is invalid: ${joinErrors(errors.map((error) => `${error.field}: ${formatFieldError(error)}`))}`,
    details: {
      ...buildDetails({ group: kind.group, resource: kind.kind }, name),
      causes: errors.map((error) => ({
        reason: causes[error.type],
        message: formatFieldError(error),
        field: error.field,
      })),
    },
  };
};

/** Returns a status 429 with the message `Too many requests: <text>`. */
export const tooMany = (text: string): Status => {
  return { code: 429, reason: "TooManyRequests", message: `Too many requests: ${text}` };
};
