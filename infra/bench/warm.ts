import { Agent, request } from "node:https";
import type { Manifests } from "../parity/rule-server.ts";
import { reviewOfPod } from "./reviews.ts";

type Address = Manifests[number]["webhooks"][number]["clientConfig"];

/** Has a webhook answer this many reviews at once, as one that has run for a while has: its compilers are done then. */
export const warmUp = async ({ url, caBundle = "" }: Address, reviews: number): Promise<void> => {
  const agent = new Agent({ ca: Buffer.from(caBundle, "base64"), keepAlive: true, maxSockets: 8 });
  const body = reviewOfPod(5_000);
  const ask = () =>
    new Promise<void>((resolve, reject) => {
      const headers = { "content-type": "application/json" };
      const sent = request(url, { method: "POST", agent, headers }, (response) => {
        const code = response.statusCode;
        response.on("end", () => (code === 200 ? resolve() : reject(new Error(`${url} answers ${code}`)))).resume();
      });
      sent.on("error", reject).end(body);
    });

  let left = reviews;
  const askOn = async () => {
    for (; left > 0; left--) await ask();
  };
  await Promise.all(Array.from({ length: agent.maxSockets }, askOn)).finally(() => agent.destroy());
};
