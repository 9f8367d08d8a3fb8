import { createServer, type Server } from "node:https";
import { parseJson } from "#lib/json.ts";
import type { ServerCertificate } from "../../infra/keys/keys.ts";
import type { WebhookEntry } from "../../infra/webhooks/configurations.ts";
import { buildKubeconfig } from "../checkout.ts";
import { close, listen } from "../listen.ts";

// The imitated cluster of a stage in this suite: an API server that only stores objects. Postern's commands write
// webhook configurations to it, as to any cluster. The suite, and not this server, calls the URLs in these
// configurations.

export interface ImitatedCluster {
  /** The text of a kubeconfig. */
  kubeconfig: string;
  /** Returns the webhook entries of one phase. */
  listEntries(phase: "mutate" | "validate"): WebhookEntry[];
  stop(): Promise<void>;
}

type StoredObject = Record<string, unknown> & { metadata: Record<string, unknown> };

const prefix = "/apis/admissionregistration.k8s.io/v1";

export const startImitatedCluster = async (certificate: ServerCertificate): Promise<ImitatedCluster> => {
  const objects = new Map<string, StoredObject>();
  const server = createServer({ cert: certificate.cert, key: certificate.key }, async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    const { pathname, searchParams } = new URL(request.url ?? "/", "https://127.0.0.1");
    const [status, body] = answer(objects, {
      method: request.method ?? "",
      path: pathname,
      isDryRun: searchParams.has("dryRun"),
      body: Buffer.concat(chunks).toString(),
    });
    response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
  });
  const port = await listen(server);
  const address = { server: `https://127.0.0.1:${port}`, ca: certificate.ca, getToken: () => "suite" };
  return {
    kubeconfig: buildKubeconfig({ suite: address }),
    listEntries: (phase) => {
      const kind = phase === "mutate" ? "mutating" : "validating";
      const found = objects.get(`${prefix}/${kind}webhookconfigurations/postern`)?.webhooks;
      return Array.isArray(found) ? found : [];
    },
    stop: () => close(server satisfies Server),
  };
};

interface ObjectRequest {
  method: string;
  path: string;
  isDryRun: boolean;
  body: string;
}

/** Returns the status and the body of the answer to a request. Objects are stored by their paths. */
const answer = (
  objects: Map<string, StoredObject>,
  { method, path, isDryRun, body }: ObjectRequest,
): [number, object] => {
  const storedObject = objects.get(path);
  const name = path.split("/").at(-1);
  const missing = { kind: "Status", code: 404, message: `${name} not found`, details: { name } };
  if (method === "GET" && /\/[a-z]+s$/.test(path) && storedObject === undefined)
    return [200, { kind: "List", items: listBelow(objects, path) }];
  if (method === "GET") return storedObject ? [200, storedObject] : [404, missing];
  if (method === "DELETE") return objects.delete(path) ? [200, { kind: "Status" }] : [404, missing];
  if (method === "PUT" && storedObject === undefined) return [404, missing];
  const sentObject: StoredObject = Object(parseJson(body));
  const resourceVersion = String(Number(storedObject?.metadata.resourceVersion ?? 0) + (isDryRun ? 0 : 1));
  const newObject = { ...sentObject, metadata: { ...sentObject.metadata, resourceVersion } };
  if (!isDryRun) objects.set(path, newObject);
  return [storedObject ? 200 : 201, newObject];
};

const listBelow = (objects: Map<string, StoredObject>, path: string): StoredObject[] =>
  [...objects].flatMap(([objectPath, object]) => (objectPath.startsWith(`${path}/`) ? [object] : []));
