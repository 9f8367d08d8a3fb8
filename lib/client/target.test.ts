import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { Failure } from "../failure.ts";
import { parseTarget, type Target } from "./target.ts";

const at = (method: string, path: string, server?: string) =>
  parseTarget(method, new URL(path, "https://host:6443"), server === undefined ? undefined : new URL(server));
const core = { group: "", version: "v1", dryRun: false, server: "https://host:6443" };

describe("what a write is about", () => {
  const known: [string, string, string, Partial<Target>][] = [
    ["a creation", "POST", "/api/v1/namespaces/a/pods", { operation: "CREATE", resource: "pods", namespace: "a" }],
    [
      "a replacement",
      "PUT",
      "/api/v1/namespaces/a/pods/p",
      { operation: "UPDATE", resource: "pods", namespace: "a", name: "p" },
    ],
    ["a patch", "PATCH", "/api/v1/nodes/n", { operation: "UPDATE", resource: "nodes", name: "n" }],
    ["a deletion", "DELETE", "/api/v1/nodes/n/", { operation: "DELETE", resource: "nodes", name: "n" }],
    [
      "a group",
      "POST",
      "/apis/apps/v1/namespaces/a/deployments",
      { operation: "CREATE", group: "apps", resource: "deployments", namespace: "a" },
    ],
    [
      "a subresource",
      "PUT",
      "/apis/apps/v1/namespaces/a/deployments/d/scale",
      { operation: "UPDATE", group: "apps", resource: "deployments", namespace: "a", name: "d", subResource: "scale" },
    ],
    [
      "a subresource that is created",
      "POST",
      "/api/v1/namespaces/a/pods/p/eviction",
      { operation: "CREATE", resource: "pods", namespace: "a", name: "p", subResource: "eviction" },
    ],
    [
      "a namespace",
      "PUT",
      "/api/v1/namespaces/a",
      { operation: "UPDATE", resource: "namespaces", namespace: "a", name: "a" },
    ],
    ["a namespace that is created", "POST", "/api/v1/namespaces", { operation: "CREATE", resource: "namespaces" }],
    [
      "a namespace's status",
      "PATCH",
      "/api/v1/namespaces/a/status",
      { operation: "UPDATE", resource: "namespaces", namespace: "a", name: "a", subResource: "status" },
    ],
    [
      "what is encoded, as the API server reads it",
      "POST",
      "/api/v1/namespaces%2Fa%2fpods",
      { operation: "CREATE", resource: "pods", namespace: "a" },
    ],
    [
      "a name with what must be encoded",
      "DELETE",
      "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
      { operation: "DELETE", group: "rbac.authorization.k8s.io", resource: "clusterroles", name: "system:node" },
    ],
    [
      "a dry run",
      "DELETE",
      "/api/v1/nodes/n?dryRun=All",
      { operation: "DELETE", resource: "nodes", name: "n", dryRun: true },
    ],
    [
      "a server behind a path",
      "POST",
      "/k8s/clusters/c/api/v1/namespaces",
      { operation: "CREATE", resource: "namespaces", server: "https://host:6443/k8s/clusters/c" },
    ],
  ];
  for (const [name, method, path, expected] of known)
    it(`knows ${name}`, () => assert.deepEqual(at(method, path), { ...core, ...expected }));

  const others: [string, string, string, string?][] = [
    ["a read", "GET", "/api/v1/pods"],
    ["a watch by its old path", "POST", "/api/v1/watch/pods"],
    ["another path", "POST", "/healthz"],
    ["a method that objects inherit", "constructor", "/api/v1/pods"],
    ["a list of groups", "POST", "/apis/apps/v1"],
    ["a collection that is deleted", "DELETE", "/api/v1/namespaces/a/pods"],
    ["exec", "POST", "/api/v1/namespaces/a/pods/p/exec?command=sh"],
    ["a proxied path that looks like the API's", "POST", "/api/v1/namespaces/a/services/s/proxy/api/v1/pods"],
    ["another server", "POST", "/api/v1/pods", "https://other:6443"],
    ["a path that is not below the server's", "POST", "/api/v1/pods", "https://host:6443/k8s"],
    ["a path that only begins as the server's", "POST", "/k8s2/api/v1/pods", "https://host:6443/k8s"],
  ];
  for (const [name, method, path, server] of others)
    it(`leaves ${name} alone`, () => assert.equal(at(method, path, server), undefined));

  for (const path of [
    "/api/v1/namespaces//pods",
    "/api/v1//namespaces/a/pods",
    "/api/v1/namespaces/a%2f..%2fpods",
    "/api/v1/%zz",
    "//api/v1/pods",
    "/other/..%2fapi/v1/pods",
    "/k8s/..%2f../api/v1/pods",
  ])
    for (const server of [undefined, "https://host:6443"])
      it(`refuses ${path} ${server ? "of a server" : ""}, which can be read in more than one way`, () =>
        assert.throws(
          () => at("POST", `https://host:6443${path}`, server),
          (error) => error instanceof Failure && error.code === 400,
        ));
  it("refuses a path that leads below the server's by a detour", () =>
    assert.throws(() => at("POST", "/other/..%2fk8s/api/v1/pods", "https://host:6443/k8s"), Failure));

  it("reads any path, or says what is wrong with it", () => {
    const step = fc.oneof(
      fc.constantFrom("api", "apis", "v1", "namespaces", "proxy", "%2F", "%", "..", ""),
      fc.string(),
    );
    fc.assert(
      fc.property(fc.array(step), fc.constantFrom("POST", "PUT", "PATCH", "DELETE"), (steps, method) => {
        const url = URL.parse(`https://host/${steps.join("/")}`);
        if (url === null) return;
        try {
          parseTarget(method, url);
        } catch (error) {
          assert.ok(error instanceof Failure, String(error));
        }
      }),
    );
  });
});
