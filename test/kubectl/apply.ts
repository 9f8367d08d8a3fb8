import { createServer } from "node:http";
import { text } from "node:stream/consumers";
import { exactJson } from "#lib/exact-json.ts";
import { toMap } from "#lib/json.ts";
import type { TestClusterClient, TestClusterRequest, TestClusterResponse } from "../control-plane/client.ts";
import { close, listen } from "../listen.ts";
import { runKubectl } from "./kubectl.ts";

const lastAppliedAnnotation = "kubectl.kubernetes.io/last-applied-configuration";

/**
 * Applies an existing object by kubectl, through a proxy that removes kubectl's annotation `last-applied-configuration`
 * from the patch. Returns the API server's answer to the patch; undefined if kubectl sends no patch.
 */
export const applyByKubectl = async (
  client: TestClusterClient,
  object: object,
): Promise<TestClusterResponse | undefined> => {
  let applied: TestClusterResponse | undefined;
  const server = createServer(async (request, response) => {
    const { method, url: path = "", headers } = request;
    const call: TestClusterRequest = { method: "GET", path };
    if (method === "PATCH") {
      const body = toMap(exactJson.parse(await text(request)));
      delete toMap(toMap(body.metadata).annotations)[lastAppliedAnnotation];
      Object.assign(call, { method, body, contentType: headers["content-type"] });
    }
    const answer = await client(call);
    if (method === "PATCH") applied = answer;
    response.writeHead(answer.code, { "content-type": "application/json" }).end(exactJson.stringify(answer.body));
  });
  const flags = ["--cache-dir=/dev/null", "--validate=warn"];
  try {
    const port = await listen(server);
    await runKubectl(["apply", "-f", "-", `--server=http://127.0.0.1:${port}`, ...flags], exactJson.stringify(object));
  } catch {
    // The API server's answer says why it refuses the patch.
  } finally {
    await close(server);
  }
  return applied;
};
