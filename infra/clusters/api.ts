import { Agent } from "node:https";
import { setTimeout as wait } from "node:timers/promises";
import {
  type HttpsAnswer,
  requireUnansweredError,
  sendRequest,
  type UnansweredError,
} from "#lib/cluster/https-request.ts";
import { readApiServerListPages } from "#lib/cluster/pages.ts";
import { parseJson } from "#lib/json.ts";
import type { StageLockGuard } from "../aws/guard.ts";
import { Complaint, toSentence } from "../cli/complaint.ts";

const admission = "/apis/admissionregistration.k8s.io/v1";
const rbac = "/apis/rbac.authorization.k8s.io/v1";

const resourcePaths = {
  MutatingWebhookConfiguration: { root: admission, resource: "mutatingwebhookconfigurations" },
  ValidatingWebhookConfiguration: { root: admission, resource: "validatingwebhookconfigurations" },
  MutatingAdmissionPolicy: { root: admission, resource: "mutatingadmissionpolicies" },
  MutatingAdmissionPolicyBinding: { root: admission, resource: "mutatingadmissionpolicybindings" },
  ValidatingAdmissionPolicy: { root: admission, resource: "validatingadmissionpolicies" },
  ValidatingAdmissionPolicyBinding: { root: admission, resource: "validatingadmissionpolicybindings" },
  ClusterRole: { root: rbac, resource: "clusterroles" },
  ClusterRoleBinding: { root: rbac, resource: "clusterrolebindings" },
  ServiceAccount: { root: "/api/v1", resource: "serviceaccounts" },
  Secret: { root: "/api/v1", resource: "secrets" },
};

export type DeployedKind = keyof typeof resourcePaths;

export interface ObjectReference {
  kind: DeployedKind;
  name: string;
  namespace?: string;
}

export interface DeployedObject {
  apiVersion: string;
  kind: DeployedKind;
  metadata: {
    name: string;
    namespace?: string;
    labels?: Record<string, string>;
    annotations?: Record<string, string>;
    resourceVersion?: string;
  };
  [field: string]: unknown;
}

/** A cluster's API for deployments. Errors are Complaints that name the cluster. */
export interface ClusterApi {
  cluster: string;
  server: string;
  get(ref: ObjectReference): Promise<DeployedObject | undefined>;
  /**
   * Lists all objects of a kind, in all namespaces; none if the kind isn't served. With `isOptional`, also none if the user
   * has no right to list them: then it can't have created any.
   */
  list(kind: DeployedKind, options?: { isOptional: boolean }): Promise<DeployedObject[]>;
  /** Sends a GET for a path to the API server; returns the parsed response, or undefined after a 404. */
  read(path: string): Promise<unknown>;
  /** Sends a GET for a path to the API server; returns the text of the response. */
  readText(path: string): Promise<string>;
  /** Applies an object by server-side apply, and takes over fields that other managers have set. */
  apply(object: DeployedObject, options?: { dryRun: boolean }): Promise<DeployedObject>;
  /** Replaces the whole object; undefined if it was changed or deleted since it was read. */
  replace(object: DeployedObject, options?: { dryRun: boolean }): Promise<DeployedObject | undefined>;
  /** Deletes an object, and reports whether it existed. */
  remove(ref: ObjectReference): Promise<boolean>;
}

export interface ClusterConnection {
  server: string;
  ca?: string | undefined;
  token(): Promise<string | undefined>;
  cert?: string;
  key?: string;
  /** The advice in the error message if the API server rejects the credentials. */
  credentialsAdvice: string;
  guard?: StageLockGuard | undefined;
}

const timeoutMilliseconds = 10_000;
const pageSize = 250;
/** Milliseconds before the retry of a read that an overloaded API server refused. */
const retryDelay = 500;

export const createClusterApi = (cluster: string, connection: ClusterConnection): ClusterApi => {
  const { server } = connection;
  const send = createSender(cluster, connection);

  const toRefusal = ({ status, body }: HttpsAnswer, what: string) => {
    const { message } = Object(parseJson(body));
    const why = hideUrlKeys(toSentence(typeof message === "string" ? message : body.slice(0, 200)));
    if (status === 401)
      return new Complaint(
        `cluster ${cluster}: its API server doesn't accept the credentials (401: ${why}); ${connection.credentialsAdvice}`,
        1,
      );
    const remedy = status === 403 ? suggestRemedy(why) : "";
    return new Complaint(`cluster ${cluster}: its API server refuses ${what} (${status}): ${why}${remedy}`, 1);
  };
  const readObject = (answer: HttpsAnswer, what: string): DeployedObject => {
    const content = parseJson(answer.body);
    if (answer.status < 300 && isDeployedObject(content)) return content;
    throw toRefusal(answer, what);
  };

  return {
    ...{ cluster, server },
    get: async (ref) => {
      const answer = await send("GET", buildPath(ref));
      return isMissingObject(answer) ? undefined : readObject(answer, `to show the ${describeObject(ref)}`);
    },
    list: async (kind, { isOptional } = { isOptional: false }) => {
      const { root, resource } = resourcePaths[kind];
      const found: DeployedObject[] = [];
      const readPage = async (query: URLSearchParams) => {
        const answer = await send("GET", `${root}/${resource}?${query}`);
        if (answer.status === 404 || (answer.status === 403 && isOptional)) return {};
        const list = parseJson(answer.body);
        if (answer.status >= 300 || !Array.isArray(Object(list).items ?? []))
          throw toRefusal(answer, `to list every ${kind}`);
        return list;
      };
      for await (const { items = [], apiVersion } of readApiServerListPages(readPage, () => pageSize))
        found.push(...(items as object[]).map((item) => ({ apiVersion, kind, ...item })).filter(isDeployedObject));
      return found;
    },
    read: async (path) => {
      const answer = await send("GET", path);
      if (answer.status === 404) return undefined;
      const content = parseJson(answer.body);
      if (answer.status >= 300 || content === undefined) throw toRefusal(answer, `to show ${path}`);
      return content;
    },
    readText: async (path) => {
      const answer = await send("GET", path);
      if (answer.status >= 300) throw toRefusal(answer, `to show ${path}`);
      return answer.body;
    },
    apply: async (object, { dryRun } = { dryRun: false }) => {
      const ref = toReference(object);
      const path = `${buildPath(ref)}?fieldManager=postern&force=true${dryRun ? "&dryRun=All" : ""}`;
      const answer = await send("PATCH", path, object, "application/apply-patch+yaml");
      return readObject(answer, `the ${describeObject(ref)}`);
    },
    replace: async (object, { dryRun } = { dryRun: false }) => {
      const ref = toReference(object);
      const path = `${buildPath(ref)}?fieldManager=postern${dryRun ? "&dryRun=All" : ""}`;
      const answer = await send("PUT", path, object);
      return answer.status === 409 || isMissingObject(answer)
        ? undefined
        : readObject(answer, `the ${describeObject(ref)}`);
    },
    remove: async (ref) => {
      const answer = await send("DELETE", `${buildPath(ref)}?propagationPolicy=Background`);
      if (isMissingObject(answer)) return false;
      if (answer.status >= 300) throw toRefusal(answer, `to remove the ${describeObject(ref)}`);
      return true;
    },
  };
};

type Send = (method: string, path: string, body?: object, contentType?: string) => Promise<HttpsAnswer>;

/** Returns a function that repeats a request once if it never arrived, or if it is a read that may succeed now. */
const createSender = (cluster: string, { server, ca, cert, key, token: readToken, guard }: ClusterConnection): Send => {
  const trust = { ...(ca && { ca }), ...(cert && key && { cert, key }) };
  const agent = new Agent({ keepAlive: true, maxSockets: 8, ...trust });
  return async (method, path, body, contentType = "application/json") => {
    for (let attempt = 1; ; attempt++) {
      const token = await readToken();
      const headers = {
        accept: "application/json",
        "user-agent": "postern",
        ...(token !== undefined && { authorization: `Bearer ${token}` }),
        ...(body && { "content-type": contentType }),
      };
      const connection = attempt === 1 ? { agent } : { agent: false, ...trust };
      const options = { method, headers, ...connection };
      if (method !== "GET" && !path.includes("dryRun=All")) await guard?.check();
      const text = body && JSON.stringify(body);
      const answer = await sendRequest(`${server}${path}`, options, text, Date.now() + timeoutMilliseconds).catch(
        requireUnansweredError,
      );
      if (attempt === 1 && mayRetry(answer, method === "GET")) {
        if ("status" in answer) await wait(retryDelay);
        continue;
      }
      if ("status" in answer) return answer;
      const remedy = /self-signed|unable to (get|verify)/.test(answer.message)
        ? "; its ca must be the one that signed its certificate"
        : "";
      throw new Complaint(`cluster ${cluster} can't be reached at ${server}: ${toSentence(answer)}${remedy}`, 3);
    }
  };
};

/**
 * Reports whether to send a request once more. If a kept connection was closed, the request never arrived, so that even
 * a write is safe to repeat.
 */
const mayRetry = (answer: HttpsAnswer | UnansweredError, isRead: boolean): boolean => {
  if ("status" in answer) return isRead && [429, 500, 502, 503, 504].includes(answer.status);
  return answer.unsent || (isRead && Object(answer.cause).code === "ECONNRESET");
};

export const toReference = ({ kind, metadata: { name, namespace } }: DeployedObject): ObjectReference => {
  return { kind, name, ...(namespace !== undefined && { namespace }) };
};

export const describeObject = ({ kind, name, namespace }: ObjectReference) =>
  `${kind} ${name}${namespace === undefined ? "" : ` in namespace ${namespace}`}`;

const buildPath = ({ kind, name, namespace }: ObjectReference) => {
  const { root, resource } = resourcePaths[kind];
  const within = namespace === undefined ? "" : `/namespaces/${encodeURIComponent(namespace)}`;
  return `${root}${within}/${resource}/${encodeURIComponent(name)}`;
};

/** Reports whether a 404 means that the object is missing; if the kind isn't served, the Status names no object. */
const isMissingObject = ({ status, body }: HttpsAnswer) =>
  status === 404 && Object(Object(parseJson(body)).details).name !== undefined;

const suggestRemedy = (why: string): string => {
  if (/attempting to grant RBAC permissions not currently held/.test(why))
    return "; the user that deploys must have these rights too, or the verb escalate on clusterroles";
  // A 403 of a webhook or a policy has nothing to do with RBAC.
  return / cannot \w+ (resource|path) /.test(why)
    ? "; give this right to the user that deploys, for instance by RBAC"
    : "";
};

export const isDeployedObject = (value: unknown): value is DeployedObject => {
  const { apiVersion, kind, metadata } = Object(value);
  return (
    typeof apiVersion === "string" && Object.hasOwn(resourcePaths, kind) && typeof Object(metadata).name === "string"
  );
};

/** Hides the keys in URLs, `…/{cluster}.…/rule/phase`. Only a path segment can have a key, never a host. */
export const hideUrlKeys = (text: string): string =>
  text.replace(/(?<=[^/]\/)([a-z0-9][-a-z0-9]{0,62})\.[\w-]{20,}/gi, "$1.…");
