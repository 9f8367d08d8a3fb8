import { once } from "node:events";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import type { ServerCertificate } from "../../infra/keys/keys.ts";
import type { buildWebhookConfigurations } from "../../infra/webhooks/configurations.ts";
import type { TestClusterClient } from "../control-plane/client.ts";

type Configuration = ReturnType<typeof buildWebhookConfigurations>[number];

/** The part of an AdmissionReview that the scripted answers of test endpoints use. */
interface ReviewBody {
  request: { uid: string };
}

/**
 * Returns the answer of a test endpoint to a review. Undefined means no answer: the API server waits for its timeout.
 */
export type TestEndpointScript = (
  review: ReviewBody,
  path: string,
) => { code?: number; type?: string; headers?: Record<string, string>; body: string } | undefined;

/**
 * Opens webhook endpoints for tests, named by the first segment of the path. Each answers by its script, or not at all.
 * To detect which configurations are in use, `detector` adds entries that call one more endpoint, which warns with the
 * rest of the path. With `clientCa`, clients need a certificate of that CA.
 */
export const openScriptedWebhookEndpoints = async (
  certificate: ServerCertificate,
  scripts: Record<string, TestEndpointScript> = {},
  clientCa?: string,
) => {
  const { cert, key } = certificate;
  const server = createServer(
    { cert, key, ...(clientCa && { ca: clientCa, requestCert: true }) },
    async (request, response) => {
      let text = "";
      request.setEncoding("utf8");
      for await (const chunk of request) text += chunk;
      const { pathname } = new URL(request.url ?? "", "https://localhost");
      const [, name = "", ...rest] = pathname.split("/");
      const script = name === detectorPath ? warnWithPath : scripts[name];
      const answer = script?.(JSON.parse(text), rest.join("/"));
      if (answer) {
        const headers = { "content-type": answer.type ?? "application/json", ...answer.headers };
        response.writeHead(answer.code ?? 200, headers).end(answer.body);
      }
    },
  );
  // Idle connections stay open for ten minutes. A client that uses a connection just when the server closes it would
  // get no answer.
  server.keepAliveTimeout = 600_000;
  await once(server.listen(0, "127.0.0.1"), "listening");
  const url = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return {
    url,
    detector: createDetector(`${url}/${detectorPath}`, certificate.ca),
    stop: async () => {
      server.close();
      server.closeAllConnections();
    },
  };
};

/** Returns the JSON of an answer to a review. It allows the request, unless `response` overrides that. */
export const buildReviewAnswer = ({ request: { uid } }: ReviewBody, response: object = {}) =>
  JSON.stringify({
    kind: "AdmissionReview",
    apiVersion: "admission.k8s.io/v1",
    response: { uid, allowed: true, ...response },
  });

const detectorPath = "announcer";
const warnWithPath: TestEndpointScript = (review, path) => ({ body: buildReviewAnswer(review, { warnings: [path] }) });

/**
 * Detects when the API server uses a webhook configuration. For this, the configuration gets one more entry, which
 * answers a special request with a warning: a unique word.
 */
export interface ConfigurationUseDetector {
  /** Returns the configuration with the added entry, and the entry's word. */
  announce(manifest: Configuration): { body: Configuration; word: string };
  /** Sends the special request. The warnings of the answer are the words of the configurations that are in use. */
  sendProbe: (admin: TestClusterClient) => ReturnType<TestClusterClient>;
}

/**
 * Returns a detector. `announce` adds to a configuration an entry that calls the endpoint at `url` with a new word. The
 * endpoint answers with a warning, the word. So if the API server's answer to a probe has this warning, it uses the
 * configuration. The endpoint's certificate has this CA.
 */
const createDetector = (url: string, ca: string): ConfigurationUseDetector => {
  let count = 0;
  const announce = (manifest: Configuration) => {
    count += 1;
    const word = `${manifest.kind}/${manifest.metadata.name}/${count}`;
    const entry: Configuration["webhooks"][number] = {
      name: "announcer.postern.dev",
      clientConfig: { url: `${url}/${word}`, caBundle: Buffer.from(ca).toString("base64") },
      rules: [
        { apiGroups: ["coordination.k8s.io"], apiVersions: ["v1"], resources: ["leases"], operations: ["CREATE"] },
      ],
      matchConditions: [{ name: "is-asked", expression: 'object.metadata.?name.orValue("") == "announcer"' }],
      failurePolicy: "Ignore",
      matchPolicy: "Exact",
      sideEffects: "None",
      timeoutSeconds: 30,
      admissionReviewVersions: ["v1"],
    };
    // The added entry must be the first one: if another entry refuses the request, the API server calls no later entry.
    return { body: { ...manifest, webhooks: [entry, ...manifest.webhooks] }, word };
  };
  const body = { apiVersion: "coordination.k8s.io/v1", kind: "Lease", metadata: { name: "announcer" } };
  const path = "/apis/coordination.k8s.io/v1/namespaces/default/leases?dryRun=All";
  return { announce, sendProbe: (admin) => admin({ method: "POST", path, body }) };
};
