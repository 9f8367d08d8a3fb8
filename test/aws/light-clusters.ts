import { randomUUID } from "node:crypto";
import type { IncomingMessage } from "node:http";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { isMap, parseJson } from "#lib/json.ts";
import type { ServerCertificate } from "../../infra/keys/keys.ts";

// One server that imitates the API servers of many clusters. It stores the objects that `postern deploy` writes, and
// answers all other reads with empty lists. Admission policies have no effect, as if their plugin was off.

/** A server that imitates the API servers of many clusters in little memory. */
export interface LightClusters {
  url: string;
  /**
   * The names of the clusters that seem to apply admission policies. To find out, `postern deploy` writes a policy that
   * refuses one object, the probe, and tries to create this object. These clusters refuse it; all others accept it.
   */
  clustersWithPolicies: Set<string>;
  stop(): Promise<void>;
}

interface StoredObject {
  apiVersion: string;
  kind: string;
  metadata: { name: string; resourceVersion: string; uid: string; [field: string]: unknown };
  [field: string]: unknown;
}

interface Answer {
  code: number;
  body: object;
}

/** Starts a server that imitates the API servers of many clusters. A request's bearer token is the cluster's name. */
export const openLightClusters = async (certificate: ServerCertificate): Promise<LightClusters> => {
  /** The objects of each cluster by their path. */
  const clusters = new Map<string, Map<string, StoredObject>>();
  const clustersWithPolicies = new Set<string>();
  let revision = 0;

  /** Creates or replaces an object, unless this is a dry run. An unchanged object keeps its resourceVersion. */
  const store = (objects: Map<string, StoredObject>, path: string, object: StoredObject, isDryRun: boolean): Answer => {
    const before = objects.get(path);
    const isSame = before !== undefined && hasSameContent(before, object);
    const { uid = randomUUID(), resourceVersion } = before?.metadata ?? {};
    const metadata = { ...object.metadata, uid, resourceVersion: isSame ? String(resourceVersion) : `${++revision}` };
    const stored = { ...object, metadata };
    if (!isDryRun) objects.set(path, stored);
    return { code: before ? 200 : 201, body: stored };
  };

  const answer = (name: string, { method, url = "" }: IncomingMessage, body: string): Answer => {
    const objects = clusters.get(name) ?? new Map<string, StoredObject>();
    clusters.set(name, objects);
    const { pathname: path, searchParams: query } = new URL(url, "https://cluster");
    const content = parseJson(body);
    const before = objects.get(path);
    const isDryRun = query.has("dryRun");
    switch (method) {
      case "GET":
        if (path === policyGroup) return { code: 200, body: { resources: [{ kind: "ValidatingAdmissionPolicy" }] } };
        if (path === "/version") return { code: 200, body: { major: "1", minor: "37" } };
        if (before) return { code: 200, body: before };
        return isCollection(path) ? listObjects(objects, path) : buildMissing(path);
      case "PATCH":
        if (isDryRun && clustersWithPolicies.has(name) && path.includes(".probe-"))
          return buildStatus(422, "Invalid", path, "denied request: refused by Postern's probe");
        return store(objects, path, content as StoredObject, isDryRun);
      case "PUT": {
        if (!before) return buildMissing(path);
        const { resourceVersion } = (content as StoredObject).metadata;
        if (resourceVersion !== undefined && resourceVersion !== before.metadata.resourceVersion)
          return buildStatus(409, "Conflict", path, "the object has been modified");
        return store(objects, path, content as StoredObject, isDryRun);
      }
      case "DELETE":
        return objects.delete(path) ? buildStatus(200, "Success", path, "deleted") : buildMissing(path);
      default:
        return { code: 201, body: { ...(isMap(content) && content), status: { allowed: true } } };
    }
  };

  const server = createServer({ cert: certificate.cert, key: certificate.key }, (request, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk) => chunks.push(chunk));
    request.on("end", () => {
      const name = String(request.headers.authorization).replace(/^Bearer /, "");
      const { code, body } = answer(name, request, Buffer.concat(chunks).toString());
      response.writeHead(code, { "content-type": "application/json" }).end(JSON.stringify(body));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    clustersWithPolicies,
    url: `https://127.0.0.1:${(server.address() as AddressInfo).port}`,
    stop: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
};

const policyGroup = "/apis/admissionregistration.k8s.io/v1";

/** Reports whether a path is that of a list: it ends with a resource, and not with the name of an object. */
const isCollection = (path: string): boolean => {
  const rest = path.replace(/^\/(api|apis\/[^/]+)\/[^/]+\//, "").split("/");
  return rest.length === 1 || (rest[0] === "namespaces" && rest.length === 3);
};

const listObjects = (objects: Map<string, StoredObject>, path: string): Answer => {
  const items = [...objects].flatMap(([itemPath, object]) => (itemPath.startsWith(`${path}/`) ? [object] : []));
  return { code: 200, body: { kind: "List", apiVersion: "v1", metadata: {}, items } };
};

const buildStatus = (code: number, reason: string, path: string, message: string): Answer => {
  const status = { kind: "Status", apiVersion: "v1", reason, message, code, details: { name: path.split("/").at(-1) } };
  return { code, body: { ...status, metadata: {}, status: code < 300 ? "Success" : "Failure" } };
};

const buildMissing = (path: string) => buildStatus(404, "NotFound", path, `${path} not found`);

/** Reports whether two objects are equal but for the metadata that the server sets. */
const hasSameContent = (one: StoredObject, other: StoredObject): boolean => {
  const serialize = ({ metadata: { resourceVersion: _, uid: __, ...metadata }, ...rest }: StoredObject) =>
    JSON.stringify({ ...rest, metadata });
  return serialize(one) === serialize(other);
};
