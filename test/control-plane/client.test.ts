import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempDisposable } from "node:fs/promises";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it } from "node:test";
import { readOrCreateServerCertificate } from "../../infra/keys/keys.ts";
import { sendSequence } from "../parity/sequence-sender.ts";
import { createTokenClient } from "./client.ts";

describe("an API server that panics", () => {
  for (const [moment, firstBytes] of [
    ["before it answers", undefined],
    ["within its answer", '{"kind":'],
  ] as const)
    it(`the code of a panicking API server's answer is 0 if the server closes the connection ${moment}`, async () => {
      await using folder = await mkdtempDisposable(join(tmpdir(), "postern-panic-"));
      const { ca, cert, key } = await readOrCreateServerCertificate(folder.path, "127.0.0.1");
      const server = createServer({ cert, key }, (request, response) => {
        if (request.method === "GET") response.writeHead(404).end("{}");
        else if (firstBytes === undefined) request.socket.destroy();
        else response.writeHead(201).write(firstBytes, () => request.socket.destroy());
      });
      await once(server.listen(0, "127.0.0.1"), "listening");
      const { port } = server.address() as AddressInfo;
      const { client, close } = createTokenClient(`https://127.0.0.1:${port}`, ca, "t");
      try {
        const step = { verb: "create", user: "admin", dryRun: false, body: { data: {} } } as const;
        const sequence = { kind: "configmaps", generateName: false, steps: [step, step] } as unknown;
        const { turns } = await sendSequence(sequence as Parameters<typeof sendSequence>[0], "s0", () => client);
        assert.deepEqual(
          turns.map(({ answer }) => [answer.code, answer.auditId]),
          [
            [0, undefined],
            [0, undefined],
          ],
        );
      } finally {
        close();
        server.close();
      }
    });
});
