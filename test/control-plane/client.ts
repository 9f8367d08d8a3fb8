import type { IncomingMessage } from "node:http";
import { Agent, request } from "node:https";
import { exactJson } from "#lib/exact-json.ts";
import { toApiPath } from "#lib/objects/api-version.ts";
import { toPlural } from "#lib/recording/recorded-answers.ts";
import type { KubernetesObject, UserInfo } from "#lib/review.ts";

/** The response of a test cluster's API server: HTTP code, body as JSON, and Warning headers. */
export interface TestClusterResponse {
  code: number;
  /** The parsed body of the API server's response: the object, or the Status of a refusal. */
  body: Record<string, unknown>;
  warnings: string[];
  /** The key of the request in the audit log. */
  auditId?: string;
}

export interface TestClusterRequest {
  method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  /** The path with its query, such as `/api/v1/namespaces/default/pods?dryRun=All`. */
  path: string;
  body?: unknown;
  /** The content type of a PATCH; other bodies are JSON. */
  contentType?: string;
  /** The user to impersonate. */
  impersonate?: UserInfo;
}

/** Sends requests as one user of a cluster. */
export type TestClusterClient = (call: TestClusterRequest) => Promise<TestClusterResponse>;

/** Returns a client that sends a token, over connections that are kept open. */
export const createTokenClient = (
  server: string,
  ca: string,
  token: string,
): { client: TestClusterClient; close(): void } => {
  const agent = new Agent({ ca, keepAlive: true, maxSockets: 16 });
  const sendRequest: TestClusterClient = ({ method, path, body, contentType = "application/json", impersonate }) =>
    new Promise((resolve, reject) => {
      const text = body === undefined ? undefined : exactJson.stringify(body);
      const headers = {
        authorization: `Bearer ${token}`,
        "content-type": contentType,
        accept: "application/json",
        // Node states the length of each body except that of a DELETE.
        ...(text !== undefined && { "content-length": Buffer.byteLength(text) }),
        ...(impersonate && buildImpersonationHeaders(impersonate)),
      };
      const sent = request(`${server}${path}`, { method, headers, agent, timeout: 40_000 }, (response) => {
        readResponse(response).then(resolve, reject);
      });
      sent.on("timeout", () => sent.destroy(new Error(`${method} ${path} was not answered`)));
      sent.on("error", reject);
      sent.end(text);
    });
  return { client: sendRequest, close: () => agent.destroy() };
};

/** Reads a response. Rejects if the API server closes the connection within it, as after a panic. */
const readResponse = async (response: IncomingMessage): Promise<TestClusterResponse> => {
  let text = "";
  // A chunk may end within a character.
  response.setEncoding("utf8");
  for await (const chunk of response) text += chunk;
  const headers = response.headersDistinct.warning ?? [];
  const warnings = headers.flatMap((header) =>
    [...header.matchAll(/299 - "((?:[^"\\]|\\.)*)"/g)].map(([, escaped = ""]) => escaped.replace(/\\(.)/g, "$1")),
  );
  const [auditId] = response.headersDistinct["audit-id"] ?? [];
  const code = response.statusCode ?? 0;
  return { code, body: parseBody(text), warnings, ...(auditId !== undefined && { auditId }) };
};

const buildImpersonationHeaders = ({ username = "", groups = [], extra = {} }: UserInfo) => {
  const extraHeaders = Object.entries(extra).map(([key, values]) => [`impersonate-extra-${key}`, values]);
  return { "impersonate-user": username, "impersonate-group": groups, ...Object.fromEntries(extraHeaders) };
};

const parseBody = (text: string): Record<string, unknown> => {
  try {
    return JSON.parse(text);
  } catch {
    return { text };
  }
};

/** Returns the URL path of an object's collection, such as `/api/v1/namespaces/shop/pods`. */
export const getCollectionPath = ({ apiVersion = "v1", kind = "", metadata }: KubernetesObject): string => {
  const namespace = metadata?.namespace;
  return [toApiPath(apiVersion), ...(namespace === undefined ? [] : ["namespaces", namespace]), toPlural(kind)].join(
    "/",
  );
};

/** Returns an object's path in the API, such as /api/v1/namespaces/default/pods/a. */
export const getObjectApiPath = (object: KubernetesObject): string =>
  `${getCollectionPath(object)}/${object.metadata?.name}`;
