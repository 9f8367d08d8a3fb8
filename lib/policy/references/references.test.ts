import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { suite, test } from "node:test";
import fc from "fast-check";
import { parse } from "yaml";
import { createPolicyCaseCapabilities } from "../../../test/bench/inputs/example-policies.ts";
import { createDraft } from "../../core/patch.ts";
import type { KubernetesObject } from "../../review.ts";
import type { HttpReference, PolicyCapabilities, PolicyRequest, ValueReference } from "../types.ts";
import { resolveReference } from "./references.ts";

const buildObject = (
  kind: string,
  name: string,
  namespace: string | undefined,
  rest: object = {},
): KubernetesObject => {
  return { apiVersion: "v1", kind, metadata: { name, ...(namespace && { namespace }), ...rest } };
};

const pod = {
  ...buildObject("Pod", "web", "b", {
    labels: { app: "x", comma: "a,b=c" },
    annotations: { host: "api", path: "a/b?c#d%e\\f", up: "..", dot: ".", port: "8443", evil: "x/y@z", empty: "" },
    ownerReferences: [{ apiVersion: "v1", kind: "Owner", name: "o", uid: "1" }],
  }),
  spec: { replicas: 3, none: null, list: [{ a: 1 }] },
};
const creation: PolicyRequest = { operation: "CREATE", object: pod, namespace: "b" };

const cluster = [
  buildObject("Owner", "o", "a"),
  { ...buildObject("Owner", "o", "b"), data: "of b" },
  { ...buildObject("Config", "z", "a", { labels: { app: "x" } }), data: "z" },
  { ...buildObject("Config", "a", "b", { labels: { app: "x" } }), data: "a" },
  { ...buildObject("Config", "web", "b"), data: "web" },
];
const capabilities = createPolicyCaseCapabilities({
  cluster,
  http: [{ path: "/x", body: { data: { n: null }, header: "unused: a reference's header.NAME is an HTTP header" } }],
});

/** Returns capabilities that record the requests of references. */
const recordRequests = (): { requests: HttpReference[]; capabilities: PolicyCapabilities } => {
  const requests: HttpReference[] = [];
  const fetch: PolicyCapabilities["fetchReference"] = async (request) => {
    requests.push(request);
    return { body: {}, header: {}, trailer: {} };
  };
  return { requests, capabilities: { ...capabilities, fetchReference: fetch } };
};

interface Case extends Partial<Omit<PolicyRequest, "object">> {
  name: string;
  reference: ValueReference;
  /** Members that are added to the pod's metadata, or that replace its members. */
  metadata?: object;
  /** The expected value; absent if the reference finds nothing. */
  value?: unknown;
  fails?: string;
}
const cases: Case[] = parse(readFileSync(new URL("cases.yaml", import.meta.url), "utf8"));

suite("a reference", () => {
  for (const { name, reference, metadata, fails, value, ...rest } of cases)
    test(name, async () => {
      const request: PolicyRequest = {
        ...creation,
        ...rest,
        object: { ...pod, metadata: { ...pod.metadata, ...metadata } },
      };
      const found = resolveReference(reference, request, capabilities);
      if (fails !== undefined) await assert.rejects(found, { name: "Error", message: fails });
      else assert.deepEqual(await found, value === undefined ? undefined : { value });
    });

  const resolveUrl = async (text: string) => {
    const { requests, capabilities } = recordRequests();
    await resolveReference({ from: "http", path: "a", http: { url: text } }, creation, capabilities);
    return requests[0]?.url;
  };

  test("a reference encodes the value of a placeholder in a URL, as one segment of the path", async () => {
    assert.equal(
      await resolveUrl(
        "https://{{metadata.annotations.host}}.example.com:{{metadata.annotations.port}}/x/{{metadata.annotations.path}}?q={{metadata.annotations.path}}",
      ),
      "https://api.example.com:8443/x/a%2Fb%3Fc%23d%25e%5Cf?q=a%2Fb%3Fc%23d%25e%5Cf",
    );
    assert.equal(await resolveUrl("http://mock/x?up=/{{metadata.annotations.up}}"), "http://mock/x?up=/..");
    assert.equal(await resolveUrl("http://mock/x/../y"), "http://mock/x/../y");
  });

  test("a reference keeps the number of segments of a URL's path, whatever value a placeholder has", async () => {
    await fc.assert(
      fc.asyncProperty(fc.string({ unit: "binary" }), async (name) => {
        const { requests, capabilities } = recordRequests();
        const request = { ...creation, object: buildObject("Pod", name, "b") };
        const http = { url: "https://h.example/a/{{metadata.name}}/b?c={{metadata.name}}#d" };
        await resolveReference({ from: "http", path: "a", http }, request, capabilities).catch((error) =>
          assert.match(String(error), /http.url becomes wrong/),
        );
        if (requests[0] === undefined) return;
        const { host, pathname, searchParams, hash } = new URL(requests[0].url);
        assert.deepEqual([host, pathname.split("/").length, hash], ["h.example", 4, "#d"]);
        assert.deepEqual([...searchParams], [["c", name.toWellFormed()]]);
      }),
    );
  });

  test("a reference fills the placeholders of params without encoding, and of no field but url and params", async () => {
    const { requests, capabilities } = recordRequests();
    const http = {
      url: "http://mock/x",
      method: "post",
      header: { A: "{{metadata.name}}" },
      params: { p: "{{metadata.annotations.path}}", n: "{{spec.replicas}}" },
      body: { a: "{{metadata.name}}" },
      auth: { staticToken: "t" },
    };
    await resolveReference({ from: "http", path: "a", http }, creation, capabilities);
    assert.deepEqual(requests, [{ ...http, method: "POST", params: { p: "a/b?c#d%e\\f", n: "3" } }]);
  });

  test("a reference sends no request if a placeholder has no value", async () => {
    const { requests, capabilities } = recordRequests();
    const http = { url: "http://mock/x", method: "post", params: { a: "{{metadata.uid}}" } };
    const dryRun = { ...creation, dryRun: true };
    assert.equal(await resolveReference({ from: "http", path: "a", http }, dryRun, capabilities), undefined);
    assert.deepEqual(requests, []);
  });

  test("a reference sends a GET request even on a dry run", async () => {
    const { requests, capabilities } = recordRequests();
    const dryRun = { ...creation, dryRun: true };
    await resolveReference({ from: "http", path: "a", http: { url: "http://mock/x" } }, dryRun, capabilities);
    assert.equal(requests[0]?.method, "GET");
  });

  test("a reference reads the changed values of a draft", async () => {
    const { value: draft } = createDraft<typeof pod>(structuredClone(pod));
    draft.spec.replicas = 4;
    const request = { ...creation, object: draft };
    assert.deepEqual(await resolveReference({ from: "current", path: "/spec/replicas" }, request, capabilities), {
      value: 4,
    });
    const owner = await resolveReference({ from: "owner", path: "data" }, request, capabilities);
    assert.deepEqual(owner, { value: "of b" });
  });
});
