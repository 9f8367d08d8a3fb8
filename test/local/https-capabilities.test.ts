import assert from "node:assert/strict";
import { createServer as createPlainServer } from "node:http";
import { createServer } from "node:https";
import { after, before, beforeEach, describe, it } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { createLiveCapabilities } from "#lib/cluster/live-capabilities.ts";
import { evaluateRule } from "#lib/core/evaluation.ts";
import { type HttpsRequest, https } from "#lib/needs.ts";
import { rule } from "#lib/rule.ts";
import { readOrCreateServerCertificate } from "../../infra/keys/keys.ts";
import { createTestFolder } from "../folders.ts";
import { close, listen } from "../listen.ts";
import { buildPodRequest } from "../requests.ts";

const folder = await createTestFolder();

describe("a service outside the cluster", () => {
  let service: { url: string; ca: string };
  let requests = 0;
  let answer = "yes";
  const server = createServer((request, response) => {
    requests += 1;
    request.resume();
    if (answer !== "nothing") request.on("end", () => response.end(answer));
  });
  let createCapabilities: ReturnType<typeof createLiveCapabilities>;

  before(async () => {
    const { ca, cert, key } = await readOrCreateServerCertificate(folder, "127.0.0.1");
    server.setSecureContext({ cert, key });
    service = { url: `https://127.0.0.1:${await listen(server)}/`, ca };
  });
  beforeEach(() => {
    [requests, answer] = [0, "yes"];
    createCapabilities = createLiveCapabilities({});
  });
  after(() => close(server));

  /** Sends a request to the service in a cluster's review that ends after `milliseconds`. Returns the answer's body. */
  const callService = async (further: Partial<HttpsRequest> = {}, cluster = "one", milliseconds = 5000) =>
    (await createCapabilities(cluster, milliseconds).https({ ...service, ...further })).body;
  /** An option of requests by which the answer may be kept for a minute. */
  const keep = () => 60;

  it("a service is called for each request if no answer may be kept", async () => {
    await callService();
    await callService();
    assert.equal(requests, 2);
  });

  it("a service is not called again while its answer to the same request of the same cluster is kept", async () => {
    await callService({ keep });
    answer = "no";
    assert.equal(await callService({ keep }), "yes");
    assert.equal(requests, 1);
    assert.equal(await callService({ keep, method: "POST", body: "other" }), "no");
    assert.equal(await callService({ keep }, "two"), "no");
    assert.equal(await callService({ keep: () => 0 }), "no");
  });

  it("a service is called once for several equal requests at the same time", async () => {
    const answers = await Promise.all([callService({ keep }), callService({ keep }), callService({ keep })]);
    assert.deepEqual(answers, ["yes", "yes", "yes"]);
    assert.equal(requests, 1);
  });

  it("a service has as much time to answer as the request allows, also if several requests share a call", async () => {
    answer = "nothing";
    const timedOut = { code: 503, message: /^could not ask 127\.0\.0\.1:\d+: it did not answer in time$/ };
    // The requests with `keep` share one call. After a second, the call would be made again.
    const sharing = [900, 700, 800].map((time) => assert.rejects(callService({ keep }, "one", time), timedOut));
    await Promise.all([...sharing, assert.rejects(callService({}, "one", 800), timedOut)]);
    assert.equal(requests, 2);
  });

  it("a service is called for each of several equal requests if the answer may not be kept", async () => {
    const mayKeep = (answer: { body: string }) => (answer.body === "yes" ? 60 : 0);
    answer = "nothing";
    const firstRequest = assert.rejects(callService({ keep: mayKeep }, "one", 300), /did not answer in time$/);
    const secondAnswer = callService({ keep: mayKeep });
    while (requests === 0) await wait(5);
    answer = "no";
    await firstRequest;
    assert.equal(await secondAnswer, "no");
    assert.deepEqual(await Promise.all([callService({ keep: mayKeep }), callService({ keep: mayKeep })]), ["no", "no"]);
    assert.equal(requests, 4, "each request has a call of its own");
  });

  it("a service is called over plain HTTP only by the http capability", async () => {
    const plainServer = createPlainServer((request, response) => {
      if (request.url === "/moved") response.writeHead(302, { location: "/" });
      response.end("plain");
    });
    const url = `http://127.0.0.1:${await listen(plainServer)}/`;
    try {
      const open = () => createCapabilities("one", 5000);
      assert.equal((await open().http({ url })).body, "plain");
      assert.equal((await open().http(service)).body, "yes");
      assert.equal((await open().http({ url: `${url}moved` })).status, 302, "redirects are not followed");
      const message = `could not ask ${new URL(url).host}: its address must begin with https://`;
      await assert.rejects(open().https({ url }), { code: 500, message });
      for (const wrongUrl of ["file:///etc/passwd", "", "http:"])
        await assert.rejects(open().http({ url: wrongUrl }), /must begin with https:\/\/ or http:\/\/$/);
    } finally {
      await close(plainServer);
    }
  });

  it("a service is called again before a rule refuses, but not before a rule admits, by a kept answer", async () => {
    const refuseIfNo = rule({
      summary: "Refuses if a service says no.",
      match: [],
      needs: { call: https() },
      async validate(_: unknown, { call }) {
        const { body } = await call({ ...service, keep });
        if (body === "no") return "the service says no";
      },
    });
    const isRefused = async () => {
      const capabilities = createCapabilities("one", 5000);
      const context = { name: "obedient", mode: "enforce" as const, settings: {}, now: new Date(), capabilities };
      return (await evaluateRule(refuseIfNo, "validate", buildPodRequest(), context)).refused;
    };

    answer = "no";
    assert.equal(await isRefused(), true);
    assert.equal(requests, 1);
    answer = "yes";
    assert.equal(await isRefused(), false);
    assert.equal(requests, 2);
    // The kept answer "yes" admits.
    answer = "no";
    assert.equal(await isRefused(), false);
    assert.equal(requests, 2);
  });
});
