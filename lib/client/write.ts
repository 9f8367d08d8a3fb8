import { randomUUID } from "node:crypto";
import { Failure } from "../failure.ts";
import { isMap, parseJson } from "../json.ts";
import type { Capabilities } from "../needs.ts";
import { joinApiVersion, splitApiVersion } from "../objects/api-version.ts";
import type { AdmissionRequest, KubernetesObject, UserInfo } from "../review.ts";
import { answer, warned } from "./answers.ts";
import { json } from "./body.ts";
import { type Around, type Judged, judge, type Told } from "./chain.ts";
import type { Plan } from "./plans.ts";
import type { Target } from "./target.ts";
import { lasting, type Send } from "./world.ts";

export interface Setup {
  plans: readonly Plan[];
  server: URL | undefined;
  user: UserInfo;
  failurePolicy: "Fail" | "Ignore";
  world: ((milliseconds: number) => Capabilities) | undefined;
  now(): Date;
  tell(told: Told): void;
}

export interface Write {
  target: Target;
  url: URL;
  method: string;
  headers: Headers;
  body: Uint8Array<ArrayBuffer>;
  send: Send;
  setup: Setup;
  around: Around;
}

export const settled = async ({ refusal, warnings }: Judged, send: () => Promise<Response>): Promise<Response> =>
  warned(refusal ? answer(refusal) : await send(), warnings);

/** Sends a write; `object` replaces its body. */
export const sent = (
  { method, url, headers, body, send }: Write,
  object?: unknown,
  changed = headers,
): Promise<Response> => {
  const own = new Headers(changed);
  for (const name of ["content-length", "transfer-encoding"]) own.delete(name);
  if (object !== undefined) {
    // Without a content type, a text is sent as text/plain.
    if (!own.has("content-type")) own.set("content-type", json);
    return send(method, String(url), own, JSON.stringify(object));
  }
  return send(method, String(url), own, body.length === 0 ? undefined : body);
};

/** Returns the current object. If it can't be read and failurePolicy is Ignore, sends the write and returns the response. */
export const current = async (write: Write): Promise<KubernetesObject | undefined | Response> => {
  const { target, url, headers, send, setup } = write;
  const place = new URL(url);
  place.search = "";
  // finalize can be written but not read; the Namespace itself is read instead.
  if (target.resource === "namespaces" && target.subResource === "finalize")
    place.pathname = place.pathname.replace(/\/finalize\/*$/, "");
  const response = await send("GET", String(place), lasting(headers, { accept: "application/json" }));
  if (response.status === 404) {
    await response.body?.cancel();
    return undefined;
  }
  const text = await response.text();
  const found = response.ok ? asObject(text) : undefined;
  if (found !== undefined) return found;
  if (setup.failurePolicy === "Ignore") return sent(write);
  throw new Failure(
    500,
    `could not read what is there now, which rules must see: the API server answers ${response.status}`,
  );
};

export const asObject = (text: string): KubernetesObject | undefined => {
  const value = parseJson(text);
  return isMap(value) ? value : undefined;
};

/** Evaluates the rules. `given` is the object that would be stored, undefined on DELETE; `old` is the current one. */
export const judgedAs = async (
  { target, setup, around }: Write,
  given: KubernetesObject | undefined,
  old: KubernetesObject | undefined,
): Promise<Judged> => {
  const operation = given === undefined ? "DELETE" : old === undefined ? "CREATE" : "UPDATE";
  const shown = given ?? old ?? {};
  const kind = await kindOf(shown, old, target, around);
  const request: AdmissionRequest = {
    ...requestOf({ ...target, operation }, kind, setup.user, shown),
    object: given === undefined ? null : placed(named(given, kind), target),
    oldObject: old ?? null,
  };
  const judged = await judge(setup.plans, request, around);
  return given !== undefined && judged.changed ? { ...judged, object: unplaced(judged.object, given) } : judged;
};

/** Returns a request as the API server would build it, without its objects. */
export const requestOf = (
  target: Target,
  kind: AdmissionRequest["kind"],
  userInfo: UserInfo,
  object: KubernetesObject = {},
): AdmissionRequest => {
  const { operation, group, version, resource, subResource, dryRun } = target;
  const gvr = { group, version, resource };
  const own = isMap(object.metadata) ? object.metadata.name : undefined;
  const name = target.name ?? (typeof own === "string" && own !== "" ? own : undefined);
  const isNamespace = group === "" && resource === "namespaces";
  const namespace = target.namespace ?? (isNamespace ? name : undefined);
  return {
    ...{ uid: randomUUID(), kind, requestKind: kind, resource: gvr, requestResource: gvr },
    ...(subResource !== undefined && { subResource, requestSubResource: subResource }),
    ...(name !== undefined && { name }),
    ...(namespace !== undefined && { namespace }),
    ...{ operation, userInfo, dryRun, options: null },
  };
};

/** Returns the object's kind. If it states none, the API server takes it from the URL; discovery gives the same. */
const kindOf = async (
  object: KubernetesObject,
  old: KubernetesObject | undefined,
  target: Target,
  { world }: Around,
): Promise<AdmissionRequest["kind"]> => {
  for (const { apiVersion, kind } of [object, old ?? {}])
    if (typeof kind === "string" && kind !== "" && typeof apiVersion === "string") {
      return { ...splitApiVersion(apiVersion), kind };
    }
  const { group, version, resource, subResource } = target;
  const path = subResource === undefined ? resource : `${resource}/${subResource}`;
  const served = await world(longestDiscovery).discover(joinApiVersion(target));
  const found = served?.find((one) => one.resource === path);
  if (found === undefined) throw new Failure(400, "the object must say its apiVersion and kind");
  return { group, version, kind: found.kind };
};
const longestDiscovery = 3000;

/** Adds the kind and apiVersion that the API server takes from the URL. */
const named = (object: KubernetesObject, kind: AdmissionRequest["kind"]): KubernetesObject =>
  object.kind && object.apiVersion ? object : { apiVersion: joinApiVersion(kind), kind: kind.kind, ...present(object) };

const present = ({ apiVersion, kind, ...rest }: KubernetesObject): KubernetesObject => ({
  ...(apiVersion && { apiVersion }),
  ...(kind && { kind }),
  ...rest,
});

/** Adds the URL's namespace, as the API server does before admission. */
const placed = (object: KubernetesObject, { namespace, group, resource }: Target): KubernetesObject => {
  const isNamespace = group === "" && resource === "namespaces";
  if (namespace === undefined || isNamespace || namespaceIn(object) !== undefined) return object;
  const metadata = isMap(object.metadata) ? object.metadata : {};
  return { ...object, metadata: { ...metadata, namespace } };
};

/** Removes the namespace that `placed` added. */
const unplaced = (object: KubernetesObject, given: KubernetesObject): KubernetesObject => {
  if (namespaceIn(given) !== undefined || namespaceIn(object) === undefined) return object;
  const { metadata: filled, ...rest } = object;
  const { namespace: _, ...metadata } = filled ?? {};
  return given.metadata === undefined && Object.keys(metadata).length === 0 ? rest : { ...object, metadata };
};

const namespaceIn = ({ metadata }: KubernetesObject): string | undefined =>
  isMap(metadata) && typeof metadata.namespace === "string" && metadata.namespace !== ""
    ? metadata.namespace
    : undefined;
