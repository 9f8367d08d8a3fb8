import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { HttpsAnswer } from "#lib/cluster/https-request.ts";
import { Complaint } from "../../cli/complaint.ts";
import { discoverClusterResources } from "./discovery.ts";
import { openNamespaceCache } from "./namespaces.ts";
import type { ApiGet } from "./reader.ts";

const answer = (body: string): HttpsAnswer => ({ status: 200, body, retryAfter: undefined });
const htmlPage = answer("<html>sign in, please</html>");
const explainRefusal = () => "refused";

// A proxy before the API server may answer every request with 200.
describe("the answers of a proxy instead of an API server", () => {
  it("a proxy's answers are not read as a cluster without kinds", async () => {
    for (const response of [htmlPage, answer("null"), answer("[]"), answer('{"kind":"Status"}')])
      await assert.rejects(
        discoverClusterResources(async () => response, explainRefusal),
        new Complaint("the kinds of the cluster can't be read: /api has an answer that is not from an API server", 3),
      );
  });
  it("a proxy's answers make only the kinds of the requested group and version unknown", async () => {
    const bodies: Record<string, string> = {
      "/api": JSON.stringify({ kind: "APIVersions", versions: ["v1"] }),
      "/apis": JSON.stringify({ kind: "APIGroupList", groups: null }),
    };
    const read: ApiGet = async (path) => (bodies[path] === undefined ? htmlPage : answer(bodies[path]));
    const { resources, unknown } = await discoverClusterResources(read, explainRefusal);
    assert.deepEqual(resources, []);
    assert.deepEqual(unknown, [{ group: "", version: "v1", why: "the API server did not list the resources" }]);
  });
  it("a proxy's answers are not read as a namespace without labels", async () => {
    const namespaces = openNamespaceCache(async () => htmlPage, explainRefusal);
    assert.equal(await namespaces.fetch("shop"), "the API server didn't answer with a Namespace");
    assert.equal(namespaces.find({ group: "", resource: "namespaces" }, "shop"), undefined);
  });
});
