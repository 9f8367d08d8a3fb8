import assert from "node:assert/strict";
import type { RequestListener } from "node:http";
import { createServer, type Server } from "node:https";
import { after, before, describe, it } from "node:test";
import type { Capabilities } from "#lib/needs.ts";
import { prepareLiveCheckCapabilities } from "../../infra/check/live/rule-capabilities.ts";
import { readOrCreateServerCertificate } from "../../infra/keys/keys.ts";
import { createTestFolder } from "../folders.ts";
import { close, listen } from "../listen.ts";

const folder = await createTestFolder();

const requests: string[] = [];
const answers: Record<string, object> = {
  "GET /api/v1/namespaces/a/limitranges/l": { kind: "LimitRange", metadata: { name: "l" } },
  "POST /apis/authorization.k8s.io/v1/subjectaccessreviews": { kind: "SubjectAccessReview", status: { allowed: true } },
};

describe("the capabilities of rules while a cluster is audited", () => {
  let server: Server;
  let open: (hosts?: string[]) => Promise<{ capabilities: Capabilities; refusedCalls: string[] }>;

  before(async () => {
    const { cert, key, ca } = await readOrCreateServerCertificate(folder, "127.0.0.1");
    const respond: RequestListener = ({ method, url, headers }, response) => {
      requests.push(`${method} ${url} ${headers.authorization}`);
      const answer = answers[`${method} ${url}`];
      const missing = { kind: "Status", details: { name: "x" }, message: "not found" };
      response.writeHead(answer ? 200 : 404).end(JSON.stringify(answer ?? missing));
    };
    server = createServer({ cert, key }, respond);
    const port = await listen(server);
    let tokens = 0;
    const connection = {
      server: `https://127.0.0.1:${port}`,
      ca,
      credentialsAdvice: "",
      credentials: { read: async () => ({ token: `t${++tokens}` }), refused: async () => {} },
    };
    open = async (hosts = []) => {
      const refusedCalls: string[] = [];
      const openReview = await prepareLiveCheckCapabilities("c", connection, hosts);
      const milliseconds = 5000;
      return { capabilities: openReview((refusal) => refusedCalls.push(refusal), milliseconds), refusedCalls };
    };
  });
  after(() => close(server));

  it("the capabilities read the cluster and ask its authorizer, with a new token for each request", async () => {
    const { capabilities, refusedCalls } = await open();
    requests.length = 0;
    assert.equal((await capabilities.get({ group: "", resource: "limitranges" }, "l", "a"))?.metadata?.name, "l");
    const user = { username: "jane" };
    assert.deepEqual(await capabilities.may({ user, verb: "get", resource: "pods" }), { allowed: true });
    assert.deepEqual(refusedCalls, []);
    assert.equal(requests.length, 2);
    const tokens = new Set(requests.map((request) => request.replace(/.* /, "")));
    assert.equal(tokens.size, 2);
  });

  it("the capability to read doesn't wait until a missing object exists", async () => {
    const { capabilities } = await open();
    requests.length = 0;
    // The rule would wait for 3 seconds.
    const options = { patience: 3 };
    assert.equal(await capabilities.get({ group: "", resource: "namespaces" }, "x", undefined, options), undefined);
    assert.equal(requests.length, 1);
  });

  it("the capabilities refuse to write, and to call other hosts than those of --call", async () => {
    const { capabilities, refusedCalls } = await open(["127.0.0.1"]);
    requests.length = 0;
    const namespaces = { group: "", resource: "namespaces" };
    const rejected: [ask: () => Promise<unknown>, sentence: string][] = [
      [
        () => capabilities.create(namespaces, { metadata: { name: "n" } }),
        'it would create namespaces "n", and an audit writes nothing',
      ],
      [
        () => capabilities.updateStatus(namespaces, { metadata: { name: "n" } }),
        'it would update the status of namespaces "n", and an audit writes nothing',
      ],
      [
        () => capabilities.https({ url: "https://images.example.com/x" }),
        "it would call images.example.com; --call images.example.com allows that",
      ],
      [() => capabilities.http({ url: "nothing" }), "it would call nothing, which is not a valid address"],
      [
        () => capabilities.aws("ec2:DescribeVolumes", { region: "eu-west-1", parameters: {} }),
        "it would call ec2.eu-west-1.amazonaws.com; --call ec2.eu-west-1.amazonaws.com allows that",
      ],
    ];
    for (const [ask, sentence] of rejected) {
      await assert.rejects(ask, new RegExp(sentence));
      assert.equal(refusedCalls.pop(), sentence);
    }
    assert.deepEqual(requests, []);
    await assert.rejects(capabilities.https({ url: "https://127.0.0.1:1/x" }), /could not ask 127\.0\.0\.1:1/);
    assert.deepEqual(refusedCalls, []);
  });

  it("the capabilities keep no ledger entries from one review to the next", async () => {
    const count = async () => {
      const { capabilities } = await open();
      const ledger = capabilities.ledger("event-rate-limit");
      await ledger.change<number>(["key"], ([kept = 0]) => [kept + 1]);
      return ledger.change<number>(["key"], ([kept = 0]) => [kept + 1]);
    };
    assert.deepEqual([await count(), await count()], [[2], [2]]);
  });
});
