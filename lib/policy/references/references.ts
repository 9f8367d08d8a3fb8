import { isMap, lookUp } from "../../json.ts";
import type { KubernetesObject } from "../../review.ts";
import { isLabelSelector } from "../selectors.ts";
import type { HttpReference, PolicyCapabilities, PolicyRequest, ValueReference } from "../types.ts";
import { resolveNamespace } from "../types.ts";
import { type PathStep, parseReferencePath } from "../values/paths.ts";
import { quoteValue } from "../values/texts.ts";

type FoundOrMissing = { value: unknown } | undefined;

/** Returns the value that a policy's reference names; undefined if there is none. */
export const resolveReference = async (
  reference: ValueReference,
  request: PolicyRequest,
  capabilities: PolicyCapabilities,
): Promise<FoundOrMissing> => {
  if (!isMap(reference)) throw new Error("a reference must be an object");
  const path = parseReferencePath(reference.path);
  switch (reference.from) {
    case "current":
      return lookUp(request.object, path);
    case "old":
      return request.operation === "UPDATE" ? lookUp(request.oldObject, path) : undefined;
    case "owner":
      return lookUp(await getOwner(request, capabilities), path);
    case "k8s":
      return lookUp(await findObject(reference.k8s, request, capabilities), path);
    case "http":
      return fetchValue(path, reference.http, request, capabilities);
    default:
      throw new Error(`from must be current, old, owner, k8s or http, not ${quoteValue(reference.from)}`);
  }
};

/** Returns the first owner of the request's object; undefined if there is none. */
const getOwner = async (
  request: PolicyRequest,
  capabilities: PolicyCapabilities,
): Promise<KubernetesObject | undefined> => {
  const owner = lookUp(request.object, ["metadata", "ownerReferences", 0])?.value;
  if (!isMap(owner)) return undefined;
  const { apiVersion, kind, name } = owner;
  const namespace = resolveNamespace(request);
  return getObject(requireStrings({ apiVersion, kind, name }, "metadata.ownerReferences[0]"), namespace, capabilities);
};

/** Returns the object that `k8s` of a reference identifies; undefined if none is found. */
const findObject = async (
  selector: ValueReference["k8s"],
  { object }: PolicyRequest,
  capabilities: PolicyCapabilities,
): Promise<KubernetesObject | undefined> => {
  if (!isMap(selector)) throw new Error("k8s must identify an object");
  const { apiVersion, kind } = requireStrings({ apiVersion: selector.apiVersion, kind: selector.kind }, "k8s");
  const { name = "", namespace = "" } = requireStrings(
    { name: selector.name ?? "", namespace: selector.namespace ?? "" },
    "k8s",
  );
  // If a placeholder has no value, the reference finds no object. If the kind isn't served, it is an error in any case.
  const findNothing = async () => {
    await capabilities.requireKind?.(apiVersion, kind);
    return undefined;
  };
  const filledName = fillPlaceholders(name, object);
  const filledNamespace = fillPlaceholders(namespace, object);
  if (filledName === undefined || filledNamespace === undefined) return findNothing();
  const objectNamespace = namespace === "" ? undefined : requirePathSegment(filledNamespace, "namespace");
  if (name !== "")
    return getObject({ apiVersion, kind, name: requirePathSegment(filledName, "name") }, objectNamespace, capabilities);

  const { labelSelector } = selector;
  if (!isMap(labelSelector)) throw new Error("k8s must have a name or a labelSelector");
  const labels = fillLabelSelector(labelSelector, object);
  if (labels === undefined) return findNothing();
  // The selector becomes a query of the API server. A value with a comma would change the meaning of the query.
  if (!isLabelSelector(labels)) throw new Error("k8s.labelSelector is no valid label selector");
  return capabilities.findFirst(apiVersion, kind, labels, objectNamespace);
};

/** Returns an object of the cluster. A missing object is an error. */
const getObject = async (
  { apiVersion, kind, name }: { apiVersion: string; kind: string; name: string },
  namespace: string | undefined,
  capabilities: PolicyCapabilities,
): Promise<KubernetesObject> => {
  const found = await capabilities.get(apiVersion, kind, name, namespace);
  if (found !== undefined) return found;
  const where = namespace === undefined ? "" : ` in namespace ${quoteValue(namespace)}`;
  throw new Error(`there is no ${kind} ${quoteValue(name)}${where}`);
};

const requireStrings = <Key extends string>(values: Record<Key, unknown>, where: string): Record<Key, string> => {
  for (const key in values) if (typeof values[key] !== "string") throw new Error(`${where}.${key} must be a string`);
  return values as Record<Key, string>;
};

/** Checks a name that becomes a segment of an API server's path: no character in the name may change the path. */
const requirePathSegment = (name: string, field: string): string => {
  if (name === "" || name === "." || name === ".." || name.length > 253 || /[/%]/.test(name))
    throw new Error(`k8s.${field} becomes ${quoteValue(name)}, which is no valid name of an object`);
  return name;
};

/** Fills the placeholders in the values of a label selector; undefined if a placeholder has no value. */
const fillLabelSelector = (selector: Record<string, unknown>, object: KubernetesObject): unknown => {
  let isComplete = true;
  const fillText = (value: unknown): unknown => {
    if (typeof value !== "string") return value;
    const text = fillPlaceholders(value, object);
    if (text === undefined) isComplete = false;
    return text;
  };
  const { matchLabels, matchExpressions } = selector;
  const result = {
    ...(isMap(matchLabels) && {
      matchLabels: Object.fromEntries(Object.entries(matchLabels).map(([key, value]) => [key, fillText(value)])),
    }),
    ...(Array.isArray(matchExpressions) && {
      matchExpressions: matchExpressions.map((expression) =>
        isMap(expression) && Array.isArray(expression.values)
          ? { ...expression, values: expression.values.map(fillText) }
          : expression,
      ),
    }),
  };
  return isComplete ? result : undefined;
};

/**
 * Returns the value at a path in the answer of an HTTP service. Returns undefined if the answer has no such value, or
 * if the object has no value for a placeholder in the URL or in a parameter.
 */
const fetchValue = async (
  path: PathStep[],
  http: HttpReference | undefined,
  { object, dryRun }: PolicyRequest,
  capabilities: PolicyCapabilities,
): Promise<FoundOrMissing> => {
  if (!isMap(http)) throw new Error("http must be an object with a url");
  const { url } = requireStrings({ url: http.url }, "http");
  const { method: writtenMethod = "" } = requireStrings({ method: http.method ?? "" }, "http");
  const method = writtenMethod.toUpperCase() || "GET";
  if (method !== "GET" && method !== "POST")
    throw new Error(`http.method must be GET or POST, not ${quoteValue(writtenMethod)}`);
  if (!isMap(http.params ?? {})) throw new Error("http.params must be a map of strings");

  const address = fillAddress(url, object);
  const params = Object.entries(requireStrings(http.params ?? {}, "http.params")).map(([key, value]) => [
    key,
    fillPlaceholders(value, object),
  ]);
  if (address === undefined || params.some(([, value]) => value === undefined)) return undefined;
  if (dryRun && method === "POST") throw new Error("a dry run sends no POST, so the response is unknown");

  const reply = await capabilities.fetchReference({
    ...http,
    url: address,
    method,
    params: Object.fromEntries(params),
  });
  const isPart = path[0] === "body" || path[0] === "header" || path[0] === "trailer";
  return lookUp(isPart ? reply : reply.body, path);
};

/**
 * Fills the placeholders of a URL. The object's author chooses the values, so a value must not change the structure of
 * the URL: in the path and query, values are encoded; in the host name, other characters than letters, digits, dots and
 * hyphens are refused.
 */
const fillAddress = (url: string, object: KubernetesObject): string | undefined => {
  const [scheme = ""] = /^https?:\/\//i.exec(url) ?? [];
  if (scheme === "") throw new Error("http.url must begin with http:// or https://");
  const hostLength = url.slice(scheme.length).search(/[/?#\\]/);
  const hostEnd = hostLength < 0 ? url.length : scheme.length + hostLength;
  const filled = fillPlaceholders(url, object, (value, at) => {
    if (at >= hostEnd) return encodeURIComponent(value.toWellFormed());
    if (/^[A-Za-z0-9.-]+$/.test(value)) return value;
    throw new Error(`http.url becomes wrong: ${quoteValue(value)} can't be part of a host's name`);
  });
  if (filled !== undefined && filled !== url && filled.split(/[?#]/, 1).some((path) => dotStep.test(path)))
    throw new Error("http.url becomes wrong: a step of its path would be . or ..");
  return filled;
};

/** A step `.` or `..` in a URL's path. HTTP clients remove it, and for `..` also the step before it. */
const dotStep = /[/\\](?:\.|%2e){1,2}(?:[/\\]|$)/i;

/** The most characters of a text after its placeholders are filled. */
const maximumLength = 65_536;

/**
 * Replaces each placeholder, such as `{{metadata.name}}`, by the object's value at this path. Returns undefined if one
 * of the values is no text, number or boolean. `encode` escapes a value for its position in the text.
 */
export const fillPlaceholders = (
  text: string,
  object: KubernetesObject,
  encode: (value: string, at: number) => string = (value) => value,
): string | undefined => {
  let filled = "";
  let [at, isComplete] = [0, true];
  for (;;) {
    const open = text.indexOf("{{", at);
    const close = open < 0 ? -1 : text.indexOf("}}", open + 2);
    // A `{{` without `}}` starts no placeholder: the text stays as it is.
    if (close < 0) break;
    const path = text.slice(open + 2, close);
    if (path === "") throw new Error(`${quoteValue(text)} has a placeholder without a path; write {{metadata.name}}`);
    const value = lookUp(object, path.split("."))?.value;
    if (typeof value === "object" || value === undefined) isComplete = false;
    else filled += text.slice(at, open) + encode(String(value), open);
    if (filled.length > maximumLength)
      throw new Error(`${quoteValue(text)} gets longer than ${maximumLength} characters`);
    at = close + 2;
  }
  return isComplete ? filled + text.slice(at) : undefined;
};
