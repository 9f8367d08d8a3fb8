import { randomUUID } from "node:crypto";
import { Failure } from "../failure.ts";
import { isMap, parseJson, toMap, toText } from "../json.ts";
import { joinApiVersion, splitApiVersion } from "../objects/api-version.ts";
import type { AdmissionRequest, KubernetesObject, UserInfo } from "../review.ts";
import { evaluateRuleChain, type RuleChainContext, type RuleChainResult } from "./chain.ts";
import { addProgramHeaders, type SendWithProgramOptions } from "./program-capabilities.ts";
import { jsonContentType } from "./request-body.ts";
import { addWarnings, toErrorResponse } from "./responses.ts";
import type { WriteTarget } from "./target.ts";

/** A request by which a program writes an object, and which a rule matches. */
export interface InterceptedWrite {
  target: WriteTarget;
  url: URL;
  method: string;
  headers: Headers;
  body: Uint8Array<ArrayBuffer>;
  /** Sends this or another request with the same connections, signal and other options as the program's request. */
  send: SendWithProgramOptions;
  user: UserInfo;
  context: RuleChainContext;
}

/** Returns the refusal, or sends the write and returns the response. Adds the rules' warnings. */
export const sendUnlessRefused = async (
  { refusal, warnings }: RuleChainResult,
  send: () => Promise<Response>,
): Promise<Response> => addWarnings(refusal ? toErrorResponse(refusal) : await send(), warnings);

/** Sends an intercepted write to the API server. If `object` is given, it replaces the body. */
export const sendWrite = (write: InterceptedWrite, object?: unknown, headers = write.headers): Promise<Response> => {
  const { method, url, body, send } = write;
  const sentHeaders = new Headers(headers);
  for (const name of ["content-length", "transfer-encoding"]) sentHeaders.delete(name);
  if (object === undefined) return send(method, String(url), sentHeaders, body.length === 0 ? undefined : body);
  // The content type is set, because fetch would send a text without one as text/plain.
  if (!sentHeaders.has("content-type")) sentHeaders.set("content-type", jsonContentType);
  return send(method, String(url), sentHeaders, JSON.stringify(object));
};

/**
 * Reads the current object; undefined if it doesn't exist. If it can't be read and failurePolicy is Ignore, sends the
 * write and returns the response.
 */
export const readCurrentObjectOrSendWrite = async (
  write: InterceptedWrite,
): Promise<KubernetesObject | undefined | Response> => {
  const { target, url, headers, send, context } = write;
  const address = new URL(url);
  address.search = "";
  // The subresource finalize can't be read. The Namespace is read instead.
  if (target.resource === "namespaces" && target.subResource === "finalize")
    address.pathname = address.pathname.replace(/\/finalize\/*$/, "");
  const response = await send("GET", String(address), addProgramHeaders(headers, { accept: jsonContentType }));
  if (response.status === 404) {
    await response.body?.cancel();
    return undefined;
  }
  const text = await response.text();
  const found = response.ok ? parseJsonMap(text) : undefined;
  if (found !== undefined) return found;
  if (context.failurePolicy === "Ignore") return sendWrite(write);
  throw new Failure(
    500,
    `the current object, which rules need, can't be read: the API server answers ${response.status}`,
  );
};

export const parseJsonMap = (text: string): KubernetesObject | undefined => {
  const value = parseJson(text);
  return isMap(value) ? value : undefined;
};

/**
 * Evaluates the rules for a write. `newObject` is the object that would be stored (undefined for DELETE), and `old` is
 * the current object.
 */
export const evaluateWrite = async (
  { target, user, context }: InterceptedWrite,
  newObject: KubernetesObject | undefined,
  old: KubernetesObject | undefined,
): Promise<RuleChainResult> => {
  const operation = newObject === undefined ? "DELETE" : old === undefined ? "CREATE" : "UPDATE";
  const object = newObject ?? old ?? {};
  const kind = await findKind(object, old, target, context);
  const request: AdmissionRequest = {
    ...buildAdmissionRequest({ ...target, operation }, kind, user, object),
    object: newObject === undefined ? null : addNamespace(addKind(newObject, kind), target),
    oldObject: old ?? null,
  };
  const result = await evaluateRuleChain(request, context);
  return newObject !== undefined && result.isChanged
    ? { ...result, object: removeAddedNamespace(result.object, newObject) }
    : result;
};

/** Builds an admission request as the API server does, but without the objects. */
export const buildAdmissionRequest = (
  target: WriteTarget,
  kind: AdmissionRequest["kind"],
  userInfo: UserInfo,
  object: KubernetesObject = {},
): AdmissionRequest => {
  const { operation, group, version, resource, subResource, dryRun } = target;
  const gvr = { group, version, resource };
  const name = target.name ?? (toText(toMap(object.metadata).name) || undefined);
  const namespace = target.namespace ?? (isNamespace(target) ? name : undefined);
  return {
    uid: randomUUID(),
    kind,
    requestKind: kind,
    resource: gvr,
    requestResource: gvr,
    ...(subResource !== undefined && { subResource, requestSubResource: subResource }),
    ...(name !== undefined && { name }),
    ...(namespace !== undefined && { namespace }),
    operation,
    userInfo,
    dryRun,
    options: null,
  };
};

const isNamespace = ({ group, resource }: WriteTarget) => group === "" && resource === "namespaces";

/** Returns the object's kind. If the object doesn't state it, finds the kind of the URL's resource by discovery. */
const findKind = async (
  object: KubernetesObject,
  old: KubernetesObject | undefined,
  target: WriteTarget,
  { capabilities }: RuleChainContext,
): Promise<AdmissionRequest["kind"]> => {
  for (const { apiVersion, kind } of [object, old ?? {}])
    if (typeof kind === "string" && kind !== "" && typeof apiVersion === "string")
      return { ...splitApiVersion(apiVersion), kind };
  const { group, version, resource, subResource } = target;
  const path = subResource === undefined ? resource : `${resource}/${subResource}`;
  const resources = await capabilities(discoveryTimeout).discover(joinApiVersion(target));
  const found = resources?.find((candidate) => candidate.resource === path);
  if (found === undefined) throw new Failure(400, "the object must state its apiVersion and kind");
  return { group, version, kind: found.kind };
};

/** In milliseconds. */
const discoveryTimeout = 3000;

/** Adds kind and apiVersion to an object that doesn't state them, as the API server does. */
const addKind = (object: KubernetesObject, kind: AdmissionRequest["kind"]): KubernetesObject =>
  object.kind && object.apiVersion
    ? object
    : { ...object, apiVersion: object.apiVersion || joinApiVersion(kind), kind: object.kind || kind.kind };

/** Adds the namespace in the request's URL to an object that has none, as the API server does before admission. */
const addNamespace = (object: KubernetesObject, target: WriteTarget): KubernetesObject => {
  const { namespace } = target;
  if (namespace === undefined || isNamespace(target) || getNamespace(object) !== undefined) return object;
  return { ...object, metadata: { ...toMap(object.metadata), namespace } };
};

/** Removes the namespace that `addNamespace` added. */
const removeAddedNamespace = (object: KubernetesObject, sentObject: KubernetesObject): KubernetesObject => {
  if (getNamespace(sentObject) !== undefined || getNamespace(object) === undefined) return object;
  const { metadata: filled, ...rest } = object;
  const { namespace: _, ...metadata } = filled ?? {};
  return sentObject.metadata === undefined && Object.keys(metadata).length === 0 ? rest : { ...object, metadata };
};

const getNamespace = ({ metadata }: KubernetesObject): string | undefined =>
  toText(toMap(metadata).namespace) || undefined;
