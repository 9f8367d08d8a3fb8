import { once } from "node:events";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import type { ServerCertificate } from "../keys/keys.ts";

/** A review as the API server sends it, as far as an answer depends on it. */
interface Review {
  request: { uid: string };
}

/** What an endpoint says to a review; nothing leaves the API server waiting. */
export type Script = (review: Review, path: string) => { code?: number; type?: string; body: string } | undefined;

/** Endpoints that do as they are told, well or not, each at the first segment of a path. */
export const openScripted = async (certificate: ServerCertificate, scripts: Record<string, Script>) => {
  const server = createServer({ cert: certificate.cert, key: certificate.key }, async (request, response) => {
    let text = "";
    for await (const chunk of request) text += chunk;
    const { pathname } = new URL(request.url ?? "", "https://localhost");
    const [, name = "", ...rest] = pathname.split("/");
    const said = scripts[name]?.(JSON.parse(text), rest.join("/"));
    if (said) response.writeHead(said.code ?? 200, { "content-type": said.type ?? "application/json" }).end(said.body);
  });
  // A client that reuses a connection while it is closed gets no answer.
  server.keepAliveTimeout = 600_000;
  await once(server.listen(0, "127.0.0.1"), "listening");
  return {
    url: `https://127.0.0.1:${(server.address() as AddressInfo).port}`,
    stop: async () => {
      server.close();
      server.closeAllConnections();
    },
  };
};

/** An AdmissionReview that answers another. */
export const answering = ({ request: { uid } }: Review, response: object = {}) =>
  JSON.stringify({
    kind: "AdmissionReview",
    apiVersion: "admission.k8s.io/v1",
    response: { uid, allowed: true, ...response },
  });
