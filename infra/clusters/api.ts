import {
  type ApiServerConnection,
  type ApiServerRequest,
  createApiServerRequester,
  getFailureReason,
  isMissingObject,
} from "#lib/cluster/api-server.ts";
import { type HttpsAnswer, requireUnansweredError, sendRequest, UnansweredError } from "#lib/cluster/https-request.ts";
import { readApiServerListPages } from "#lib/cluster/pages.ts";
import { parseJson, toMap } from "#lib/json.ts";
import type { StageLockGuard } from "../aws/guard.ts";
import { Complaint } from "../cli/complaint.ts";
import { toOneLine } from "../cli/terminal.ts";

const admission = "/apis/admissionregistration.k8s.io/v1";
const rbac = "/apis/rbac.authorization.k8s.io/v1";

/** The kinds that Postern writes to clusters, and their paths in the API. */
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

/** An object that Postern writes to a cluster. */
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
   * Lists all objects of a kind, in all namespaces. The list is empty if the API server doesn't serve the kind. With
   * `isOptional`, it is also empty if the user may not list the kind: such a user can't have created an object of it.
   */
  list(kind: DeployedKind, options?: { isOptional: boolean }): Promise<DeployedObject[]>;
  /** Sends a GET request. Returns the parsed JSON of the response, or undefined for the status 404. */
  read(path: string): Promise<unknown>;
  /** Sends a GET request. Returns the text of the response. */
  readText(path: string): Promise<string>;
  /** Applies an object by server-side apply, also if other field managers have set the same fields. */
  apply(object: DeployedObject, options?: { dryRun: boolean }): Promise<DeployedObject>;
  /** Replaces the whole object. Returns undefined if the object was changed or deleted since it was read. */
  replace(object: DeployedObject, options?: { dryRun: boolean }): Promise<DeployedObject | undefined>;
  /** Deletes an object, and reports whether it existed. */
  remove(ref: ObjectReference): Promise<boolean>;
}

/** How to connect to a cluster's API server. */
export interface ClusterConnection extends ApiServerConnection {
  /** What the error message advises if the API server doesn't accept the credentials. */
  credentialsAdvice: string;
  /** Is asked before each change in the cluster: throws if this command has lost the lock of its stage. */
  guard?: StageLockGuard | undefined;
}

const pageSize = 250;

/** Reads and writes objects of a cluster. A failed request is a Complaint that names the cluster. */
export const createClusterApi = (cluster: string, connection: ClusterConnection): ClusterApi => {
  const { server, guard } = connection;
  const ask = createApiServerRequester(connection, {
    countTries: () => 2,
    pause: 500,
    send: async (url, options, ...rest) => {
      if (options.method !== "GET" && !url.includes("dryRun=All")) await guard?.check();
      return sendRequest(url, options, ...rest);
    },
  });
  const fail = (answer: HttpsAnswer | UnansweredError, what?: string) =>
    new Complaint(
      `cluster ${cluster}: ${describeFailure(answer, connection, what)}`,
      answer instanceof UnansweredError || answer.status < 400 ? 3 : 1,
    );
  const send = async (path: string, request?: ApiServerRequest): Promise<HttpsAnswer> => {
    const answer = await ask(path, Number.POSITIVE_INFINITY, request).catch(requireUnansweredError);
    if (answer instanceof UnansweredError) throw fail(answer);
    return answer;
  };
  const readObject = (answer: HttpsAnswer, what: string): DeployedObject => {
    const content = parseJson(answer.body);
    if (answer.status < 300 && isDeployedObject(content)) return content;
    throw fail(answer, what);
  };

  return {
    cluster,
    server,
    get: async (ref) => {
      const answer = await send(buildPath(ref));
      return isMissingObject(answer) ? undefined : readObject(answer, `to show the ${describeObject(ref)}`);
    },
    list: async (kind, { isOptional } = { isOptional: false }) => {
      const { root, resource } = resourcePaths[kind];
      const found: DeployedObject[] = [];
      const readPage = async (query: URLSearchParams) => {
        const answer = await send(`${root}/${resource}?${query}`);
        if (answer.status === 404 || (answer.status === 403 && isOptional)) return {};
        const list = parseJson(answer.body);
        if (answer.status >= 300 || !Array.isArray(toMap(list).items ?? []))
          throw fail(answer, `to list every ${kind}`);
        return list;
      };
      for await (const { items = [], apiVersion } of readApiServerListPages(readPage, () => pageSize))
        found.push(...(items as object[]).map((item) => ({ apiVersion, kind, ...item })).filter(isDeployedObject));
      return found;
    },
    read: async (path) => {
      const answer = await send(path);
      if (answer.status === 404) return undefined;
      const content = parseJson(answer.body);
      if (answer.status >= 300 || content === undefined) throw fail(answer, `to show ${path}`);
      return content;
    },
    readText: async (path) => {
      const answer = await send(path);
      if (answer.status >= 300) throw fail(answer, `to show ${path}`);
      return answer.body;
    },
    apply: async (object, { dryRun } = { dryRun: false }) => {
      const ref = toReference(object);
      const path = `${buildPath(ref)}?fieldManager=postern&force=true${dryRun ? "&dryRun=All" : ""}`;
      const answer = await send(path, {
        method: "PATCH",
        body: object,
        contentType: "application/apply-patch+yaml",
        repeat: "unsent",
      });
      return readObject(answer, `to store the ${describeObject(ref)}`);
    },
    replace: async (object, { dryRun } = { dryRun: false }) => {
      const ref = toReference(object);
      const path = `${buildPath(ref)}?fieldManager=postern${dryRun ? "&dryRun=All" : ""}`;
      const answer = await send(path, { method: "PUT", body: object, repeat: "unsent" });
      return answer.status === 409 || isMissingObject(answer)
        ? undefined
        : readObject(answer, `to store the ${describeObject(ref)}`);
    },
    remove: async (ref) => {
      const answer = await send(`${buildPath(ref)}?propagationPolicy=Background`, {
        method: "DELETE",
        repeat: "unsent",
      });
      if (isMissingObject(answer)) return false;
      if (answer.status >= 300) throw fail(answer, `to remove the ${describeObject(ref)}`);
      return true;
    },
  };
};

/**
 * Describes why an API server can't be reached, or refuses a request, or fails; with advice if possible. `what` is what
 * it refuses to do, for instance "to list every Secret".
 */
export const describeFailure = (
  answer: HttpsAnswer | UnansweredError,
  { server, credentialsAdvice }: Pick<ClusterConnection, "server" | "credentialsAdvice">,
  what?: string,
): string => {
  if (answer instanceof UnansweredError) {
    if (answer.reason === "credentials") return answer.message;
    const remedy = /self-signed|unable to (get|verify)/.test(answer.message)
      ? "; its ca must be the one that signed its certificate"
      : "";
    return `the API server at ${server} can't be reached: ${toOneLine(answer.message)}${remedy}`;
  }
  const { status } = answer;
  const why = hideUrlKeys(toOneLine(getFailureReason(answer)));
  if (status === 401) return `the API server doesn't accept the credentials (401: ${why}); ${credentialsAdvice}`;
  // A proxy or a login page answers 200, or redirects.
  if (what !== undefined && status < 400)
    return `${server} has an answer (${status}) that is not from an API server: ${why}`;
  const remedy = status === 403 ? suggestRemedy(why) : "";
  const verb = status >= 500 ? "fails" : "refuses";
  if (what !== undefined) return `the API server ${verb} ${what} (${status}): ${why}${remedy}`;
  return `the API server answers ${status}${why === "" ? "" : `: ${why}`}${remedy}`;
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

/** Returns advice for the status 403: which right the user needs. */
const suggestRemedy = (why: string): string => {
  if (/attempting to grant RBAC permissions not currently held/.test(why))
    return "; the user must have these rights too, or the verb escalate on clusterroles";
  // The status 403 may also come from a webhook or a policy, for which no right helps.
  return / cannot \w+ (resource|path) /.test(why) ? "; give this right to the user, for instance by RBAC" : "";
};

export const isDeployedObject = (value: unknown): value is DeployedObject => {
  const { apiVersion, kind, metadata } = toMap(value);
  const isKnown = typeof kind === "string" && Object.hasOwn(resourcePaths, kind);
  return typeof apiVersion === "string" && isKnown && typeof toMap(metadata).name === "string";
};

/** Hides keys in URLs: `https://host/prod.SIGNATURE/pods/mutate` becomes `https://host/prod.…/pods/mutate`. */
export const hideUrlKeys = (text: string): string =>
  text.replace(/(?<=[^/]\/)([a-z0-9][-a-z0-9]{0,62})\.[\w-]{20,}/gi, "$1.…");
