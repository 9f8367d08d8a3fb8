import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import fc from "fast-check";
import { parse } from "yaml";
import { Failure } from "../failure.ts";
import { parseTarget, type WriteTarget } from "./target.ts";

const find = (method: string, path: string, server?: string) =>
  parseTarget(method, new URL(path, "https://host:6443"), server === undefined ? undefined : new URL(server));
interface TargetCase {
  name: string;
  write: string; // such as POST /api/v1/pods
  server?: string; // the address of the API server
  target?: Partial<WriteTarget>; // what the path names
}
const cases: TargetCase[] = parse(readFileSync(new URL("target.yaml", import.meta.url), "utf8"));
const common = { group: "", version: "v1", dryRun: false, server: "https://host:6443" };

describe("the target of a write", () => {
  for (const { name, write, server, target } of cases)
    it(`${target ? "is known for" : "is undefined for"} ${name}`, () => {
      const [method = "", path = ""] = write.split(" ");
      assert.deepEqual(find(method, path, server), target && { ...common, ...target });
    });

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
      it(`is refused for ${path}${server ? " of a given server" : ""}, which servers may interpret differently`, () =>
        assert.throws(
          () => find("POST", `https://host:6443${path}`, server),
          (error) => error instanceof Failure && error.code === 400,
        ));
  it("the target of a write is refused for a path that is below the server's path only after .. is resolved", () =>
    assert.throws(() => find("POST", "/other/..%2fk8s/api/v1/pods", "https://host:6443/k8s"), Failure));

  it("the target of a write is found for any path, unless a Failure is thrown", () => {
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
